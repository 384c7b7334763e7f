"""Starvation: when a gang asks for room to be kept."""

from __future__ import annotations

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from tests.world import World, of_type


def crowded(after: int = 3, reservations: int = 1, shards: tuple[str, ...] = ("a",)) -> World:
    """Two nodes of four cpu, full of small pods."""
    world = World(
        msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=after, reservations=reservations), shards=shards
    )
    for node in ("n0", "n1"):
        world.node(node, cpu=4)
        for i in range(4):
            world.pod(f"{node}-{i}", node=node)
    return world


def turn(world: World, number: int = 0) -> list[ev.Event]:
    """A small pod ends, another takes its place before anybody plans; what the planner says once backoffs are over."""
    node = f"n{number % 2}"
    world.finished(f"{node}-{number // 2}")
    world.pod(f"next-{number}", node=node)
    world.pass_s(11)
    return world.plan()


def asks(said: list[ev.Event]) -> list[str]:
    return [event.group for event in of_type(said, ev.RoomRequested)]


def test_after_a_configurable_count_of_tries() -> None:
    world = crowded(after=3)
    world.gang("train", 5, 5)
    assert asks(world.plan()) == []
    assert asks(turn(world, 0)) == []
    assert asks(turn(world, 1)) == ["default/train"]
    assert asks(turn(world, 2)) == [], "once is enough while nobody has answered"
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    assert asks(turn(world, 3)) == [], "nor while it has room reserved"


def test_never_where_the_policy_turns_it_off() -> None:
    world = crowded(after=0)
    world.gang("train", 5, 5)
    world.plan()
    assert not any(asks(turn(world, i)) for i in range(8))


def test_a_policy_from_before_reads_as_off() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(DEFAULT_POLICY))
    for field in ("reserve_after_refusals", "reservation_hold_ms", "reservations"):
        del stored[field]
    policy = msgspec.convert(stored, type(DEFAULT_POLICY))
    assert (policy.reserve_after_refusals, policy.reservations) == (0, 0)


def test_a_try_without_room_given_back_is_no_starving() -> None:
    world = crowded(after=1)
    world.gang("train", 5, 5)
    world.plan()
    world.pass_s(301)
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.attempt == 2


def test_a_single_pod_does_not_ask() -> None:
    world = crowded(after=1)
    world.pod("large", cpu=3)
    world.plan()
    assert not any(asks(turn(world, i)) for i in range(4))


def test_further_pods_of_a_gang_that_has_its_minimum_do_not_ask() -> None:
    world = crowded(after=1)
    world.node("n2", cpu=1)
    world.pod("train-0", "train", minimum=1)
    world.settle()
    world.pod("train-1", "train", minimum=1)
    assert of_type(world.plan(), ev.GroupsRefused)
    assert not any(asks(turn(world, i)) for i in range(4))


def test_no_more_ask_than_may_have_room_reserved() -> None:
    world = crowded(after=2, reservations=2)
    for name in ("one", "two", "three"):
        world.gang(name, 2, 2)  # there could be room for all of them
    world.plan()
    assert asks(turn(world)) == ["default/one", "default/three"]


def test_one_of_a_higher_priority_asks_all_the_same() -> None:
    world = crowded(after=2)
    world.gang("train", 2, 2)
    world.plan()
    turn(world)
    world.judge()
    assert list(world.state.reservations) == ["default/train"]
    world.gang("urgent", 2, 2, priority=3)
    world.gang("equal", 2, 2)
    world.plan()
    assert asks(turn(world, 1)) == ["default/urgent"]


def test_another_shards_gangs_are_its_own_to_ask_for() -> None:
    world = crowded(after=2, reservations=4, shards=("a", "b"))
    owned: dict[str, list[str]] = {"a": [], "b": []}
    for i in range(4):
        world.gang(f"g{i}", 2, 2)
        owned[world.state.owner(world.state.groups[f"default/g{i}"])].append(f"default/g{i}")
    for shard in "ab":
        world.plan(shard)
    said = {"a": turn(world), "b": world.plan("b")}
    assert {shard: sorted(asks(events)) for shard, events in said.items()} == owned


def test_the_gangs_of_a_group_ask_together_for_what_each_needs() -> None:
    world = crowded(after=2)
    for role in ("a", "b"):
        world.koordinator(f"x/{role}", 4, 3, {"groups": ("x/a", "x/b")})
    world.plan()
    (request,) = of_type(turn(world), ev.RoomRequested)
    assert request.group == "x/a"
    assert sum(pods for room in request.room for pods in room.nodes.values()) == 6
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    assert world.judge() == []


def test_a_job_asks_for_as_many_rooms_of_a_kind_as_it_has_pods() -> None:
    """Also where a minimum of a task and that of the whole job count the same pod."""
    world = crowded(after=2)
    world.pod_group("job", 4, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 2})
    world.volcano("ps-0", "job", "ps", cpu=2)
    for i in range(3):
        world.volcano(f"worker-{i}", "job", "worker")
    world.plan()
    (request,) = of_type(turn(world), ev.RoomRequested)
    rooms = {of_class.scheduling_class: sum(of_class.nodes.values()) for of_class in request.room}
    assert rooms == {world.scheduling_class(cpu=2): 1, world.scheduling_class(): 3}


def test_a_job_asks_for_its_tasks_minimums_whichever_of_its_pods_are_the_largest() -> None:
    world = crowded(after=2)
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 1})
    world.volcano("ps-0", "job", "ps")
    for i in range(3):
        world.volcano(f"worker-{i}", "job", "worker", cpu=2)
    world.plan()
    (request,) = of_type(turn(world), ev.RoomRequested)
    rooms = {of_class.scheduling_class: sum(of_class.nodes.values()) for of_class in request.room}
    assert rooms == {world.scheduling_class(cpu=2): 2, world.scheduling_class(): 1}
