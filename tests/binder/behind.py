"""What is written behind the bindings: a client that takes it, and what of it users read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import events as ev
from events.envelope import decode
from events.memory import MemoryLog
from services.binder.service.rounds import Rate
from services.binder.service.write_behind import Rates, WriteBehind
from services.kubernetes.discovery import Served
from services.kubernetes.errors import ApiError, Conflict, Unreachable
from services.kubernetes.objects import Metadata, Written
from tests.world import World

_VERSIONS = count(1_000)


class Client:
    """Takes everything that is written."""

    def __init__(self) -> None:
        self.world = World()
        self.conditions: list[str] = []
        self.said: list[dict[str, str]] = []
        self.events: list[str] = []
        self.phases: list[str] = []
        self.away = False
        self.refusal: ApiError | None = None
        self.elsewhere = ""
        """The resourceVersion of pods and PodGroups, when somebody else wrote them."""
        self.stands = ""
        """The phase that is read of a PodGroup."""
        self.looked = 0
        self.groups: dict[str, str] = {}
        """PodGroup → its resourceVersion since it was written."""

    async def patch_pod_status(self, namespace: str, name: str, uid: str, version: str, status: Any) -> str:
        await asyncio.sleep(0)
        self._answer()
        if self.elsewhere and version != self.elsewhere:
            raise Conflict("write", 409, "Conflict", "the object has been modified")
        self.conditions.append(uid)
        self.said += status["conditions"]
        return str(next(_VERSIONS))

    async def get_pod(self, namespace: str, name: str) -> Any:
        metadata = SimpleNamespace(uid=name, resource_version=self.elsewhere)
        return SimpleNamespace(metadata=metadata, spec=SimpleNamespace(node_name=""))

    async def discover(self) -> Served:
        return Served({})

    async def get_pod_group(self, _: Any, namespace: str, name: str) -> Any:
        self.looked += 1
        facts = (fact.resource_version for fact in self.world.state.pod_groups.values() if fact.name == name)
        at = self.elsewhere or self.groups.get(name) or next(facts)
        metadata = SimpleNamespace(uid=f"pg-{name}", resource_version=at)
        return SimpleNamespace(metadata=metadata, status=SimpleNamespace(phase=self.stands, conditions=()))

    async def patch_pod_group_status(self, *about: Any, resource_version: str, **_: Any) -> Written:
        self._answer()
        if self.elsewhere and resource_version != self.elsewhere:
            raise Conflict("write", 409, "Conflict", "the object has been modified")
        self.phases.append(about[4].get("phase", "as it was"))
        version = self.groups[about[2]] = str(next(_VERSIONS))
        return Written(Metadata(resource_version=version))

    async def create_event(self, name: str, regarding: Any, **_: Any) -> None:
        await asyncio.sleep(0)
        self._answer()
        self.events.append(regarding.name)

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("write", "ClientConnectorError", "connection refused", sent=False)
        if self.refusal is not None:
            raise self.refusal


async def heard() -> None:
    """The log ends where it is folded."""


def behind(
    world: World, client: Client, hear_all: Callable[[], Awaitable[None]] = heard
) -> tuple[WriteBehind, list[ev.Event]]:
    outcomes: list[ev.Event] = []
    client.world = world
    decider: Any = SimpleNamespace(state=world.state, active=True, report=outcomes.append, hear_all=hear_all)
    rates = Rates(conditions_per_s=1_000.0, events_per_s=20.0)
    return WriteBehind(decider, client, holder="test", busy=lambda: False, rates=rates), outcomes  # type: ignore[arg-type]


def notice(writer: WriteBehind, world: World, since: int = 0) -> None:
    """What the log says, but for so many commits."""
    for stored in world.log.commits[since:]:
        writer.notice(decode(stored))


def running(size: int) -> World:
    """A gang of so many pods, ``default/train``, that is bound to one node."""
    world = World()
    world.node("n0")
    world.pod_group("train", size)
    for number in range(size):
        world.pod(f"train-{number}", "train")
    world.settle()
    return world


def said(log: MemoryLog) -> list[ev.Event]:
    return [event for stored in log.commits for event in decode(stored).events]


async def told(writer: WriteBehind) -> None:
    await writer.rounds.round(Rate(1_000.0), writer.conditions.due)
    writer.conditions.report()


class Reader:
    """What users read of a world, brought up to date commit by commit."""

    def __init__(self, world: World) -> None:
        self.world, self.client = world, Client()
        self.writer, self.outcomes = behind(world, self.client)
        self.seen = 0

    def notice(self) -> None:
        notice(self.writer, self.world, self.seen)
        self.seen = len(self.world.log.commits)

    async def round(self, *, logged: bool = True) -> None:
        """One round; without `logged` the log has not heard of it yet."""
        self.notice()
        await self.writer.rounds.round(Rate(1_000.0), self.writer.pod_groups.due)
        await told(self.writer)
        if logged and self.outcomes:
            said, self.outcomes[:] = list(self.outcomes), []
            self.world.append("binder", said, cause="outcome")
            self.notice()
