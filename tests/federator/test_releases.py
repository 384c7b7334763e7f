"""Releases of held runs whose answers were lost, that are refused, or that a cluster forgets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

import events as ev
from services.federator import core, observing
from services.federator.backends import GONE, Accepted, Described, Listing, Owner, Refused, Run
from services.federator.backends.gangs import HELD, PHASE
from services.federator.explain import Said, explained
from services.federator.records import SETTLED, account_of
from services.federator.service import agenda, effects
from services.simulator.cluster import SimulatedCluster
from tests.federator.backends.sites import KubernetesSite
from tests.federator.test_holding import Field, scheduled
from tests.federator.world import Federation

NO = Refused(code="Forbidden", message="", of_content=False)


@pytest.fixture
async def field(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Field]:
    """Two clusters, which are tried again at once and believed soon."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    monkeypatch.setattr(agenda, "SELDOM_S", 0.2)
    monkeypatch.setattr(effects, "SELDOM_S", 0.2)
    monkeypatch.setattr(effects, "BELIEVED_AFTER_S", 0.3)
    async with contextlib.AsyncExitStack() as stack:
        clusters = {alias: await stack.enter_async_context(SimulatedCluster()) for alias in ("a", "b")}
        made = Field({alias: KubernetesSite(cluster) for alias, cluster in clusters.items()})
        await made.start()
        yield made
        await made.kill()


