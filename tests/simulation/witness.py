"""What must always hold (design, section 7), checked as it happens: at each commit that lands, at each binding that
takes hold, and when everything has come to rest.

The witness folds the log itself as it lands. It knows what no service knows: which process a commit or a request came
from, and what the cluster truly looks like.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import events as ev
from events.envelope import Commit, Stored
from services.console.verify import Verifier
from services.planner.core import Cycle
from services.state import membership, snapshot
from services.state.fold import State
from services.state.records import BOUND, FAILED, PENDING, PERMITTED, SUCCEEDED
from services.state.validate import Violated, validate_state

if TYPE_CHECKING:
    from services.simulator.api import Api
    from tests.simulation.processes import Process


class Violation(AssertionError):
    """An invariant does not hold. Says which, and at which place of the log."""


class Witness:
    def __init__(self) -> None:
        self.state = State()
        self.api: Api | None = None
        self.commits: list[Stored] = []
        self.events = 0
        self.seen: Counter[str] = Counter()
        """Events by type."""
        self.bound: dict[str, str] = {}
        """UID → the node that it was bound to, by whomever; kept when the pod is gone."""
        self.causes: Counter[str] = Counter()
        self._owners: dict[str, Process | None] = {}
        """Subject → the process whose Taken stands last on it."""
        self._first: dict[str, int] = {}
        """Event → the sequence at which it first came."""
        self._touched: dict[str, int] = {}
        """Node, pod or gang → the sequence of the last fact about it."""
        self._where: dict[str, tuple[str, str]] = {}
        """Pod → its node and group after the last fact about it."""
        self._permitted_in: dict[str, tuple[str, int]] = {}
        """Pod → the group in which it was permitted, and since when that is there."""
        self._taken_at = 0
        """The cluster's revision when the last IngestTaken landed."""

    # ------------------------------------------------------------------------------------------------------------- log

    def landed(self, stored: Stored, process: Process | None) -> None:
        """A message stands in the stream."""
        before = self.state.sequence
        self.commits.append(stored)
        if stored.sequence != before + 1:
            raise Violation(f"commit {stored.sequence} follows {before}: the log has a gap")
        satisfied = {key for key, gang in self.state.gangs.items() if gang.satisfied}
        commit = self.state.apply_stored(stored)
        if commit is None:
            return
        self.events += len(commit.events)
        for event in commit.events:
            name = type(event).__name__
            self.seen[name] += 1
            self._first.setdefault(name, stored.sequence)
        self.causes[commit.header.cause] += 1
        if process is not None:
            self._fenced(commit, process)
        try:
            validate_state(self.state)
        except Violated as violated:
            raise Violation(f"at {stored.sequence}: {violated}") from violated
        self._check(commit, satisfied)

    def _fenced(self, commit: Commit, process: Process) -> None:
        """One process writes to a subject: the one whose Taken stands last on it."""
        if commit.header.cause == "taken" or isinstance(commit.events[0], ev.IngestTaken):
            self._owners[commit.subject] = process
        elif self._owners.get(commit.subject) is not process:
            raise Violation(f"{process} appended {commit.sequence} to {commit.subject}, which was taken from it (7.7)")
        unknown = self._first.get(process.lacks, commit.sequence)
        if commit.header.basis >= unknown:
            raise Violation(
                f"{process} does not know {process.lacks} at {unknown} and appended {commit.sequence} (section 3)"
            )
        if commit.header.basis >= commit.sequence:
            raise Violation(f"commit {commit.sequence} stands on {commit.header.basis}, which comes after it (7.6)")

    def _check(self, commit: Commit, satisfied: set[str]) -> None:
        for event in commit.events:
            match event:
                case ev.IngestTaken():
                    self._taken_at = self._revision()
                case ev.ClusterSynced():
                    self._whole_picture(commit.sequence)
                case ev.NodeObserved(name=name) | ev.NodeDeleted(name=name):
                    self._touched[name] = commit.sequence
                case ev.PodObserved() | ev.PodAssigned() | ev.PodTerminating() | ev.PodFinished() | ev.PodDeleted():
                    self._touch_pod(event.uid, commit.sequence)
                case ev.PodGroupObserved() | ev.PodGroupDeleted():
                    self._touched[f"{event.namespace}/{event.name}"] = commit.sequence
                case ev.GangPermitted():
                    self._permitted(event, commit, satisfied)
                case ev.PodBound(uid=uid, node=node):
                    if self.bound.get(uid) != node:
                        found = self.bound.get(uid, "none")
                        raise Violation(f"{commit.sequence} says that {uid} is bound to {node}; it is to {found} (7.7)")
                case ev.DisagreementDetected():
                    raise Violation(f"{commit.sequence}: planner and binder disagree: {event} (rule 4)")

    def _touch_pod(self, uid: str, sequence: int) -> None:
        """A fact about a pod is one about its node and its gang, be it the gang that it leaves."""
        self._touched[uid] = sequence
        pod = self.state.pods.get(uid)
        now = (pod.node, pod.group) if pod is not None else ("", "")
        for key in (*self._where.get(uid, ()), *now):
            self._touched[key] = sequence
        self._where[uid] = now

    def _permitted(self, permit: ev.GangPermitted, commit: Commit, satisfied: set[str]) -> None:
        """7.2 and 7.3, but for what facts between the permit's basis and its place changed."""
        state, basis = self.state, commit.header.basis
        table = state.table
        group = state.groups.get(permit.group)
        if group is not None:
            for assignment in permit.bindings:
                named = dict.fromkeys((binding.uid for binding in assignment.pods), (group.key, group.since))
                self._permitted_in.update(named)
        for assignment in permit.bindings:
            if self._touched.get(assignment.node, 0) > basis:
                continue
            row = table.rows.get(assignment.node)
            if row is None:
                raise Violation(
                    f"{commit.sequence} permits {permit.group} on {assignment.node}, which is not there (7.2)"
                )
            for binding in assignment.pods:
                pod = state.pods.get(binding.uid)
                if pod is None or self._touched.get(binding.uid, 0) > basis:
                    continue
                for column, _ in table.classes[pod.fact.scheduling_class].columns:
                    if table.held[row, column] > table.allocatable[row, column]:
                        raise Violation(f"{commit.sequence}: {permit} exceeds {assignment.node} (7.2)")
        if group is None or self._touched.get(permit.group, 0) > basis:
            return
        for key in group.gangs:
            gang = state.gangs[key]
            running = sum(self._runs(uid) for uid in gang.members)
            touched = any(self._touched.get(uid, 0) > basis for uid in gang.members)
            reached = gang.declaration is not None and running >= gang.declaration.min_member
            if not (reached or touched or key in satisfied):
                raise Violation(f"{commit.sequence}: {permit} below the minimum of {key} (7.3)")

    def _runs(self, uid: str) -> bool:
        claim = self.state.claims.get(uid)
        return self.state.pods[uid].status in (BOUND, SUCCEEDED) or (claim is not None and claim.stage == PERMITTED)

    # --------------------------------------------------------------------------------------------------------- cluster

    def _revision(self) -> int:
        assert self.api is not None
        return self.api.store.revision

    def _whole_picture(self, sequence: int) -> None:
        """`ClusterSynced`: what stood in the cluster before `IngestTaken` and did not change since is in the log."""
        assert self.api is not None
        for entry in self.api.pods.entries.values():
            pod = entry.object
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
            done = pod["status"]["phase"] in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]
            if entry.revision > self._taken_at or done or not (node or pod["spec"]["schedulerName"] == "muster"):
                continue
            known = self.state.pods.get(uid)
            rejected = any(one.uid == uid for one in self.state.rejections.values())
            if not rejected and (known is None or known.node != node):
                raise Violation(
                    f"{sequence}: synced, and pod {entry.key[1]} of revision {entry.revision} is not (section 2)"
                )
        for entry in self.api.nodes.entries.values():
            if entry.revision <= self._taken_at and entry.key[1] not in self.state.table.rows:
                raise Violation(f"{sequence}: synced, and node {entry.key[1]} is not (section 2)")

    def binding(self, uid: str, node: str, process: Process | None) -> None:
        """A binding takes hold in the cluster now; `process` None: somebody else's."""
        if uid in self.bound:
            raise Violation(f"{uid} is bound to {node}, and was to {self.bound[uid]} (7.1)")
        self.bound[uid] = node
        if process is None:
            return
        claim = self.state.claims.get(uid)
        if claim is None or claim.stage != PERMITTED or claim.node != node:
            raise Violation(f"{process} binds {uid} to {node} at {self.state.sequence}; the log says {claim} (rule 5)")

    # --------------------------------------------------------------------------------------------------------- at rest

    def at_rest(self) -> None:
        """Once faults have ended and nothing changes any more."""
        assert self.api is not None
        state = self.state
        for what in ("proposals", "permitted", "evictions", "lost", "nominations", "holding"):
            if getattr(state, what):
                raise Violation(f"at rest, and there are {what}: {getattr(state, what)} (7.4, 7.13)")
        for claim in state.claims.values():
            if claim.stage != "bound":
                raise Violation(f"{claim} leaks (7.13)")
        self._agrees(state)
        self._nothing_that_fits_waits(state)
        self._no_gang_half_bound(state)

    def _agrees(self, state: State) -> None:
        """The log and the cluster say the same of every pod and node (7.11)."""
        assert self.api is not None
        truth = {}
        for entry in self.api.pods.entries.values():
            pod = entry.object
            truth[pod["metadata"]["uid"]] = (_status(pod), pod["spec"].get("nodeName", ""))
        rejected = {one.uid for one in state.rejections.values()}
        for uid, (status, node) in truth.items():
            pod = state.pods.get(uid)
            if pod is None:
                if status in (SUCCEEDED, FAILED, "terminating") or uid in rejected:
                    continue
                raise Violation(f"the log does not know pod {uid}, which is {status} (7.11)")
            if (pod.status, pod.node) != (status, node) and status not in (SUCCEEDED, FAILED):
                raise Violation(f"pod {uid} is {status} on {node!r}, in the log {pod.status} on {pod.node!r} (7.11)")
        for uid in state.pods:
            if uid not in truth:
                raise Violation(f"the log has pod {uid}, which is gone (7.11)")
        nodes = {key[1] for key in self.api.nodes.entries}
        if nodes != set(state.table.rows):
            raise Violation(f"the cluster has the nodes {sorted(nodes)}, the log {sorted(state.table.rows)} (7.11)")

    def _nothing_that_fits_waits(self, state: State) -> None:
        assert state.policy is not None
        for group in state.groups.values():
            waits = [uid for uid in membership.members(state, group) if state.pods[uid].status == PENDING]
            if not waits or all(state.pods[uid].fact.gated for uid in waits):
                continue
            cycle = Cycle(state, state.policy)
            cycle.plan([group])
            if cycle.placed:
                raise Violation(f"{group} fits and waits (7.12)")
            if not group.cohort:
                raise Violation(f"{group} waits without a reason (7.9)")

    def _no_gang_half_bound(self, state: State) -> None:
        """A gang that never reached its minimum has no pod on a node but those that others put there (7.3)."""
        for gang in state.gangs.values():
            group = state.groups.get(gang.key)
            if gang.satisfied or group is None:
                continue
            ours = [
                uid
                for uid in gang.members
                if state.pods[uid].status == BOUND and self._permitted_in.get(uid) == (gang.key, group.since)
            ]
            if ours:
                raise Violation(f"{gang.key} is half bound: {ours} (7.3)")

    def verified(self) -> str:
        """The log decided again from its beginning; the digest."""
        verifier = Verifier("simulated")
        verifier.expect(self.commits)
        verifier.check(self.commits)
        verifier.finish(strict=True)
        report = verifier.report
        if report.differences or report.violation:
            raise Violation(f"verify: {report.violation or report.difference} (7.6)")
        digest = snapshot.digest(self.state)
        if report.digest != digest:
            raise Violation(f"the log folds to {report.digest} and to {digest} (7.6)")
        return digest


def _status(pod: dict) -> str:  # type: ignore[type-arg]
    if pod["status"]["phase"] in ("Succeeded", "Failed"):
        return str(pod["status"]["phase"]).lower()
    if "deletionTimestamp" in pod["metadata"]:
        return "terminating"
    return "bound" if pod["spec"].get("nodeName") else "pending"
