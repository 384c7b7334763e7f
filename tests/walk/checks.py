"""What must hold on a random walk: permits where they are decided, everything at rest, and the log folded again."""

from __future__ import annotations

import events as ev
from events import envelope
from events.envelope import Header
from services.binder import core as binder
from services.planner import core as planner
from services.planner.core import Cycle
from services.state import lacking, membership, reasons, snapshot
from services.state.deadlines import STANDS
from services.state.fold import State
from services.state.naming import named_by
from services.state.records import BOUND, PENDING, PERMITTED, PROPOSED, SUCCEEDED
from services.state.resources import BASE_RESOURCES
from services.state.slices import at_once
from tests.walk.cluster import Cluster
from tests.world import World


def check_rest(state: State, cluster: Cluster) -> None:
    """What must hold once things have settled."""
    assert not state.proposals
    assert not state.permitted
    assert not state.evictions
    assert not state.marks, "a pod was to say something, and does not (rule 5)"
    assert not state.lost
    assert not state.nominations, "a hold outlived its time (7.13)"
    assert not state.group_nominations, "a nomination outlived its time (7.13)"
    assert not state.room_requests, "a request for room has no answer"
    assert not state.reservations, "a reservation outlived its time (7.13)"
    assert not state.holding, "held assignments outlived their waiting time (7.4)"
    for claim in state.claims.values():
        assert claim.stage == "bound", f"{claim} leaks (7.13)"
    for uid, kept in cluster.pods.items():
        pod = state.pods[uid]
        assert (pod.status, pod.node) == (kept.status, kept.node), f"the log and the cluster differ on {uid} (7.11)"
    assert set(state.pods) == set(cluster.pods)
    _nothing_that_fits_waits(state)


def _nothing_that_fits_waits(state: State) -> None:
    assert state.policy is not None
    for group in state.groups.values():
        waits = [uid for uid in membership.members(state, group) if state.pods[uid].status == PENDING]
        if not waits or all(state.pods[uid].fact.gated for uid in waits):
            continue
        cycle = Cycle(state, state.policy)
        at_once(cycle.plan([group]))
        assert not cycle.placed, f"{group} fits and waits (7.12)"
        assert group.cohort, f"{group} waits without a reason (7.9)"
        cohort = state.cohorts[group.cohort]
        still = not reasons.follows(cohort.reason).incomplete or lacking.stands(state, group, cohort)
        assert still, f"{group} is told what is not so any more: {cohort.message} (7.9)"


COUNTERS = {"sequence", "epoch", "room_sequence", "kept_sequence", "ignored", "set_aside"}
OF_MUSTER = {"synced", "policy", "owners", "holders", "shards", "supports", "clocks", "snapshots"}


def check_empty(state: State) -> None:
    """What must hold once everything is gone that the cluster had: nothing is left of it (D63)."""
    empty = State()
    for name in snapshot.Snapshot.__struct_fields__:
        if name not in COUNTERS | OF_MUSTER | {"resources"}:
            assert getattr(state, name) == getattr(empty, name), f"{name} outlives what it is about"
    for clock in state.clocks.values():
        assert not clock.unarmed
        assert not any(STANDS[one.kind](state, one.key) for one in clock.armed), "a deadline of nothing stands"
    assert not state.kept_classes
    assert not state.named
    assert not state.tallies
    assert not state.kept_for
    assert not state.highest
    table = state.table
    assert list(table.resources.places) == list(table.resources.columns) == list(BASE_RESOURCES)
    for left in (
        table.rows,
        table.classes,
        table.constraints,
        table.ports,
        table.holders,
        table.unoffered,
        table.cache,
    ):
        assert not left
    assert len(table.filtered) == len(table.preferences) == 0
    for amounts in (table.held, table.proposed, table.allocatable):
        assert not amounts.any(), "room is taken on a node that is gone"


def check_permits(state: State, decided: list[ev.Event]) -> None:
    """Section 7, 2 and 3: what this decision permits, at the state on which it was decided."""
    permits = [event for event in decided if isinstance(event, ev.GangPermitted)]
    if not permits:
        return
    after = snapshot.decode(snapshot.encode(state))
    satisfied = {key for key, gang in state.gangs.items() if gang.satisfied or membership.rules_off(gang)}
    header = Header(writer="binder", epoch=state.epoch, basis=state.sequence, time_ns=0, cause="decide")
    after.apply(state.sequence + 1, header, decided)
    table = after.table
    for permit in permits:
        for assignment in permit.bindings:
            row = table.rows[assignment.node]
            for binding in assignment.pods:
                info = table.classes[after.pods[binding.uid].fact.scheduling_class]
                if info.fact.host_ports:
                    others = [after.claims[uid] for uid in after.nodes[assignment.node].claims if uid != binding.uid]
                    opened = [
                        after.classes[other.scheduling_class].fact.host_ports
                        for other in others
                        if other.stage != PROPOSED
                    ]
                    assert info.fact.host_ports not in opened, f"{permit} opens a port twice (7.2)"
                for column, _ in info.columns:
                    assert table.held[row, column] <= table.allocatable[row, column], f"{permit} exceeds (7.2)"
        started = dict.fromkeys(after.pods[one.uid].gang for assignment in permit.bindings for one in assignment.pods)
        for key in started:
            if key and key not in satisfied:
                for other in (key, *named_by(after.gangs[key])):
                    reached = other in satisfied or _reached(state, after, other)
                    assert reached, f"{permit}: {other} is below its minimum (7.3)"


def _reached(before: State, after: State, key: str) -> bool:
    """Who is of the gang, and what it declares, is as it was decided on: a member may leave it with this permit."""
    gang = before.gangs.get(key)
    if gang is None or gang.declaration is None:
        return False
    running = sum(
        after.pods[uid].status in (BOUND, SUCCEEDED) or (uid in after.claims and after.claims[uid].stage == PERMITTED)
        for uid in gang.members
    )
    return running >= gang.declaration.min_member


def refold(world: World, start: State | None = None) -> State:
    """The log folded again, from its beginning or from `start`; every decision is taken again and compared by bytes."""
    state = State() if start is None else start
    for stored in world.log.commits[state.sequence :]:
        header = envelope.decode_header(stored)
        if header.cause == "decide" and header.basis == state.sequence:
            again = (
                binder.decide_now(state)
                if header.writer == "binder"
                else planner.decide_now(state, header.writer.partition(".")[2])
            )
            assert envelope.encode_events(again) == stored.payload, f"commit {stored.sequence} is decided otherwise"
        state.apply_stored(stored)
    return state
