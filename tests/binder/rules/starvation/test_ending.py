"""Starvation: when reserved room is for everybody again."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import ClassRoom, NodeAssignment
from events.policy import DEFAULT_POLICY
from services.state import reservations
from services.state.records import READY
from tests.world import World, of_type

GANG = "default/train"


def reserved(hold_ms: int = 600_000) -> World:
    """A gang of three has room reserved on n0 and n1, which are full."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, reservation_hold_ms=hold_ms))
    for node in ("n0", "n1"):
        world.node(node, cpu=4)
        world.pod(f"{node}-0", node=node, cpu=4)
    world.pod_group("train", 3)
    for i in range(4):
        world.pod(f"train-{i}", "train")
    world.plan()
    event = ev.RoomRequested(group=GANG, room=(ClassRoom(world.scheduling_class(), {"n0": 2, "n1": 1}),))
    world.append("planner.a", [event], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    return world


def ended(world: World) -> str:
    """The reason for which it ends now; empty while it stands."""
    reasons = [event.reason for event in world.judge() if isinstance(event, ev.ReservationEnded)]
    assert len(reasons) < 2
    assert (GANG in world.state.reservations) == (not reasons)
    return "".join(reasons)


def test_it_stands_until_something_ends_it() -> None:
    world = reserved()
    world.pass_s(60)
    assert ended(world) == ""


def test_it_expires_in_log_time() -> None:
    world = reserved(hold_ms=3_000)
    world.pass_s(2.5)
    assert ended(world) == ""
    world.pass_s(1)
    assert ended(world) == "Expired"
    assert world.state.groups[GANG].attempts == 0, "it counts its refusals anew"


def test_a_proposal_that_stands_is_judged_first() -> None:
    world = reserved(hold_ms=1_000)
    world.deleted("n0-0")
    world.pass_s(2)
    world.plan()
    assert ended(world) == "Taken"


def test_so_is_one_that_only_a_later_decision_judges() -> None:
    world = reserved(hold_ms=1_000)
    one_a_decision = msgspec.structs.replace(DEFAULT_POLICY, cycle_pods=1, reservation_hold_ms=1_000)
    world.append("admin", [ev.PolicyChanged(policy=one_a_decision)], cause="admin")
    world.pod("small", cpu=1)
    world.deleted("n0-0")
    world.pass_s(2)
    world.propose("pod/default/small", {"small": "n0"})
    world.propose(GANG, {f"train-{i}": "n0" for i in range(3)})
    assert ended(world) == ""
    assert ended(world) == "Taken"


def test_the_gang_vanishes() -> None:
    world = reserved()
    for i in range(4):
        world.deleted(f"train-{i}")
    assert ended(world) == "GroupGone"


def test_another_of_its_name_is_not_meant() -> None:
    world = reserved()
    for i in range(4):
        world.deleted(f"train-{i}")
    for i in range(4):
        world.pod(f"again-{i}", "train")
    assert ended(world) == "GroupGone"


@pytest.mark.parametrize("change", ["minimum", "priority", "class", "node gone", "node unfit", "bound elsewhere"])
def test_the_gang_or_its_nodes_change_so_that_the_room_is_the_wrong_one(change: str) -> None:
    world = reserved()
    match change:
        case "minimum":
            world.pod_group("train", 2)
        case "priority":
            world.pod("train-0", "train", priority=4)
        case "class":
            for i in range(4):
                world.pod(f"train-{i}", "train", cpu=2)
        case "node gone":
            world.facts(ev.NodeDeleted(name="n1", uid="uid-n1"))
        case "node unfit":
            world.node("n1", cpu=4, unschedulable=True)
        case "bound elsewhere":
            world.assigned("train-0", "n9")
    assert ended(world) == "Changed"
    assert world.state.groups[GANG].attempts == (change != "bound elsewhere"), "but for that it starves as before"


def test_a_member_that_is_replaced_changes_nothing() -> None:
    world = reserved()
    world.deleted("train-0")
    assert ended(world) == ""
    world.pod("train-9", "train")
    assert ended(world) == ""


def test_a_gang_that_is_to_be_tried_again_keeps_its_room() -> None:
    world = reserved()
    world.pass_s(60)
    world.plan()
    world.pass_s(60)
    world.pod("train-9", "train")
    assert world.state.groups[GANG].phase == READY
    assert ended(world) == ""


def test_it_waits_for_something_else() -> None:
    world = reserved()
    world.deleted("train-0")
    world.deleted("train-1")
    world.pass_s(2)
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.reason == "TooFewPods"
    assert ended(world) == "Refused"


def test_none_of_its_pods_is_to_be_placed_any_more() -> None:
    """They are on their way out; what replaces them asks anew."""
    world = reserved()
    for i in range(4):
        world.terminating(f"train-{i}")
    assert ended(world) == "Refused"


def test_one_of_the_classes_that_it_is_for_is_nobodys_any_more() -> None:
    world = reserved()
    world.append("binder", [ev.ReservationEnded(group=GANG, reason="Changed")])
    world.pod("train-0", "train", cpu=2)
    world.pass_s(2)
    world.plan()
    rooms = (ClassRoom(world.scheduling_class(), {"n0": 2}), ClassRoom(world.scheduling_class(cpu=2), {"n1": 1}))
    world.append("planner.a", [ev.RoomRequested(group=GANG, room=rooms)], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    world.pod("train-0", "train")
    assert ended(world) == "Changed"


def test_the_policy_turns_it_off() -> None:
    world = reserved()
    off = msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=0)
    world.append("admin", [ev.PolicyChanged(policy=off)], cause="admin")
    assert ended(world) == "TurnedOff"


def test_the_policy_allows_fewer_at_a_time() -> None:
    """It counted for the next request alone, and these stood until their time was over, which may be hours."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, reservations=3)
    world = World(policy)
    gangs = {"n0": "oldest", "n1": "high", "n2": "youngest"}
    for node, gang in gangs.items():
        world.node(node, cpu=3)
        world.pod(f"{node}-0", node=node, cpu=3)
        world.gang(gang, 3, 3, priority=int(gang == "high"))
    world.plan()
    for node, gang in gangs.items():
        room = (ClassRoom(world.scheduling_class(), {node: 3}),)
        world.append("planner.a", [ev.RoomRequested(group=f"default/{gang}", room=room)], cause="by hand")
    world.judge()
    assert list(world.state.reservations) == ["default/oldest", "default/high", "default/youngest"]

    def ended_with(most: int) -> list[tuple[str, str]]:
        fewer = msgspec.structs.replace(policy, reservations=most)
        world.append("admin", [ev.PolicyChanged(policy=fewer)], cause="admin")
        said = [event for event in world.judge() if isinstance(event, ev.ReservationEnded)]
        return [(event.group.removeprefix("default/"), event.reason) for event in said]

    assert ended_with(2) == [("youngest", "TurnedOff")]
    world.deleted("n1-0")
    world.pass_s(2)
    world.plan()
    assert ended_with(1) == [("high", "Taken")], "a proposal that stands is judged first"
    assert ended_with(1) == []
    assert ended_with(0) == [("oldest", "TurnedOff")]


def test_whoever_was_kept_off_is_tried_again() -> None:
    world = reserved(hold_ms=3_000)
    world.deleted("n0-0")
    world.node("n0", cpu=2)
    world.pod("small", cpu=1)
    refused = [event for event in world.plan() if isinstance(event, ev.GroupsRefused)]
    assert any("node(s) keep room for gang default/train" in event.node_reasons for event in refused)
    world.pass_s(5)
    assert ended(world) == "Expired"
    world.settle()
    assert world.where("small") == ["n0"]


def test_a_refusal_that_did_not_know_of_the_end_does_not_sleep_through_it() -> None:
    world = reserved(hold_ms=3_000)
    world.deleted("n0-0")
    world.node("n0", cpu=2)
    world.pod("small", cpu=1)
    decided, basis = world.plan_without_appending(), world.state.sequence
    world.pass_s(5)
    assert ended(world) == "Expired"
    world.append("planner.a", decided, cause="decide", basis=basis)
    world.pass_s(11)
    world.settle()
    assert world.where("small") == ["n0"]


def test_a_later_reservation_has_its_own_time() -> None:
    """The deadline of one that ended is about nothing any more, though it is for the same gang."""
    world = reserved(hold_ms=10_000)
    world.append("binder", [ev.ReservationEnded(group=GANG, reason="Changed")])
    world.pass_s(6)
    world.plan()  # it was tried again when room was reserved for it
    request = ev.RoomRequested(group=GANG, room=(ClassRoom(world.scheduling_class(), {"n0": 2, "n1": 1}),))
    world.append("planner.a", [request], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    world.pass_s(6)
    assert ended(world) == ""
    world.pass_s(6)
    assert ended(world) == "Expired"


def test_what_is_reserved_already_or_no_longer_is_ignored_and_counted() -> None:
    world = reserved()
    (reservation,) = world.state.reservations.values()
    world.append("planner.a", [ev.RoomRequested(group=GANG, room=reservation.room)], cause="by hand")
    over = ev.ReservationEnded(group=GANG, reason="Changed")
    world.append("binder", [over, over], cause="by hand")
    again = ev.RoomReserved(group=GANG, priority=0, room=reservation.room, waiting_ms=1_000)
    world.append("binder", [again], cause="by hand")
    assert world.state.ignored == {"RoomRequested": 1, "ReservationEnded": 1, "RoomReserved": 1}
    assert not world.state.reservations
    assert not world.state.room_requests
    assert not world.state.kept_classes


def test_who_is_refused_when_it_is_over_waits_for_room() -> None:
    """Its end wakes whoever was refused before it, and nobody a second time."""
    world = reserved()
    world.pass_s(2)
    world.append("binder", [ev.ReservationEnded(group=GANG, reason="Changed")])
    assert [event.groups for event in of_type(world.plan(), ev.GroupsRefused)] == [(GANG,)]
    world.pass_s(30)
    assert not world.plan_would()


def test_a_gang_whose_own_room_is_nominated_is_kept_from_nothing() -> None:
    """It lost its proposals to other shards again and again."""
    world = reserved()
    world.node("n2", cpu=1)
    world.gang("other", 1, 1)
    other = world.state.groups["default/other"]
    assert [one.group for one in reservations.against(world.state, other)] == [GANG]
    room = (NodeAssignment("n2", ("other-0",)),)
    world.append("binder", [ev.GroupNominated(group=other.key, assignments=room, waiting_ms=1_000)])
    assert reservations.against(world.state, other) == ()
