"""Who owns which partition: evenly, with few moves, and the same on every machine."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import events as ev
from services.binder.assignment import assign_partitions, spread
from services.state.partitions import PARTITIONS
from tests.world import World

NOBODY = ("",) * PARTITIONS
NAMES = st.sets(st.sampled_from("0123456789abcdef"), min_size=1, max_size=12)


def moved(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def test_the_first_shards_get_equal_runs_in_order_of_their_names() -> None:
    owners = spread(NOBODY, ["a", "b", "c"])
    assert owners == ("a",) * 22 + ("b",) * 21 + ("c",) * 21


def test_a_shard_that_joins_takes_its_share_and_no_other_partition_moves() -> None:
    before = spread(NOBODY, ["a", "b", "c"])
    after = spread(before, ["a", "b", "c", "d"])
    assert Counter(after) == dict.fromkeys("abcd", 16)
    assert moved(before, after) == 16


def test_what_a_shard_leaves_is_spread_over_the_others() -> None:
    before = spread(NOBODY, ["a", "b", "c", "d"])
    after = spread(before, ["a", "c", "d"])
    assert Counter(after) == {"a": 22, "c": 21, "d": 21}
    assert moved(before, after) == 16


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_after_any_history_shares_are_even_and_no_more_moves_than_must(history: list[set[str]]) -> None:
    owners = NOBODY
    for live in history:
        before, owners = owners, spread(owners, sorted(live))
        sizes = Counter(owners)
        assert set(sizes) == live
        assert max(sizes.values()) - min(sizes.values()) <= 1
        had = Counter(before)
        least, larger = divmod(PARTITIONS, len(live))
        stay = sum(min(had[shard], least) for shard in live) + min(larger, sum(had[shard] > least for shard in live))
        assert moved(before, owners) == PARTITIONS - stay
        assert spread(owners, sorted(live)) == owners, "nothing changed, and something moves"


def test_more_shards_than_partitions_come_to_rest() -> None:
    live = sorted(f"s{i:03}" for i in range(PARTITIONS + 9))
    owners = spread(NOBODY, live)
    assert len(set(owners)) == PARTITIONS
    assert spread(owners, live) == owners


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_the_order_in_which_they_joined_means_nothing(order: tuple[str, ...]) -> None:
    assert World(shards=order).state.owners == World(shards=("b", "c", "a")).state.owners


def test_the_binder_assigns_anew_when_shards_join_leave_or_are_lost() -> None:
    world = World(shards=("a",))
    owners = []
    for change, shard in [(world.join, "b"), (world.join, "c"), (world.leave, "a"), (world.lose, "c")]:
        before = world.state.owners
        change(shard)
        (event,) = world.judge()
        assert isinstance(event, ev.PartitionsAssigned)
        assert event.owners == spread(before, sorted(world.state.shards)), "more moves than must"
        assert event.epoch == world.state.epoch
        owners.append(Counter(event.owners))
        assert world.judge() == []
    assert owners == [
        {"a": 32, "b": 32},
        {"a": 22, "b": 21, "c": 21},
        {"b": 32, "c": 32},
        {"b": 64},
    ]


def test_with_no_shard_alive_the_owners_stay_as_they_are() -> None:
    world = World(shards=("a", "b"))
    owners = world.state.owners
    world.leave("a")
    world.lose("b")
    assert not world.state.shards
    assert assign_partitions(world.state) is None
    assert world.state.owners == owners
    world.join("b")
    assert Counter(world.judge()[0].owners) == {"b": 64}  # type: ignore[union-attr]
