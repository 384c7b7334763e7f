"""Bindings on their way: when that is a load, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from services.binder.service import effects
from services.binder.service.effects import LOAD, Effects
from services.kubernetes.binding import BindResult
from tests.waiting import until
from tests.world import World

MANY = 2 * LOAD


class Client:
    """Binds; `in_doubt`: so many times without an answer. `silent`: pods for which no answer comes at all."""

    def __init__(self) -> None:
        self.in_doubt = self.asked = 0
        self.silent: set[str] = set()
        self.tried: set[str] = set()

    async def bind(self, namespace: str, name: str, uid: str, *_: str) -> BindResult:
        await asyncio.sleep(0)
        self.asked += 1
        self.tried.add(uid)
        if self.in_doubt or uid in self.silent:
            self.in_doubt = max(0, self.in_doubt - 1)
            return BindResult("in_doubt", "no answer", "", 0.0)
        return BindResult("bound", "", "", 0.0)


class Binding:
    """A binder's effects over a log in which `MANY` bindings are intended."""

    def __init__(self) -> None:
        self.world, self.client = World(), Client()
        self.world.node("n0", cpu=MANY, memory_gi=1000)
        for i in range(MANY):
            self.world.pod(f"p{i}")
        self.world.plan()
        self.world.judge()
        self.intents = list(self.world.state.permitted)
        assert len(self.intents) == MANY
        self.outcomes: list[ev.Event] = []
        decider: Any = SimpleNamespace(state=self.world.state, report=self.outcomes.append)
        self.effects = Effects(decider, self.client, 4)  # type: ignore[arg-type]

    async def bind(self, *uids: str) -> None:
        before = len(self.outcomes)
        for uid in uids:
            self.effects._put(uid)
        await until(lambda: len(self.outcomes) == before + len(uids), "them to be bound")
        await until(lambda: not self.effects.in_flight, "the workers to be idle")


@pytest.fixture
async def binding() -> Any:
    binding = Binding()
    running = asyncio.create_task(binding.effects.run())
    yield binding
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_few_bindings_in_a_second_are_no_load(binding: Binding) -> None:
    """A soak found it: at 25 pods/s there was always one within the last second, and so what is written behind had its
    turn every five seconds alone: at a third of its rates, with Kubernetes events that came half an hour late."""
    await binding.bind(*binding.intents[: LOAD - 1])
    assert not binding.effects.busy


async def test_many_are_one_until_they_are_some_time_ago(binding: Binding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "LULL_S", float("inf"))
    await binding.bind(*binding.intents)
    assert binding.effects.busy
    monkeypatch.setattr(effects, "LULL_S", 0.0)
    assert not binding.effects.busy


async def test_a_doubt_is_forgotten_with_its_intent(binding: Binding) -> None:
    """The fact comes before a second answer: the API server had bound it, and its answer was lost."""
    uid = binding.intents[0]
    binding.client.in_doubt = 1
    binding.effects._put(uid)
    await until(lambda: binding.client.asked, "the attempt")
    binding.world.assigned(uid, "n0")
    await until(lambda: not binding.effects._doubtful, "it to be settled")
    assert not binding.outcomes
    assert binding.effects._repeated._value == effects.REPEATED


async def test_those_in_doubt_hold_up_nobody_else(binding: Binding, caplog: pytest.LogCaptureFixture) -> None:
    """A webhook that fails for one namespace's pods: as many of them as there are workers kept all others waiting."""
    theirs, others = binding.intents[:20], binding.intents[20:]
    binding.client.silent = set(theirs)
    for uid in theirs:
        binding.effects._put(uid)
    await binding.bind(*others)
    assert binding.effects._doubtful == set(theirs)
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "bindings that came to nothing: 1, the last of default/p0 to n0: no answer"
    assert len(said) < binding.client.asked - len(others), "now and then, not for each"
    binding.client.silent = set()
    await until(lambda: len(binding.outcomes) == MANY, "theirs to be bound when the webhook is back")
    assert not binding.effects._doubtful


async def test_an_api_server_without_an_answer_is_not_asked_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "REPEATED", 8)
    monkeypatch.setattr(effects, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(effects, "LONGEST_RETRY_S", 0.001)
    monkeypatch.setattr(effects, "LULL_S", float("inf"))
    monkeypatch.setattr(effects, "LOAD", MANY)
    binding = Binding()
    binding.client.silent = set(binding.intents)
    running = asyncio.create_task(binding.effects.run())
    for uid in binding.intents:
        binding.effects._put(uid)
    await until(lambda: binding.client.asked > 10 * MANY, "them to be repeated")
    assert len(binding.client.tried) == 8 + 4, "one more for each worker, which waits"
    assert not binding.effects._ended_s
    binding.client.silent = set()
    await until(lambda: len(binding.outcomes) == MANY, "all to be bound")
    await until(lambda: not binding.effects.in_flight, "the workers to be idle")
    assert binding.effects.busy, "a load, whether they were bound at once or at last"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_evictions_in_flight_are_bounded() -> None:
    """Of a gang of thousands whose policy is `evict`: all at once, they held up bindings, and waited for a connection
    until their time was over."""
    asked: list[str] = []
    in_flight, most = 0, 0

    async def evict(namespace: str, name: str, uid: str) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        in_flight -= 1
        asked.append(uid)

    pods = [f"p{number}" for number in range(MANY)]
    intended = {uid: SimpleNamespace(namespace="ml", name=uid) for uid in pods}
    outcomes: list[ev.Event] = []
    decider: Any = SimpleNamespace(state=SimpleNamespace(permitted={}, evictions=intended), report=outcomes.append)
    evicting = Effects(decider, SimpleNamespace(evict=evict), 4)  # type: ignore[arg-type]
    evicting.resume()
    running = asyncio.create_task(evicting.run())
    await until(lambda: len(outcomes) == MANY, "all to be evicted")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(asked) == sorted(pods)
    assert most == 4
