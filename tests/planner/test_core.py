"""The planner's cycle: what is proposed, and what is refused with which numbers."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import envelope
from events.log import MAX_COMMIT_BYTES
from events.objects import Binding, HostPort, NodeAssignment, NodeBindings, Place
from events.policy import DEFAULT_POLICY, Policy
from services.binder.report import condition
from services.state.fits import NO_LIMIT
from services.state.records import PARKED
from tests.facts import pod_group, scheduling_class
from tests.world import World, of_type

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def policy(**changes: object) -> Policy:
    return msgspec.structs.replace(DEFAULT_POLICY, **changes)


def placed(events: list[ev.Event]) -> dict[str, dict[str, str]]:
    """group → uid → node, of everything proposed."""
    return {
        event.group: {uid: a.node for a in (*event.required, *event.optional) for uid in a.pods}
        for event in of_type(events, ev.GangPlaced)
    }


def optional(event: ev.GangPlaced) -> list[str]:
    return [uid for assignment in event.optional for uid in assignment.pods]


def required(event: ev.GangPlaced) -> list[str]:
    return [uid for assignment in event.required for uid in assignment.pods]


# --------------------------------------------------------------------------------------------------------------- gangs


def test_a_gang_is_placed_whole_in_one_event() -> None:
    world = World()
    for i in range(3):
        world.node(f"n{i}", cpu=2)
    uids = world.gang("train", 6, 6)
    (event,) = world.plan()
    assert isinstance(event, ev.GangPlaced)
    assert sorted(required(event)) == uids
    assert event.optional == ()
    assert event.partition == world.state.groups["default/train"].partition


def test_a_gang_that_does_not_fit_takes_nothing_from_those_behind_it() -> None:
    """Not at all: what its pods would have taken is there for the next in the queue."""
    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 6, 6, created_s=1)
    alone = [world.pod(f"p{i}", created_s=2) for i in range(4)]
    events = world.plan()
    assert sorted(placed(events)) == sorted(f"pod/default/{uid}" for uid in alone)
    (refused,) = of_type(events, ev.GroupsRefused)
    assert (refused.reason, refused.needed, refused.placeable, refused.groups) == (
        "InsufficientRoom",
        6,
        4,
        ("default/train",),
    )
    assert refused.detail == "gang default/train: 4 of the 6 pods that must start together have a node."


def test_two_gangs_that_each_could_hold_half_never_hold_half() -> None:
    """The deadlock that gangs are for: each of the two fits alone, both together don't."""
    world = World()
    for i in range(4):
        world.node(f"n{i}", cpu=1)
    first, second = world.gang("first", 3, 3, created_s=1), world.gang("second", 3, 3, created_s=2)
    world.settle()
    assert all(world.where(*first))
    assert world.where(*second) == [""] * 3
    for uid in first:
        world.finished(uid)
    world.pass_s(2)
    world.settle()
    assert all(world.where(*second))


def test_pods_beyond_the_minimum_are_optional() -> None:
    world = World()
    world.node("n0", cpu=3)
    uids = world.gang("train", 5, 2)
    (event,) = world.plan()
    assert isinstance(event, ev.GangPlaced)
    assert (len(required(event)), len(optional(event))) == (2, 1)
    assert set(required(event)) | set(optional(event)) <= set(uids)


def test_the_rest_of_a_running_gang_follows_one_by_one() -> None:
    world = World()
    world.node("n0", cpu=3)
    world.gang("train", 5, 2)
    world.settle()
    assert len(world.bound()) == 3
    world.node("n1", cpu=1)
    world.pass_s(2)
    events = world.plan()
    (event,) = of_type(events, ev.GangPlaced)
    assert (required(event), len(optional(event))) == ([], 1)


def test_waiting_pods_count_towards_the_minimum() -> None:
    world = World()
    world.node("n0", cpu=4)
    uids = world.gang("train", 4, 4)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    (event,) = of_type(world.plan(), ev.GangPlaced)
    assert sorted(required(event)) == uids[1:]


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_refusal_has_the_kube_schedulers_words_and_numbers() -> None:
    world = World()
    for i in range(3):
        world.node(f"small-{i}", cpu=1)
    world.node("tainted", unschedulable=True)
    world.node("other", labels={"zone": "b"})
    world.pod("alone", cpu=2, memory_gi=64, selector={})
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert refused.nodes == 5
    assert refused.node_reasons == {
        "Insufficient cpu": 3,
        "Insufficient memory": 4,
        "node(s) were unschedulable": 1,
    }
    cohort = next(iter(world.state.cohorts.values()))
    assert cohort.message == (
        "0/5 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu, 4 Insufficient memory."
    )


PORTS = "node(s) didn't have free ports for the requested pod ports"


def test_ports_that_this_very_cycle_opens_are_named() -> None:
    world = World()
    world.node("n0")
    world.node("n1", unschedulable=True)
    for name in ("first", "second"):
        world.pod(name, ports=WEB)
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert refused.groups == ("pod/default/second",)
    assert refused.node_reasons == {PORTS: 1, "node(s) were unschedulable": 1}


