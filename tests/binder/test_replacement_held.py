"""A replacement that waits at permit is none yet (design, section 4): it may be given back, and all is as before."""

from __future__ import annotations

from typing import Any

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from services.state.records import NOMINATED
from tests.world import World, of_type

GROUP = ("default/a", "default/b")


def lost(policy: str = "evict", waiting_s: int = 10) -> World:
    """Two gangs that run together lost a pod each. The first one's replacement is there, and has to wait for the second
    one's, which is not."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=policy, replacement_hold_ms=60_000))
    world.node("n0", cpu=6)
    loose = {"mode": "NonStrict", "match_policy": "waiting-and-running", "waiting_time_ms": waiting_s * 1000}
    for gang in GROUP:
        world.koordinator(gang, 3, 3, {**loose, "groups": GROUP})
    world.settle()
    assert len(world.bound()) == 6
    for uid in ("a-2", "b-2"):
        world.deleted(uid)
    world.judge()
    assert list(world.state.nominations) == ["a-2", "b-2"]
    come(world, "a")
    come(world, "b", gated=True)
    return world


def held(policy: str = "evict", waiting_s: int = 10) -> World:
    """And it waits at permit."""
    world = lost(policy, waiting_s)
    world.settle()
    assert list(world.state.holding) == ["default/a"]
    return world


def come(world: World, gang: str, **asks: Any) -> None:
    """The replacement is there, or there again."""
    declared = world.state.gangs[f"default/{gang}"].declaration
    world.pod(f"{gang}-new", gang, dialect="koordinator/v1alpha1", declared=declared, **asks)


def evicted(world: World) -> list[str]:
    return [event.uid for event in of_type(world.judge(), ev.EvictionIntended)]


def test_a_gang_whose_replacement_waits_in_vain_is_evicted_when_the_time_is_over() -> None:
    """Its room counted as taken from the hold on: nobody looked again, and the rest of the gang stayed for good."""
    world = held()
    world.pass_s(11)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]
    world.pass_s(48)
    assert evicted(world) == []
    world.pass_s(2)
    assert evicted(world) == ["a-0", "a-1", "b-0", "b-1"]
    assert not world.state.nominations


def test_so_is_one_whose_replacement_is_deleted_while_it_waits() -> None:
    world = held()
    world.deleted("a-new")
    world.judge()
    world.pass_s(61)
    assert evicted(world) == ["a-0", "a-1", "b-0", "b-1"]


def test_a_replacement_that_waits_has_its_room_once() -> None:
    """It is kept neither beside the hold nor behind it."""
    world = held()
    assert [claim.uid for claim in world.state.claims.values() if claim.stage == NOMINATED] == ["replacement/b-2"]
    assert world.state.nominations["a-2"].node == ""
    world.pod("stranger")
    world.settle()
    assert world.where("stranger") == [""]


def test_a_replacement_that_is_permitted_at_last_saves_its_gang() -> None:
    world = held()
    come(world, "b")
    world.settle()
    assert world.where("a-new", "b-new") == ["n0", "n0"]
    assert not world.state.nominations
    world.pass_s(61)
    assert evicted(world) == []


def test_while_it_waits_its_gang_is_not_evicted_for_what_another_lacks() -> None:
    """What is held for the rest of a gang is not over with what was kept (half bound: design, section 4)."""
    world = held(waiting_s=90)
    world.pass_s(61)
    assert evicted(world) == ["b-0", "b-1"]
    world.pass_s(30)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]
    assert evicted(world) == ["a-0", "a-1"]


def test_nor_where_it_waits_only_from_the_moment_on_at_which_the_time_is_over() -> None:
    """Its proposal stands in the log by then, and is judged before that."""
    world = lost(waiting_s=90)
    world.pass_s(59)
    assert of_type(world.plan(), ev.GangPlaced)
    world.pass_s(2)
    said = [*world.judge(), *world.judge()]
    assert len(of_type(said, ev.GangHeld)) == 1
    assert [event.uid for event in of_type(said, ev.EvictionIntended)] == ["b-0", "b-1"]
    assert world.judge() == []


def test_nor_where_another_waits_from_that_moment_on() -> None:
    """The first that waited was deleted: no room is kept any more."""
    world = held(waiting_s=90)
    world.deleted("a-new")
    world.judge()
    world.pass_s(55)
    come(world, "a")
    assert of_type(world.plan(), ev.GangPlaced)
    world.pass_s(6)
    said = [*world.judge(), *world.judge()]
    assert len(of_type(said, ev.GangHeld)) == 1
    assert [event.uid for event in of_type(said, ev.EvictionIntended)] == ["b-0", "b-1"]


def test_where_the_rest_is_kept_the_room_is_taken_by_whoever_waits() -> None:
    world = held("keep")
    assert list(world.state.nominations) == ["b-2"]
