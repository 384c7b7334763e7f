"""What must hold when faults have ended and nothing changes any more: the log and the cluster agree, whoever fits has its
place, nothing leaks, and the log decided again from its beginning says the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from events import dialects
from events.dialects import TIMEOUT_ANNOTATION as MARK
from services.binder.group_status import group_status, where_ended
from services.console.settled import log_at_rest, waits_for_mark
from services.console.verify import Report, Verifier
from services.ingest.decoding import KINDS
from services.planner.core import Cycle
from services.simulator.api import Api
from services.state import lacking, membership, reasons, refusals, snapshot, timeouts
from services.state.clock import RESERVATION
from services.state.fold import State
from services.state.records import BOUND, FAILED, IDLE, INDEX_BITS, PENDING, SUCCEEDED, TERMINATING, Clock, Group
from services.state.slices import at_once
from tests.simulation import truth
from tests.simulation.witness import Violation, Witness

if TYPE_CHECKING:
    from events.jetstream import JetStreamLog
    from events.sqlite import SqliteLog
    from tests.simulation.broker import Broker
    from tests.simulation.kube import ApiServer
    from tests.simulation.processes import Process
    from tests.simulation.world import World

SETTLED = (
    "proposals",
    "permitted",
    "evictions",
    "lost",
    "nominations",
    "group_nominations",
    "room_requests",
    "reservations",
    "holding",
)


def cut_off(world: World) -> str:
    """Who cannot say what he has to say: while that is so, quiet means nothing. Empty: nobody."""
    if not (world.broker.up and world.kube.up):
        return "the log or the API server is down"
    for process in world.supervisor.alive():
        if not process.link.connected or process.link.silent_until_s > world.loop.now_s:
            return f"{process} does not reach the log"
    reader = world.supervisor.leases.holders.get("ingest")
    if reader is not None and not reader.has_found_its_log:
        return f"{reader} has not looked which log it is"
    for process in world.supervisor.deciders():
        if not _is_known(process.log, world.broker):
            return f"{process} knows another log"
    if world.kube.awaited_by(world.supervisor.alive()):
        return "an answer of the API server is awaited"
    return ""


def _is_known(log: JetStreamLog, broker: Broker) -> bool:
    """Whether the last commits that somebody knows stand where he knows them: he may have come to the same place."""
    known = log._known
    there = [one for place in known for one in broker.stored[place.sequence - 1 : place.sequence]]
    return [(one.subject, one.message_id) for one in there] == [(one.subject, one.message_id) for one in known]


def restless(world: World) -> str:
    """What keeps the history from being at rest; empty when nothing does."""
    state = world.witness.state
    unlisted = "ingest, which is to be started again behind the binder" if world.witness.lives.to_be_listed else ""
    if role := world.supervisor.restless() or unlisted:
        return role
    for process in world.supervisor.deciders():
        if process.decider.state.sequence != state.sequence:
            return f"{process} has read {process.decider.state.sequence} of {state.sequence}"
    if not log_at_rest(state) or state.reservations or any(one.backing_off for one in state.cohorts.values()):
        return f"the log at {state.sequence}"
    reader = world.supervisor.leases.holders["ingest"]
    followed = [one for one in world.kube.watches if one.process is reader and one.has_told_all]
    if reader.minor < world.kube.minor or len(followed) < sum(world.kube.serves(kind.resource.path) for kind in KINDS):
        return f"{reader} has not seen everything"
    for entry in world.kube.api.pods.entries.values():
        if _about_to_end(entry.object, world.kube.api):
            return f"pod {entry.key} is about to end"
    return ""


def kept_s(state: State) -> float:
    """How long room may stay reserved from now on: what was reserved before the admin's policy, for ten minutes. And
    behind that again and again: a gang that starves may let one group in between two of its reservations, so that each
    that waits waits for one."""
    clock = state.clocks.get("binder", Clock())
    left_ns = [one.due_ns - clock.counted_ns for one in clock.armed if one.kind == RESERVATION]
    policy, again_ms = state.policy, 0
    if policy is not None and policy.reserve_after_refusals:
        again_ms = policy.reservation_hold_ms * sum(group.phase != IDLE for group in state.groups.values())
    return max(left_ns, default=0) / 1e9 + again_ms / 1e3


def _about_to_end(pod: dict[str, Any], api: Api) -> bool:
    """A pod on a node that is gone starts only when it comes back; one that runs ends all the same."""
    if "deletionTimestamp" in pod["metadata"]:
        return True
    if "muster.dev/duration-ms" not in (pod["metadata"].get("annotations") or {}):
        return False
    phase, there = pod["status"]["phase"], ("", pod["spec"].get("nodeName")) in api.nodes.entries
    return phase == "Running" or (phase == "Pending" and there)


def live_states_agree(world: World) -> None:
    """Raises Violation."""
    digest = snapshot.digest(world.witness.state)
    for process in world.supervisor.deciders():
        if snapshot.digest(process.decider.state) != digest:
            raise Violation(f"{process}'s live state is not the fold of its log (7.6)")


def nothing_is_misread(witness: Witness, kube: ApiServer) -> None:
    """Raises Violation."""
    if found := truth.differs(witness.state, kube, witness.names):
        raise Violation(f"at rest, {found} (7.11)")


def misleading_pod_group(state: State, kube: ApiServer, binder: Process) -> str:
    """One that does not say what became of its gang, in the words of its dialect; empty: all do.

    Who has ended and was removed since may count on; then the phase does, too, and where all have ended it stays, and
    nothing runs. Not looked at: what somebody else than `binder` wrote last. A write that changes nothing leaves the
    resourceVersion as it is, so that one of the binder before may still land behind it.
    """
    for gang in state.gangs.values():
        if not gang.pod_group:
            continue
        fact, due = state.pod_groups[gang.pod_group], group_status(state, gang)
        if kube.wrote_last.get(fact.uid, binder) is not binder:
            continue
        group, version = dialects.POD_GROUPS[fact.dialect].split("/")
        told = kube.api.by_path[group, version, "podgroups"].entries[fact.namespace, fact.name].object.get("status", {})
        if "conditions" in due:
            says = [{**one, "lastTransitionTime": ""} for one in told.get("conditions", ())]
            agree = says == [{**one, "lastTransitionTime": ""} for one in due["conditions"]]
        elif told.get("phase") in where_ended(state, gang, due):
            agree = told["running"] == 0
        elif any(told.get(name, 0) > due.get(name, 0) for name in ("succeeded", "failed")):
            agree = told["running"] == due["running"]
        else:
            agree = due.items() <= told.items()
        if not agree:
            return f"PodGroup {fact.name} ({fact.dialect}) says {told}, and its gang {due} (section 2)"
    return ""


def misled_pod(state: State, kube: ApiServer, since: float) -> str:
    """One that waits and is not told for what, in the words of its group's refusal; empty: all are. Only what is missing
    makes it be told anew, not how much. Not looked at: refusals up to `since`, and pods whose status a webhook put back
    as it was."""
    pods = _pods(kube.api)
    for place, cohort in state.cohorts.items():
        word = reasons.follows(cohort.reason).word if place >> INDEX_BITS > since else ""
        for group in (state.groups[key] for key in cohort.groups if word):
            _, message = refusals.said(state, group)
            for uid in membership.members(state, group):
                pod = pods[uid]
                told = {one["type"]: one for one in pod["status"].get("conditions") or []}.get("PodScheduled", {})
                if not membership.placeable(state, uid) or pod["metadata"]["name"] in kube.kept:
                    continue
                due = _declaration_due(state, uid) if cohort.reason == "GangNotDeclared" else ""
                if told.get("reason") != word or _missing(told["message"]) != _missing(message) or due not in message:
                    return f"pod {uid} waits for {cohort.reason}: {message}, {due}, and is told {told} (7.9)"
    return ""


def _missing(message: str) -> list[str]:
    """What a message says is missing, not how much of it."""
    return sorted(re.split(r"[.:,] ?", re.sub(r"[0-9]+", "", message)))


def check(witness: Witness, api: Api) -> None:
    """Raises Violation."""
    state = witness.state
    witness.validate()
    for what in SETTLED:
        if found := getattr(state, what):
            raise Violation(f"at rest, and there are {what}: {found} (7.4, 7.13)")
    if waits_for_mark(state):
        raise Violation(f"at rest, and there are marks: {state.marks} (7.4)")
    for claim in state.claims.values():
        if claim.stage != "bound":
            raise Violation(f"{claim} leaks (7.13)")
    _pods_agree(witness, api)
    _nodes_agree(state, api)
    _nothing_that_fits_waits(state)
    _timed_out_gangs_wait_for_their_users(witness, api)
    _who_waits_is_told_why(witness, api)
    _no_gang_half_bound(witness)


def verified(witness: Witness) -> str:
    """The log decided again from its beginning; the digest. Raises Violation."""
    verifier = Verifier("simulated")
    verifier.expect(witness.commits)
    at_once(verifier.check(witness.commits))
    verifier.finish(strict=True)
    report, digest = verifier.report, snapshot.digest(witness.state)
    if report.differences or report.violation:
        raise Violation(f"verify: {report.violation or report.difference} (7.6)")
    if report.digest != digest:
        raise Violation(f"the log folds to {report.digest} and to {digest} (7.6)")
    return digest


def purged_verified(report: Report, first: int, denied: list[int]) -> None:
    """What `verify` says of a log that begins at `first`: all of it is verified, but that it may stand on a snapshot that
    the log denies, and then says so. Raises Violation."""
    if report.start in denied and f"SnapshotTaken of {report.start} says" in str(report.difference):
        return
    if not report.verified or report.start < first - 1:
        wrong = report.violation or report.difference or report.why_unverifiable
        raise Violation(f"verify from the snapshot of {report.start} on, of a log from {first}: {wrong} (7.6)")


async def archived(archive: SqliteLog, broker: Broker) -> int:
    """How many commits an archive has: all that were purged, as they stood in the log. Raises Violation."""
    (first, end), place = await archive.bounds(), 0
    if end < broker.first - 1 or (end and first != 1):
        raise Violation(f"the log begins at {broker.first}, and its archive has {first} to {end} (7.6)")
    async for batch in archive.read():
        for kept in batch:
            if kept != broker.stored[place]:
                raise Violation(f"commit {place + 1} of the archive is {kept}, not {broker.stored[place]} (7.6)")
            place += 1
    return place


def _pods_agree(witness: Witness, api: Api) -> None:
    state, there = witness.state, _pods(api)
    rejected = {one.uid for one in state.rejections.values()}
    for uid, pod in there.items():
        status, node, known = _status(pod), pod["spec"].get("nodeName", ""), state.pods.get(uid)
        if known is None:
            if truth.is_ours(pod, witness.names) and uid not in rejected:
                raise Violation(f"the log does not know pod {uid}, which is {status} (7.11)")
        elif known.status != status or (known.node != node and status not in (SUCCEEDED, FAILED)):
            raise Violation(f"pod {uid} is {status} on {node!r}, in the log {known.status} on {known.node!r} (7.11)")
    for uid in state.pods:
        if uid not in there:
            raise Violation(f"the log has pod {uid}, which is gone (7.11)")


def _nodes_agree(state: State, api: Api) -> None:
    rejected = {one.uid for one in state.rejections.values()}
    there = {key[1]: entry.object["metadata"]["uid"] for key, entry in api.nodes.entries.items()}
    truth = {name: uid for name, uid in there.items() if uid not in rejected}
    known = {name: node.fact.uid for name, node in state.nodes.items() if node.fact is not None}
    if truth != known:
        raise Violation(f"the cluster has the nodes {sorted(truth)}, the log {sorted(known)} (7.11)")


def _nothing_that_fits_waits(state: State) -> None:
    assert state.policy is not None
    for group in state.groups.values():
        waits = [uid for uid in membership.members(state, group) if state.pods[uid].status == PENDING]
        if not waits or all(state.pods[uid].fact.gated for uid in waits):
            continue
        cohort = state.cohorts.get(group.cohort)
        if cohort is not None and "bytes too large" in cohort.message:
            continue  # it depends on where its pods go and on what is kept for them: tried again after `Policy.retry_ms`
        cycle = Cycle(state, state.policy)
        at_once(cycle.plan([group]))
        if cycle.placed and not _is_tried_otherwise(state, group):
            raise Violation(f"{group} fits and waits (7.12)")
        if not group.cohort:
            raise Violation(f"{group} waits without a reason (7.9)")


def _is_tried_otherwise(state: State, group: Group) -> bool:
    """Whether a gang of several classes fits where it did not when there was more room: as its pods go elsewhere (known
    limits, ARCHITECTURE.md). Nothing that makes it be tried again has happened."""
    cohort, uids = state.cohorts.get(group.cohort), membership.members(state, group)
    if cohort is None or len({state.pods[uid].fact.scheduling_class for uid in uids}) < 2:
        return False
    return cohort.reason == "InsufficientRoom" and max(state.room_sequence, group.changed) <= cohort.basis


def _timed_out_gangs_wait_for_their_users(witness: Witness, api: Api) -> None:
    """They say so, on a pod that waits; and nobody else waits for that. A mark that failed is told in the log."""
    state = witness.state
    marked = {uid for uid, pod in _pods(api).items() if (pod["metadata"].get("annotations") or {}).get(MARK) == "true"}
    for group in state.groups.values():
        cohort, stands = state.cohorts.get(group.cohort), timeouts.stands(state, group)
        if cohort is None:
            continue
        others = reasons.follows(cohort.reason).incomplete and lacking.stands(state, group, cohort)
        others |= any(state.gangs[key].declaration is None for key in group.gangs)
        if stands and not others and cohort.reason not in ("GangTimedOut", "SetAside"):
            raise Violation(f"{group.key} has timed out, and waits for {cohort.reason} (7.9, seed 002)")
        if cohort.reason == "GangTimedOut":
            says = any(uid in marked and state.pods[uid].status == PENDING for uid in membership.members(state, group))
            if not stands or not (says or witness.seen["TimeoutMarkFailed"]):
                raise Violation(f"{group.key} waits for a user who has acted (7.12, seed 002)")


def _who_waits_is_told_why(witness: Witness, api: Api) -> None:
    """In the log, and in the story that is told from it."""
    for cohort in witness.state.cohorts.values():
        if not cohort.message:
            raise Violation(f"{cohort} does not say what is missing (7.9)")
    if found := witness.explained.untold():
        raise Violation(f"{found} (7.9)")


def _declaration_due(state: State, uid: str) -> str:
    """What is wrong with the PodGroup of a pod's gang, of the first that its group has."""
    names = [dialects.declaring(key, state.gangs[key].dialect) for key in state.groups[state.pods[uid].group].gangs]
    found = [state.rejections.get("/".join(name)) for of_gang in names for name in of_gang]
    return next((f"{one.field} is {one.value!r}" for one in found if one is not None and "PodGroup" in one.kind), "")


def _no_gang_half_bound(witness: Witness) -> None:
    """A gang that never reached its minimum has no pod on a node but those that came there otherwise."""
    state = witness.state
    for gang in state.gangs.values():
        group = state.groups.get(gang.key)
        if gang.satisfied or group is None:
            continue
        here = gang.key, group.since
        ours = [
            uid for uid in gang.members if state.pods[uid].status == BOUND and witness.permitted_in.get(uid) == here
        ]
        if ours:
            raise Violation(f"{gang.key} is half bound: {ours} (7.3)")


def _pods(api: Api) -> dict[str, dict[str, Any]]:
    return {entry.object["metadata"]["uid"]: entry.object for entry in api.pods.entries.values()}


def _status(pod: dict[str, Any]) -> str:
    if pod["status"]["phase"] in ("Succeeded", "Failed"):
        return str(pod["status"]["phase"]).lower()
    if "deletionTimestamp" in pod["metadata"]:
        return TERMINATING
    return BOUND if pod["spec"].get("nodeName") else PENDING
