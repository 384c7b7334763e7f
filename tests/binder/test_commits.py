"""One decision is one message, however many pods it is about: the rest is decided by the next ones (`state.commits`)."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import envelope
from events.log import MAX_COMMIT_BYTES
from events.objects import Declaration, Membership
from events.policy import DEFAULT_POLICY
from services.console.verify import verify
from services.state import commits
from services.state.slices import at_once
from tests.bounds import bound, largest
from tests.facts import pod
from tests.world import World, of_type

EVICT = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", cycle_pods=4)


def decide_all(world: World) -> list[list[ev.Event]]:
    """The binder's decisions until it has nothing to say."""
    said: list[list[ev.Event]] = []
    while decided := world.judge():
        said.append(decided)
        assert len(said) < 1_000
    return said


def events_of(said: list[list[ev.Event]], kind: type) -> list:
    return [event for decided in said for event in of_type(decided, kind)]


# ------------------------------------------------------------------------------------------------------- what is said


def test_units_are_taken_whole_in_order_and_the_first_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [ev.NominationEnded(gang="g", pod=str(number), reason="Expired") for number in range(6)]
    bytes_of_one = commits.size(ends[:1])
    monkeypatch.setattr(commits, "DECISION_BYTES", 3 * bytes_of_one)
    assert at_once(commits.fitting_in_slices([[end] for end in ends])) == ends[:3]
    assert at_once(commits.fitting_in_slices([ends[:2], ends[2:4], ends[4:5]])) == ends[:2]
    assert at_once(commits.fitting_in_slices([ends, ends[:1]])) == ends
    assert at_once(commits.fitting_in_slices([[], ends[:4], ends[4:]])) == ends[:4]
    assert commits.size(ends[:3]) <= commits.DECISION_BYTES


def test_a_decision_leaves_room_for_its_header() -> None:
    header = envelope.Header(
        writer=f"planner.{'s' * 63}", epoch=2**62, basis=2**62, time_ns=2**62, cause="decide", rules=2**62, state=2**62
    )
    assert commits.DECISION_BYTES + len(envelope.encode_header(header)) < MAX_COMMIT_BYTES


# ----------------------------------------------------------------------------------------------------------- evictions


def expired(pods: int) -> World:
    """A gang that runs and whose only nomination is over: all of it that is left is to be evicted."""
    world = World(EVICT)
    for i in range(pods):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", pods, pods)
    world.settle()
    world.deleted(uids[0])
    world.judge()
    world.pass_s(61)
    return world


async def test_a_gang_that_is_too_large_for_one_commit_is_evicted_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 3_000)
    world = expired(40)
    said = decide_all(world)
    assert len(said) >= 3
    assert [event.uid for event in events_of(said, ev.EvictionIntended)] == [f"train-{i}" for i in range(1, 40)]
    (ended,) = events_of(said, ev.NominationEnded)
    assert ended in said[-1]
    assert largest(world.log) <= 3_000
    assert (await verify(world.log)).exit_code == 0


def test_what_was_evicted_and_what_failed_meanwhile_keeps_nobody_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outcomes come between two of these decisions: pods that go are gone, and one that stays is tried again."""
    world = expired(40)
    bound(monkeypatch, 2_000)
    first, second = (event.uid for event in of_type(world.judge(), ev.EvictionIntended)[:2])
    named = {"namespace": "default"}
    no = ev.EvictionFailed(uid=second, name=second, message="a webhook's no", **named)
    world.append("binder", [ev.PodEvicted(uid=first, name=first, **named), no], cause="outcome")
    world.terminating(first)
    said = decide_all(world)
    again = [event.uid for event in events_of(said, ev.EvictionIntended)]
    assert again.count(first) == 0
    assert again.count(second) == 1
    assert sorted(world.state.evictions) == sorted(f"train-{i}" for i in range(1, 40) if f"train-{i}" != first)
    assert not world.state.nominations


def test_others_do_not_wait_for_a_large_gang_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its evictions fill what the verdicts before them leave of each commit."""
    world = expired(40)
    world.node("spare", cpu=30)
    bound(monkeypatch, 2_000)
    evicted = 0
    for i in range(30):
        world.pod(f"p{i}")
        world.plan()
        decided = world.judge()
        assert of_type(decided, ev.GangPermitted)
        evicted += len(of_type(decided, ev.EvictionIntended))
    assert evicted == 39


