"""When a refused group is tried again: said where the log knows it."""

from __future__ import annotations

import events as ev
from services.console.status import Observer
from services.console.summary import waiting_groups
from services.console.verify import verify
from services.state import cohorts
from tests.console.test_status import printed
from tests.world import SECOND_NS, World


def refused() -> World:
    """A gang of two for which there is no room, in its backoff of one second."""
    world = World()
    world.node("n0", cpu=1)
    world.gang("train", 2, 2)
    world.settle()
    return world


def why(world: World) -> str:
    return waiting_groups(world.state)["default/train"][1]


def seconds(world: World) -> float:
    return float(why(world).removesuffix(" s.").rpartition(" ")[2])


async def status(world: World) -> dict[str, object]:
    return await (await Observer.of(world.log)).status("test")


async def test_who_backs_off_and_has_a_reason_is_told_when() -> None:
    world = refused()
    assert "Tried again" not in why(world), "nothing changed: nobody knows when that is"
    assert (await status(world))["tried_again_s"] == {}
    world.node("n1")
    assert why(world).startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert why(world).endswith(" have a node. Tried again in 1 s.")
    assert (await status(world))["tried_again_s"] == {"InsufficientRoom": 1.0}
    row = next(line for line in printed(await status(world)).splitlines() if "InsufficientRoom" in line)
    assert row.split()[-1] == "1.0"


async def test_the_time_that_is_left_is_the_logs() -> None:
    world = refused()
    world.node("n1")
    world.pass_s(0.1)  # from the planner's first tick on it runs
    world.pass_s(0.1)
    assert seconds(world) == 1
    world.node("n2")
    world.append("planner.a", [ev.Ticked(time_ns=world.now_ns + 3 * SECOND_NS // 10, jumped_ns=0)], cause="tick")
    assert seconds(world) == 0.6
    world.pass_s(1.1)
    assert "Tried again" not in why(world)
    assert cohorts.waiting(world.state), "it is tried now"
    world.settle()
    assert world.where("train-0") != [""]
    assert (await verify(world.log)).verified


async def test_who_was_given_a_reason_by_a_pod_of_its_own_is_told_when() -> None:
    world = refused()
    world.pod("train-2", "train", minimum=2)
    assert why(world).endswith("Tried again in 1 s.")
    assert (await status(world))["tried_again_s"] == {"InsufficientRoom": 1.0}


async def test_of_a_planner_that_is_gone_no_time_is_told() -> None:
    """Its clock stands still: nobody knows when there is another."""
    world = refused()
    world.node("n1")
    world.lose("a")
    world.judge()
    assert "Tried again" not in why(world)
    assert (await status(world))["tried_again_s"] == {}
