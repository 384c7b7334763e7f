"""Room that is nominated goes to the first pod that it is for, however it is looked up; and in slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import events as ev
from services.planner import core
from services.planner.demand import Meant, Nominated, Part
from services.state.nodes import NodeTable
from tests.facts import scheduling_class
from tests.world import World

TABLE = NodeTable()
for digest in ("small", "large"):
    TABLE.add_class(scheduling_class(digest, {"cpu_milli": 1}))
DIGESTS, GANGS, TASKS = (st.sampled_from(each) for each in (["small", "large"], ["a", "b"], ["", "ps", "worker"]))
PARTS = st.lists(st.tuples(DIGESTS, GANGS, TASKS, st.integers(0, 3)), max_size=8)
ROOM = st.one_of(st.tuples(DIGESTS, GANGS, TASKS), st.tuples(DIGESTS, st.just(""), st.just("")))


def parts_of(said: list[tuple[str, str, str, int]]) -> list[Part]:
    return [
        Part(gang, TABLE.classes[digest], [f"{at}-{pod}" for pod in range(pods)], False, task)
        for at, (digest, gang, task, pods) in enumerate(said)
    ]


def is_for(one: Nominated, part: Part) -> bool:
    ours = one.gang in ("", part.gang) and one.task in ("", part.task)
    return ours and part.info.fact.digest == one.scheduling_class


@given(PARTS, st.lists(st.tuples(ROOM, st.booleans()), max_size=20))
def test_room_is_for_the_first_part_that_has_a_pod_left(
    said: list[tuple[str, str, str, int]], rooms: list[tuple[tuple[str, str, str], bool]]
) -> None:
    """As when all parts are gone through for each room. It may be none that the pod can take."""
    parts = parts_of(said)
    meant, used = Meant(parts), [0] * len(parts)
    for (digest, gang, task), takes in rooms:
        one = Nominated(gang, task, "n", digest)
        first = next((i for i, part in enumerate(parts) if used[i] < len(part.uids) and is_for(one, part)), None)
        assert meant.first(one) == first
        if first is not None and takes:
            assert meant.use(first) == parts[first].uids[used[first]]
            used[first] += 1


class Counted(list[Part]):
    """Parts, and how often one was looked at."""

    looked_at = 0

    def __getitem__(self, index: int) -> Part:  # type: ignore[override]
        self.looked_at += 1
        return super().__getitem__(index)


def test_no_room_is_compared_with_all_parts() -> None:
    """A gang of 4,000 classes that had lost as many pods kept a planner from its lease for three seconds."""
    parts = Counted(parts_of([("small", "a", "", 1)] * 200))
    meant = Meant(parts)
    for _ in range(200):
        index = meant.first(Nominated("a", "", "n", "small"))
        assert index is not None
        meant.use(index)
    assert meant.first(Nominated("", "", "n", "small")) is None
    assert parts.looked_at < 5 * len(parts)


def test_nominated_room_is_taken_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    world, pods = World(), 12
    world.node("n0", cpu=2 * pods)
    world.gang("train", pods, pods)
    world.settle()
    lost = [f"train-{number}" for number in range(pods // 2)]
    for name in lost:
        world.deleted(name)
    world.judge()
    assert len(world.state.nominations) == len(lost)
    for name in lost:
        world.pod(f"{name}-again", "train", minimum=pods)
    monkeypatch.setattr(core, "SLICE_ROWS", 0)
    yields = sum(1 for _ in core.decide(world.state, "a"))
    assert yields >= 2 * len(lost)
    (placed,) = world.plan()
    assert isinstance(placed, ev.GangPlaced)
    assert len([uid for one in (*placed.required, *placed.optional) for uid in one.pods]) == len(lost)