def test_ten_thousand_pods_with_the_longest_names_are_evicted() -> None:
    """At its real size: 844 bytes each, 8.4 MB, and more than one message takes."""
    pods, namespace, gang = 10_000, "s" * 63, f"{'s' * 63}/{'g' * 253}"
    world = World(EVICT)
    world.node("n", cpu=2 * pods, pods=2 * pods, memory_gi=2 * pods)
    digest = world.scheduling_class()
    declared = Membership(
        gang=gang, dialect="coscheduling/2020", declared=Declaration(min_member=pods, waiting_time_ms=0)
    )
    facts = [
        pod(
            f"{i:05}" + "n" * 248,
            digest,
            uid=f"{i:08}-0000-0000-0000-000000000000",
            version="9" * 19,
            namespace=namespace,
            gang=declared,
            node="n",
        )
        for i in range(pods)
    ]
    for start in range(0, pods, 5_000):
        world.facts(*facts[start : start + 5_000])
    lost = facts[0]
    world.facts(ev.PodDeleted(uid=lost.uid, namespace=lost.namespace, name=lost.name))
    world.judge()
    world.pass_s(61)
    said = decide_all(world)
    assert [event.uid for event in events_of(said, ev.EvictionIntended)] == [fact.uid for fact in facts[1:]]
    assert len(said) == 2
    assert not world.state.nominations


# --------------------------------------------------------------------------------------------------------------- holds


def holding(gangs: int, **policy: int) -> World:
    """So many gangs of two, of each of which one pod waits at permit."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, **policy))
    world.node("n", cpu=gangs)
    for i in range(gangs):
        first, _ = world.gang(f"train{i:02}", 2, 2)
        world.propose(f"default/train{i:02}", {first: "n"})
        world.judge()
    assert len(world.state.holding) == gangs
    return world


def test_gangs_that_time_out_together_are_released_by_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = holding(30)
    bound(monkeypatch, 1_000)
    world.pass_s(11)
    said = decide_all(world)
    assert len(said) >= 3
    released = [(event.group, event.reason) for event in events_of(said, ev.GangReleased)]
    assert released == [(f"default/train{i:02}", "Timeout") for i in range(30)]
    assert not world.state.claims
    assert largest(world.log) <= 1_000


def test_a_gang_that_holds_very_many_is_released_by_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It backs off when its last pod has given its room back, as it would have."""
    world = World()
    world.node("n", cpu=7)
    uids = world.gang("train", 8, 8)
    world.propose("default/train", dict.fromkeys(uids[:7], "n"))
    world.judge()
    bound(monkeypatch, 100_000, pods_named=3)
    world.pass_s(11)
    said = decide_all(world)
    assert [event.pods for event in events_of(said, ev.GangReleased)] == [
        tuple(uids[:3]),
        tuple(uids[3:6]),
        tuple(uids[6:7]),
    ]
    (cohort,) = world.state.cohorts.values()
    assert (cohort.reason, cohort.backing_off, cohort.attempt) == ("Timeout", True, 1)


@pytest.mark.parametrize(
    "left",
    [
        ev.PodDeleted(uid="train-6", namespace="default", name="train-6"),
        ev.PodAssigned(uid="train-6", namespace="default", name="train-6", resource_version="99", node="m"),
        ev.PodTerminating(uid="train-6", namespace="default", name="train-6", resource_version="99"),
    ],
)
def test_who_is_released_in_parts_is_tried_again_whatever_takes_the_last_of_it(
    monkeypatch: pytest.MonkeyPatch, left: ev.Event
) -> None:
    """Seed 263034: some were given back, and what was held yet was bound by somebody else, so that no further release
    came, and nobody tried the gang again."""
    world = World()
    world.node("n", cpu=7)
    world.node("m", cpu=7)
    uids = world.gang("train", 7, 8)
    world.propose("default/train", dict.fromkeys(uids, "n"))
    bound(monkeypatch, 100_000, pods_named=3)
    said = [event for _ in range(3) for event in world.judge()]
    assert [type(event) for event in said] == [ev.GangHeld, ev.GangReleased, ev.GangReleased]
    world.facts(left)
    decide_all(world)
    world.pass_s(2)
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["TooFewPods"]


