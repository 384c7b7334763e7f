"""The room of a member whose binding is refused by admission, and whose pod may be tried again."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from tests.binder.failing import FAILURES, fail
from tests.world import World, of_type


def refused_by_admission(world: World, uid: str) -> str:
    """The binding of an open intent is refused for good; the node that it meant."""
    node = world.state.claims[uid].node
    no = ev.BindingFailed(
        uid=uid,
        namespace="default",
        name=uid,
        node=node,
        reason="Forbidden",
        message="a webhook's no",
        assigned_node="",
    )
    world.append("binder", [no], cause="outcome")
    return node


def half_refused(replacement: str) -> tuple[World, list[str], str]:
    """A gang of two that fills its nodes: one is bound, the other's binding refused by admission."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=replacement, replacement_hold_ms=30_000)
    world = World(policy)
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    node = refused_by_admission(world, uids[0])
    assert [(event.pod, event.node) for event in of_type(world.judge(), ev.RoomNominated)] == [(uids[0], node)]
    world.bind()
    return world, uids, node


def test_the_room_of_a_binding_refused_by_admission_is_kept_while_its_pod_backs_off() -> None:
    world, uids, node = half_refused("keep")
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger", uids[0]) == ["", ""]
    world.pass_s(2)
    world.settle()
    assert world.where("stranger", uids[0]) == ["", node]
    assert not world.state.nominations


def test_a_pod_that_has_a_proposal_before_its_room_is_kept_needs_none() -> None:
    """The planner was quicker than the binder: what is proposed is all the room that the pod takes."""
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    refused_by_admission(world, uids[0])
    world.pass_s(2)
    world.plan()
    ended, permit = world.judge()
    assert ended == ev.NominationEnded(gang="default/train", pod=uids[0], reason="GangGone")
    assert isinstance(permit, ev.GangPermitted)


def test_a_binding_that_is_refused_again_keeps_no_room_beyond_the_first_hold() -> None:
    world, uids, _ = half_refused("evict")
    for _ in range(60):
        world.pass_s(1)
        world.plan()
        if of_type(world.judge(), ev.EvictionIntended):
            break
        if uids[0] in world.state.permitted:
            refused_by_admission(world, uids[0])
            world.judge()
    assert list(world.state.evictions) == [uids[1]]
    assert not world.state.nominations


def test_also_where_the_time_of_another_gangs_room_is_over_in_the_same_tick() -> None:
    world, uids, _ = half_refused("evict")
    for i in range(2, 4):
        world.node(f"n{i}", cpu=1)
    other = world.gang("other", 2, 2)
    world.plan()
    world.judge()
    world.bind()
    fail(world, other[0], "deleted")
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [other[0]]
    world.pass_s(2)
    world.plan()
    world.judge()
    refused_by_admission(world, uids[0])
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[0]]
    world.pass_s(29)
    assert {event.uid for event in of_type(world.judge(), ev.EvictionIntended)} == {uids[1], other[1]}


def test_room_that_was_to_be_kept_for_a_pod_is_not_where_it_is_proposed_by_now() -> None:
    world, uids, node = half_refused("evict")
    world.pass_s(2)
    world.plan()
    world.judge()
    refused_by_admission(world, uids[0])
    said = list(binder.decide_now(world.state))
    assert of_type(said, ev.RoomNominated)
    world.propose("default/train", {uids[0]: node})
    world.append("binder", said, cause="decide")
    assert (world.state.nominations, world.state.lost, world.state.ignored) == ({}, {}, {"RoomNominated": 1})
    world.settle()
    assert world.where(uids[0]) == [node]


def refused_once_then_bound() -> tuple[World, list[str]]:
    """The refused pod of `half_refused` is bound two seconds later, on the room that was kept for it."""
    world, uids, node = half_refused("evict")
    world.pass_s(2)
    world.settle()
    assert world.where(uids[0]) == [node]
    return world, uids


def holds_for_s(world: World, most: int) -> int:
    """How many seconds pass until the binder evicts; `most` if it doesn't."""
    for seconds in range(most):
        if of_type(world.judge(), ev.EvictionIntended):
            return seconds
        world.pass_s(1)
    return most


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("hold_ms", [30_000, 20_000])
def test_a_pod_that_was_bound_in_between_has_the_whole_time_when_it_fails(how: str, hold_ms: int) -> None:
    """Its first nomination has ended, and that one's deadline is yet to come: it ends no later one early. Nor late, if
    the policy's time became shorter."""
    world, uids = refused_once_then_bound()
    assert world.state.policy is not None
    policy = msgspec.structs.replace(world.state.policy, replacement_hold_ms=hold_ms)
    world.append("admin", [ev.PolicyChanged(policy=policy)], cause="admin")
    world.pass_s(5)
    fail(world, uids[0], how)
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[0]]
    assert holds_for_s(world, 60) in (hold_ms // 1_000, hold_ms // 1_000 + 1)


def test_deadlines_of_one_pod_that_fall_due_together_end_its_nomination() -> None:
    world, uids = refused_once_then_bound()
    world.pass_s(5)
    fail(world, uids[0], "deleted")
    world.judge()
    world.pass_s(1)
    world.now_ns += 29 * 1_000_000_000
    world.pass_s(0.1)
    world.now_ns += 29 * 1_000_000_000
    world.pass_s(0.1)
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["Expired"]