def test_ports_that_the_gangs_own_pods_take_are_named() -> None:
    world = World()
    for i in range(2):
        world.node(f"n{i}")
    uids = [world.pod(f"train-{i}", "train", minimum=3, ports=WEB) for i in range(3)]
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert (refused.placeable, refused.node_reasons) == (2, {PORTS: 2})
    told = condition(world.state, uids[0])
    assert told is not None
    assert told.message.startswith(f"0/2 nodes are available: 2 {PORTS}. gang default/train: 2 of the 3 pods")


def test_without_nodes_the_refusal_says_so() -> None:
    world = World()
    world.pod("alone")
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert (refused.reason, refused.nodes, refused.node_reasons) == ("InsufficientRoom", 0, {})


def test_ten_thousand_equal_refusals_share_one_event() -> None:
    world = World(policy(cycle_pods=20_000))
    world.node("n0", cpu=1)
    digest = world.scheduling_class(cpu=2)
    world.pod("p", of=digest)
    fact = world.state.pods["p"].fact
    more = [msgspec.structs.replace(fact, uid=f"p{i}", name=f"p{i}") for i in range(9_999)]
    world.facts(*more)
    events = world.plan()
    assert [len(event.groups) for event in of_type(events, ev.GroupsRefused)] == [10_000]
    assert len(events) == 1
    assert len(world.state.cohorts) == 1
    assert world.plan() == []


def test_refusals_with_other_numbers_have_events_of_their_own() -> None:
    world = World()
    world.node("n0", cpu=1)
    for i, cpu in enumerate((2, 2, 3)):
        world.pod(f"p{i}", cpu=cpu)
    world.pod("q", cpu=1, gpu=1)
    refused = of_type(world.plan(), ev.GroupsRefused)
    assert sorted(event.groups for event in refused) == [
        ("pod/default/p0", "pod/default/p1", "pod/default/p2"),
        ("pod/default/q",),
    ]


@pytest.mark.parametrize("gang", [False, True])
def test_an_unsupported_constraint_is_named_and_never_placed(gang: bool) -> None:
    world = World()
    world.node("n0")
    if gang:
        world.pod("train-0", "train", minimum=2)
        world.pod("train-1", "train", minimum=2, unsupported=("volumes that need binding", "pod affinity"))
    else:
        world.pod("alone", unsupported=("volumes that need binding", "pod affinity"))
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.reason == "UnsupportedConstraint"
    assert refused.detail == "not supported yet: volumes that need binding, pod affinity"
    world.node("n1")
    assert world.plan() == []


def test_a_gang_that_reaches_its_minimum_without_such_pods_is_placed() -> None:
    """They are left as pods without a node are, and keep nobody who comes later."""
    world = World()
    world.node("n0")
    world.pod("monitor", "train", minimum=3, unsupported=("topologySpreadConstraints",))
    uids = world.gang("train", 3, 3)
    world.settle()
    assert world.bound() == sorted(uids)
    world.pod("late", "train", minimum=3)
    world.pass_s(2)
    world.settle()
    assert world.bound() == sorted([*uids, "late"])
    group = world.state.groups["default/train"]
    assert group.phase == PARKED


def test_a_task_that_needs_such_pods_is_refused() -> None:
    world = World()
    world.node("n0")
    for name in ("master-0", "master-1", "worker-0", "worker-1"):
        world.pod(name, "train", task=name[:6])
    world.pod("worker-2", "train", task="worker", unsupported=("volumes",))
    fact = pod_group("train", world.version(), 4)
    tasks = {"master": 1, "worker": 3}
    world.facts(
        msgspec.structs.replace(fact, declaration=msgspec.structs.replace(fact.declaration, task_minimums=tasks))
    )
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.reason == "UnsupportedConstraint"
    world.pod("worker-3", "train", task="worker")
    world.settle()
    assert world.bound() == ["master-0", "master-1", "worker-0", "worker-1", "worker-3"]


@pytest.mark.parametrize(
    "declared",
    [{"groups": ("default/train",)}, {"task_minimums": {"worker": 3}}],
)
def test_what_asks_for_nothing_more_than_the_minimum_is_placed(declared: dict[str, object]) -> None:
    world = World()
    world.node("n0")
    for i in range(3):
        world.pod(f"train-{i}", "train")
    fact = pod_group("train", world.version(), 2)
    world.facts(msgspec.structs.replace(fact, declaration=msgspec.structs.replace(fact.declaration, **declared)))
    assert len(of_type(world.plan(), ev.GangPlaced)) == 1


def test_a_gang_larger_than_the_limit_is_refused_and_says_so() -> None:
    world = World(policy(gang_pods=3))
    world.node("n0")
    world.gang("small", 3, 3)
    world.gang("large", 4, 2)
    events = world.plan()
    assert list(placed(events)) == ["default/small"]
    (refused,) = of_type(events, ev.GroupsRefused)
    assert (refused.reason, refused.needed) == ("GangTooLarge", 4)
    assert refused.detail == "gang default/large has 4 pods, more than the limit of 3"


