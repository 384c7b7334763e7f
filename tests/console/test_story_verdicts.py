"""A story (`services.console.story`): what became of proposals, room that is kept, and what concerns all who wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import events as ev
from events.objects import NodeAssignment, Place
from events.policy import DEFAULT_POLICY
from services.console.story import POD
from services.state.partitions import PARTITIONS
from tests.binder.failing import fail, running
from tests.binder.rules.starvation.test_reserving import ask, starving
from tests.binder.test_nominations import after_three
from tests.console.stories import stands, story_of, told
from tests.test_starvation import Busy, policy
from tests.world import SECOND_NS, World

TRAIN = "default/train"


# --------------------------------------------------------------------------------------- what became of its proposals


def test_a_proposal_that_is_refused_says_why() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("web")
    world.plan()
    world.pod("stranger", node="n0", candidate=False)
    world.judge()
    assert told(world, "default/web", POD)[1:] == [
        "proposed: on node n0",
        "proposal refused: node n0 has no room for it any more: others were faster",
    ]


def test_a_proposal_that_the_fold_ignores_is_no_line() -> None:
    """Of a shard that lost the partition, or by an old epoch."""
    world = World()
    world.node("n0")
    world.pod("web")
    before = told(world, "default/web", POD)
    world.append("planner.a", [*world.plan_without_appending()], cause="decide", epoch=world.state.epoch - 1)
    assert world.state.ignored == {"GangPlaced": 1}
    world.append("planner.a", [ev.PodBound(uid="web", namespace="default", name="web", node="n0")], cause="outcome")
    world.append("binder", [ev.PodBound(uid="web", namespace="default", name="web", node="n0")], cause="outcome")
    about: dict[str, Any] = {"uid": "web", "namespace": "default", "name": "web"}
    failed = ev.BindingFailed(**about, node="n0", reason="Rejected", message="no", assigned_node="")
    evicted = [ev.PodEvicted(**about), ev.EvictionFailed(**about, message="no")]
    about = {"group": "pod/default/web", "proposal": Place(1, 0), "node": "n0"}
    refused = ev.ProposalRefused(reason="NoRoom", pod="", **about)
    timed_out = ev.GangTimedOut(group="pod/default/web", pods=(("web", "1"),))
    world.append("binder", [failed, *evicted, refused, timed_out], cause="by hand")
    assert told(world, "default/web", POD) == before


def test_a_fact_that_comes_late_is_no_step_back() -> None:
    world = World()
    for name in ("n0", "n1"):
        world.node(name)
    world.pod("done")
    world.pod("going")
    world.settle()
    world.finished("done")
    for fact in (
        world.terminating,
        lambda uid: world.finished(uid, succeeded=False),
        lambda uid: world.assigned(uid, "n1"),
    ):
        fact("done")
    world.pod("done", node="n1")
    assert told(world, "default/done", POD)[-1].startswith("succeeded: on node n")
    world.terminating("going")
    (node,) = world.where("going")
    world.assigned("going", node)
    assert told(world, "default/going", POD)[-1] == "terminating: it is being deleted"


def test_who_is_there_again_under_the_uid_of_before_is_no_other_pod() -> None:
    """Etcd was restored from a backup. As it was: "another one of this name", of the UID that it had."""
    world = World()
    world.pod("web")
    fact = world.state.pods["web"].fact
    of_class = world.classes[fact.scheduling_class]
    world.facts(ev.PodDeleted(uid="web", namespace="default", name="web"), of_class, fact)
    again = "there again: under the UID of before, as where etcd was restored from a backup: without a gang, priority 0"
    assert told(world, "default/web", POD)[1:] == ["gone: it was not bound", again]
    world.deleted("web")
    world.facts(of_class, msgspec.structs.replace(fact, uid="another"))
    assert told(world, "default/web", POD)[-1].startswith("made anew: another one of this name, of the UID another: ")


def test_a_verdict_on_a_proposal_from_before_it_was_gone_takes_nothing_of_who_is_there_again() -> None:
    """Seed 620337, federated: by its story it had no place, and was to be bound a moment later."""
    world = World()
    world.node("n0")
    world.pod("web")
    fact = world.state.pods["web"].fact
    again = world.classes[fact.scheduling_class], fact
    world.plan()
    world.facts(ev.PodDeleted(uid="web", namespace="default", name="web"), *again)
    world.plan()
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused, ev.GangPermitted]
    assert told(world, "default/web", POD)[-2:] == [
        "proposal refused: a pod of it is gone",
        "permitted: on node n0, to be bound",
    ]


def test_a_node_that_a_later_fact_alone_tells_is_told_with_who_bound_it() -> None:
    """As where ingest was away meanwhile. It was not we while no binding was intended, or one to another node."""
    world = World()
    for name in ("n0", "n1"):
        world.node(name)
    for name in ("ours", "elsewhere"):
        world.pod(name)
    world.plan()
    world.judge()
    world.pod("proposed")
    world.plan()
    at = {uid: claim.node for uid, claim in world.state.claims.items()}
    at["elsewhere"] = {"n0": "n1", "n1": "n0"}[at["elsewhere"]]
    for uid, by in (("ours", ""), ("elsewhere", ", by somebody else"), ("proposed", ", by somebody else")):
        world.pod(uid, node=at[uid])
        assert told(world, f"default/{uid}", POD)[-1] == f"bound: to node {at[uid]}{by}"


def test_what_the_fold_leaves_as_it_was_is_no_line() -> None:
    """An older fact, room that nobody asked for, and a failed member whose room was answered already."""
    busy = Busy(policy(after=1))
    world = busy.world
    old = world.state.pods["train-0"].fact
    world.pod("train-0", "train", minimum=8, priority=1)
    while not world.state.reservations:
        busy.end_one()
    kept = world.state.reservations[TRAIN]
    before = told(world, TRAIN)
    world.facts(msgspec.structs.replace(old, priority=9))
    reserved = ev.RoomReserved(group=TRAIN, priority=9, room=kept.room, waiting_ms=1)
    nominated = ev.RoomNominated(gang=TRAIN, pod="train-0", node="n0", waiting_ms=1)
    ended = ev.NominationEnded(gang=TRAIN, pod="train-0", reason="Expired")
    declined = ev.RoomDeclined(group=TRAIN, reason="Full")
    over = ev.GroupNominationEnded(group=TRAIN, reason="Expired")
    world.append("binder", [reserved, nominated, ended, declined, over], cause="by hand")
    assert told(world, TRAIN) == before


def test_how_long_it_was_held_counts_from_its_first_pod_on() -> None:
    world = World()
    world.node("n0")
    world.koordinator(TRAIN, 3, 3, {"waiting_time_ms": 10_000})
    for uid in ("train-0", "train-1"):
        world.propose(TRAIN, {}, {uid: "n0"})
        world.judge()
    lines = story_of(world.log, TRAIN).lines
    (held,) = [line for line in lines if line.what == "held"]
    assert (held.times, held.until_ns) == (2, held.until * SECOND_NS)
    assert held.until > held.sequence
    world.pass_s(12)
    world.judge()
    (given_back,) = [line for line in story_of(world.log, TRAIN).lines if line.what == "given back"]
    waited_s = given_back.sequence - held.sequence
    assert given_back.reason.startswith(
        f"2 pods: the rest did not come within its waiting time, {waited_s:.1f} s after it began to wait"
    )


def test_a_binding_that_fails_has_the_servers_words() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    world.plan()
    world.judge()
    failed = ev.BindingFailed(
        uid="web",
        namespace="default",
        name="web",
        node="n0",
        reason="Rejected",
        message="an admission policy says no",
        assigned_node="",
    )
    world.append("binder", [failed], cause="outcome")
    assert (
        told(world, "default/web", POD)[-1]
        == "binding failed: to node n0: an admission policy says no. Backs off for 1 s."
    )
    assert stands(world, "default/web", POD).startswith("an admission policy says no")
    world.pass_s(2)
    world.plan()
    world.judge()
    world.append("binder", [failed], cause="outcome")
    again = "binding failed: to node n0: an admission policy says no. Backs off for 2 s. (2 times)"
    assert told(world, "default/web", POD)[-1] == again
    world.pass_s(3)
    world.plan()
    world.judge()
    elsewhere = msgspec.structs.replace(failed, reason="AlreadyAssigned", assigned_node="n9")
    world.append("binder", [elsewhere], cause="outcome")
    assert told(world, "default/web", POD)[-1] == "bound: to node n9, by somebody else"


def test_a_disagreement_sets_it_aside() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    world.plan()
    about: dict[str, Any] = {"group": "pod/default/web", "proposal": Place(world.state.sequence, 0), "node": "n0"}
    refused = ev.ProposalRefused(reason="NodeUnfit", pod="", **about)
    world.append("binder", [refused, ev.DisagreementDetected(**about)], cause="decide")
    assert told(world, "default/web", POD)[-1] == "set aside: planner and binder disagree about node n0"


# ---------------------------------------------------------------------------------------------- room that is kept for it


def test_room_that_is_nominated_after_lost_proposals() -> None:
    world = after_three()
    world.pass_s(12)
    world.judge()
    lines = told(world, TRAIN)
    assert lines[2:4] == [
        "seen: 4 pods now",
        "proposed: 4 pods on 3 nodes (3 times)",
    ]
    assert lines[4].startswith("proposal refused: node n")
    assert lines[4].endswith("(3 times)")
    assert lines[5].startswith("room nominated: it lost its proposals to others: room for ")
    assert lines[6] == "nominated no more: its time is over"


def test_a_gang_that_is_gone_hears_nothing_of_those_that_go_on_without_it() -> None:
    """As it was: their group has the key that its own had, so that room was said to be kept for who was not there."""
    world = World()
    world.node("n0")
    both = {"groups": ("default/a", "default/b")}
    for gang in ("default/a", "default/b"):
        world.koordinator(gang, 1, 1, both)
    world.deleted("b-0")
    world.koordinator("default/a", 1, 1)
    kept = ev.GroupNominated(group="default/a", assignments=(NodeAssignment("n0", ("a-0",)),), waiting_ms=1_000)
    world.append("binder", [kept], cause="by hand")
    assert told(world, "default/a")[-1].startswith("room nominated: ")
    assert told(world, "default/b")[-1] == "gone: 1 pod so far, 0 left"
    world.koordinator("default/b", 1, 1)
    world.settle()
    assert told(world, "default/b")[-1] == "bound: 1 of 1 pod bound, on node n0"


def test_room_that_is_reserved_for_one_that_starves() -> None:
    busy = Busy(policy(after=1, hold_ms=20_000))
    while not busy.world.state.reservations:
        busy.end_one()
    while busy.world.state.reservations:
        busy.world.pass_s(5)
        busy.world.judge()
    lines = [
        line for line in told(busy.world, TRAIN) if line.startswith(("starves", "room reserved", "reserved no more"))
    ]
    assert lines == [
        "starves: it was refused for room time and again, and asks that room for 8 pods on 4 nodes is kept for it",
        "room reserved: for 8 pods on 4 nodes, as it becomes free, for 20 s at most",
        "reserved no more: its time is over",
    ]


def test_room_that_is_not_reserved_says_why() -> None:
    world = starving("one", "two")
    for name in ("one", "two"):
        ask(world, name, {"n0": 3})
    world.judge()
    assert told(world, "default/one")[-1].startswith("room reserved: for 3 pods on 1 node, ")
    assert told(world, "default/two")[-1] == "not reserved: as many gangs as the policy allows have room kept"
    world.append("binder", [ev.RoomDeclined(group="default/two", reason="Overlap")], cause="by hand")
    assert told(world, "default/two")[-1].endswith("the policy allows have room kept")


@pytest.mark.parametrize(
    ("replacement", "ends"), [("keep", "kept no more: no replacement came in time"), ("evict", "to be evicted: ")]
)
def test_a_failed_members_room_is_kept_for_its_replacement(replacement: str, ends: str) -> None:
    world, uids = running(replacement)
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    kept = f"room kept: for the replacement of a pod that failed: on node {node}, for 30 s at most"
    assert told(world, TRAIN)[-2:] == ["failed: 1 pod so far: OutOfcpu", kept]
    assert told(world, f"default/{uids[1]}", POD)[-1] == kept
    world.pass_s(40)
    world.judge()
    assert [line for line in told(world, TRAIN) if line.startswith(ends)] != []
    for eviction in list(world.state.evictions.values())[:1]:
        refused = ev.EvictionFailed(
            uid=eviction.uid, namespace="default", name=eviction.name, message="a webhook says no"
        )
        world.append("binder", [refused], cause="outcome")
        assert told(world, f"default/{eviction.name}", POD)[-1] == "not evicted: a webhook says no"
        assert told(world, TRAIN)[-1] == f"not evicted: default/{eviction.name}: a webhook says no"
    for number, eviction in enumerate(list(world.state.evictions.values()), 1):
        done = ev.PodEvicted(uid=eviction.uid, namespace="default", name=eviction.name)
        world.append("binder", [done], cause="outcome")
        assert told(world, f"default/{eviction.name}", POD)[-1] == "evicted: accepted, or gone already"
        many = f"{number} pod{'s' * (number != 1)} so far"
        assert told(world, TRAIN)[-1] == f"evicted: {many}: accepted, or gone already"


# ------------------------------------------------------------------------------------------------ what concerns everybody


def test_nobody_plans_for_it() -> None:
    world = World()
    world.pod("web")
    world.lose("a")
    world.judge()
    alone = "no planner that lives owns its partition"
    assert stands(world, "default/web", POD) == f"to be tried, and {alone}"
    world.join("b")
    world.judge()
    assert told(world, "default/web", POD)[1:] == [
        f"no planner: planner.a is gone: {alone}",
        "planner: planner.b plans it",
    ]


def test_a_planner_that_lives_is_not_said_to_be_gone() -> None:
    """As it was, where its partition went to one that left at the same time."""
    world = World(shards=("a", "b"))
    world.pod("web")
    owner = world.state.owner(world.state.groups["pod/default/web"])
    other = {"a": "b", "b": "a"}[owner]
    world.lose(other)
    owners = (other,) * PARTITIONS
    world.append("binder", [ev.PartitionsAssigned(epoch=world.state.epoch + 1, owners=owners)], cause="by hand")
    assert told(world, "default/web", POD)[-1] == "no planner: no planner that lives owns its partition"
    world.judge()
    assert told(world, "default/web", POD)[-1] == f"planner: planner.{owner} plans it"


def test_ingest_reads_the_cluster_anew_and_the_admin_sets_the_policy() -> None:
    world = World()
    world.pod("web")
    world.facts(ev.IngestTaken(holder="next"))
    world.facts(ev.ClusterSynced(nodes=0, pods=1))
    changed = msgspec.structs.replace(
        DEFAULT_POLICY,
        retry_ms=5,
        profile=msgspec.structs.replace(DEFAULT_POLICY.profile, node_score="binpack"),
    )
    world.append("admin", [ev.PolicyChanged(policy=changed)], cause="admin")
    assert told(world, "default/web", POD)[1:] == [
        "ingest starts: nobody decides until it has read the cluster",
        "cluster read: ingest has read the cluster: it may be tried",
        "policy changed: profile node score binpack, it was least-allocated; retry ms 5, it was 300000",
    ]


def test_other_versions_concern_who_waits() -> None:
    world = World(supports=ev.VersionsAnnounced(rules=(1, 2), state=(1,)))
    world.pod("web")
    world.append("admin", [ev.VersionsSwitched(rules=2, state=1)], cause="admin")
    assert told(world, "default/web", POD)[-1] == "versions switched: to rules version 2, state version 1"


def test_a_gang_whose_pods_say_from_the_first_that_it_timed_out_is_told_so() -> None:
    """As where its log begins anew."""
    world = World()
    world.node("n0")
    for uid in ("train-0", "train-1"):
        world.pod(uid, "train", minimum=2, dialect="koordinator/v1alpha1", timed_out=True)
    world.settle()
    assert "timed out: its pods say so: it is not tried until its user acts" in told(world, TRAIN)
    for uid in ("train-0", "train-1"):
        world.says(uid, timed_out=False)
    assert told(world, TRAIN)[-1] == "may be tried: nothing says any more that it ran out of waiting time"


def test_who_waits_for_nothing_hears_nothing_of_what_concerns_all_who_wait() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    world.settle()
    before = told(world, "default/web", POD)
    world.lose("a")
    world.facts(ev.IngestTaken(holder="next"))
    world.append("admin", [ev.PolicyChanged(policy=msgspec.structs.replace(DEFAULT_POLICY, retry_ms=5))], cause="admin")
    assert told(world, "default/web", POD) == before