def koordinator(pods: int) -> tuple[World, list[str]]:
    """A Koordinator gang that lacks one of its minimum; all others wait at permit for five seconds."""
    world = World()
    world.node("n", cpu=pods - 1)
    uids = world.koordinator("default/train", pods, pods, {"waiting_time_ms": 5_000})
    world.propose("default/train", dict.fromkeys(uids[:-1], "n"))
    world.judge()
    return world, uids


def test_a_timeout_names_all_pods_before_they_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 002: "to all the pods belong to the Gang". From the first word on it is not tried."""
    world, uids = koordinator(8)
    bound(monkeypatch, 100_000, pods_named=3)
    world.pass_s(6)
    over = world.judge()
    assert [uid for event in over for uid, _ in event.pods] == uids[:3]
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["GangTimedOut"]
    said = [over, *decide_all(world)]
    kinds = [type(event) for decided in said for event in decided]
    assert kinds == [ev.GangTimedOut, ev.GangTimedOut, ev.GangTimedOut] + [ev.GangReleased] * 3
    assert [uid for event in events_of(said, ev.GangTimedOut) for uid, _ in event.pods] == uids
    assert [uid for event in events_of(said, ev.GangReleased) for uid in event.pods] == uids[:-1]
    assert list(world.state.marks) == uids
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["GangTimedOut"]


def test_pods_that_say_so_meanwhile_are_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, uids = koordinator(8)
    bound(monkeypatch, 100_000, pods_named=3)
    world.pass_s(6)
    world.judge()
    world.mark()
    said = decide_all(world)
    assert [uid for event in events_of(said, ev.GangTimedOut) for uid, _ in event.pods] == uids[3:]
    world.mark()
    assert not world.state.claims
    assert not world.state.marks


def test_who_has_timed_out_is_not_permitted_before_the_last_of_its_pods_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 002: "and won't schedule these pods anymore". Its last pod was bound by somebody else meanwhile, so that those
    which still hold their room would have been enough."""
    world, uids = koordinator(8)
    bound(monkeypatch, 100_000, pods_named=3)
    world.pass_s(6)
    world.judge()
    world.facts(ev.PodAssigned(uid=uids[-1], namespace="default", name=uids[-1], resource_version="99", node="n"))
    said = decide_all(world)
    assert not events_of(said, ev.GangPermitted)
    assert [uid for event in events_of(said, ev.GangReleased) for uid in event.pods] == uids[:-1]


# ---------------------------------------------------------------------------------------------------------- all at once


def test_failed_members_proposals_and_ended_nominations_share_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes first fills a commit, and nothing of what is behind it is lost."""
    gangs = 20
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=30_000))
    for i in range(gangs):
        world.node(f"n{i}", cpu=3)
        world.gang(f"train{i:02}", 3, 3)
    world.settle()
    world.facts(*(ev.PodDeleted(uid=f"train{i:02}-0", namespace="default", name="p") for i in range(gangs)))
    bound(monkeypatch, 1_500)
    assert len(events_of(decide_all(world), ev.RoomNominated)) == gangs
    world.pass_s(31)
    world.node("new", cpu=gangs)
    for i in range(gangs):
        world.pod(f"p{i:02}")
    proposed: list[str] = []
    while more := of_type(world.plan(), ev.GangPlaced):
        proposed += [event.group for event in more]
    world.facts(*(ev.PodDeleted(uid=f"train{i:02}-1", namespace="default", name="p") for i in range(gangs)))
    before = world.state.sequence
    said = decide_all(world)
    assert len(events_of(said, ev.RoomNominated)) == gangs
    assert [event.group for event in events_of(said, ev.GangPermitted)] == proposed
    assert len(events_of(said, ev.NominationEnded)) == gangs
    assert largest(world.log, before) <= 1_500


def test_a_verdict_that_no_commit_takes_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner sees to that; what it saw may have changed. The group is planned again, and the binder goes on."""
    world = World()
    world.node("n", cpu=40)
    uids = world.gang("train", 30, 30)
    other = world.pod("other")
    world.propose("default/train", dict.fromkeys(uids, "n"))
    world.propose("pod/default/other", {other: "n"})
    bound(monkeypatch, 600)
    (refused,) = world.judge()
    assert (refused.reason, refused.group) == ("TooLarge", "default/train")
    assert [event.group for event in of_type(world.judge(), ev.GangPermitted)] == ["pod/default/other"]
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["GangTooLarge"]
    assert decide_all(world) == []
