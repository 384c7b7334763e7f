"""Releases of held runs whose answers were lost, that are refused, or that a cluster forgets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

import events as ev
from services.federator import core
from services.federator.backends import Accepted, Refused
from services.federator.records import SETTLED
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
