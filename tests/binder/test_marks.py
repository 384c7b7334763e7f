"""Pods that are to say that their gang timed out: written behind, from intents, until the answer is definite."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events.dialects import TIMEOUT_ANNOTATION
from events.envelope import decode
from events.objects import Declaration
from services.binder.report import condition
from services.binder.service.write_behind import Rates, WriteBehind
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.state.slices import at_once
from tests.world import World

DECLARED = Declaration(min_member=3, waiting_time_ms=1_000, said=("min_member", "waiting_time_ms"))


class Cluster:
    """The API server's part: pods by name, with a version and annotations; `answers` come before it does anything."""

    def __init__(self) -> None:
        self.pods: dict[str, SimpleNamespace] = {}
        self.answers: list[Exception] = []
        self.lost: list[bool] = []
        """Whether the next writes take hold without an answer."""
        self.tried: list[tuple[str, str]] = []

    async def annotate_pod(self, namespace: str, name: str, uid: str, version: str, annotations: dict[str, str]) -> str:
        await asyncio.sleep(0)
        self.tried.append((name, version))
        if self.answers:
            raise self.answers.pop(0)
        pod = self.pods.get(name)
        if pod is None:
            raise NotFound("annotate", 404, "NotFound", "")
        if (pod.metadata.uid, pod.metadata.resource_version) != (uid, version):
            raise Conflict("annotate", 409, "Conflict", "")
        pod.metadata.annotations |= annotations
        pod.metadata.resource_version = str(int(version) + 1_000)
        if self.lost and self.lost.pop(0):
            raise Unreachable("annotate", "Timeout", "", sent=True)
        return str(pod.metadata.resource_version)

    async def get_pod(self, namespace: str, name: str) -> Any:
        await asyncio.sleep(0)
        return self.pods.get(name)

    def said(self) -> list[str]:
        return sorted(
            name for name, pod in self.pods.items() if pod.metadata.annotations.get(TIMEOUT_ANNOTATION) == "true"
        )


@pytest.fixture
def world() -> World:
    """A Koordinator gang of three whose waiting time is over."""
    world = World()
    world.node("n0")
    for i in range(3):
        world.pod(f"p{i}", "train", dialect="koordinator/v1alpha1", declared=DECLARED)
    world.propose("default/train", {"p0": "n0"})
    world.judge()
    world.pass_s(2)
    world.judge()
    return world


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = Cluster()
    for uid, pod in world.state.pods.items():
        metadata = SimpleNamespace(uid=uid, resource_version=pod.resource_version, annotations={})
        cluster.pods[uid] = SimpleNamespace(metadata=metadata)
    return cluster


