"""Objects that cannot be taken as they are: each is remembered until its object can be taken, or is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import events as ev
from tests.world import World


def rejected(kind: str, namespace: str, name: str) -> ev.DeclarationRejected:
    about = {"uid": name, "resource_version": "1", "field": "spec", "value": "", "expected": "another"}
    return ev.DeclarationRejected(kind=kind, namespace=namespace, name=name, **about)


def node_gone(world: World) -> None:
    world.node("one")
    world.facts(rejected("Node", "", "one"), ev.NodeDeleted(name="one", uid="uid-one"))


def pod_gone(world: World) -> None:
    world.pod("one")
    world.facts(rejected("Pod", "default", "one"))
    world.deleted("one")


def priority_class(world: World) -> None:
    world.facts(ev.PriorityClassObserved(name="one", uid="one", resource_version="2", value=1, preempts=True))


ENDS: dict[str, tuple[str, str, Callable[[World], object]]] = {
    "a node": ("Node", "", lambda world: world.node("one")),
    "a node that is gone": ("Node", "", node_gone),
    "a pod": ("Pod", "default", lambda world: world.pod("one")),
    "a pod that is gone": ("Pod", "default", pod_gone),
    "a PodGroup": ("PodGroup", "default", lambda world: world.pod_group("one", 2)),
    "a PriorityClass": ("PriorityClass", "", priority_class),
    "its own end": (
        "Node",
        "",
        lambda world: world.facts(ev.RejectionEnded(kind="Node", namespace="", name="one", uid="one")),
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_rejection_stands_until_its_object_is_taken_or_gone(how: str) -> None:
    kind, namespace, end = ENDS[how]
    world = World()
    world.facts(rejected(kind, namespace, "one"), rejected(kind, namespace, "other"))
    end(world)
    assert [one.name for one in world.state.rejections.values()] == ["other"]
