"""What members of a gang count for: what must start together and does not yet."""

from __future__ import annotations

import msgspec
import pytest

from events.objects import Declaration
from services.state import membership
from tests.world import World

WAITING = Declaration(min_member=2, waiting_time_ms=0, said=("min_member", "match_policy"))


def job() -> World:
    """Volcano's, of one ps and four workers, of which nobody runs; its minimum is 3, its ps' 1, its workers' 2."""
    world = World()
    world.node("n0")
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"worker": 2, "ps": 1})
    for name in ("ps-0", "worker-0", "worker-1", "worker-2", "worker-3"):
        world.volcano(name, "job", name.partition("-")[0])
    return world


@pytest.mark.parametrize(
    ("running", "lacks"),
    [
        ((), 3),
        (("ps-0",), 2),
        (("worker-0", "worker-1", "worker-2"), 1),
        (("ps-0", "worker-0"), 1),
        (("ps-0", "worker-0", "worker-1"), 0),
        (("ps-0", "worker-0", "worker-1", "worker-2"), 0),
    ],
)
def test_what_a_task_lacks_counts_although_the_gang_has_its_own_minimum(running: tuple[str, ...], lacks: int) -> None:
    world = job()
    (gang,) = world.state.gangs.values()
    for uid in running:
        world.assigned(uid, "n0")
    assert membership.lacks(world.state, gang) == lacks
    assert membership.has_minimum(world.state, gang) == (not lacks)


def test_each_member_is_asked_once_for_its_task_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: once for each task, in one piece. A PodGroup may name 1,000 tasks, and a gang have 50,000 pods."""
    world, asked = job(), list[str]()
    (gang,) = world.state.gangs.values()
    task = membership.task
    monkeypatch.setattr(membership, "task", lambda state, uid: asked.append(uid) or task(state, uid))
    assert membership.lacks(world.state, gang) == 3
    assert asked == list(gang.members)


@pytest.mark.parametrize(("policy", "lacks"), [("once-satisfied", 0), ("waiting-and-running", 1), ("only-waiting", 2)])
def test_a_gang_whose_rules_are_off_lacks_nothing(policy: str, lacks: int) -> None:
    """Seed 002, After Gang: once it was satisfied."""
    world = World()
    world.node("n0")
    declared = msgspec.structs.replace(WAITING, match_policy=policy)
    for i in range(2):
        world.pod(f"p{i}", "train", dialect="koordinator/v1alpha1", declared=declared)
    (gang,) = world.state.gangs.values()
    assert membership.lacks(world.state, gang) == 2
    world.assigned("p0", "n0")
    assert membership.lacks(world.state, gang) == lacks
