"""What must always hold (design, section 7), checked as it happens: at each commit that lands, at each effect that takes
hold in the cluster.

The witness folds the log itself as it lands. It knows what no service knows: which process a commit or a request came
from, and what the cluster truly looks like. A decision is judged at its place; what facts between its basis and its place
changed is nobody's fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

import events as ev
from events import dialects, envelope, subjects
from events.envelope import Commit, Stored
from services.state import membership
from services.state.clock import JUMP_NS, TICK_SPACING_NS
from services.state.fold import State
from services.state.naming import named_by
from services.state.records import AWAITING, BOUND, PERMITTED, SUCCEEDED, Group
from services.state.validate import Violated, validate_state
from tests.simulation import ahead, current, fitting
from tests.simulation.allowed import Allowed, is_cut
from tests.simulation.before import Before
from tests.simulation.explained import Explained
from tests.simulation.gone import Gone
from tests.simulation.holds import Holds
from tests.simulation.lives import Lives
from tests.simulation.truth import is_ours

if TYPE_CHECKING:
    from services.simulator.api import Api
    from tests.simulation.processes import Process


class Violation(AssertionError):
    """An invariant does not hold. Says which, and at which place of the log."""


QUIET = frozenset({ev.Ticked, ev.Renewed, ev.ConditionsReported})
"""Half of all commits are nothing else; the records, of which they change next to none, are checked behind them."""
VALIDATED = 5
"""Of all others every so many, and the end: what is wrong between records stays so."""
LEFT = 4
"""After so many decisions the binder has said all that he had to say at the first."""


class Witness:
    def __init__(self) -> None:
        self.state = State()
        self.explained = Explained(self.state)
        self.api: Api | None = None
        self.commits: list[Stored] = []
        self.authors: list[Process | None] = []  # of each; None: nobody whom we started
        self.events = 0
        self.seen: Counter[str] = Counter()
        """Events by type."""
        self.causes: Counter[str] = Counter()
        """Commits by cause."""
        self.cycles = 0
        """Of all planners, as far as they said something."""
        self.bound: dict[str, str] = {}
        """UID → the node that it was bound to, by whomever; kept when the pod is gone."""
        self.bound_by: dict[str, Process] = {}
        """UID → which of our processes bound it."""
        self.permitted_in: dict[str, tuple[str, int]] = {}
        """UID → the group in which it was permitted, and since when that is there; not of what others had bound."""
        self._writing: dict[str, Process | None] = {}
        """Subject → the process whose Taken stands last on it."""
        self._last: dict[str, int] = {}
        """Subject → the sequence of its last commit."""
        self._first: dict[str, int] = {}
        """Event → the sequence at which it first came."""
        self._left: dict[tuple[int, str, str], int] = {}
        """A reservation, its group, and a node → decisions of the binder that went on keeping what cannot come."""
        self._touched: dict[str, int] = {}
        """Node, pod or gang → the sequence of the last fact about it."""
        self._where: dict[str, tuple[str, ...]] = {}
        """UID → its node, group and gang after the last fact about it."""
        self.lives = Lives()
        self._holds, self._gone, self._allowed = Holds(), Gone(), Allowed()
        self._begun: set[str] = set()
        """Gangs of which a pod was permitted, or came to a node otherwise."""
        self._changes = 0
        """Commits that changed records."""
        self._partial: list[tuple[int, float]] = []
        """From which commits to which an ingest had taken over and not yet listed everything."""
        self._taken_at = 0
        """The cluster's revision when the last IngestTaken landed."""
        self.names: tuple[str, ...] = ()
        """Of the schedulers whose pods are candidates, as that ingest was told."""

    # ------------------------------------------------------------------------------------------------------------- log

    def landed(self, stored: Stored, process: Process | None) -> None:
        """A message stands in the stream. Raises Violation."""
        _require(stored.sequence == self.state.sequence + 1, f"commit {stored.sequence} comes after a gap (7.7)")
        self.commits.append(stored)
        self.authors.append(process)
        before = Before(self.state, b'"GangPermitted"' in stored.payload)
        first = self._first_in_queue(stored)
        commit = self.state.apply_stored(stored)
        if commit is not None:
            self.explained.add(commit)
            self._note(commit)
            if process is not None:
                self._by(commit, process)
            if not all(type(event) in QUIET for event in commit.events):
                self._changes += 1
                if self._changes % VALIDATED == 0:
                    self.validate()
            if commit.header.writer == "ingest" and (found := self._gone.wrongly(commit, self.state, self.names)):
                wrong = f"{commit.sequence}: {found} is said to be gone, and is there (7.11)"
                _require(self.lives.may_come_again, wrong)
            for index, event in enumerate(commit.events):
                check = CHECKS.get(type(event))
                if check is not None:
                    check(self, event, commit, index, before)
            if commit.header.writer.startswith("planner.") and commit.header.cause == "decide":
                self.cycles += 1
                wrong = ahead.out_of_order(self.state, commit, self._touched, self._allowed.policy_at)
                _require(not wrong, f"{commit.sequence}: {wrong} (7.5)")
                fits = not first or ahead.has_room(self.state, first)
                _require(fits, f"{commit.sequence} takes the room of {first}, which goes before all others (7.5)")
            if self.state.reservations and (commit.header.writer, commit.header.cause) == ("binder", "decide"):
                self._kept_can_come(commit)
        self._last[stored.subject] = stored.sequence

    def _first_in_queue(self, stored: Stored) -> str:
        """Of a planner's proposals that are decided just here: the group of another shard that must not lose by them."""
        role, _, shard = subjects.writer_of(stored.subject).partition(".")
        if role != "planner" or b'"GangPlaced"' not in stored.payload:
            return ""
        header = envelope.header_of(stored)
        decides_here = header is not None and (header.basis, header.epoch) == (self.state.sequence, self.state.epoch)
        return ahead.first(self.state, shard) if decides_here else ""

    def validate(self) -> None:
        """All records against each other, and against the facts. Raises Violation."""
        try:
            validate_state(self.state)
        except Violated as violated:
            raise Violation(f"at {self.state.sequence}: {violated}") from violated
        found = current.stale(self.state) or self.explained.wrong()
        _require(not found, f"at {self.state.sequence}: {found} (section 4)")

    def _note(self, commit: Commit) -> None:
        self.events += len(commit.events)
        self.causes[commit.header.cause] += 1
        for event in commit.events:
            name = type(event).__name__
            self.seen[name] += 1
            self._first.setdefault(name, commit.sequence)

    def _by(self, commit: Commit, process: Process) -> None:
        """Who may write this here and now, and what he must have read."""
        sequence, header, subject = commit.sequence, commit.header, commit.subject
        if isinstance(commit.events[0], (ev.IngestTaken, ev.PlannerTaken, ev.BinderTaken)):
            self._writing[subject] = process
        _require(
            self._writing.get(subject) is process,
            f"{process} appended {sequence} to {subject}, which was taken from it (7.7)",
        )
        _require(header.basis < sequence, f"commit {sequence} stands on {header.basis}, which comes after it (7.6)")
        if header.cause == "decide":
            partial = any(taken <= header.basis < synced for taken, synced in self._partial)
            _require(not partial, f"{process} decided {sequence} over a partial picture, at {header.basis} (section 2)")
            last = self._last.get(subject, 0)
            _require(header.basis >= last, f"{process} decided {sequence} before it had read its own {last} (rule 3)")
        unknown = self._first.get(process.lacks, sequence)
        _require(
            header.basis < unknown,
            f"{process} does not know {process.lacks} at {unknown} and appended {sequence} (section 3)",
        )

    # ----------------------------------------------------------------------------------------------------------- facts

    def taken(self, event: ev.IngestTaken, commit: Commit, index: int, before: Before) -> None:
        self._taken_at = self._cluster.store.revision
        self.lives.begins_to_list()
        if (reader := self._writing.get(commit.subject)) is not None:
            self.names = reader.names
        self._partial.append((commit.sequence, inf))

    def synced(self, event: ev.ClusterSynced, commit: Commit, index: int, before: Before) -> None:
        """What stood in the cluster before `IngestTaken` and did not change since is in the log."""
        self._partial = [(taken, min(synced, commit.sequence)) for taken, synced in self._partial]
        if self._taken_at:
            self.lives.known()
        rejected = {one.uid for one in self.state.rejections.values()}
        for entry in self._cluster.pods.entries.values():
            if entry.revision <= self._taken_at and is_ours(entry.object, self.names):
                uid, node = entry.object["metadata"]["uid"], entry.object["spec"].get("nodeName", "")
                known = self.state.pods.get(uid)
                _require(
                    uid in rejected or (known is not None and known.node in (node, self.lives.stands(uid))),
                    f"{commit.sequence}: synced, and pod {entry.key[1]} of {entry.revision} is not (section 2)",
                )
        for entry in self._cluster.nodes.entries.values():
            _require(
                entry.revision > self._taken_at
                or entry.object["metadata"]["uid"] in rejected
                or entry.key[1] in self.state.table.rows,
                f"{commit.sequence}: synced, and node {entry.key[1]} is not (section 2)",
            )

    def node(self, event: ev.NodeObserved | ev.NodeDeleted, commit: Commit, index: int, before: Before) -> None:
        self._touched[event.name] = commit.sequence
        if isinstance(event, ev.NodeObserved):
            self._news(event.uid, msgspec.structs.replace(event, resource_version=""), commit.sequence)
            self._newer(event.uid, event.resource_version, commit.sequence)
        else:
            self._gone.says(event.uid, self._cluster.nodes)
            self.lives.node_ended(event.uid)

    def pod(self, event: Any, commit: Commit, index: int, before: Before) -> None:
        """A fact about a pod is one about its node and its gang, be it the gang that it leaves."""
        uid, sequence = event.uid, commit.sequence
        if isinstance(event, ev.PodDeleted):
            self._gone.says(uid, self._cluster.pods)
            self.lives.ended(uid)
        if isinstance(event, ev.PodObserved):
            self._news(uid, msgspec.structs.replace(event, resource_version="", status="", node=""), sequence)
            self._newer(uid, event.resource_version, sequence)
        self._touched[uid] = sequence
        pod, was, claim = self.state.pods.get(uid), self._where.get(uid, ()), self.state.claims.get(uid)
        if claim is not None:
            self._touched[claim.node] = sequence  # it may ask for more there, or open a port
        now: tuple[str, ...] = ()
        if pod is not None:
            now = pod.node, pod.group, pod.gang
        elif isinstance(event, ev.PodObserved) and event.gang:
            now = event.node, "", event.gang.gang  # and gone again in this commit
        assigned = isinstance(event, ev.PodAssigned)
        self._begun.update(where[2] for where in (was, now) if where and (where[0] or assigned))
        gang_before = before.gangs.setdefault(uid, was[2] if was else "")
        if assigned:
            self._begun.add(gang_before)  # whose it still was, whatever it says since, while it held room there
        gangs = (self.state.gangs.get(key) for key in (*was[2:], *now[2:]))
        groups = [gang.group for gang in gangs if gang is not None]  # formed since the last fact about the pod, perhaps
        for key in (*was, *now, *groups):
            self._touched[key] = sequence
        self._where[uid] = now

    def _news(self, uid: str, fact: ev.PodObserved | ev.NodeObserved, sequence: int) -> None:
        found = self.lives.repeated(uid, fact)
        _require(not found, f"{sequence}: {found} (section 3)")

    def _newer(self, uid: str, version: str, sequence: int) -> None:
        found = self.lives.older(uid, version)
        _require(not found, f"{sequence}: {found} (section 2)")

    def pod_group(self, event: Any, commit: Commit, index: int, before: Before) -> None:
        key = dialects.gang_key(event.dialect, event.namespace, event.name)
        gang = self.state.gangs.get(key)
        self._touched[key] = commit.sequence
        if gang is not None:
            self._touched[gang.group] = commit.sequence
        kinds = (*dialects.POD_GROUPS[event.dialect].split("/"), "podgroups")
        if isinstance(event, ev.PodGroupDeleted) and kinds in self._cluster.by_path:
            self._gone.says(event.uid, self._cluster.by_path[kinds])

    def set_back(self) -> None:
        """Etcd is restored: some bindings never were."""
        self._taken_at = 0
        self.lives.restored(self._cluster, self.bound)
        self.bound_by = {uid: process for uid, process in self.bound_by.items() if uid in self.bound}

    # ------------------------------------------------------------------------------------------------------- decisions

    def placed(self, event: ev.GangPlaced, commit: Commit, index: int, before: Before) -> None:
        """The fold takes no proposal that is not current at its own place."""
        current = commit.header.epoch == before.epoch and before.owners[event.partition] == _shard(commit)
        taken = commit.sequence << 20 | index in self.state.proposals
        counts = f"{commit.sequence}: a proposal of epoch {commit.header.epoch} counts (section 2)"
        _require(current or not taken, counts)

    def refused(self, event: ev.GroupsRefused, commit: Commit, index: int, before: Before) -> None:
        """Nor a refusal: of another epoch none counts, of its own one those groups that are the shard's."""
        cohort = self.state.cohorts.get(commit.sequence << 20 | index)
        parked = [self.state.groups[key] for key in cohort.groups] if cohort is not None else []
        ours = [group for group in parked if before.owners[group.partition] == _shard(commit)]
        current = commit.header.epoch == before.epoch and len(ours) == len(parked)
        _require(
            current or not parked, f"{commit.sequence}: a refusal of epoch {commit.header.epoch} counts (section 2)"
        )

    def requested(self, event: ev.RoomRequested, commit: Commit, index: int, before: Before) -> None:
        """Nor a request for room."""
        request, group = self.state.room_requests.get(event.group), self.state.groups.get(event.group)
        ours = group is not None and before.owners[group.partition] == _shard(commit)
        taken = request is not None and request.room is event.room
        _require(
            not taken or (ours and commit.header.epoch == before.epoch),
            f"{commit.sequence}: a request of epoch {commit.header.epoch} counts (section 2)",
        )

    def reserved(self, event: ev.RoomReserved, commit: Commit, index: int, before: Before) -> None:
        """What is kept can become free, on each node of which no fact came since it was decided."""
        for node, classes in fitting.by_node(self.state, event).items():
            if self._touched.get(node, 0) <= commit.header.basis:
                found = fitting.never_free(self.state, node, classes)
                _require(not found, f"{commit.sequence} reserves {found} (section 5)")

    def _kept_can_come(self, commit: Commit) -> None:
        """Nor does anything stay kept that cannot, but for a gang of which something is to be judged. Where little goes
        into a decision, more than one may be over before the binder says so."""
        judged = {getattr(event, "group", "") for event in commit.events}
        found = self._allowed.beyond(commit, self.state, judged)
        _require(not found, f"{commit.sequence} goes on keeping {found} (section 5)")
        if is_cut(commit):
            return
        before, self._left = self._left, {}
        for key, kept in self.state.reservations.items():
            group = self.state.groups.get(key)
            if group is None or group.phase == AWAITING or key in judged:
                continue
            for node, classes in fitting.by_node(self.state, kept).items():
                there = self.state.nodes.get(node)
                if there is None or max(there.touched, self._touched.get(node, 0)) > commit.header.basis:
                    continue
                if found := fitting.never_free(self.state, node, classes):
                    left = self._left[kept.sequence, key, node] = before.get((kept.sequence, key, node), 0) + 1
                    _require(left < LEFT, f"{commit.sequence} goes on keeping {found} (section 5)")

    def permitted(self, permit: ev.GangPermitted, commit: Commit, index: int, before: Before) -> None:
        """7.2 and 7.3."""
        basis, group = commit.header.basis, self.state.groups.get(permit.group)
        for assignment in permit.bindings:
            if group is not None:
                taken = [binding.uid for binding in assignment.pods if binding.uid in self.state.permitted]
                self.permitted_in |= dict.fromkeys(taken, (group.key, group.since))
                for uid in taken:
                    self.lives.intends(uid, assignment.node)
            if self._touched.get(assignment.node, 0) <= basis:
                uids = [binding.uid for binding in assignment.pods]
                found = fitting.exceeds(self.state, assignment.node, uids)
                _require(not found, f"{commit.sequence} permits {found} (7.2)")
                known = [uid for uid in uids if self._touched.get(uid, 0) <= basis]
                found = fitting.misfit(self.state, assignment.node, known)
                _require(not found, f"{commit.sequence} permits {found} (rule 4)")
        pods = [binding.uid for assignment in permit.bindings for binding in assignment.pods]
        started = {pod.gang: None for uid in pods if (pod := self.state.pods.get(uid)) is not None and pod.gang}
        if group is not None and self._touched.get(permit.group, 0) <= basis:
            for key in started:
                self._started(key, group, commit, before)
        self._begun.update(started)

    def _started(self, key: str, group: Group, commit: Commit, before: Before) -> None:
        """A gang's pods are permitted: in time, and with their gang and those that it names, or after them."""
        _require(key not in before.timed_out, f"{commit.sequence} permits {key}, whose time is over (seed 002)")
        if key in before.free:
            _require(key in self._begun, f"{commit.sequence}: {key} is free of its rules, and never began (7.3)")
            return
        for other in (key, *named_by(self.state.gangs[key])):
            if other not in before.free:
                self._reached(other, commit, before.group_of.get(other) == group.key)

    def _reached(self, key: str, commit: Commit, of_group: bool) -> None:
        """That so many of the gang run as must, or of one that counts only those that wait, are to be bound."""
        gang = self.state.gangs.get(key)
        touched = any(self._touched.get(one, 0) > commit.header.basis for one in (key, *(gang.members if gang else ())))
        if gang is None:
            _require(touched, f"{commit.sequence} permits pods whose gang waits for {key}, which is not there (7.3)")
            return
        running, declared = [uid for uid in gang.members if self._runs(uid)], gang.declaration
        if declared is not None and of_group and declared.match_policy == dialects.ONLY_WAITING:
            running = [uid for uid in running if uid in self.state.permitted]
        reached = declared is not None and len(running) >= declared.min_member
        if declared is not None and sum(declared.task_minimums.values()) <= declared.min_member:
            tasks = Counter(membership.task(self.state, uid) for uid in running)
            reached = reached and all(tasks[task] >= least for task, least in declared.task_minimums.items())
        _require(reached or touched, f"{commit.sequence} permits {key} below its minimum (7.3)")

    def _runs(self, uid: str) -> bool:
        claim = self.state.claims.get(uid)
        return self.state.pods[uid].status in (BOUND, SUCCEEDED) or (claim is not None and claim.stage == PERMITTED)

    def ticked(self, event: ev.Ticked, commit: Commit, index: int, before: Before) -> None:
        """Section 3, Time."""
        last_ns = before.ticked_ns.get(commit.header.writer, 0)
        step_ns = event.time_ns - last_ns
        _require(step_ns >= TICK_SPACING_NS, f"{commit.sequence}: a tick {step_ns} ns after the last one (section 3)")
        absent = before.binder_waits and commit.header.writer == "binder"  # as it says; its clock may be any
        _require(
            (event.jumped_ns > 0) == (step_ns > JUMP_NS) or (absent and event.jumped_ns > 0),
            f"{commit.sequence}: a step of {step_ns} ns is told wrongly (section 3)",
        )
        if commit.header.writer == "binder":
            late = self._holds.ticked(self.state)
            _require(not late, f"{commit.sequence}: {late} holds room beyond its waiting time (7.4)")

    def held(self, event: ev.GangHeld, commit: Commit, index: int, before: Before) -> None:
        self._holds.held(event)

    def released(self, event: ev.GangReleased, commit: Commit, index: int, before: Before) -> None:
        """A hold that stood has had its time."""
        since = before.held_since.get(event.group, 0)
        if event.reason != "Timeout" or not since:
            return
        _require(
            self._holds.may_time_out(event.group, since, self.state.clocks["binder"].counted_ns),
            f"{commit.sequence}: {event.group} is out of time before its time is over (7.4)",
        )

    def policy(self, event: ev.PolicyChanged, commit: Commit, index: int, before: Before) -> None:
        self._allowed.policy_at = commit.sequence

    def bound_by_us(self, event: ev.PodBound, commit: Commit, index: int, before: Before) -> None:
        at, found = commit.sequence, self.bound.get(event.uid, "none")
        nodes = (found, *self.lives.undone.get(event.uid, ()))
        _require(event.node in nodes, f"{at} says {event.uid} is bound to {event.node}; it is to {found} (7.7)")

    def not_bound(self, event: ev.BindingFailed, commit: Commit, index: int, before: Before) -> None:
        """A refusal is definite: the intent did not take hold, unless the pod is gone since, whatever the reason is:
        admission is asked before anybody looks for the pod. It may be there again, where etcd was restored since, and
        bound by an intent that the log lost."""
        if event.uid not in self.bound_by or self.bound[event.uid] != event.node:
            return
        before = event.reason == "PodGone" and self.lives.stale(event.uid, event.node)
        if before or self.lives.forgotten(event.uid, event.node):
            return
        there = [entry.object["metadata"]["uid"] for entry in self._cluster.pods.entries.values()]
        said = f"{event.uid} was refused on {event.node}, {event.reason}, and is bound there"
        _require(event.uid not in there, f"{commit.sequence}: {said} (rule 5)")

    def disagreed(self, event: ev.DisagreementDetected, commit: Commit, index: int, before: Before) -> None:
        raise Violation(f"{commit.sequence}: planner and binder disagree: {event} (rule 4)")

    # --------------------------------------------------------------------------------------------------------- effects

    @property
    def _cluster(self) -> Api:
        assert self.api is not None
        return self.api

    def binding(self, uid: str, node: str, process: Process | None) -> None:
        """A binding takes hold in the cluster now; `process` None: somebody else's."""
        _require(uid not in self.bound, f"{uid} is bound to {node}, and was to {self.bound.get(uid)} (7.1)")
        self.bound[uid] = node
        if process is not None:
            self.bound_by[uid] = process
        claim = self.state.claims.get(uid)
        intended = claim is not None and claim.node == node and claim.stage == PERMITTED
        _require(
            process is None or intended or self.lives.stale(uid, node),
            f"{process} binds {uid} to {node} at {self.state.sequence}; the log says {claim} (rule 5)",
        )

    def evicts(self, event: ev.EvictionIntended, commit: Commit, index: int, before: Before) -> None:
        self.lives.intends(event.uid)

    def eviction(self, uid: str, process: Process) -> None:
        """An eviction takes hold in the cluster now."""
        intended = uid in self.state.evictions or self.lives.stale(uid)
        _require(intended, f"{process} evicts {uid} at {self.state.sequence}, which the log does not intend (rule 5)")


