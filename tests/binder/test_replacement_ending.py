"""When the time of a failed member's room is over (design, section 4): the rest of its gang is kept or evicted."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder.core import decide_now
from services.state.deadlines import SWEPT_AFTER
from services.state.records import NOMINATED
from tests.binder.failing import fail, running
from tests.world import World, of_type, refusals


def test_when_the_time_is_over_keep_leaves_the_rest_as_it_is() -> None:
    """Seed 002, After Gang: if some pods have been pulled up, then the subsequent Gang behavior is meaningless."""
    world, uids = running("keep")
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pod("stranger")
    world.plan()
    world.pass_s(29)
    assert world.judge() == []
    world.pass_s(2)
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[1], reason="Expired")]
    world.settle()
    assert world.where("stranger") == [node]
    assert len(world.bound()) == 3


def test_when_the_time_is_over_evict_evicts_the_rest() -> None:
    world, uids = running("evict")
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pass_s(31)
    ended, *evictions = world.judge()
    assert isinstance(ended, ev.NominationEnded)
    assert [(event.uid, event.resource_version) for event in of_type(evictions, ev.EvictionIntended)] == [
        (uid, world.state.pods[uid].resource_version) for uid in (uids[0], uids[2])
    ]
    assert sorted(world.state.evictions) == [uids[0], uids[2]]
    assert world.judge() == []
    done = [ev.PodEvicted(uid=uid, namespace="default", name=uid) for uid in (uids[0], uids[2])]
    world.append("binder", done, cause="outcome")
    assert not world.state.evictions


def test_the_rest_is_also_who_is_being_bound_just_then() -> None:
    """A webhook may keep a binding waiting for longer than room is kept: bound behind that, the pod would stay alone."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", replacement_hold_ms=30_000)
    world = World(policy)
    for node in ("n0", "n1"):
        world.node(node, cpu=1)
    fails, late = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    world.assigned(fails, world.state.claims[fails].node)
    fail(world, fails, "deleted")
    world.judge()
    world.pass_s(31)
    assert [event.uid for event in of_type(world.judge(), ev.EvictionIntended)] == [late]
    world.bind()
    assert world.judge() == []


def test_members_that_succeeded_and_are_removed_tear_nobody_down() -> None:
    """As by ttlSecondsAfterFinished of a Job of theirs. When one of the rest fails then, the gang has too few pods for
    its replacement, and is what the policy is about."""
    world, (first, second, third) = running("evict")
    world.finished(first)
    world.deleted(first)
    assert world.judge() == []
    assert not world.state.lost
    world.pass_s(31)
    assert world.judge() == []
    fail(world, second, "deleted")
    world.pod("train-new", "train", minimum=3)
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [second]
    assert refusals(world.plan()) == ["TooFewPods"]
    world.pass_s(31)
    assert [event.uid for event in of_type(world.judge(), ev.EvictionIntended)] == [third]


@pytest.mark.parametrize("how", ["node gone", "node goes meanwhile", "room taken"])
def test_without_room_to_keep_a_replacement_has_the_same_time(how: str) -> None:
    """A node that failed is mostly deleted before its pods are: then nobody was ever evicted, and the rest stayed."""
    world, uids = running("evict")
    (node,) = world.where(uids[1])
    gone = ev.NodeDeleted(name=node, uid=f"uid-{node}")
    if how == "node gone":
        world.facts(gone)
    elif how == "room taken":
        world.pod("stranger", node=node, candidate=False)
    fail(world, uids[1], "deleted")
    basis, decided = world.state.sequence, decide_now(world.state)
    if how == "node goes meanwhile":
        world.facts(gone)
    world.append("binder", decided, cause="decide", basis=basis)
    assert world.judge() == []
    assert not [claim for claim in world.state.claims.values() if claim.stage == NOMINATED]
    world.pass_s(29)
    assert world.judge() == []
    world.pass_s(2)
    assert [event.uid for event in of_type(world.judge(), ev.EvictionIntended)] == [uids[0], uids[2]]


