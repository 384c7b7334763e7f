"""What must hold of any state, after every commit: run after every test, by the simulator and by ``muster verify``.

Raises `Violated` with the first sentence that does not hold; the numbers are those of section 7 in docs/design.md.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from events import dialects
from events.objects import HostPort
from services.state import nominations, reasons, tallies
from services.state.class_info import ClassInfo
from services.state.classes import counted
from services.state.clock import (
    BACKOFF,
    GROUP_NOMINATION,
    NOMINATION,
    PERMIT,
    RESERVATION,
    RETRY,
    group_key,
    of_group,
)
from services.state.fold import State
from services.state.form import SNAPSHOTS_KEPT
from services.state.membership import unplaced
from services.state.naming import component, named_by
from services.state.nodes import Ints, NodeTable
from services.state.nominations import replacement_key
from services.state.partitions import partition_of
from services.state.records import (
    AWAITING,
    BOUND,
    BOUND_CLAIM,
    FAILED,
    HELD,
    IDLE,
    NOMINATED,
    PARKED,
    PERMITTED,
    PROPOSED,
    READY,
    SUCCEEDED,
    TERMINATING,
    Group,
)


class Violated(AssertionError):
    """An invariant does not hold."""


def require(condition: bool, sentence: str) -> None:
    """Raises Violated."""
    if not condition:
        raise Violated(sentence)


def validate_state(state: State) -> None:
    """Check the derived tables against the records, and the records against each other."""
    _table_counts_the_claims(state)
    _claims_have_their_pods(state)
    _groups_are_in_one_place(state)
    _what_is_kept_has_its_time(state)
    _who_is_refused_is_tried_again(state)
    _reservations_are_of_somebody(state)
    _gangs_know_their_pod_groups(state)
    _gangs_are_with_those_they_wait_for(state)
    _snapshots_are_of_the_past(state)
    _classes_are_of_somebody(state)


def _classes_are_of_somebody(state: State) -> None:
    """That one without pods or room has gone cannot be said: in older logs its first pod may be in the next commit."""
    pods = Counter(pod.fact.scheduling_class for pod in state.pods.values())
    require(pods == Counter({digest: one.pods for digest, one in state.classes.items()}), "a class has other pods")
    require(state.kept_classes == counted(state), "room is kept for other classes")
    require(state.kept_classes.keys() <= state.classes.keys(), "room is kept for a class that is gone (7.13)")
    require(state.table.classes.keys() == state.classes.keys(), "the table has other classes")


def _table_counts_the_claims(state: State) -> None:
    table, nodes = state.table, state.nodes
    held: list[tuple[int, int]] = []
    proposed: list[tuple[int, int]] = []
    unoffered: dict[int, dict[tuple[int, ClassInfo], int]] = {}
    for uid, claim in state.claims.items():
        if uid not in nodes[claim.node].claims:
            raise Violated(f"claim {uid} is not listed by node {claim.node}")
        row = table.rows.get(claim.node)
        if row is not None:
            info, kind = table.classes[claim.scheduling_class], int(claim.stage == PROPOSED)
            (held, proposed)[kind].append((row, info.number))
            if info.unoffered:
                there = unoffered.setdefault(row, {})
                there[kind, info] = there.get((kind, info), 0) + 1
    require(_adds_up(table, held, table.held), "the table's held room is not the sum of the claims")
    require(_adds_up(table, proposed, table.proposed), "the table's proposed room is not the sum of the claims")
    require(unoffered == table.unoffered, "the table's claims of what no node has are others")
    require(
        _ports(state) == {row: held for row, held in table.ports.items() if held},
        "the table's ports are not the claims'",
    )
    by_port: dict[tuple[str, int], dict[int, dict[str, int]]] = {}
    for row, held_there in table.ports.items():
        for port, pods in held_there.items():
            by_port.setdefault((port.protocol, port.port), {}).setdefault(row, {})[port.host_ip] = pods
    require(by_port == table.holders, "the table has other holders of a port than hold it")
    listed = sum(len(node.claims) for node in state.nodes.values())
    require(listed == len(state.claims), "a node lists a claim that does not exist (7.13)")


def _adds_up(table: NodeTable, claims: list[tuple[int, int]], room: Ints) -> bool:
    """Whether the claims, (row, class) each, take just this room."""
    if not claims:
        return not room.any()
    taken = np.zeros_like(room)
    rows, classes = np.array(claims).T
    np.add.at(taken, rows, table.requests[classes])
    return bool((taken == room).all())


def _ports(state: State) -> dict[int, dict[HostPort, int]]:
    """The host ports that the claims hold, by row."""
    ports: dict[int, dict[HostPort, int]] = {}
    opening = {digest: found.fact.host_ports for digest, found in state.classes.items() if found.fact.host_ports}
    if not opening:
        return ports
    for claim in state.claims.values():
        row = state.table.rows.get(claim.node)
        if row is not None and claim.stage != PROPOSED:
            for port in opening.get(claim.scheduling_class, ()):
                held = ports.setdefault(row, {})
                held[port] = held.get(port, 0) + 1
    return ports


def _claims_have_their_pods(state: State) -> None:
    permitted, replacements = [], {replacement_key(uid) for uid in state.nominations}
    for uid, there in state.pods.items():
        if uid not in state.claims and there.node and there.status in (BOUND, TERMINATING):
            raise Violated(f"pod {uid} is on {there.node} and holds no room there (7.2)")
    for uid, claim in state.claims.items():
        if claim.stage == NOMINATED:
            bounded = uid in replacements or claim.group in state.group_nominations
            require(bounded, f"nominated room {uid} has no bound (7.13)")
            continue
        pod = state.pods.get(uid)
        if pod is None:
            raise Violated(f"claim {uid} has no pod (7.13)")
        if pod.status in (SUCCEEDED, FAILED):
            raise Violated(f"finished pod {uid} holds room (7.13)")
        if claim.stage == PROPOSED and claim.proposal not in state.proposals:
            raise Violated(f"proposed claim {uid} has no proposal (7.13)")
        if claim.stage == HELD:
            group = state.groups.get(pod.group)
            require(group is not None and uid in group.held, f"held claim {uid} is not held by its group (7.4)")
        if claim.stage == PERMITTED:
            permitted.append(uid)
        bound = bool(pod.node) and pod.status in (BOUND, TERMINATING)
        if bound and (claim.stage != BOUND_CLAIM or claim.node != pod.node):
            raise Violated(f"pod {uid} is bound elsewhere (7.1)")
    require(sorted(permitted) == sorted(state.permitted), "open intents and permitted claims differ (rule 5)")
    for uid in state.marks:
        require(uid in state.pods, f"pod {uid} is to say something, and there is none (7.13)")
    for uid, nomination in state.nominations.items():
        room = state.claims.get(replacement_key(uid))
        holds = room.node if room is not None else ""
        require(holds == nomination.node, f"nomination {uid} holds no room, or other room than it says")
    require(nominations.counted(state) == state.kept_for, "room is nominated for members of other gangs")


def _groups_are_in_one_place(state: State) -> None:
    for key, group in state.groups.items():
        if group.phase not in (IDLE, READY, AWAITING, PARKED):
            raise Violated(f"group {key} is in phase {group.phase}")
        if (key in state.ready) != (group.phase == READY):
            raise Violated(f"group {key} is {group.phase}, listed otherwise")
        if (group.cohort != 0) != (group.phase == PARKED):
            raise Violated(f"group {key} is {group.phase} in a cohort or without")
        if group.cohort and key not in state.cohorts[group.cohort].groups:
            raise Violated(f"group {key} is not in its cohort")
        if group.phase == IDLE and not group.held and unplaced(state, group):
            raise Violated(f"group {key} has something to place, and nobody will try it (7.12)")
        if (key in state.holding) != bool(group.held):
            raise Violated(f"group {key} is listed as waiting, or not, otherwise (7.4)")
        for uid in group.held:
            held = state.claims.get(uid)
            require(held is not None and held.stage == HELD, f"group {key} holds {uid} without a claim")
    for place, cohort in state.cohorts.items():
        require(bool(cohort.groups), f"cohort {place} is empty")
        require(cohort.reason in reasons.REASONS, f"nobody knows what follows from {cohort.reason}")
        for key in cohort.groups:
            group = state.groups[key]
            require(group.cohort == place, f"cohort {place} lists {key}, which is elsewhere")
            ticks = not reasons.follows(cohort.reason).retried or state.owner(group) == cohort.shard
            require(ticks, f"group {key} waits on the clock of {cohort.shard}, which does not own it (7.12)")
    awaiting = {proposal.group for proposal in state.proposals.values()}
    for key, group in state.groups.items():
        if group.phase == AWAITING and key not in awaiting:
            raise Violated(f"group {key} awaits a verdict on nothing (7.12)")


def _gangs_are_with_those_they_wait_for(state: State) -> None:
    named: dict[str, dict[str, None]] = {}
    for key, gang in state.gangs.items():
        for name in named_by(gang):
            named.setdefault(name, {})[key] = None
        group = state.groups.get(gang.group)
        if group is None:
            require(not gang.members and gang.group == key, f"gang {key} has pods, and no group")
        else:
            require(key in group.gangs, f"gang {key} is none of its group {gang.group}")
        astray = [uid for uid in gang.members if state.pods[uid].gang != key or state.pods[uid].group != gang.group]
        require(not astray, f"pods of gang {key} are somewhere else: {astray}")
    require(named == state.named, "who names whom is not what the gangs declare")
    require(tallies.counted(state) == state.tallies, "of a gang other members run, live or leave than are counted")
    for key, group in state.groups.items():
        if group.gangs:
            _are_those_that_name_each_other(state, key, group)
        elif not group.pod:
            raise Violated(f"group {key} is of no pod and no gang")
        elif group.partition != partition_of(key):
            raise Violated(f"group {key} is in partition {group.partition}, not in its own (section 2)")


def _are_those_that_name_each_other(state: State, key: str, group: Group) -> None:
    require(group.key == min(group.gangs) and not group.pod, f"group {key} is not called by its smallest gang")
    require(all(state.gangs[one].group == key for one in group.gangs), f"group {key} has gangs of other groups")
    if state.regrouping:
        return  # some are put together anew when they, or those that name them, have their verdicts
    together = component(state, group.gangs[0]) == group.gangs
    require(together, f"the gangs of group {key} are not those that name each other")
    smallest = min((name for one in group.gangs for name in named_by(state.gangs[one])), default=key)
    planned = group.partition == partition_of(smallest)
    require(planned, f"group {key} is in partition {group.partition}, not in that of {smallest} (section 2)")


def _waiting(state: State, writer: str) -> set[tuple[str, str]]:
    """(kind, key) of the deadlines that run, or are to run, on this writer's clock."""
    clock = state.clocks.get(writer)
    if clock is None:
        return set()
    return {(kind, key) for _, kind, key in clock.unarmed} | {(one.kind, one.key) for one in clock.armed}


