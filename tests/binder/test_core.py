"""The binder's decision: proposals in log order, judged whole, against the room that the verdicts before them left."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import HostPort, Taint
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.state.partitions import PARTITIONS, partition_of
from tests.world import World, of_type

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def refusals(events: list[ev.Event]) -> list[tuple[str, str, str]]:
    return [(event.group, event.reason, event.node) for event in of_type(events, ev.ProposalRefused)]


def permitted(events: list[ev.Event]) -> list[str]:
    return [event.group for event in of_type(events, ev.GangPermitted)]


def singles(world: World, *names: str, cpu: float = 1) -> None:
    for name in names:
        world.pod(name, cpu=cpu)


# ------------------------------------------------------------------------------------------------------ order and room


def test_proposals_are_judged_in_log_order_against_the_room_that_is_left() -> None:
    world = World()
    world.node("n0", cpu=3)
    singles(world, "first", "second", "third", cpu=2)
    basis = world.state.sequence
    for name in ("second", "first"):
        world.propose(f"pod/default/{name}", {name: "n0"}, basis=basis)
    verdicts = world.judge()
    assert permitted(verdicts) == ["pod/default/second"]
    assert refusals(verdicts) == [("pod/default/first", "NoRoom", "n0")]


def two_shards(world: World) -> tuple[str, str]:
    """A pod for each of the shards a and b."""
    names = iter(f"p{i}" for i in range(200))
    found: dict[str, str] = {}
    while len(found) < 2:
        name = next(names)
        found.setdefault(world.state.owners[partition_of(f"pod/default/{name}")], name)
    return found["a"], found["b"]


def test_two_shards_may_claim_the_same_room_and_the_second_is_refused_without_a_disagreement() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=1)
    one, other = two_shards(world)
    singles(world, one, other)
    basis = world.state.sequence
    world.propose(f"pod/default/{one}", {one: "n0"}, shard="a", basis=basis)
    world.propose(f"pod/default/{other}", {other: "n0"}, shard="b", basis=basis)
    verdicts = world.judge()
    assert permitted(verdicts) == [f"pod/default/{one}"]
    assert refusals(verdicts) == [(f"pod/default/{other}", "NoRoom", "n0")]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_the_second_is_refused_without_a_disagreement_when_the_first_has_its_verdict_already() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=1)
    one, other = two_shards(world)
    singles(world, one, other)
    basis = world.state.sequence
    world.propose(f"pod/default/{one}", {one: "n0"}, shard="a", basis=basis)
    world.judge()
    world.propose(f"pod/default/{other}", {other: "n0"}, shard="b", basis=basis)
    verdicts = world.judge()
    assert refusals(verdicts) == [(f"pod/default/{other}", "NoRoom", "n0")]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_two_shards_share_the_partitions_evenly() -> None:
    world = World(shards=("a", "b"))
    assert world.state.epoch == 1
    assert world.state.owners == ("a",) * (PARTITIONS // 2) + ("b",) * (PARTITIONS // 2)
    assert binder.decide_now(world.state) == []


def test_a_proposal_is_refused_whole_on_one_failure_and_takes_no_room() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.node("n1", cpu=1)
    uids = world.gang("train", 4, 4)
    world.pod("alone", cpu=2)
    world.propose("default/train", {uids[0]: "n0", uids[1]: "n0", uids[2]: "n1", uids[3]: "n1"})
    world.propose("pod/default/alone", {"alone": "n0"})
    verdicts = world.judge()
    assert refusals(verdicts) == [("default/train", "NoRoom", "n1")]
    assert permitted(verdicts) == ["pod/default/alone"]


def test_a_required_pod_that_is_gone_refuses_the_optional_ones_too() -> None:
    world = World()
    world.node("n0")
    first, second = world.gang("train", 2, 1)
    world.propose("default/train", {first: "n0"}, {second: "n0"})
    world.deleted(first)
    assert refusals(world.judge()) == [("default/train", "PodGone", "n0")]


def test_a_proposal_of_no_pods_has_its_verdict() -> None:
    """Whatever planners propose: without one the group would not be planned again."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.propose("default/train", {})
    world.judge()
    assert not world.state.proposals
    world.settle()
    assert len(world.bound()) == 2


def test_several_assignments_on_one_node_are_judged_by_their_sum() -> None:
    world = World()
    world.node("n0", cpu=4)
    uids = [world.pod("train-0", "train", minimum=2, cpu=2), world.pod("train-1", "train", minimum=2, cpu=3)]
    world.propose("default/train", dict.fromkeys(uids, "n0"))
    assert refusals(world.judge()) == [("default/train", "NoRoom", "n0")]