def test_a_replacement_that_finds_a_place_elsewhere_in_that_time_saves_its_gang() -> None:
    world, uids = running("evict")
    (node,) = world.where(uids[1])
    world.facts(ev.NodeDeleted(name=node, uid=f"uid-{node}"))
    fail(world, uids[1], "deleted")
    world.judge()
    world.node("spare", cpu=1)
    world.pod("train-new", "train", minimum=3)
    world.settle()
    assert world.where("train-new") == ["spare"]
    assert not world.state.nominations
    world.pass_s(31)
    assert world.judge() == []


def proposed_in_time(world: World, uids: list[str]) -> None:
    """A member fails; before its room's time is over its replacement is proposed, and judged behind the tick."""
    fail(world, uids[1], "deleted")
    world.judge()
    world.pass_s(29)
    world.pod("train-new", "train", minimum=3)
    while world.plan():
        pass
    world.pass_s(2)
    assert world.state.nominations[uids[1]].due


def test_a_gang_whose_replacement_is_permitted_is_not_evicted_by_a_late_tick() -> None:
    """Proposals are judged before timeouts (design, section 3)."""
    world, uids = running("evict")
    proposed_in_time(world, uids)
    assert [type(event) for event in world.judge()] == [ev.NominationEnded, ev.GangPermitted]
    world.settle()
    assert world.bound() == sorted(["train-new", uids[0], uids[2]])
    assert not world.state.evictions


def test_nor_where_its_proposal_is_judged_by_a_later_decision() -> None:
    """`Policy.cycle_pods`."""
    world, uids = running("evict")
    assert world.state.policy is not None
    policy = msgspec.structs.replace(world.state.policy, cycle_pods=1)
    world.append("admin", [ev.PolicyChanged(policy=policy)], cause="admin")
    world.pod("first", priority=1)
    world.plan()
    world.node("n9", cpu=1)
    proposed_in_time(world, uids)
    assert [one.group for one in world.state.proposals.values()] == ["pod/default/first", "default/train"]
    world.settle()
    assert world.bound() == sorted(["first", "train-new", uids[0], uids[2]])
    assert not world.state.evictions


def test_room_that_a_replacement_took_ends_once_though_it_waits_and_the_time_is_over() -> None:
    world, uids = running()
    nodes = world.where(*uids)
    for uid in uids[:2]:
        fail(world, uid, "deleted")
    world.judge()
    world.pass_s(31)
    world.pod("train-new", "train", minimum=3)
    world.propose("default/train", {"train-new": nodes[0]})
    decided = world.judge()
    assert of_type(decided, ev.GangHeld)
    assert [(event.pod, event.reason) for event in of_type(decided, ev.NominationEnded)] == [
        (uids[0], "Taken"),
        (uids[1], "Expired"),
    ]


def test_the_time_of_room_that_is_kept_is_not_left_out_with_what_is_over() -> None:
    world, uids = running("keep")
    fail(world, uids[1], "deleted")
    world.judge()
    world.state.clock("binder").serial = SWEPT_AFTER - 1
    world.pass_s(31)
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["Expired"]


def test_the_time_of_room_that_a_replacement_took_ends_nothing() -> None:
    world, uids = running("evict")
    fail(world, uids[1], "deleted")
    world.judge()
    world.pass_s(1)
    world.pod("train-new", "train", minimum=3)
    world.settle()
    assert not world.state.nominations
    world.pass_s(31)
    assert (world.state.clock("binder").armed, world.judge()) == ([], [])


def test_two_expired_nominations_evict_each_pod_once() -> None:
    world, uids = running("evict")
    for uid in uids[:2]:
        fail(world, uid, "OutOfcpu")
    world.judge()
    world.pass_s(31)
    assert [event.uid for event in of_type(world.judge(), ev.EvictionIntended)] == [uids[2]]