class Binder:
    """The part that writes behind; what it says is appended to the log."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.said: list[ev.Event] = []
        decider: Any = SimpleNamespace(state=world.state, active=True, report=self.said.append)
        client: Any = cluster
        self.behind = WriteBehind(decider, client, holder="test", busy=lambda: False, rates=Rates(marks_per_s=1_000.0))

    async def round(self) -> list[ev.Event]:
        """One round, and its outcomes in the log."""
        await self.behind.rounds.round(self.behind.marks.rate, self.behind.marks.due)
        self.behind.marks.report()
        said, self.said[:] = list(self.said), []
        for event in said:
            self.world.append("binder", [event], cause="outcome")
            self.behind.notice(decode(self.world.log.commits[-1]))
        return said

    def noticed(self) -> Binder:
        for stored in self.world.log.commits:
            self.behind.notice(decode(stored))
        return self

    def resumed(self) -> Binder:
        at_once(self.behind.resume())
        return self


async def test_every_pod_of_the_gang_is_annotated_and_the_log_knows_their_versions(
    world: World, cluster: Cluster
) -> None:
    said = await Binder(world, cluster).noticed().round()
    assert cluster.said() == ["p0", "p1", "p2"]
    versions = tuple((name, pod.metadata.resource_version) for name, pod in cluster.pods.items())
    assert said == [ev.TimeoutMarked(pods=versions)]
    assert all(world.state.pods[uid].resource_version == version for uid, version in versions)


async def test_a_pod_that_changed_in_no_way_that_matters_has_its_intent_renewed(world: World, cluster: Cluster) -> None:
    cluster.pods["p1"].metadata.resource_version = "500"
    binder = Binder(world, cluster).noticed()
    assert ev.TimeoutMarkRenewed(pods=(("p1", "500"),)) in await binder.round()
    assert await binder.round() == [ev.TimeoutMarked(pods=(("p1", "1500"),))]
    assert cluster.tried[-1] == ("p1", "500")
    assert cluster.said() == ["p0", "p1", "p2"]


async def test_what_is_in_doubt_is_repeated_with_the_same_content(world: World, cluster: Cluster) -> None:
    """An answer that was lost: the annotation stands already, and nothing is written twice."""
    cluster.lost = [True, True, True]
    binder = Binder(world, cluster).noticed()
    assert await binder.round() == []
    assert len(world.state.marks) == 3
    (said,) = await binder.round()
    assert isinstance(said, ev.TimeoutMarked)
    assert sorted(uid for uid, _ in said.pods) == ["p0", "p1", "p2"]
    assert len(set(cluster.tried)) == 3
    assert len(cluster.tried) == 6
    assert not binder.behind.marks.doubtful, "its next intent may be given up"


async def test_a_start_goes_on_with_what_is_not_settled(world: World, cluster: Cluster) -> None:
    """Intended and not settled is a query on the state (design, rule 5)."""
    world.append("binder", [ev.TimeoutMarked(pods=(("p0", "900"),))], cause="outcome")
    await Binder(world, cluster).resumed().round()
    assert cluster.said() == ["p1", "p2"]
    assert all(mark.written for mark in world.state.marks.values())


async def test_a_pod_that_is_gone_or_made_anew_is_left_alone(world: World, cluster: Cluster) -> None:
    del cluster.pods["p0"]
    cluster.pods["p1"].metadata.uid = "another"
    (said,) = await Binder(world, cluster).noticed().round()
    assert isinstance(said, ev.TimeoutMarked)
    assert [uid for uid, _ in said.pods] == ["p2"]
    assert cluster.said() == ["p2"]
    world.deleted("p0")
    assert list(world.state.marks) == ["p1", "p2"]


@pytest.mark.parametrize(
    ("code", "words"), [(403, "no right to patch pods"), (401, 'admission webhook "w" denied the request: no')]
)
async def test_a_definite_no_settles_it_and_the_gang_stays_refused(
    world: World, cluster: Cluster, code: int, words: str
) -> None:
    cluster.answers = [ApiError("annotate", code, "", words)] * 3
    said = await Binder(world, cluster).noticed().round()
    assert [type(event) for event in said] == [ev.TimeoutMarkFailed] * 3
    assert all(words in event.message for event in said if isinstance(event, ev.TimeoutMarkFailed))
    assert not world.state.marks
    world.plan()
    world.pass_s(400)
    assert not world.plan_would()


@pytest.mark.parametrize("answer", [Conflict("annotate", 409, "", "no"), NotFound("annotate", 404, "", "no")])
async def test_a_webhooks_no_is_one_however_it_puts_it(world: World, cluster: Cluster, answer: ApiError) -> None:
    """A 409 about pods that did not change was taken for a change: the intent was renewed, and refused, for ever, with a
    commit for each round. A 404 was taken for the pod's end."""
    cluster.answers = [answer] * 3
    binder = Binder(world, cluster).noticed()
    assert [type(event) for event in await binder.round()] == [ev.TimeoutMarkFailed] * 3
    assert not world.state.marks
    assert await binder.round() == []


async def test_a_user_who_acts_first_finds_no_annotation(world: World, cluster: Cluster) -> None:
    """The gang may be tried again: an intent of which no attempt is under way is given up."""
    world.pod_group("train", 2, 9_000, dialect="koordinator/v1alpha1")
    said = await Binder(world, cluster).noticed().round()
    assert [type(event) for event in said] == [ev.TimeoutMarkFailed] * 3
    assert {event.message for event in said if isinstance(event, ev.TimeoutMarkFailed)} == {
        "its gang may be tried again"
    }
    assert cluster.tried == []
    assert not world.state.marks


async def test_a_pod_that_its_user_takes_out_of_the_gang_is_left_alone(world: World, cluster: Cluster) -> None:
    world.pod("p0")
    await Binder(world, cluster).noticed().round()
    assert cluster.said() == ["p1", "p2"]
    assert "p0" not in world.state.marks


async def test_an_attempt_in_doubt_is_given_up_only_when_it_must_fail(world: World, cluster: Cluster) -> None:
    """The user acts while an attempt may still land: it is repeated, until the pod is seen to have changed."""
    cluster.answers = [Unreachable("annotate", "Timeout", "", sent=True)] * 3
    binder = Binder(world, cluster).noticed()
    assert await binder.round() == []
    world.pod_group("train", 2, 9_000, dialect="koordinator/v1alpha1")
    cluster.pods["p0"].metadata.resource_version = "500"
    said = await binder.round()
    failed = [event for event in said if isinstance(event, ev.TimeoutMarkFailed)]
    assert [(event.uid, event.message) for event in failed] == [("p0", "its gang may be tried again")]
    assert cluster.said() == ["p1", "p2"]


async def test_no_more_are_annotated_at_a_time_than_may_be_and_the_oldest_first(world: World, cluster: Cluster) -> None:
    behind = Binder(world, cluster).resumed().behind
    assert len(list(behind.marks.due(2))) == 2
    assert list(behind.marks.pods) == ["p2"]