def test_a_gang_of_the_default_limit_fits_one_message_each_way() -> None:
    """`Policy.gang_pods`, on 5,000 nodes whose names are as long as Kubernetes allows."""
    pods, nodes = DEFAULT_POLICY.gang_pods, 5_000
    names = [f"{i:04}" + "n" * 249 for i in range(nodes)]
    uids = [f"{i:08}-0000-0000-0000-000000000000" for i in range(pods)]
    share = pods // nodes
    required = tuple(NodeAssignment(name, tuple(uids[i * share : (i + 1) * share])) for i, name in enumerate(names))
    group = f"{'n' * 63}/{'g' * 253}"
    proposal = ev.GangPlaced(group=group, partition=63, required=required, optional=())
    bindings = tuple(NodeBindings(a.node, tuple(Binding(uid, "9" * 19) for uid in a.pods)) for a in required)
    permit = ev.GangPermitted(group=group, proposals=(Place(2**53, 2**20),), bindings=bindings, dropped=())
    for event in (proposal, permit):
        assert len(envelope.encode_events([event])) < MAX_COMMIT_BYTES


def test_gated_members_are_counted_but_not_placed() -> None:
    world = World()
    world.node("n0")
    for i in range(3):
        world.pod(f"train-{i}", "train", minimum=3, gated=i == 2)
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert (refused.reason, refused.needed, refused.placeable) == ("PodsGated", 3, 2)
    assert refused.detail == "gang default/train needs 3 more pods; 2 may be scheduled, others are gated or done"
    world.pod("train-2", "train", minimum=3)
    world.settle()
    assert len(world.bound()) == 3


# --------------------------------------------------------------------------------------------------------------- queue


def test_a_cycle_is_bounded_by_pods_and_takes_at_least_one_group() -> None:
    world = World(policy(cycle_pods=4))
    world.node("n0", cpu=64)
    world.gang("large", 9, 9, created_s=1)
    for i in range(6):
        world.pod(f"p{i}", created_s=2 + i)
    sizes = []
    while events := world.plan():
        sizes.append(sum(map(len, placed(events).values())))
        world.judge()
    assert sizes == [9, 4, 2]


def test_priority_goes_before_time_and_gets_the_room() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.pod("early", created_s=1)
    world.pod("urgent", created_s=3, priority=10)
    world.gang("pair", 2, 2, created_s=2, priority=5)
    events = world.plan()
    assert list(placed(events)) == ["pod/default/urgent", "pod/default/early"]
    assert [event.groups for event in of_type(events, ev.GroupsRefused)] == [("default/pair",)]


def test_single_pods_of_one_class_are_placed_in_one_step_and_each_has_its_event() -> None:
    world = World()
    for i in range(4):
        world.node(f"n{i}", cpu=2)
    for i in range(10):
        world.pod(f"p{i}", created_s=i)
    events = world.plan()
    found = placed(events)
    assert list(found) == [f"pod/default/p{i}" for i in range(8)]
    assert sorted(node for where in found.values() for node in where.values()) == sorted(["n0", "n1", "n2", "n3"] * 2)
    (refused,) = of_type(events, ev.GroupsRefused)
    assert refused.groups == ("pod/default/p8", "pod/default/p9")
    assert refused.node_reasons == {"Insufficient cpu": 4}


def test_room_that_is_proposed_is_gone_for_the_next_cycle() -> None:
    """Planners subtract all kinds of claims (design, rule 6)."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("first")
    assert list(placed(world.plan())) == ["pod/default/first"]
    world.pod("second")
    assert placed(world.plan()) == {}


def test_a_group_that_is_set_aside_is_left_alone() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("alone", cpu=2)
    world.propose("pod/default/alone", {"alone": "n0"})
    assert of_type(world.judge(), ev.DisagreementDetected)
    world.node("n1")
    world.pass_s(301)
    assert world.plan() == []


def test_each_shard_decides_only_for_its_own_partitions() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=64)
    for i in range(20):
        world.pod(f"p{i}")
    of_a, of_b = (set(placed(world.plan_without_appending(shard))) for shard in "ab")
    assert of_a
    assert of_b
    assert not of_a & of_b
    assert of_a | of_b == set(world.state.groups)


def test_nobody_plans_before_partitions_are_assigned() -> None:
    world = World(shards=())
    world.node("n0")
    world.pod("alone")
    assert world.plan_without_appending("a") == []


def test_a_pod_that_asks_for_nothing_goes_anywhere() -> None:
    world = World()
    digest = "nothing"
    world.facts(scheduling_class(digest, {}))
    world.node("n0", cpu=0, memory_gi=0, pods=0)
    for i in range(3):
        world.pod(f"p{i}", of=digest)
    world.settle()
    assert world.where("p0", "p1", "p2") == ["n0"] * 3
    assert DEFAULT_POLICY.gang_pods < NO_LIMIT
