"""When a demo may end: nothing can change any more, in the log or in the cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.console.settled import cluster_at_rest, log_at_rest, waits_for_time
from services.simulator.kubelet import DURATION
from tests.world import World

OURS = frozenset({"muster"})


@pytest.fixture
def world() -> World:
    """A pod that is bound and a gang that waits for room."""
    world = World()
    world.node("n0", cpu=2)
    world.pod("bound")
    world.gang("large", 4, 4)
    world.settle()
    return world


class Cluster:
    """What the API server would list."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = list(pods)

    async def pages(self, resource: object) -> AsyncIterator[bytes]:
        for pod in self._pods:
            yield json.dumps({"items": [pod]}).encode()


def pod(uid: str, node: str = "", phase: str = "Pending", scheduler: str = "muster", **metadata: Any) -> dict[str, Any]:
    spec = {"schedulerName": scheduler} | ({"nodeName": node} if node else {})
    return {"metadata": {"uid": uid, **metadata}, "spec": spec, "status": {"phase": phase}}


def test_a_log_is_at_rest_when_every_core_has_said_all(world: World) -> None:
    assert log_at_rest(world.state)
    world.pod("more", cpu=1)
    assert not log_at_rest(world.state)
    world.plan()
    assert not log_at_rest(world.state)
    world.judge()
    assert not log_at_rest(world.state)
    world.bind()
    assert log_at_rest(world.state)


def test_a_partial_picture_is_never_at_rest() -> None:
    from services.state.fold import State

    assert not log_at_rest(State())


def test_room_that_came_back_while_a_group_backs_off_is_waited_for(world: World) -> None:
    world.finished("bound")
    assert waits_for_time(world.state)
    assert not log_at_rest(world.state)
    world.pass_s(2)
    world.settle()
    world.pass_s(12)
    assert not waits_for_time(world.state)


def test_a_retry_by_the_clock_alone_is_not_waited_for(world: World) -> None:
    world.pass_s(5)
    assert not waits_for_time(world.state)
    assert log_at_rest(world.state)


WAITING = [pod(f"large-{i}") for i in range(4)]


@pytest.mark.parametrize(
    ("seen", "at_rest"),
    [
        ([pod("bound", "n0", "Running"), *WAITING], True),
        ([pod("bound", "n0", "Running"), *WAITING, pod("theirs", scheduler="other")], True),
        ([pod("bound", "n0", "Running", annotations={DURATION: "100"})], False),
        ([pod("bound", "n0", "Running", deletionTimestamp="2026-01-01T00:00:00Z")], False),
        ([pod("bound", "n0", "Succeeded")], False),
        ([pod("bound", "n1", "Running")], False),
        ([pod("large-0", "n0", "Running")], False),
        ([pod("unknown")], False),
        ([pod("unknown", phase="Succeeded")], True),
    ],
)
async def test_a_cluster_is_at_rest_when_the_log_says_the_same_of_every_pod(
    world: World, seen: list[dict[str, Any]], at_rest: bool
) -> None:
    assert await cluster_at_rest(Cluster(*seen), world.state, OURS) is at_rest
