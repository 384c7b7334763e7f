"""Starvation: which requests for room are granted."""

from __future__ import annotations

import msgspec

import events as ev
from events.objects import ClassRoom, HostPort
from events.policy import DEFAULT_POLICY
from services.binder.reserved import ReservedRoom
from services.state.records import Reservation
from tests.world import World, of_type

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def starving(*gangs: str, reservations: int = 1, **priorities: int) -> World:
    """Two nodes of four cpu, full; gangs of three pods of one cpu that were refused."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, reservations=reservations))
    for node in ("n0", "n1"):
        world.node(node, cpu=4)
        world.pod(f"{node}-0", node=node, cpu=4, priority=-1)
    for name in gangs:
        world.gang(name, 3, 3, priority=priorities.get(name, 0))
    world.plan()
    return world


def ask(world: World, gang: str, room: dict[str, int], *, basis: int | None = None) -> None:
    """The planner's part, by hand: node → pods."""
    event = ev.RoomRequested(group=f"default/{gang}", room=(ClassRoom(world.scheduling_class(), room),))
    world.append("planner.a", [event], cause="by hand", basis=basis)


def answers(world: World) -> list[tuple[str, str, str]]:
    said = [
        event for event in world.judge() if isinstance(event, ev.RoomReserved | ev.RoomDeclined | ev.ReservationEnded)
    ]
    return [
        (type(event).__name__, event.group.removeprefix("default/"), getattr(event, "reason", "")) for event in said
    ]


def test_it_is_granted_as_asked_for_with_its_time() -> None:
    world = starving("train")
    ask(world, "train", {"n0": 2, "n1": 1})
    (granted,) = world.judge()
    assert granted == ev.RoomReserved(
        group="default/train",
        priority=0,
        room=(ClassRoom(world.scheduling_class(), {"n0": 2, "n1": 1}),),
        waiting_ms=600_000,
    )
    assert not world.state.room_requests
    assert world.judge() == []


def test_at_most_so_many_at_a_time() -> None:
    world = starving("one", "two", "three", reservations=2)
    for name in ("two", "one", "three"):
        ask(world, name, {"n0": 1})
    assert answers(world) == [
        ("RoomReserved", "two", ""),
        ("RoomReserved", "one", ""),
        ("RoomDeclined", "three", "Full"),
    ]


def test_one_that_ends_makes_way_for_another_at_once() -> None:
    world = starving("one", "two")
    ask(world, "one", {"n0": 3})
    world.judge()
    for i in range(3):
        world.deleted(f"one-{i}")
    ask(world, "two", {"n0": 3})
    assert answers(world) == [("ReservationEnded", "one", "GroupGone"), ("RoomReserved", "two", "")]


def test_a_higher_priority_takes_the_place_of_the_lowest_and_youngest() -> None:
    world = starving("one", "two", "three", "urgent", reservations=3, urgent=9, three=1)
    for name in ("one", "two", "three"):
        ask(world, name, {"n0": 1})
        world.judge()
    ask(world, "urgent", {"n0": 4})
    assert answers(world) == [("ReservationEnded", "two", "Outranked"), ("RoomReserved", "urgent", "")]
    assert list(world.state.reservations) == ["default/one", "default/three", "default/urgent"]


def test_each_of_those_who_ask_together_takes_the_place_of_the_one_before() -> None:
    world = starving("low", "mid", "high", low=0, mid=1, high=2)
    for name in ("low", "mid", "high"):
        ask(world, name, {"n0": 3})
    assert answers(world) == [
        ("RoomReserved", "low", ""),
        ("ReservationEnded", "low", "Outranked"),
        ("RoomReserved", "mid", ""),
        ("ReservationEnded", "mid", "Outranked"),
        ("RoomReserved", "high", ""),
    ]
    assert list(world.state.reservations) == ["default/high"]