def test_one_commit_judges_at_most_a_cycles_pods() -> None:
    world = World(msgspec.structs.replace(DEFAULT_POLICY, cycle_pods=2))
    world.node("n0")
    singles(world, "a", "b", "c")
    for name in "abc":
        world.propose(f"pod/default/{name}", {name: "n0"})
    assert permitted(world.judge()) == ["pod/default/a", "pod/default/b"]
    assert permitted(world.judge()) == ["pod/default/c"]


@pytest.mark.parametrize("resource", ["cpu", "memory", "pods", "gpu"])
def test_every_resource_counts(resource: str) -> None:
    world = World()
    small = {"cpu": 1} if resource == "cpu" else {"memory_gi": 1} if resource == "memory" else {"pods": 1}
    world.node("n0", gpu=1, **({} if resource == "gpu" else small))
    for name in "ab":
        world.pod(name, gpu=1 if resource == "gpu" else 0, memory_gi=1)
        world.propose(f"pod/default/{name}", {name: "n0"})
    assert refusals(world.judge()) == [("pod/default/b", "NoRoom", "n0")]


# --------------------------------------------------------------------------------------------- what came in between


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ("tainted", "NodeUnfit"),
        ("unschedulable", "NodeUnfit"),
        ("relabelled", "NodeUnfit"),
        ("gone", "NodeGone"),
        ("shrunk", "NoRoom"),
        ("taken", "NoRoom"),
        ("pod deleted", "PodGone"),
        ("pod terminating", "PodGone"),
        ("pod gated", "PodGated"),
        ("bound elsewhere", "PodGone"),
    ],
)
def test_what_came_between_basis_and_verdict_refuses_without_a_disagreement(fact: str, reason: str) -> None:
    world = World()
    world.node("n0", cpu=2, labels={"zone": "a"})
    world.pod("alone", cpu=2, selector={"zone": "a"})
    world.plan()
    match fact:
        case "tainted":
            taint = Taint(key="x", value="", effect="NoSchedule")
            world.node("n0", cpu=2, labels={"zone": "a"}, taints=(taint,))
        case "unschedulable":
            world.node("n0", cpu=2, labels={"zone": "a"}, unschedulable=True)
        case "relabelled":
            world.node("n0", cpu=2, labels={"zone": "b"})
        case "gone":
            world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
        case "shrunk":
            world.node("n0", cpu=1, labels={"zone": "a"})
        case "taken":
            world.pod("stranger", node="n0", candidate=False)
        case "pod deleted":
            world.deleted("alone")
        case "pod terminating":
            world.terminating("alone")
        case "pod gated":
            world.pod("alone", cpu=2, selector={"zone": "a"}, gated=True)
        case "bound elsewhere":
            world.assigned("alone", "n9")
    verdicts = world.judge()
    assert [found for _, found, _ in refusals(verdicts)] == [reason]
    assert of_type(verdicts, ev.DisagreementDetected) == []
    assert not world.state.proposals
    assert not any(claim.stage == "proposed" for claim in world.state.claims.values())


@pytest.mark.parametrize(
    ("asks", "reason"), [({"cpu": 3}, "NoRoom"), ({"cpu": 1, "selector": {"zone": "b"}}, "NodeUnfit")]
)
def test_a_pod_that_asks_for_more_since_the_basis_refuses_without_a_disagreement(asks: dict, reason: str) -> None:
    """The simulator of faults found it, seed 1408: it had no claim yet when it was resized, so that no node was touched,
    and its gang was set aside."""
    world = World()
    world.node("n0", cpu=2, labels={"zone": "a"})
    world.pod("alone", cpu=1)
    basis = world.state.sequence
    world.pod("alone", **asks)
    world.propose("pod/default/alone", {"alone": "n0"}, basis=basis)
    verdicts = world.judge()
    assert refusals(verdicts) == [("pod/default/alone", reason, "n0")]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_a_neighbour_that_was_resized_since_the_basis_refuses_without_a_disagreement() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.pod("neighbour", node="n0", candidate=False)
    world.pod("alone")
    world.plan()
    world.pod("neighbour", node="n0", candidate=False, cpu=2)
    (refused,) = world.judge()
    assert isinstance(refused, ev.ProposalRefused)
    assert refused.reason == "NoRoom"


