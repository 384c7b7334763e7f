"""What holds of every queue order that a profile may name."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.objects import Declaration
from services.console import profiles
from services.planner.rules.queue_orders import QUEUE_ORDERS
from tests.world import World

PODS = st.lists(
    st.tuples(
        st.sampled_from(["", "", "a", "b", "c"]),
        st.sampled_from(["coscheduling/2020", "volcano/v1beta1"]),
        st.integers(-1, 1),
        st.integers(0, 2),
        st.sampled_from([None, 0, 1]),
    ),
    min_size=2,
    max_size=12,
)


def test_the_command_line_knows_those_that_there_are() -> None:
    assert tuple(QUEUE_ORDERS) == profiles.QUEUE_ORDERS
    for profile in profiles.PROFILES.values():
        assert profile.queue_order in QUEUE_ORDERS
        assert profile.node_score in profiles.SCORES


@pytest.mark.parametrize("name", sorted(QUEUE_ORDERS))
@settings(max_examples=25, deadline=None)
@given(pods=PODS)
def test_places_are_unique_so_that_groups_never_interleave(name: str, pods: list) -> None:
    """Each group has a place, and no other group has it; the highest priority goes first. What is beyond a minimum goes
    behind it, where nobody else is either."""
    world = World()
    for number, (gang, dialect, priority, created_s, own) in enumerate(pods):
        declared = Declaration(min_member=2, waiting_time_ms=0, priority=own if "volcano" in dialect else None)
        world.pod(f"p{number}", gang, dialect=dialect, declared=declared, priority=priority, created_s=created_s)
    place, rest = QUEUE_ORDERS[name]
    groups = world.state.groups.values()
    further = [(group, rest(world.state, group)) for group in groups] if rest is not None else []
    assert all(there > place(world.state, group) for group, there in further if there is not None)
    places = [place(world.state, group) for group in groups]
    places = sorted(places + [there for _, there in further if there is not None])
    for one, other in itertools.pairwise(places):
        assert one < other
        assert one[0] <= other[0]