def test_an_equal_one_takes_nobodys_place() -> None:
    world = starving("one", "two")
    ask(world, "one", {"n0": 1})
    world.judge()
    ask(world, "two", {"n1": 1})
    assert answers(world) == [("RoomDeclined", "two", "Full")]


def test_what_is_kept_for_two_fits_the_nodes_together() -> None:
    world = starving("one", "two", "three", reservations=3)
    ask(world, "one", {"n0": 3})
    ask(world, "two", {"n0": 2})
    ask(world, "three", {"n0": 1, "n1": 2})
    assert answers(world) == [
        ("RoomReserved", "one", ""),
        ("RoomDeclined", "two", "Overlap"),
        ("RoomReserved", "three", ""),
    ]


def test_what_is_kept_for_a_lower_priority_is_in_nobodys_way() -> None:
    world = starving("one", "urgent", reservations=2, urgent=9)
    ask(world, "one", {"n0": 3})
    world.judge()
    ask(world, "urgent", {"n0": 3})
    assert answers(world) == [("RoomReserved", "urgent", "")]


def test_what_is_nominated_is_not_to_be_had() -> None:
    """It is for a member of a gang that runs; whoever runs beside it may go."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, reservations=1))
    world.node("n0", cpu=4)
    for name in ("job-0", "job-1"):
        world.pod(name, "job", minimum=2, node="n0")
    world.pod("other", cpu=2, node="n0")
    world.deleted("job-1")
    assert of_type(world.judge(), ev.RoomNominated)
    world.gang("train", 4, 4)
    world.plan()
    ask(world, "train", {"n0": 4})
    assert answers(world) == [("RoomDeclined", "train", "Overlap")]
    ask(world, "train", {"n0": 3})
    assert answers(world) == [("RoomReserved", "train", "")]


def test_room_of_pods_that_others_schedule_is_not_to_be_had_before_they_are_on_their_way_out() -> None:
    world = starving("one", "two", reservations=2)
    world.pod("daemon", node="n0", candidate=False, cpu=2)
    ask(world, "one", {"n0": 3})
    assert answers(world) == [("RoomDeclined", "one", "Overlap")]
    world.terminating("daemon")
    ask(world, "two", {"n0": 3})
    assert answers(world) == [("RoomReserved", "two", "")]


def test_a_node_that_is_gone_or_takes_no_such_pods() -> None:
    world = starving("one", "two", reservations=2)
    ask(world, "one", {"n0": 1, "n9": 1})
    ask(world, "two", {"n1": 1})
    world.node("n1", cpu=4, unschedulable=True)
    assert answers(world) == [("RoomDeclined", "one", "NodeGone"), ("RoomDeclined", "two", "NodeGone")]


def test_a_gang_that_changed_since_is_planned_again_first() -> None:
    world = starving("train")
    basis = world.state.sequence
    world.pod("train-3", "train", minimum=3)
    ask(world, "train", {"n0": 1}, basis=basis)
    assert answers(world) == [("RoomDeclined", "train", "Changed")]
    assert world.judge() == [], "it has its answer"


def test_a_gang_that_is_gone() -> None:
    world = starving("train")
    ask(world, "train", {"n0": 1})
    for i in range(3):
        world.deleted(f"train-{i}")
    assert answers(world) == [("RoomDeclined", "train", "GroupGone")]


def test_another_of_its_name_did_not_ask() -> None:
    world = starving("train")
    ask(world, "train", {"n0": 1})
    for i in range(3):
        world.deleted(f"train-{i}")
    world.gang("train", 3, 3)
    world.plan()
    assert answers(world) == [("RoomDeclined", "train", "GroupGone")]


def test_a_gang_that_found_room_meanwhile_needs_no_other() -> None:
    world = starving("train")
    ask(world, "train", {"n0": 3})
    world.deleted("n1-0")
    world.pass_s(2)
    world.plan()
    assert answers(world) == [("RoomDeclined", "train", "Changed")]
    assert len(world.state.permitted) == 3


def test_who_is_declined_keeps_nobody_behind_him_from_an_answer() -> None:
    world = starving("one", "two", "three")
    ask(world, "one", {"n9": 3})
    ask(world, "two", {"n0": 3})
    world.deleted("one-0")
    ask(world, "three", {"n1": 3})
    assert answers(world) == [
        ("RoomDeclined", "one", "Changed"),
        ("RoomReserved", "two", ""),
        ("RoomDeclined", "three", "Full"),
    ]


def test_a_policy_that_turned_it_off_meanwhile() -> None:
    world = starving("train")
    ask(world, "train", {"n0": 1})
    off = msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=0)
    world.append("admin", [ev.PolicyChanged(policy=off)], cause="admin")
    assert answers(world) == [("RoomDeclined", "train", "TurnedOff")]


def test_who_does_not_own_the_gang_does_not_ask_for_it() -> None:
    world = starving("train")
    event = ev.RoomRequested(group="default/train", room=(ClassRoom(world.scheduling_class(), {"n0": 1}),))
    world.append("planner.z", [event], cause="by hand")
    world.append("planner.a", [event], cause="by hand", epoch=world.state.epoch - 1)
    assert world.state.ignored["RoomRequested"] == 2
    assert not world.state.room_requests


# -------------------------------------------------------------------------------------------- proposals meet what is kept


def granted(*others: str, **priorities: int) -> World:
    world = starving("train", *others, **priorities)
    ask(world, "train", {"n0": 3})
    world.judge()
    world.deleted("n0-0")
    return world


def test_a_proposal_may_not_take_what_is_kept_and_that_is_no_disagreement() -> None:
    world = granted()
    world.pod("small", cpu=2)
    world.propose("pod/default/small", {"small": "n0"})
    (refused,) = world.judge()
    assert isinstance(refused, ev.ProposalRefused)
    assert (refused.reason, refused.node) == ("RoomKept", "n0")
    assert world.state.groups["pod/default/small"].conflicts == 0


def test_of_the_nodes_on_which_it_takes_what_is_kept_the_first_by_name_is_named() -> None:
    world = starving("train", "other")
    ask(world, "train", {"n0": 1, "n1": 2})
    world.judge()
    for node in ("n0", "n1"):
        world.deleted(f"{node}-0")
    world.gang("wide", 2, 2, cpu=4)
    world.propose("default/wide", {"wide-0": "n1", "wide-1": "n0"})
    [refused] = of_type(world.judge(), ev.ProposalRefused)
    assert (refused.reason, refused.node) == ("RoomKept", "n0")


def test_it_may_take_what_is_left_beside_it() -> None:
    world = granted()
    world.pod("small", cpu=1)
    world.propose("pod/default/small", {"small": "n0"})
    assert of_type(world.judge(), ev.GangPermitted)


def test_it_may_take_all_of_what_nobody_asked_for() -> None:
    world = granted()
    world.node("n0", cpu=4, gpu=1)
    world.pod("small", cpu=1, gpu=1)
    world.propose("pod/default/small", {"small": "n0"})
    assert of_type(world.judge(), ev.GangPermitted)


def test_a_higher_priority_takes_it_and_the_claim_stands() -> None:
    world = granted()
    world.pod("urgent", cpu=4, priority=1)
    world.propose("pod/default/urgent", {"urgent": "n0"})
    assert of_type(world.judge(), ev.GangPermitted)
    assert "default/train" in world.state.reservations


def test_the_gang_itself_takes_it() -> None:
    world = granted()
    world.propose("default/train", dict.fromkeys(("train-0", "train-1", "train-2"), "n0"))
    said = world.judge()
    assert [type(event).__name__ for event in said] == ["ReservationEnded", "GangPermitted"]
    assert of_type(said, ev.ReservationEnded)[0].reason == "Taken"


def test_room_that_is_nominated_for_a_group_is_its_own_whatever_is_reserved() -> None:
    """A failed member of a running gang: its replacement goes where its room is kept."""
    world = World()
    world.node("n0", cpu=4)
    world.gang("old", 2, 2)
    world.settle()
    world.pod("n0-0", node="n0", cpu=2)
    world.gang("train", 3, 3)
    world.plan()
    ask(world, "train", {"n0": 3})
    world.judge()
    world.finished("old-0", succeeded=False)
    assert of_type(world.judge(), ev.RoomNominated)
    world.pod("old-2", "old", minimum=2)
    world.settle()
    assert world.where("old-2") == ["n0"]


def test_host_ports_are_kept_as_well() -> None:
    world = starving("train")
    digest = world.scheduling_class(ports=WEB)
    other = world.scheduling_class(0, ports=WEB)
    table = world.state.table
    rooms = (ClassRoom(digest, {"n0": 1}), ClassRoom(world.scheduling_class(), {"n1": 1}))
    kept = ReservedRoom(table, [Reservation("default/train", 1, 0, rooms)])
    row = table.rows["n0"]
    assert kept.keeps(row, table.classes[other], [1 << 40] * table.resources.width)
    assert not kept.keeps(row, table.classes[world.scheduling_class()], [1 << 40] * table.resources.width)
    assert not kept.keeps(table.rows["n1"], table.classes[other], [1 << 40] * table.resources.width)


def test_where_a_port_never_is_free_none_is_kept() -> None:
    """A DaemonSet's pod came since the planner asked."""
    world = starving("train")
    world.pod("daemon", node="n0", cpu=0.1, candidate=False, ports=WEB)
    room = (ClassRoom(world.scheduling_class(0.1, ports=WEB), {"n0": 1}),)
    world.pod("train-0", "train", cpu=0.1, ports=WEB)
    world.plan()
    world.append("planner.a", [ev.RoomRequested(group="default/train", room=room)], cause="by hand")
    assert answers(world) == [("RoomDeclined", "train", "Overlap")]