async def test_a_pod_that_says_it_already_is_not_annotated(world: World, cluster: Cluster) -> None:
    binder = Binder(world, cluster).noticed()
    world.append("binder", [ev.TimeoutMarked(pods=(("p0", world.version()),))], cause="outcome")
    world.says("p0")
    assert "p0" not in world.state.marks
    await binder.round()
    assert cluster.said() == ["p1", "p2"]


async def test_an_attempt_of_a_binder_before_may_still_land(world: World, cluster: Cluster) -> None:
    """A start knows of none, and gives up nothing although the user has acted."""
    world.pod_group("train", 2, 9_000, dialect="koordinator/v1alpha1")
    (said,) = await Binder(world, cluster).resumed().round()
    assert isinstance(said, ev.TimeoutMarked)
    assert cluster.said() == ["p0", "p1", "p2"]


async def test_a_refusal_is_no_answer_to_an_attempt_in_doubt(world: World, cluster: Cluster) -> None:
    """That one may still land: given up now, it would annotate a gang of which its user has made another."""
    cluster.answers = [Unreachable("annotate", "Timeout", "", sent=True)] * 3
    cluster.answers += [ApiError("annotate", 403, "Forbidden", "no right to patch pods")] * 3
    binder = Binder(world, cluster).noticed()
    for _ in range(3):
        assert await binder.round() == []
    assert len(cluster.tried) == 6, "a refusal is not repeated in the next round"
    assert len(binder.behind.rounds.failed) == 3
    while binder.behind.rounds.failed:
        binder.behind.rounds.failed.popleft()()
    assert [type(event) for event in await binder.round()] == [ev.TimeoutMarked]
    assert cluster.said() == ["p0", "p1", "p2"]


@pytest.mark.parametrize(
    "answer",
    [
        ApiError("annotate", 429, "", "busy"),
        Unreachable("annotate", "Refused", "", sent=False),
        ApiError("annotate", 401, "Unauthorized", "Unauthorized"),
    ],
)
async def test_what_was_not_executed_leaves_no_doubt(world: World, cluster: Cluster, answer: ApiError) -> None:
    """It was asked for again twice a second, and no refusal after that settled it, though no attempt could land. A 401,
    as an API server answers until it has whoever knows its tokens, settled it for good."""
    cluster.answers = [answer] * 3
    cluster.answers += [ApiError("annotate", 403, "Forbidden", "no right to patch pods")] * 3
    binder = Binder(world, cluster).noticed()
    assert await binder.round() == []
    assert await binder.round() == []
    assert len(cluster.tried) == len(binder.behind.rounds.failed) == 3, "left alone for now"
    while binder.behind.rounds.failed:
        binder.behind.rounds.failed.popleft()()
    assert [type(event) for event in await binder.round()] == [ev.TimeoutMarkFailed] * 3


async def test_a_doubt_is_forgotten_with_its_pod(world: World, cluster: Cluster) -> None:
    cluster.answers = [Unreachable("annotate", "Timeout", "", sent=True)] * 3
    binder = Binder(world, cluster).noticed()
    assert await binder.round() == []
    for uid in ("p0", "p1", "p2"):
        assert uid in binder.behind.marks.doubtful
        world.deleted(uid)
        binder.behind.notice(decode(world.log.commits[-1]))
    assert not binder.behind.marks.doubtful


async def test_a_doubt_about_a_pod_that_is_gone_by_then_is_forgotten_too(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    binder = Binder(world, cluster).noticed()

    async def gone_meanwhile(namespace: str, name: str, *_: Any) -> str:
        world.deleted(name)
        binder.behind.notice(decode(world.log.commits[-1]))
        raise Unreachable("annotate", "Timeout", "", sent=True)

    monkeypatch.setattr(cluster, "annotate_pod", gone_meanwhile)
    for _ in range(2):
        assert await binder.round() == []
    assert not binder.behind.marks.doubtful


async def test_a_gang_of_another_time_is_not_annotated_by_an_old_notice(world: World, cluster: Cluster) -> None:
    """What is written is derived from the state when its turn comes."""
    binder = Binder(world, cluster).noticed()
    for uid in ("p0", "p1", "p2"):
        world.deleted(uid)
    assert await binder.round() == []
    assert cluster.tried == []


def test_of_gangs_each_that_timed_out_is_named_though_the_planner_knew_of_one_alone() -> None:
    """The simulator of faults found it, seed 697995: the binder said it of another gang while the planner refused them,
    and what its next refusal said counted as told."""
    world = World()
    world.node("n0")
    names = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 1, 1, names)
    world.koordinator("default/b", 1, 1, names)
    world.says("a-0")
    refused, basis = world.plan_without_appending(), world.state.sequence
    world.append("binder", [ev.GangTimedOut(group="default/a", pods=(("b-0", "1"),))], cause="decide")
    world.append("planner.a", refused, cause="decide", basis=basis)
    due = condition(world.state, "a-0")
    assert due is not None
    assert due.message.startswith("gangs default/a, default/b: the waiting time is over")