def test_what_does_not_matter_refuses_nothing() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.pod("alone", cpu=1)
    world.plan()
    world.node("n0", cpu=1, labels={"new": "label"})
    world.pod("alone", cpu=1, priority=7)
    (verdict,) = world.judge()
    assert isinstance(verdict, ev.GangPermitted)
    assert verdict.bindings[0].pods[0].resource_version == world.state.pods["alone"].resource_version


# ------------------------------------------------------------------------------------------------------- disagreements


@pytest.mark.parametrize(
    ("node", "asks", "reason"),
    [
        ({"cpu": 1}, {"cpu": 2}, "NoRoom"),
        ({"unschedulable": True}, {}, "NodeUnfit"),
        ({}, {"selector": {"zone": "a"}}, "NodeUnfit"),
        ({}, {"unsupported": ("volumes",)}, "NodeUnfit"),
    ],
)
def test_a_refusal_although_nothing_touched_the_node_is_a_disagreement(node: dict, asks: dict, reason: str) -> None:
    """Both use the same fits(): only a bug proposes what does not fit at its own basis (design, rule 4)."""
    world = World()
    world.node("n0", **node)
    world.pod("alone", **asks)
    place = world.propose("pod/default/alone", {"alone": "n0"})
    refused, disagreement = world.judge()
    assert isinstance(refused, ev.ProposalRefused)
    assert refused.reason == reason
    assert disagreement == ev.DisagreementDetected(group="pod/default/alone", proposal=place, node="n0")


def test_a_group_that_is_set_aside_is_tried_again_only_after_a_fact_about_itself() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("alone", cpu=2)
    world.propose("pod/default/alone", {"alone": "n0"})
    world.judge()
    world.node("n1", cpu=8)
    world.pass_s(400)
    assert world.plan() == []
    cohort = world.state.cohorts[world.state.groups["pod/default/alone"].cohort]
    assert cohort.message == "set aside: planner and binder disagree about node n0"
    world.pod("alone", cpu=2, priority=1)
    world.settle()
    assert world.where("alone") == ["n1"]


def test_a_colliding_port_at_its_own_basis_is_a_disagreement_too() -> None:
    world = World()
    world.node("n0")
    world.pod("first", ports=WEB)
    world.settle()
    world.pod("second", ports=WEB)
    world.propose("pod/default/second", {"second": "n0"})
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused, ev.DisagreementDetected]


# --------------------------------------------------------------------------------------------------------- host ports


def test_two_proposals_cannot_open_the_same_port() -> None:
    world = World()
    world.node("n0")
    for name in ("first", "second"):
        world.pod(name, ports=WEB)
    basis = world.state.sequence
    for name in ("first", "second"):
        world.propose(f"pod/default/{name}", {name: "n0"}, basis=basis)
    verdicts = world.judge()
    assert permitted(verdicts) == ["pod/default/first"]
    assert refusals(verdicts) == [("pod/default/second", "NoRoom", "n0")]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_one_proposal_cannot_open_a_port_twice() -> None:
    world = World()
    world.node("n0")
    uids = world.gang("web", 2, 2, ports=WEB)
    world.propose("default/web", dict.fromkeys(uids, "n0"))
    assert refusals(world.judge()) == [("default/web", "NoRoom", "n0")]


def test_a_refused_proposal_opens_no_port() -> None:
    world = World()
    world.node("n0")
    world.node("n1")
    world.pod("holder", node="n1", candidate=False, ports=WEB)
    uids = world.gang("web", 2, 2, ports=WEB)
    world.pod("alone", ports=WEB, cpu=2)
    basis = world.state.sequence
    world.propose("default/web", {uids[0]: "n0", uids[1]: "n1"}, basis=basis)
    world.propose("pod/default/alone", {"alone": "n0"}, basis=basis)
    verdicts = world.judge()
    assert refusals(verdicts) == [("default/web", "NoRoom", "n1")]
    assert permitted(verdicts) == ["pod/default/alone"]


def test_a_gang_with_a_port_goes_to_as_many_nodes() -> None:
    world = World()
    for i in range(3):
        world.node(f"n{i}")
    uids = [world.pod(f"web-{i}", "web", minimum=3, ports=WEB, cpu=i + 1) for i in range(3)]
    world.settle()
    assert sorted(world.where(*uids)) == ["n0", "n1", "n2"]


# ------------------------------------------------------------------------------------------- who decides, and when