# ----------------------------------------------------------------------------------------------- planners meet it, too


def why(events: list[ev.Event], group: str) -> dict[str, int]:
    (refused,) = (event for event in of_type(events, ev.GroupsRefused) if group in event.groups)
    return refused.node_reasons


def test_in_one_cycle_others_are_kept_off_and_the_gang_behind_them_takes_it() -> None:
    world = granted()
    world.pass_s(2)
    world.pod("small", cpu=2)
    events = world.plan()
    assert why(events, "pod/default/small") == {
        "Insufficient cpu": 1,
        "node(s) keep room for gang default/train": 1,
    }
    (placed,) = of_type(events, ev.GangPlaced)
    assert (placed.group, [one.node for one in placed.required]) == ("default/train", ["n0"])


def test_pods_that_are_alike_are_placed_together_only_where_the_same_is_kept_from_them() -> None:
    world = granted()
    world.pod("urgent", priority=1)
    for name in ("small", "other"):
        world.pod(name)
    placed = [event.group for event in of_type(world.plan(), ev.GangPlaced)]
    assert placed == ["pod/default/urgent"], "one cpu beside the three that are kept from the others"


def test_a_node_that_two_gangs_keep_room_on_is_named_once() -> None:
    world = starving("one", "two", reservations=2)
    for name in ("one", "two"):
        ask(world, name, {"n0": 2})
    world.judge()
    assert len(world.state.reservations) == 2
    world.pass_s(2)
    world.deleted("n0-0")
    world.pod("small", cpu=1)
    assert why(world.plan(), "pod/default/small") == {
        "Insufficient cpu": 1,
        "node(s) keep room for gang default/one": 1,
    }


def test_a_node_that_lacks_a_free_port_besides_is_not_named_for_what_it_keeps() -> None:
    world = granted()
    world.pod("web", node="n0", candidate=False, cpu=0, ports=WEB)
    world.pass_s(2)
    world.pod("small", cpu=2, ports=WEB)
    assert not [reason for reason in why(world.plan(), "pod/default/small") if "keep room" in reason]