def _what_is_kept_has_its_time(state: State) -> None:
    """Room that is held, nominated or reserved is given back one day: its time is over, or runs on the binder's clock."""
    waiting = _waiting(state, "binder")
    holds = {of_group(key)[1] for kind, key in waiting if kind == PERMIT}
    for key in state.holding:
        require(state.groups[key].permit_due or key in holds, f"the hold of {key} has no bound (7.4)")
    for uid, nomination in state.nominations.items():
        bounded = nomination.due or (NOMINATION, uid) in waiting
        require(bounded, f"room nominated for a replacement of {uid} has no bound (7.13)")
    for key, kept in state.group_nominations.items():
        bounded = kept.due or (GROUP_NOMINATION, group_key(kept.since, key)) in waiting
        require(bounded, f"room nominated for {key} has no bound (7.13)")
    for key, reservation in state.reservations.items():
        bounded = reservation.due or (RESERVATION, group_key(reservation.sequence, key)) in waiting
        require(bounded, f"room reserved for {key} has no bound (7.13)")


def _who_is_refused_is_tried_again(state: State) -> None:
    """Its shard's clock wakes every cohort one day, unless nothing but a fact about it is to end its reason."""
    waiting = {shard: _waiting(state, f"planner.{shard}") for shard in {one.shard for one in state.cohorts.values()}}
    for place, cohort in state.cohorts.items():
        deadlines = waiting[cohort.shard]
        ends = not cohort.backing_off or (BACKOFF, str(place)) in deadlines
        require(ends, f"cohort {place} backs off for ever (7.12)")
        again = cohort.woken or not reasons.follows(cohort.reason).retried or (RETRY, str(place)) in deadlines
        require(again, f"cohort {place} is never tried again (7.12)")