def test_nobody_decides_between_taken_and_synced() -> None:
    """A start is never a partial picture (design, section 2)."""
    world = World()
    world.node("n0")
    world.pod("alone")
    world.facts(ev.IngestTaken(holder="again"))
    assert world.plan() == []
    assert world.judge() == []
    world.facts(ev.ClusterSynced(nodes=1, pods=1))
    world.plan()
    world.facts(ev.IngestTaken(holder="third"))
    assert world.judge() == []
    world.facts(ev.ClusterSynced(nodes=1, pods=1))
    assert permitted(world.judge()) == ["pod/default/alone"]


def test_a_log_without_a_policy_gets_one_before_anything_else() -> None:
    world = World()
    world.state.policy = None
    assert binder.decide_now(world.state) == [ev.PolicyAdopted(policy=DEFAULT_POLICY)]


def test_a_policy_that_is_adopted_for_want_of_one_gives_way_to_an_admins() -> None:
    """Who writes it may not have read the admin's yet. As it was: the admin was told that it holds, and it did not."""
    world = World()
    world.state.policy = None
    adopted = binder.decide_now(world.state)
    wanted = msgspec.structs.replace(DEFAULT_POLICY, gang_pods=10)
    world.append("admin", [ev.PolicyChanged(policy=wanted)], cause="admin")
    world.append("binder", adopted, cause="decide")
    assert world.state.policy == wanted
    assert world.state.ignored == {"PolicyAdopted": 1}


def test_a_proposal_of_a_shard_that_does_not_own_the_partition_is_ignored_and_counted() -> None:
    world = World(shards=("a", "b"))
    world.node("n0")
    one, other = two_shards(world)
    singles(world, one, other)
    world.propose(f"pod/default/{one}", {one: "n0"}, shard="b")
    world.propose(f"pod/default/{other}", {other: "n0"}, shard="a")
    assert world.state.ignored == {"GangPlaced": 2}
    assert not world.state.claims
    assert world.judge() == []


def test_a_proposal_of_an_earlier_epoch_is_ignored_and_counted() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    owner = world.state.owners[0]
    decided = list(world.plan_without_appending("a"))
    epoch = world.state.epoch
    world.append("binder", [ev.PartitionsAssigned(epoch=epoch + 1, owners=(owner,) * PARTITIONS)], cause="decide")
    world.append("planner.a", decided, cause="decide", epoch=epoch)
    assert world.state.ignored == {"GangPlaced": 1}
    world.settle()
    assert world.where("alone") == ["n0"]


def test_a_refusal_of_an_earlier_epoch_is_ignored_and_counted() -> None:
    world = World()
    world.pod("alone")
    decided = list(world.plan_without_appending("a"))
    epoch = world.state.epoch
    world.append("binder", [ev.PartitionsAssigned(epoch=epoch + 1, owners=("a",) * PARTITIONS)], cause="decide")
    world.append("planner.a", decided, cause="decide", epoch=epoch)
    assert world.state.ignored == {"GroupsRefused": 1}
    assert world.state.groups["pod/default/alone"].phase == "ready"


def test_an_older_assignment_of_partitions_changes_nothing() -> None:
    world = World()
    owners = world.state.owners
    world.append("binder", [ev.PartitionsAssigned(epoch=world.state.epoch, owners=("z",) * PARTITIONS)])
    assert world.state.owners == owners


def test_a_proposal_for_pods_that_are_claimed_is_ignored_and_counted() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    basis = world.state.sequence
    world.propose("pod/default/alone", {"alone": "n0"}, basis=basis)
    world.propose("pod/default/alone", {"alone": "n0"}, basis=basis)
    assert world.state.ignored == {"GangPlaced": 1}
    assert len(world.state.proposals) == 1


def test_deciding_changes_nothing() -> None:
    """Deciding mutates nothing (design, rule 3): asked twice, the binder says the same."""
    world = World()
    world.node("n0", cpu=3)
    world.gang("train", 2, 2)
    singles(world, "a", "b", "c")
    world.plan()
    assert binder.decide_now(world.state) == binder.decide_now(world.state)


def test_a_proposal_for_pods_of_another_gang_is_refused() -> None:
    """Whatever planners propose: a pod is claimed for its own group only."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.gang("other", 1, 1)
    world.propose("default/train", {"train-0": "n0", "other-0": "n0"}, {"train-1": "n0"})
    assert refusals(world.judge()) == [("default/train", "PodClaimed", "n0")]
