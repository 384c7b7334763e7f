"""When a demo may end: nothing can change any more, in the log or in the cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import events as ev
from services.console.settled import cluster_at_rest, log_at_rest, waits_for_time
from services.simulator.kubelet import DURATION
from services.state.reservations import KEEPS
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


def test_an_annotation_is_awaited_on_a_pod_that_can_be_read() -> None:
    """One whose annotations make no sense since says nothing, for as long as that is so."""
    world = World()
    world.node("n", cpu=2)
    uids = world.koordinator("default/train", 3, 3, {"waiting_time_ms": 5_000})
    world.propose("default/train", dict.fromkeys(uids[:2], "n"))
    world.judge()
    world.pass_s(6)
    while world.judge():
        pass
    world.plan()
    for uid in uids:
        assert not log_at_rest(world.state)
        world.append("binder", [ev.TimeoutMarked(pods=((uid, world.version()),))], cause="outcome")
    for uid in uids[1:]:
        assert not log_at_rest(world.state)
        world.says(uid)
    assert not log_at_rest(world.state)
    about = {"kind": "Pod", "namespace": "default", "name": uids[0], "uid": uids[0], "resource_version": "9"}
    world.facts(ev.DeclarationRejected(**about, field="minAvailable", value="abc", expected="a number"))
    assert log_at_rest(world.state)


def test_a_partial_picture_is_never_at_rest() -> None:
    from services.state.fold import State

    assert not log_at_rest(State())
    state = World(shards=()).state
    state.epoch = 0
    assert not log_at_rest(state), "nobody decides yet"


@pytest.mark.parametrize(
    "under_way",
    [
        "holding",
        "nominations",
        "group_nominations",
        "proposals",
        "permitted",
        "lost",
        "evictions",
        "room_requests",
    ],
)
def test_what_is_under_way_is_waited_for(world: World, under_way: str) -> None:
    getattr(world.state, under_way)["something"] = None
    assert not log_at_rest(world.state)


def test_nobody_is_at_rest_while_the_cluster_is_read_again(world: World) -> None:
    world.facts(ev.IngestTaken(holder="another"))
    assert not log_at_rest(world.state)


def test_a_group_that_is_given_reason_by_its_own_members_while_it_backs_off_is_waited_for(world: World) -> None:
    world.pod("alone", cpu=3)
    world.settle()
    world.pod("large-4", "large", minimum=4)
    world.settle()
    assert waits_for_time(world.state)


def test_room_that_is_kept_from_somebody_is_waited_for(world: World) -> None:
    (cohort,) = world.state.cohorts.values()
    cohort.condition = f"1 {KEEPS}default/other"
    assert not waits_for_time(world.state)
    world.state.reservations["default/other"] = None  # type: ignore[assignment]
    assert waits_for_time(world.state)


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
        ([pod("rejected")], True),
        ([pod("bound")], False),
        ([pod("unknown", phase="Succeeded")], True),
    ],
)
async def test_a_cluster_is_at_rest_when_the_log_says_the_same_of_every_pod(
    world: World, seen: list[dict[str, Any]], at_rest: bool
) -> None:
    fault = {"uid": "rejected", "resource_version": "1", "field": "f", "value": "v", "expected": "e"}
    world.facts(ev.DeclarationRejected(kind="Pod", namespace="default", name="rejected", **fault))
    assert await cluster_at_rest(Cluster(*seen), world.state, OURS) is at_rest