def rack(gangs: int, cycle_pods: int) -> tuple[World, list[str]]:
    """Gangs of three that run under the policy *evict*, each of which loses a pod in the same commit; those pods."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=cycle_pods)
    world = World(policy)
    for i in range(gangs):
        world.node(f"n{i}", cpu=3)
        world.gang(f"train{i}", 3, 3)
    world.settle()
    lost = [f"train{i}-0" for i in range(gangs)]
    world.facts(*(ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in lost))
    return world, lost


def test_one_decision_keeps_no_more_room_than_a_cycle_has_pods() -> None:
    world, lost = rack(gangs=5, cycle_pods=2)
    said = [world.judge() for _ in range(4)]
    assert [len(decided) for decided in said] == [2, 2, 1, 0]
    assert [event.pod for decided in said for event in of_type(decided, ev.RoomNominated)] == lost


def test_one_decision_evicts_no_more_gangs_than_it_takes_for_a_cycles_pods() -> None:
    """A commit is one message: a rack whose gangs are all evicted at the same tick would be too large for it."""
    world, lost = rack(gangs=5, cycle_pods=6)
    world.judge()
    world.pass_s(61)
    said = [world.judge() for _ in range(4)]
    assert [len(of_type(decided, ev.NominationEnded)) for decided in said] == [2, 2, 1, 0]
    assert sorted(event.uid for decided in said for event in of_type(decided, ev.EvictionIntended)) == sorted(
        uid for uid in world.state.pods if uid not in lost
    )


def test_two_nominations_of_a_gang_end_together_however_full_the_decision_is() -> None:
    """Whom the first evicts the second does not evict again."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=2)
    world = World(policy)
    world.node("n", cpu=4)
    uids = world.gang("train", 4, 4)
    world.settle()
    world.facts(*(ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in uids[:2]))
    world.judge()
    world.pass_s(61)
    decided = world.judge()
    assert [event.pod for event in of_type(decided, ev.NominationEnded)] == uids[:2]
    assert [event.uid for event in of_type(decided, ev.EvictionIntended)] == uids[2:]
    assert world.judge() == []


def test_also_where_another_gangs_stands_between_them_and_waits_for_the_next_decision() -> None:
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=3)
    world = World(policy)
    world.node("n", cpu=6)
    first, second = world.gang("first", 3, 3), world.gang("second", 3, 3)
    world.settle()
    lost = [first[0], second[0], first[1]]
    world.facts(*(ev.PodDeleted(uid=uid, namespace="default", name=uid) for uid in lost))
    world.judge()
    world.append("admin", [ev.PolicyChanged(policy=msgspec.structs.replace(policy, cycle_pods=1))], cause="admin")
    world.pass_s(61)
    said = [[event.pod for event in of_type(world.judge(), ev.NominationEnded)] for _ in range(3)]
    assert said == [[first[0], first[1]], [second[0]], []]


def test_a_group_of_gangs_takes_the_room_of_each_of_its_gangs_in_the_order_of_the_failures() -> None:
    """What is kept for a gang beside them stays kept."""
    world = World()
    world.node("n0", cpu=6)
    group = {"groups": ("default/a", "default/b")}
    for gang, of in (("default/a", group), ("default/b", group), ("default/c", {})):
        world.koordinator(gang, 2, 2, of)
    world.settle()
    for uid in ("b-1", "c-1", "a-1"):
        world.deleted(uid)
        world.judge()
    for gang in ("default/a", "default/b"):
        world.koordinator(gang, 2, 2, group)
    world.plan()
    ended = of_type(world.judge(), ev.NominationEnded)
    assert [(one.gang, one.pod, one.reason) for one in ended] == [
        ("default/b", "b-1", "Taken"),
        ("default/a", "a-1", "Taken"),
    ]
    assert list(world.state.nominations) == ["c-1"]


def test_one_decision_gives_back_no_more_room_than_a_cycle_has_pods() -> None:
    """Of gangs that nobody is left of, and of those whose time is over."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, cycle_pods=2)
    for gone in (True, False):
        world = World(policy)
        for i in range(5):
            world.node(f"n{i}", cpu=2)
            world.gang(f"train{i}", 2, 2)
        world.settle()
        world.facts(*(ev.PodDeleted(uid=f"train{i}-0", namespace="default", name=f"train{i}-0") for i in range(5)))
        for _ in range(3):
            world.judge()
        if gone:
            world.facts(*(ev.PodDeleted(uid=f"train{i}-1", namespace="default", name=f"train{i}-1") for i in range(5)))
        else:
            world.pass_s(61)
        said = [of_type(world.judge(), ev.NominationEnded) for _ in range(4)]
        assert [len(ended) for ended in said] == [2, 2, 1, 0]
        assert {event.reason for ended in said for event in ended} == {"GangGone" if gone else "Expired"}
