"""Replacements that ask for something else than the members that failed, as in a rollout: the room that is kept for their
gang is no reason why they wait."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import ClassRoom, HostPort, Taint
from tests.binder.failing import FAILURES, fail, running
from tests.world import World, of_type, refusals

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("ports", [(), WEB])
def test_it_goes_where_its_gang_was(how: str, ports: tuple[HostPort, ...]) -> None:
    world, uids = running(ports=ports)
    (node,) = world.where(uids[1])
    fail(world, uids[1], how)
    world.judge()
    world.pod("train-new", "train", minimum=3, cpu=0.5, ports=ports)
    assert [type(event) for event in world.plan()] == [ev.GangPlaced]
    ended, permit = world.judge()
    assert ended == ev.NominationEnded(gang="default/train", pod=uids[1], reason="Taken")
    assert isinstance(permit, ev.GangPermitted)
    world.settle()
    assert world.where("train-new") == [node]


def test_not_where_somebody_else_has_the_port_that_it_opens() -> None:
    other = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=81),)
    world, uids = running(ports=WEB)
    (node,) = world.where(uids[1])
    world.pod("daemon", node=node, candidate=False, cpu=0, ports=other)
    fail(world, uids[1], "deleted")
    world.judge()
    world.pod("train-new", "train", minimum=3, cpu=0.5, ports=(*WEB, *other))
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.deleted("daemon")
    world.pass_s(2)
    world.settle()
    assert world.where("train-new") == [node]


def rolled(cpu: float, pods: int) -> World:
    """A gang of four on a node that it fills; two of its pods went, and these came."""
    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 4, 4)
    world.settle()
    for uid in ("train-0", "train-1"):
        world.deleted(uid)
        world.judge()
    for number in range(pods):
        world.pod(f"new-{number}", "train", minimum=4 if pods > 1 else 3, cpu=cpu)
    return world


@pytest.mark.parametrize(("cpu", "pods"), [(0.75, 2), (2, 1)])
def test_also_in_the_room_of_several_whatever_their_number(cpu: float, pods: int) -> None:
    world = rolled(cpu, pods)
    if pods == 1:
        for uid in ("train-2", "train-3"):  # the gang is smaller by now
            world.pod(uid, "train", minimum=3, node="n0")
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where(*(f"new-{number}" for number in range(pods))) == ["n0"] * pods
    assert not world.state.nominations


def test_who_would_not_bring_its_gang_its_minimum_leaves_the_room_alone() -> None:
    world = rolled(1.5, 2)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.settle()
    assert world.where("new-0", "new-1") == ["", ""]
    assert list(world.state.nominations) == ["train-0", "train-1"]
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger") == [""]


def test_those_that_ask_for_different_things_are_proposed_once() -> None:
    world = rolled(0.5, 1)
    world.pod("new-1", "train", minimum=4, cpu=0.25)
    (placed,) = world.plan()
    assert isinstance(placed, ev.GangPlaced)
    assert sorted(uid for one in placed.required for uid in one.pods) == ["new-0", "new-1"]


def test_also_where_only_the_smaller_of_them_find_room_together() -> None:
    world = rolled(2, 1)
    for number in (1, 2):
        world.pod(f"new-{number}", "train", minimum=4, cpu=0.75)
    world.settle()
    assert world.where("new-0", "new-1", "new-2") == ["", "n0", "n0"]


def test_room_that_one_of_the_same_class_takes_is_given_to_no_other() -> None:
    world = rolled(1, 1)
    world.pod("new-0", "train", minimum=4)
    world.pod("new-1", "train", minimum=4, cpu=1.5)
    world.propose("default/train", {"new-0": "n0", "new-1": "n0"})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NoRoom"]
    world.pod("new-1", "train", minimum=4, cpu=0.75)
    world.plan()
    assert [type(event) for event in world.judge()] == [ev.NominationEnded, ev.NominationEnded, ev.GangPermitted]


def test_what_it_leaves_on_other_nodes_is_kept_from_those_who_come_behind() -> None:
    """In the same cycle: the binder gives it back only behind its permit."""
    world, uids = running(minimum=2)
    for uid in uids[1:]:
        fail(world, uid, "deleted")
        world.judge()
    world.pod("train-new", "train", minimum=2, cpu=0.5)
    world.pod("stranger")
    placed = of_type(world.plan(), ev.GangPlaced)
    assert [event.group for event in placed] == ["default/train"]
    assert not of_type(world.judge(), ev.DisagreementDetected)


@pytest.mark.parametrize(("gpu", "free"), [(1, 5), (2, 6)])
@pytest.mark.parametrize("emptier", ["n0", "n1"])
def test_who_comes_behind_goes_to_the_emptier_node_whether_it_takes_that_room_or_not(
    gpu: int, free: int, emptier: str
) -> None:
    """What it takes beside what is kept counts there, and what is kept counts once: so many of n0's eight cpus are `free`
    then. With two GPUs it finds no node."""
    world = World()
    world.node("n0", cpu=8, gpu=2, memory_gi=1_000)
    world.gang("train", 2, 2, gpu=1)
    world.settle()
    world.deleted("train-1")
    world.judge()
    world.pod("train-new", "train", minimum=2, gpu=gpu, cpu=2, priority=1)
    world.node("n1", cpu=8, memory_gi=1_000)
    world.pod("there", node="n1", candidate=False, cpu=8 - free + (0.5 if emptier == "n0" else -0.5))
    world.node("n2", cpu=1, labels={"only": "first"})
    world.pod("first", cpu=1, selector={"only": "first"}, priority=2)
    world.pod("stranger", cpu=0.25)
    placed = {one.group: one.required[0].node for one in of_type(world.plan(), ev.GangPlaced)}
    taken = {"default/train": "n0"} if gpu == 1 else {}
    assert placed == {"pod/default/first": "n2", **taken, "pod/default/stranger": emptier}


def test_it_takes_what_is_kept_on_its_own_node_alone() -> None:
    world, uids = running()
    for uid in uids[1:]:
        fail(world, uid, "deleted")
        world.judge()
    kept = {uid: one.node for uid, one in world.state.nominations.items()}
    world.pod(uids[0], "train", minimum=2, node=world.where(uids[0])[0])  # the gang is smaller by now
    world.pod("train-new", "train", minimum=2, cpu=0.5)
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    ended, permit = world.judge()
    assert isinstance(ended, ev.NominationEnded)
    assert isinstance(permit, ev.GangPermitted)
    assert kept[ended.pod] == placed.required[0].node
    (left,) = world.state.nominations
    assert kept[left] != placed.required[0].node


def beside(shards: tuple[str, ...] = ("a",)) -> World:
    """A gang of two filled a node; the room of one that went is kept there, and is more than the one that came needs."""
    world = World(shards=shards)
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    world.settle(shards)
    world.deleted("train-1")
    world.judge()
    world.pod("train-new", "train", minimum=2, cpu=0.5, priority=10)
    for number in range(8):  # of either shard's
        world.pod(f"stranger-{number}", cpu=0.25)
    return world


def test_what_it_leaves_beside_it_is_kept_too_as_it_may_be_refused() -> None:
    """Strangers were proposed there, and the binder said that it and the planner disagree."""
    world = beside()
    assert [event.group for event in of_type(world.plan(), ev.GangPlaced)] == ["default/train"]
    world.deleted("train-new")
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused]


def test_or_its_shard_may_be_behind() -> None:
    world = beside(("a", "b"))
    owner = world.state.owner(world.state.groups["default/train"])
    assert of_type(world.plan("b" if owner == "a" else "a"), ev.GangPlaced) == []
    world.plan(owner)
    world.settle(("a", "b"))
    world.pass_s(2)
    world.settle(("a", "b"))
    assert len(world.bound()) == 4


def test_what_the_binder_may_not_give_back_any_more_is_no_disagreement() -> None:
    """What its gang held elsewhere is broken meanwhile, so that it would lack its minimum."""
    world = World()
    for name in ("n0", "n1", "n2"):
        world.node(name, cpu=1)
    kind = {"dialect": "coscheduling/v1alpha1"}
    world.pod_group("train", 3)
    for number in range(3):
        world.pod(f"train-{number}", "train", **kind)
    world.settle()
    world.deleted("train-1")
    world.deleted("train-2")
    world.judge()
    world.pod_group("train", 2)
    world.pod("train-3", "train", **kind)
    world.plan()
    world.pod_group("train", 3)
    world.judge()
    (held,) = world.state.groups["default/train"].held
    world.pod("train-4", "train", cpu=0.5, **kind)
    assert of_type(world.plan(), ev.GangPlaced)
    node = world.state.claims[held].node
    world.node(node, cpu=1, taints=(Taint(key="x", value="", effect="NoSchedule"),))
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused]


def test_the_binder_lets_it_in_whose_room_was_nominated_meanwhile() -> None:
    """The planner saw it free, and the binder keeps it for the gang by now."""
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "deleted")
    world.pod("train-new", "train", minimum=3, cpu=0.5)
    basis = world.state.sequence
    world.judge()
    world.propose("default/train", {"train-new": node}, basis=basis)
    assert [type(event) for event in world.judge()] == [ev.NominationEnded, ev.GangPermitted]


def test_a_task_does_not_take_the_room_of_another_that_lacks_its_minimum() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.pod_group("job", 4, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 2})
    for name in ("ps-0", "worker-0", "worker-1", "worker-2"):
        world.volcano(name, "job", name.partition("-")[0])
    world.settle()
    world.deleted("ps-0")
    world.judge()
    world.volcano("worker-3", "job", "worker", cpu=0.5)
    world.propose("default/job@batch", {"worker-3": "n0"})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NoRoom"]
    assert list(world.state.nominations) == ["ps-0"]
    world.volcano("ps-1", "job", "ps", cpu=0.5)
    world.settle()
    assert world.where("ps-1") == ["n0"]


@pytest.mark.parametrize(("mode", "placed"), [("Strict", [ev.GangPlaced]), ("NonStrict", [ev.GroupsRefused])])
def test_pods_that_start_one_by_one_leave_the_room_of_another_class_alone(mode: str, placed: list[type]) -> None:
    """The binder lets in who gets all of the minimum with it, and pods of a NonStrict gang may get less."""
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 2, 2, {"mode": mode, "match_policy": "waiting-and-running"})
    world.settle()
    fact = world.state.pods["a-1"].fact
    world.deleted("a-1")
    world.judge()
    new = {"uid": "new", "name": "new", "scheduling_class": world.scheduling_class(cpu=0.5), "node": ""}
    world.facts(msgspec.structs.replace(fact, **new, status="pending", resource_version=world.version()))
    assert [type(event) for event in world.plan()] == placed


@pytest.mark.parametrize("reserved", ["n1", "n2"])
def test_what_is_kept_from_its_further_pods_is_nobodys_either_before_the_binder_gives_it_back(reserved: str) -> None:
    """Room reserved for another gang was taken off the lent room while these were placed, and given back behind that: the
    other was proposed where there was none, and set aside as if planner and binder disagreed."""
    world, uids = running()
    digest = world.scheduling_class()
    world.pod("other-0", "other", minimum=1)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    room = (ClassRoom(digest, {reserved: 1}),)
    world.append("planner.a", [ev.RoomRequested(group="default/other", room=room)], cause="by hand")
    assert of_type(world.judge(), ev.RoomReserved)
    stays = next(uid for uid in uids if world.where(uid) == ["n0"])
    for uid in uids:
        if uid != stays:
            fail(world, uid, "deleted")
    assert len(of_type(world.judge(), ev.RoomNominated)) == 2
    world.pod(stays, "train", minimum=2, node="n0")
    for name in ("train-new", "train-more"):
        world.pod(name, "train", minimum=2, cpu=0.5)
    world.pass_s(2)
    world.plan()
    verdicts = world.judge()
    assert of_type(verdicts, ev.GangPermitted)
    assert not of_type(verdicts, ev.DisagreementDetected)


def satisfied_once(cpu: float) -> World:
    """A gang of Koordinator's that started, whose rules are off: it filled its node, two of its pods went, one came."""
    world = World()
    world.node("n0", cpu=4)
    world.koordinator("default/train", 4, 4)
    world.settle()
    for uid in ("train-0", "train-1"):
        world.deleted(uid)
        world.judge()
    said = world.state.gangs["default/train"].declaration
    world.pod("new", "train", dialect="koordinator/v1alpha1", declared=said, cpu=cpu)
    return world


def test_a_gang_whose_rules_are_off_goes_where_it_was_too() -> None:
    """Koordinator's default: nothing must start together any more, and what is kept is kept for it all the same."""
    world = satisfied_once(0.5)
    said = world.state.gangs["default/train"].declaration
    world.pod("more", "train", dialect="koordinator/v1alpha1", declared=said, cpu=1.25)
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("new", "more", "stranger") == ["n0", "n0", ""]
    assert not world.state.nominations


def test_but_not_before_it_has_its_minimum_with_that() -> None:
    world = satisfied_once(1.5)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.propose("default/train", {}, {"new": "n0"})
    (permit,) = world.judge()
    assert (permit.bindings, permit.dropped) == ((), ("new",))
    assert list(world.state.nominations) == ["train-0", "train-1"]