async def test_a_release_without_an_answer_is_seen_in_a_list_and_a_later_refusal_stops_nobody(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    """R15, R16. As it was: the run won, its release was repeated for ever, at last without its body, and when the API
    server refused it the winner was stopped."""
    faults = field.sites["a"].cluster.faults
    faults.plan(verb="get", resource="jobs", times=1)  # held, it says: the release goes on
    lost = faults.plan(verb="get", resource="jobs", status=503, times=0)
    async with scheduled(field, "a"):
        await field.submit("train", a=0)
        await field.settled("train")
    place = field.job("train").places["a"]
    assert lost.hits
    assert (field.job("train").winner, place.held) == ("a", False)
    assert sum(isinstance(event, ev.RunReleased) for event in field.said()) == 1
    faults.lift(lost)
    faults.plan(verb="get", resource="jobs", status=403, times=0)
    await field.kill()
    await field.start()
    before = field.sites["a"].requests()
    await field.until(lambda: field.sites["a"].requests() > before + 30, "lists")
    assert (field.job("train").phase, field.job("train").places["a"].stopped_for) == (SETTLED, "")
    assert "cannot be released" not in caplog.messages


def test_r15_a_winner_is_not_stopped_because_its_release_is_refused() -> None:
    world = Federation(a=50, b=50)
    for alias in ("a", "b"):
        world.answer(alias, Accepted(uid=f"uid of {alias}", held=True))
    world.at(0, a="running", b="waiting")
    assert core.release_refused(world.job, world.place("a"), NO) is None, "it runs"
    world.at(11, a="waiting")
    assert world.job.winner == "a"
    assert core.release_refused(world.job, world.place("a"), NO) is None


async def test_what_a_restored_cluster_holds_again_is_released_again(field: Field) -> None:
    """As it was: etcd had come back as it was before the release, the log had it released, and the run was held for
    ever."""
    site = field.sites["a"]
    await field.submit("train", a=0)
    await field.until(lambda: len(site.pods("train-a")) == 3, "pods")
    await field.until(lambda: not field.job("train").places["a"].held, "its release to be in the log")
    restored = {"metadata": {"annotations": {PHASE: HELD}}, "spec": {"suspend": True}}
    site.cluster.patch("Job", "train-a", restored)
    await field.until(lambda: not _suspended(site, "train-a"), "it to be released again")
    async with scheduled(field, "a"):
        await field.settled("train")
    assert field.job("train").winner == "a"
    again = [event.uid for event in field.said() if isinstance(event, ev.SubmissionHeld)]
    assert len(again) == 2
    assert len(set(again)) == 1
    assert not field.folded().ignored


async def test_a_winner_that_a_restored_cluster_holds_again_is_released_though_its_job_is_settled(field: Field) -> None:
    """As it was: its body had gone as its job settled, and nothing let it go."""
    site = field.sites["a"]
    async with scheduled(field, "a"):
        await field.submit("train", a=0)
        await field.settled("train")
        restored = {"metadata": {"annotations": {PHASE: HELD}}, "spec": {"suspend": True}}
        site.cluster.patch("Job", "train-a", restored)
        await field.until(lambda: not _suspended(site, "train-a"), "it to be released again")
        await field.until(lambda: not field.job("train").places["a"].held, "its release to be in the log")
    again = [event.uid for event in field.said() if isinstance(event, ev.SubmissionHeld)]
    assert len(again) == 2
    assert len(field.blobs.data) == 1
    site.cluster.delete("Job", "train-a")
    await field.until(lambda: not field.blobs.data, "its body to go")
    assert field.job("train").places["a"].run == GONE
    assert not field.folded().ignored


async def test_what_is_gone_before_its_release_is_not_said_to_be_released(field: Field) -> None:
    """As it was: `explain` told that it might run."""
    site = field.sites["a"]
    lost = site.cluster.faults.plan(verb="get", resource="jobs", status=503, times=0)
    await field.submit("train", a=0)
    await field.until(lambda: field.job("train").places["a"].held, "its acceptance to be in the log")
    site.cluster.delete("Job", "train-a")
    site.cluster.faults.lift(lost)
    await field.settled("train")
    assert field.job("train").places["a"].run == GONE
    assert not [event for event in field.said() if isinstance(event, ev.RunReleased)]
    assert not field.folded().ignored


def _suspended(site: KubernetesSite, name: str) -> bool:
    return any(job["spec"]["suspend"] for job in site.cluster.list("Job") if job["metadata"]["name"] == name)


def shown(*uids: str, alias: str = "a", federation: str = "fed") -> Listing:
    owner = Owner(federation=federation, job="u1", cluster=alias)
    runs = [Run(name="n", uid=uid, state="waiting", attempt=0, started_ms=0, held=True) for uid in uids]
    return Listing(runs=(), clock_ms=0, held=tuple(Described(run=run, owner=owner) for run in runs))


def test_only_what_was_released_and_is_shown_by_its_own_cluster_is_held_again() -> None:
    world = Federation(a=50, b=50)
    for alias in ("a", "b"):
        world.answer(alias, Accepted(uid=f"uid of {alias}", held=True))
    account = account_of("a", "a")
    assert observing.held_again(world.state, account, "fed", shown("uid of a")) == {}, "it was not released yet"
    world.append(ev.RunReleased(job="u1", cluster="a"))
    assert observing.held_again(world.state, account, "other", shown("uid of a")) == {}
    assert observing.held_again(world.state, account, "fed", shown("another")) == {}
    assert observing.held_again(world.state, account_of("b", "b"), "fed", shown("uid of a")) == {}
    assert observing.held_again(world.state, account, "fed", shown("uid of a", federation="other")) == {}
    (said,) = observing.held_again(world.state, account, "fed", shown("uid of a")).values()
    world.append(said)
    assert ("u1", "a") in world.state.releasing
    story = explained([Said(n, 0, [event]) for n, event in enumerate(world.log, 1)], world.job.name)
    assert story is not None
    assert story[-1].what == "held again"
    assert observing.held_again(world.state, account, "fed", shown("uid of a")) == {}
    world.append(ev.RunReleased(job="u1", cluster="a"))
    world.at(0, a="running")
    world.at(11, b="stopped")
    assert world.job.phase == SETTLED
    (said,) = observing.held_again(world.state, account, "fed", shown("uid of a")).values()
    assert core.needs_body(world.job)
    world.append(said)
    assert ("u1", "a") in world.state.releasing
    world.append(ev.RunReleased(job="u1", cluster="a"))
    world.at(20, a="succeeded")
    assert not core.needs_body(world.job)
    assert observing.held_again(world.state, account, "fed", shown("uid of a")) == {}, "it has ended"
    assert not world.state.ignored
