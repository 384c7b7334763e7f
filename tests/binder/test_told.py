"""Bindings that are refused, or kept waiting: who is told of it, and what it keeps nobody from."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import events as ev
from services.binder.service import effects
from services.binder.service.rounds import Rate
from tests.binder.behind import Reader
from tests.binder.bindings import MANY, Binding
from tests.binder.test_service import Muster, running
from tests.manifests import pod
from tests.waiting import until
from tests.world import World


@pytest.fixture
async def muster() -> AsyncIterator[Muster]:
    async with running() as services:
        yield services


@pytest.mark.parametrize(
    ("reason", "told"), [("Forbidden", 1), ("Rejected", 1), ("PodGone", 0), ("AlreadyAssigned", 0)]
)
async def test_of_bindings_that_fail_those_that_the_server_refused_are_events(reason: str, told: int) -> None:
    """Each once, however often it is refused before it is written: thousands may be, time and again."""
    reader = Reader(World())
    about = {"uid": "p", "namespace": "default", "name": "p", "node": "n0"}
    failed = ev.BindingFailed(**about, reason=reason, message="the server's words", assigned_node="")
    for _ in range(3):
        reader.world.append("binder", [failed], cause="outcome")
    reader.notice()
    await reader.writer.rounds.round(Rate(1_000.0), reader.writer.events.due)
    assert reader.client.events == ["p"] * told


async def test_a_pod_whose_binding_is_kept_waiting_is_told_so(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "TOLD_AFTER_S", 0.0)
    muster.cluster.create(pod("kept"))
    muster.cluster.faults.plan(verb="bind", status=429, times=0)
    muster.start()
    await until(lambda: muster.told("FailedScheduling"), "an event on the pod")
    muster.cluster.faults.lift()
    await until(lambda: muster.node_of("kept"), "the binding")
    (told,) = muster.told("FailedScheduling")
    assert told["message"].startswith("create pods/binding default/kept: 429 ")
    assert not muster.events(ev.BindingFailed)
    await muster.check()


async def test_what_was_written_to_fence_a_binding_is_written_over(muster: Muster) -> None:
    """The log does not say what it was: that the pod waits for the same as before is no reason to leave it there."""
    muster.cluster.create(pod("refused"))
    muster.cluster.faults.plan(verb="bind", hang_up=True, times=1)
    muster.cluster.faults.plan(verb="bind", status=403, times=0)
    muster.start()
    await until(lambda: muster.events(ev.BindingFailed), "the intent to be given up")
    await until(lambda: "lastProbeTime" in muster.scheduled("refused"), "its condition to be written anew")
    assert "at version" not in muster.scheduled("refused")["message"]
    muster.cluster.faults.lift()
    await until(lambda: muster.node_of("refused"), "the binding")
    await muster.check()


async def test_however_many_are_kept_waiting_they_are_no_load(
    binding: Binding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them has ended: a webhook may be busy for as long as it likes."""
    monkeypatch.setattr(effects, "LULL_S", 60.0)
    binding.client.busy = dict.fromkeys(binding.intents, 30.0)
    for uid in binding.intents:
        binding.effects._put(uid)
    await until(lambda: len(binding.client.tried) == MANY, "each to be asked for")
    await until(lambda: not binding.effects._first, "their answers")
    assert not binding.effects.busy
