"""Bindings that are intended, and an API server's answers to them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import events as ev
from services.binder.service.effects import LOAD, Effects
from services.kubernetes.binding import BindResult, Outcome
from services.kubernetes.errors import ApiError, Unreachable
from tests.waiting import until
from tests.world import World

MANY = 2 * LOAD
UNBOUND = {"node_name": "", "scheduling_gates": (), "deletion_timestamp": None, "phase": "Pending"}


class Client:
    """Binds; `in_doubt`: so many times without an answer. `silent`: pods for which no answer comes at all. All answers
    wait for `answers`."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.in_doubt = self.asked = 0
        self.silent: set[str] = set()
        self.slow: set[str] = set()
        """Namespaces whose webhook waits for `answers`; the others' do not, then."""
        self.busy: dict[str, float] = {}
        """Pods that are to be asked for later, after so many seconds."""
        self.told: dict[Outcome, set[str]] = {"gone": set(), "rejected": set(), "precondition": set()}
        """Answer → the pods that get it."""
        self.final = False
        """Whether what is told is told of every attempt."""
        self.error: ApiError | None = None
        """What a write is answered with."""
        self.pod: dict[str, Any] = dict(UNBOUND)
        self.seen, self.lost = "4711", 0
        """The version of pods that are looked at, if they are there; how many looks have no answer."""
        self.fenced = ""
        """That of pods that were written, where it is another."""
        self.tried: set[str] = set()

    async def bind(self, namespace: str, name: str, uid: str, *_: str) -> BindResult:
        await asyncio.sleep(0)
        self.asked += 1
        self.tried.add(uid)
        if not self.slow or namespace in self.slow:
            await self.answers.wait()
        for told, pods in self.told.items():
            if uid in pods:
                return BindResult(told, "the server's words", final=self.final)
        if uid in self.busy:
            return BindResult("not_executed", "429", "", self.busy[uid])
        if self.in_doubt or uid in self.silent:
            self.in_doubt = max(0, self.in_doubt - 1)
            return BindResult("in_doubt", "no answer", "", 0.0, answered=False)
        return BindResult("bound", "", "", 0.0)

    async def get_pod(self, namespace: str, name: str) -> Any:
        if self.lost:
            self.lost -= 1
            raise Unreachable("get", "ServerDisconnectedError", "", sent=True)
        pod = SimpleNamespace(uid=name, resource_version=self.seen, **self.pod)
        return SimpleNamespace(metadata=pod, spec=pod, status=pod) if self.seen else None

    async def patch_pod_status(self, *_: Any) -> str:
        if self.error is not None:
            raise self.error
        return self.fenced or self.seen


def said(outcomes: list[ev.Event]) -> list[str]:
    return [getattr(outcome, "reason", type(outcome).__name__) for outcome in outcomes]


class Binding:
    """A binder's effects over a log in which `MANY` bindings are intended."""

    def __init__(self, concurrency: int = 4, namespaces: tuple[str, ...] = ("default",)) -> None:
        """The pods are of the namespaces in turn."""
        self.world, self.client = World(), Client()
        self.world.node("n0", cpu=MANY, memory_gi=1000)
        for i in range(MANY):
            self.world.pod(f"p{i}", namespace=namespaces[i % len(namespaces)])
        self.world.plan()
        self.world.judge()
        self.intents = list(self.world.state.permitted)
        assert len(self.intents) == MANY
        self.outcomes: list[ev.Event] = []
        decider: Any = SimpleNamespace(state=self.world.state, report=self.outcomes.append)
        self.told: list[ev.BindingFailed] = []
        self.effects = Effects(decider, self.client, concurrency, tells=self.told.append)  # type: ignore[arg-type]

    async def bind(self, *uids: str) -> None:
        before = len(self.outcomes)
        for uid in uids:
            self.effects._put(uid)
        await until(lambda: len(self.outcomes) == before + len(uids), "them to be bound")
        await until(lambda: not self.effects._first and not self.effects._again, "the workers to be idle")
