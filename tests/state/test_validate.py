"""The checks of a state catch what they name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import events as ev
from events.objects import HostPort
from services.state.classes import counted
from services.state.fold import State
from services.state.records import Cohort, Gang, RoomRequest
from services.state.validate import Violated, validate_state
from tests.state.test_snapshot import busy, with_all_tables


def _claim_of_nobody(state: State) -> None:
    claim = next(claim for claim in state.claims.values() if claim.stage == "bound")
    del state.pods[claim.uid]


def _finished_pod_with_room(state: State) -> None:
    uid = next(uid for uid, claim in state.claims.items() if claim.stage == "bound")
    state.pods[uid].status = "succeeded"


def _bound_elsewhere(state: State) -> None:
    uid = next(uid for uid, claim in state.claims.items() if claim.stage == "bound")
    state.pods[uid].node = "n7"


def _unlisted(state: State) -> None:
    uid, claim = next(iter(state.claims.items()))
    del state.nodes[claim.node].claims[uid]


def _listed_twice(state: State) -> None:
    state.nodes["n0"].claims["ghost"] = None


def _open_intent(state: State) -> None:
    state.permitted["ghost"] = None


def _no_proposal(state: State) -> None:
    state.proposals.clear()


def _no_hold(state: State) -> None:
    state.groups["default/held"].held.clear()


def _no_nomination(state: State) -> None:
    state.nominations.clear()


def _room_miscounted(state: State) -> None:
    state.table.held[0, 0] += 1


def _proposed_miscounted(state: State) -> None:
    state.table.proposed[0, 0] += 1


def _room_without_claims(state: State) -> None:
    uids = [uid for uid, claim in state.claims.items() if claim.stage == "proposed"]
    for uid in uids:
        claim = state.claims.pop(uid)
        del state.nodes[claim.node].claims[uid]


def _wrong_phase(state: State) -> None:
    state.groups["default/huge"].phase = "ready"


def _forgotten(state: State) -> None:
    group = state.groups["default/huge"]
    del state.cohorts[group.cohort].groups[group.key]
    group.phase, group.cohort = "idle", 0


def _empty_cohort(state: State) -> None:
    state.cohorts[1] = Cohort(1, "x", "x", "x", 0, 0, 0, "a", {})


def _no_deadlines_of(kind: str, writer: str) -> Callable[[State], None]:
    def damage(state: State) -> None:
        clock = state.clocks[writer]
        clock.unarmed = [one for one in clock.unarmed if one[1] != kind]
        clock.armed = [one for one in clock.armed if one.kind != kind]

    return damage


def _elsewhere(state: State) -> None:
    state.groups["default/train"].partition += 1


def _of_strangers(state: State) -> None:
    """A gang is planned with another, and neither names the other."""
    train, huge = state.gangs["default/train"], state.groups["default/huge"]
    del state.groups[train.group]
    train.group, huge.gangs = huge.key, (huge.key, train.key)
    for uid in train.members:
        state.pods[uid].group = huge.key


CASES: list[tuple[Callable[[State], None], str]] = [
    (_claim_of_nobody, r"has no pod \(7\.13\)"),
    (_finished_pod_with_room, r"finished pod .* holds room \(7\.13\)"),
    (_bound_elsewhere, r"bound elsewhere \(7\.1\)"),
    (_unlisted, "is not listed by node"),
    (_listed_twice, r"lists a claim that does not exist \(7\.13\)"),
    (_open_intent, r"open intents and permitted claims differ \(rule 5\)"),
    (_no_proposal, r"has no proposal \(7\.13\)"),
    (_no_hold, r"is not held by its group \(7\.4\)"),
    (_no_nomination, r"has no bound \(7\.13\)"),
    (_room_miscounted, "held room is not the sum"),
    (_proposed_miscounted, "proposed room is not the sum"),
    (_room_without_claims, "proposed room is not the sum"),
    (_wrong_phase, "listed otherwise"),
    (_forgotten, r"something to place, and nobody will try it \(7\.12\)"),
    (_empty_cohort, "is empty"),
    (_no_deadlines_of("permit", "binder"), r"the hold of default/held has no bound \(7\.4\)"),
    (_no_deadlines_of("nomination", "binder"), r"a replacement of train-0 has no bound \(7\.13\)"),
    (_no_deadlines_of("backoff", "planner.a"), r"backs off for ever \(7\.12\)"),
    (_no_deadlines_of("retry", "planner.a"), r"is never tried again \(7\.12\)"),
    (_of_strangers, "gangs of group default/huge are not those that name each other"),
    (_elsewhere, r"not in that of default/train \(section 2\)"),
]


@pytest.mark.parametrize(("damage", "sentence"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_damaged_state_is_named(damage: Callable[[State], None], sentence: str) -> None:
    state = busy().state
    validate_state(state)
    damage(state)
    with pytest.raises(Violated, match=sentence):
        validate_state(state)


# ------------------------------------------------------------------------------------------- of a state with everything


def with_everything() -> State:
    """Beside all tables: host ports that are taken, proposed, given back, or on a node that nobody knows; and pods that
    ask for what their node has not."""
    world = with_all_tables()
    for name, port, node in (
        ("opens", 80, "n8"),
        ("early-opens", 80, "n7"),
        ("closes", 81, "n1"),
        ("may-open", 82, ""),
    ):
        world.pod(name, ports=(HostPort("", "TCP", port),), node=node)
    world.deleted("closes")
    world.propose("pod/default/may-open", {"may-open": "n1"})
    for name in ("strange", "stranger"):
        world.pod(name, gpu=1, node="n8")
    return world.state


def _pods(state: State, uid: str, **fields: str) -> None:
    for name, value in fields.items():
        setattr(state.pods[uid], name, value)


def _class_gone(state: State) -> None:
    state.lost["train-1"].scheduling_class = "gone"
    state.kept_classes = counted(state)


def _port_held_twice(state: State) -> None:
    state.table.ports[state.table.rows["n8"]][HostPort("", "TCP", 80)] += 1


def _other_cohort(state: State) -> None:
    first, second = state.cohorts.values()
    first.groups.update(second.groups)


def _taken_out(state: State) -> None:
    state.cohorts[state.groups["default/huge"].cohort].groups.clear()


def _cohort(state: State, **fields: str) -> None:
    for name, value in fields.items():
        setattr(next(iter(state.cohorts.values())), name, value)


def _group(state: State, of: str, **fields: object) -> None:
    for name, value in fields.items():
        setattr(state.groups[of], name, value)


def _gang(state: State, name: str, **fields: object) -> None:
    for field, value in fields.items():
        setattr(state.gangs[f"default/{name}"], field, value)


def _asks_and_has(state: State) -> None:
    state.room_requests["default/kept"] = state.room_requests["default/asks"]


def _requested(state: State, basis: int) -> None:
    asks = state.room_requests["default/asks"]
    state.room_requests["default/asks"] = RoomRequest(asks.group, basis, asks.room)


def _no_room_of_class(state: State) -> None:
    (of_class,) = state.reservations["default/kept"].room
    of_class.nodes["n0"] = 0


def _gang_of_nobody(state: State) -> None:
    state.gangs["default/empty"] = Gang("default/empty", group="default/empty")


def _snapshots_of(*back: int) -> Callable[[State], None]:
    def damage(state: State) -> None:
        taken = ev.SnapshotTaken(sequence=1, digest="d", bytes=1, state=1)
        state.snapshots = {state.sequence - one: taken for one in back}

    return damage


OF_EVERYTHING: list[tuple[Callable[[State], object], str]] = [
    # what derives from the records
    (lambda state: setattr(next(iter(state.classes.values())), "pods", 1), "a class has other pods"),
    (lambda state: state.kept_classes.clear(), "room is kept for other classes"),
    (_class_gone, r"room is kept for a class that is gone \(7\.13\)"),
    (lambda state: state.table.classes.update(ghost=None), "the table has other classes"),
    (lambda state: state.table.unoffered.clear(), "claims of what no node has are others"),
    (_port_held_twice, "the table's ports are not the claims'"),
    (lambda state: state.table.holders.clear(), "the table has other holders of a port"),
    (lambda state: state.kept_for.clear(), "room is nominated for members of other gangs"),
    (lambda state: state.named.clear(), "who names whom is not what the gangs declare"),
    (lambda state: state.tallies.pop("default/more"), "other members run, live or leave than are counted"),
    # pods and their claims
    (lambda state: _pods(state, "huge-0", node="n0", status="bound"), r"holds no room there \(7\.2\)"),
    (lambda state: _pods(state, "huge-0", node="n0", status="terminating"), r"holds no room there \(7\.2\)"),
    (lambda state: _pods(state, "alone", status="failed"), r"finished pod alone holds room \(7\.13\)"),
    (lambda state: _pods(state, "more-0", node="n8", status="bound"), r"more-0 is bound elsewhere \(7\.1\)"),
    (lambda state: _pods(state, "alone", node="n7", status="terminating"), r"alone is bound elsewhere \(7\.1\)"),
    (lambda state: _pods(state, "waits-0", group="nowhere"), r"waits-0 is not held by its group \(7\.4\)"),
    (lambda state: state.permitted.pop("more-0"), r"open intents and permitted claims differ \(rule 5\)"),
    (lambda state: state.marks.update(ghost=state.marks["late-gang-0"]), r"ghost is to say something, and there is no"),
    # room that is kept
    (lambda state: state.group_nominations.clear(), r"nominated room nominated/huge-0 has no bound \(7\.13\)"),
    (lambda state: setattr(state.nominations["train-0"], "node", ""), "nomination train-0 holds no room, or other"),
    (lambda state: setattr(state.nominations["train-0"], "node", "n0"), "nomination train-0 holds no room, or other"),
    (_no_deadlines_of("permit", "binder"), r"the hold of default/waits has no bound \(7\.4\)"),
    (_no_deadlines_of("group nomination", "binder"), r"room nominated for default/huge has no bound \(7\.13\)"),
    (_no_deadlines_of("reservation", "binder"), r"room reserved for default/kept has no bound \(7\.13\)"),
    (lambda state: state.clocks.pop("binder"), r"the hold of default/waits has no bound \(7\.4\)"),
    (_asks_and_has, "default/kept asks for room that is reserved for it"),
    (lambda state: setattr(state.reservations["default/kept"], "room", ()), "of default/kept names no room"),
    (_no_room_of_class, "of default/kept names no room"),
    (lambda state: _requested(state, state.sequence), "default/asks asks for room at a place that is not there yet"),
    # groups and their phases
    (lambda state: _group(state, "default/more", phase="odd"), "default/more is in phase odd"),
    (lambda state: state.ready.update({"default/more": None}), "default/more is idle, listed otherwise"),
    (lambda state: _group(state, "default/huge", cohort=0), "default/huge is parked in a cohort or without"),
    (lambda state: _group(state, "default/more", cohort=1), "default/more is idle in a cohort or without"),
    (_taken_out, "default/huge is not in its cohort"),
    (_other_cohort, "lists pod/default/picky, which is elsewhere"),
    (lambda state: _cohort(state, reason="Whim"), "nobody knows what follows from Whim"),
    (lambda state: _cohort(state, shard="b"), r"waits on the clock of b, which does not own it \(7\.12\)"),
    (lambda state: state.clocks.pop("planner.a"), r"backs off for ever \(7\.12\)"),
    (lambda state: state.holding.clear(), r"default/waits is listed as waiting, or not, otherwise \(7\.4\)"),
    (lambda state: state.holding.update({"default/more": None}), r"default/more is listed as waiting, or not"),
    (lambda state: state.groups["default/waits"].held.update(ghost=None), "holds ghost without a claim"),
    (lambda state: state.groups["default/waits"].held.update({"more-0": None}), "holds more-0 without a claim"),
    (lambda state: _group(state, "default/more", phase="awaiting"), r"awaits a verdict on nothing \(7\.12\)"),
    (lambda state: _group(state, "pod/default/alone", pod=""), "pod/default/alone is of no pod and no gang"),
    (lambda state: _group(state, "pod/default/alone", partition=64), r"not in its own \(section 2\)"),
    (lambda state: state.highest.update(dict.fromkeys(state.highest, -1)), "is of a priority above -1"),
    (lambda state: state.highest.clear(), "is of a priority above None"),
    (lambda state: state.highest.update({1: 0}), r"noted of a cohort that is gone \(7\.13\)"),
    (lambda state: state.lacked_room.update({"default/more": 1}), "default/more lacked room at 1"),
    (lambda state: state.lacked_room.update({"default/touched": state.sequence + 1}), "default/touched lacked room at"),
    # gangs, their groups and their PodGroups
    (lambda state: _gang(state, "declared", group="default/x"), "default/declared has pods, and no group"),
    (lambda state: _gang(state, "more", group="default/x"), "default/more has pods, and no group"),
    (lambda state: state.groups.pop("default/more"), "default/more has pods, and no group"),
    (lambda state: _gang(state, "more", group="default/held"), "default/more is none of its group default/held"),
    (lambda state: _pods(state, "more-0", gang="default/held"), r"are somewhere else: \['more-0'\]"),
    (lambda state: _pods(state, "more-0", group="default/held"), r"are somewhere else: \['more-0'\]"),
    (lambda state: _group(state, "default/more", key="x"), "is not called by its smallest gang"),
    (lambda state: _group(state, "default/more", pod="more-0"), "is not called by its smallest gang"),
    (lambda state: _group(state, "default/held", gangs=("default/held", "default/more")), "has gangs of other groups"),
    (lambda state: _gang(state, "declared", source="x"), "default/declared is not declared by its PodGroup"),
    (lambda state: _gang(state, "declared", pod_group="x"), "default/declared is not declared by its PodGroup x"),
    (lambda state: state.gangs.pop("default/declared"), "declares no gang default/declared"),
    (lambda state: _gang(state, "more", declarer="alone"), "default/more hears a pod that is none of its own"),
    (lambda state: _gang(state, "more", timed_out={"alone": None}), "default/more timed out by pods that are not its"),
    (_gang_of_nobody, "default/empty has neither pods nor a PodGroup"),
    # snapshots
    (_snapshots_of(3, 2, 1), "more snapshots are remembered than a purge asks for"),
    (_snapshots_of(0), "a snapshot is of what is not there yet"),
]


@pytest.mark.parametrize(("damage", "sentence"), OF_EVERYTHING, ids=[sentence for _, sentence in OF_EVERYTHING])
def test_each_sentence_is_said_of_a_state_that_breaks_it(damage: Callable[[State], object], sentence: str) -> None:
    state = with_everything()
    validate_state(state)
    damage(state)
    with pytest.raises(Violated, match=sentence):
        validate_state(state)