Check = Callable[[Witness, Any, Commit, int, Before], None]
CHECKS: dict[type, Check] = {
    ev.IngestTaken: Witness.taken,
    ev.ClusterSynced: Witness.synced,
    ev.NodeObserved: Witness.node,
    ev.NodeDeleted: Witness.node,
    ev.PodObserved: Witness.pod,
    ev.PodAssigned: Witness.pod,
    ev.PodTerminating: Witness.pod,
    ev.PodFinished: Witness.pod,
    ev.PodDeleted: Witness.pod,
    ev.PodGroupObserved: Witness.pod_group,
    ev.PodGroupDeleted: Witness.pod_group,
    ev.GangPlaced: Witness.placed,
    ev.GroupsRefused: Witness.refused,
    ev.RoomRequested: Witness.requested,
    ev.RoomReserved: Witness.reserved,
    ev.GangPermitted: Witness.permitted,
    ev.GangHeld: Witness.held,
    ev.GangReleased: Witness.released,
    ev.EvictionIntended: Witness.evicts,
    ev.PolicyChanged: Witness.policy,
    ev.Ticked: Witness.ticked,
    ev.PodBound: Witness.bound_by_us,
    ev.BindingFailed: Witness.not_bound,
    ev.DisagreementDetected: Witness.disagreed,
}
"""event → what must hold of it at its place."""


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise Violation(sentence)


def _shard(commit: Commit) -> str:
    return subjects.writer_of(commit.subject).partition(".")[2]
