"""What many records say alike they have once: decoded from bytes, each would have a copy of its own."""

from __future__ import annotations

import pytest

from services.state import snapshot
from services.state.fold import State
from tests.homes import folded
from tests.world import World


def _world() -> World:
    world = World()
    for i in range(3):
        world.node(f"node-number-{i}", cpu=8)
    world.pod("alone-by-itself")
    world.gang("training", 6, 6)
    world.gang("never", 9, 9, cpu=8)
    world.settle()
    return world


@pytest.mark.parametrize("restored", [False, True])
def test_equal_parts_are_one_object(restored: bool) -> None:
    world = _world()
    state = folded(world.log.commits, len(world.log.commits))
    if restored:
        state = snapshot.decode(snapshot.encode(state))
    assert len(state.claims) == 7
    for uid, claim in state.claims.items():
        pod, node = state.pods[uid], state.nodes[claim.node]
        assert uid is claim.uid is pod.fact.uid
        assert claim.group is pod.group
        assert claim.node is pod.node
        assert any(one is uid for one in node.claims)
    digests = {pod.fact.scheduling_class: pod.fact.scheduling_class for pod in state.pods.values()}
    assert all(pod.fact.scheduling_class is digests[pod.fact.scheduling_class] for pod in state.pods.values())
    assert all(key is state.pods[group.pod].group for key, group in state.groups.items() if group.pod)
    for gang in state.gangs.values():
        assert len({id(state.pods[uid].fact.gang) for uid in gang.members}) == 1


def test_members_that_say_something_of_their_own_keep_it() -> None:
    world = World()
    for i, task in enumerate(["ps", "ps", "worker"]):
        world.volcano(f"pod-{i}", "job", task)
    state: State = folded(world.log.commits, len(world.log.commits))
    said = [state.pods[f"pod-{i}"].fact.gang for i in range(3)]
    assert [one.task for one in said if one is not None] == ["ps", "ps", "worker"]
    assert said[0] is said[1]
    assert said[1] is not said[2]