def _reservations_are_of_somebody(state: State) -> None:
    for key, reservation in state.reservations.items():
        require(key not in state.room_requests, f"{key} asks for room that is reserved for it")
        named = all(pods > 0 for of_class in reservation.room for pods in of_class.nodes.values())
        require(bool(reservation.room) and named, f"the reservation of {key} names no room")
    require(state.highest.keys() <= state.cohorts.keys(), "a priority is noted of a cohort that is gone (7.13)")
    for place, cohort in state.cohorts.items():
        alone = [group.priority for key in cohort.groups if (group := state.groups[key]).pod]
        highest = state.highest.get(place)
        bounded = not alone or (highest is not None and max(alone) <= highest)
        require(bounded, f"a pod of the cohort of {place} is of a priority above {highest}")
    for key, basis in state.lacked_room.items():
        require(key in state.ready and basis <= state.sequence, f"{key} lacked room at {basis}, and is not tried again")
    for key, request in state.room_requests.items():
        require(request.basis < state.sequence, f"{key} asks for room at a place that is not there yet")


def _gangs_know_their_pod_groups(state: State) -> None:
    for fact in state.pod_groups.values():
        key = dialects.gang_key(fact.dialect, fact.namespace, fact.name)
        require(key in state.gangs, f"PodGroup {fact.namespace}/{fact.name} ({fact.dialect}) declares no gang {key}")
    for key, gang in state.gangs.items():
        if gang.pod_group:
            declaring = state.pod_groups.get(gang.pod_group)
            known = declaring is not None and gang.source == declaring.uid
            require(known, f"gang {key} is not declared by its PodGroup {gang.pod_group}")
        require(gang.timed_out.keys() <= gang.members.keys(), f"gang {key} timed out by pods that are not its own")
        require(not gang.declarer or gang.declarer in gang.members, f"gang {key} hears a pod that is none of its own")
        kept = gang.members or gang.pod_group or key in state.regrouping
        require(bool(kept), f"gang {key} has neither pods nor a PodGroup")


def _snapshots_are_of_the_past(state: State) -> None:
    require(len(state.snapshots) <= SNAPSHOTS_KEPT, "more snapshots are remembered than a purge asks for")
    require(all(sequence < state.sequence for sequence in state.snapshots), "a snapshot is of what is not there yet")
