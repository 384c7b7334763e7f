"""Bindings on their way: when that is a load, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events.envelope import decode
from services.binder.service import effects
from services.binder.service.effects import LOAD, Effects
from services.binder.service.write_behind import DEFAULT_RATES, Rate, WriteBehind
from services.kubernetes.binding import BindResult
from services.kubernetes.errors import Conflict, Forbidden, Unreachable
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


async def test_an_eviction_that_was_never_sent_is_no_doubt() -> None:
    """The API server was away, and is back with a refusal: there is no older attempt that might still land."""
    answers: list[Exception] = [
        Unreachable("evict", "ClientConnectorError", "connection refused", sent=False),
        Forbidden("evict", 403, "Forbidden", "no right to evict"),
    ]

    async def evict(*_: str) -> None:
        raise answers.pop(0)

    intended = {"p0": SimpleNamespace(namespace="ml", name="p0")}
    outcomes: list[ev.Event] = []
    decider: Any = SimpleNamespace(state=SimpleNamespace(permitted={}, evictions=intended), report=outcomes.append)
    evicting = Effects(decider, SimpleNamespace(evict=evict), 4)  # type: ignore[arg-type]
    evicting._evict_later("p0")
    running = asyncio.create_task(evicting.run())
    await until(lambda: outcomes, "its outcome")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ev.EvictionFailed]


class Refusing:
    """An API server: one binding without an answer, then refusals; what is written to the pod takes hold unanswered."""

    def __init__(self, version: str) -> None:
        self.version, self.asked = version, 0
        self.said: list[dict[str, str]] = []
        self.answers = False

    async def bind(self, namespace: str, name: str, uid: str, version: str, node: str) -> BindResult:
        self.asked += 1
        if version != self.version:
            return BindResult("precondition", "the object has been modified")
        return BindResult("in_doubt" if self.asked == 1 else "rejected", "a webhook")

    async def patch_pod_status(self, namespace: str, name: str, uid: str, version: str, status: Any) -> str:
        if version != self.version:
            raise Conflict("patch", 409, "Conflict", "the object has been modified")
        self.said += status["conditions"]
        self.version = str(int(version) + 1_000)
        if not self.answers:
            raise Unreachable("patch", "Timeout", "", sent=True)
        return self.version

    async def get_pod(self, namespace: str, name: str) -> Any:
        metadata = SimpleNamespace(uid=name, resource_version=self.version, deletion_timestamp=None)
        return SimpleNamespace(metadata=metadata, spec=SimpleNamespace(node_name="", scheduling_gates=()))

    async def create_event(self, *_: Any, **__: Any) -> None:
        pass


async def test_a_pod_hears_again_what_it_waits_for_where_a_write_that_fenced_its_binding_had_no_answer() -> None:
    """That write says that the binding failed. The log knows of what was said before, which it is to say again."""
    world = World()
    world.node("n0", cpu=1)
    world.pod("waits", cpu=2)
    outcomes: list[ev.Event] = []
    decider: Any = SimpleNamespace(state=world.state, active=True, report=outcomes.append)
    client: Any = Refusing("")
    behind = WriteBehind(decider, client, holder="test", busy=lambda: False, rates=DEFAULT_RATES)
    binding = Effects(decider, client, 4, overwrites=behind.doubt_condition)

    def logged() -> None:
        if outcomes:
            said, outcomes[:] = list(outcomes), []
            world.append("binder", said, cause="outcome")

    async def refused() -> None:
        world.plan()
        behind.notice(decode(world.log.commits[-1]))
        client.version = client.version or world.state.pods["waits"].resource_version
        client.answers = True
        for _ in range(2):  # the pod is another than the log knows
            await behind._round(Rate(1_000.0), behind._due_conditions)
        behind._report_conditions()
        logged()
        client.answers = False

    await refused()
    world.node("n0", cpu=4)
    world.pass_s(20)
    world.plan()
    world.judge()
    while world.state.permitted:
        await binding._bind("waits", 0.0)
        logged()
    assert client.said[-1]["reason"] == "BindingFailed"
    world.node("n0", cpu=1)
    world.pass_s(20)
    await refused()
    assert [one["reason"] for one in client.said] == ["Unschedulable", "BindingFailed", "Unschedulable"]


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
