"""Seed 002, NonStrict: gangs that hold room and block each other, where host ports decide."""

from __future__ import annotations

from typing import Any

import pytest

from events.objects import ClassRoom, Declaration, HostPort
from tests.binder.rules.koordinator.test_deadlock import allocate, released, reserve, submit
from tests.world import World

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)
OTHER = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=81),)


def test_a_node_takes_one_pod_of_those_that_open_a_port() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.node("n1", cpu=2)
    said = Declaration(min_member=3, waiting_time_ms=600_000, mode="NonStrict", said=("min_member", "mode"))
    for i in range(3):
        world.pod(f"a-{i}", "a", dialect="koordinator/v1alpha1", declared=said, created_s=1, ports=WEB)
    submit(world, "b", pods=3, minimum=3, created_s=2)
    allocate(world, "a", ["n0"])
    allocate(world, "b", ["n1"] * 2)
    world.plan()
    assert released(world) == []


def who_waits_for_a_pod(**asks: Any) -> World:
    """Two gangs of two on one node of four cpu, each with a pod that holds one and a pod without a node: the older one's
    asks for this, too, the other's for two cpu."""
    world = World()
    world.node("n0", cpu=4)
    said = Declaration(min_member=2, waiting_time_ms=600_000, mode="NonStrict", said=("min_member", "mode"))
    for age, gang in enumerate("ab", start=1):
        for name in ("holds", "waits"):
            more = {"cpu": 2} if gang == "b" else {"cpu": 2, **asks}
            of = {} if name == "holds" else more
            world.pod(f"{gang}-{name}", gang, dialect="koordinator/v1alpha1", declared=said, created_s=age, **of)
        world.propose(f"default/{gang}", {}, {f"{gang}-holds": "n0"})
        world.judge()
    world.pod("other", node="n0", cpu=1)
    return world


def test_nobody_gives_back_for_a_port_that_is_somebody_elses() -> None:
    for taken, expected in ((False, [("b", "Deadlock")]), (True, [])):
        world = who_waits_for_a_pod(ports=WEB)
        if taken:
            world.pod("daemon", node="n0", candidate=False, cpu=0, ports=WEB)
        world.plan()
        assert released(world) == expected


def test_a_port_of_who_is_behind_is_given_back_with_the_room() -> None:
    world = World()
    world.node("n0", cpu=4)
    said = Declaration(min_member=2, waiting_time_ms=600_000, mode="NonStrict", said=("min_member", "mode"))
    of: dict[str, Any] = {"dialect": "koordinator/v1alpha1", "declared": said}
    world.pod("a-0", "a", created_s=1, **of)
    world.pod("a-1", "a", created_s=1, ports=WEB, **of)
    world.pod("b-0", "b", created_s=2, ports=WEB, **of)
    world.pod("b-1", "b", created_s=2, cpu=4, **of)
    for gang in "ab":
        world.propose(f"default/{gang}", {}, {f"{gang}-0": "n0"})
        world.judge()
    world.plan()
    assert released(world) == [("b", "Deadlock")]


@pytest.mark.parametrize(("port", "expected"), [(OTHER, [("b", "Deadlock")]), (WEB, [])])
def test_a_node_takes_one_of_two_classes_that_open_a_port(port: tuple[HostPort, ...], expected: list[Any]) -> None:
    world = World()
    world.node("n0", cpu=6)
    asked: dict[str, list[dict[str, Any]]] = {
        "a": [{}, {"ports": WEB}, {"cpu": 2, "ports": port}],
        "b": [{"cpu": 5}, {}],
    }
    for age, (gang, asks) in enumerate(asked.items()):
        said = Declaration(min_member=len(asks), waiting_time_ms=600_000, mode="NonStrict", said=("min_member", "mode"))
        for number, of_one in enumerate(asks):
            world.pod(f"{gang}-{number}", gang, dialect="koordinator/v1alpha1", declared=said, created_s=age, **of_one)
        allocate(world, gang, ["n0"])
    world.plan()
    assert released(world) == expected


@pytest.mark.parametrize(("port", "expected"), [((), [("b", "Deadlock")]), (WEB, [])])
def test_a_port_that_is_reserved_for_a_starving_gang_has_no_place(
    port: tuple[HostPort, ...], expected: list[tuple[str, str]]
) -> None:
    world = who_waits_for_a_pod(ports=WEB)
    world.node("n0", cpu=8)
    world.pod("filler", node="n0", cpu=3.5)
    asks: list[dict[str, Any]] = [{"cpu": 0.1, "ports": port}, {"cpu": 0.2, "ports": OTHER}, {"cpu": 8}]
    for number, of_one in enumerate(asks):
        world.pod(f"starving-{number}", "starving", minimum=3, **of_one)
    world.plan()
    reserve(world, tuple(ClassRoom(world.scheduling_class(**of_one), {"n0": 1}) for of_one in asks[:2]))
    assert released(world) == expected
