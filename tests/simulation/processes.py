"""Simulated processes: the real services, each in a context of its own that can be killed and stopped at any await."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any

from services.ingest.requests import MINOR
from tests.simulation.loop import DEAD, PROCESS, RUNNING, Handle


class Process:
    """One run of one service. `slot` is the writer that it wants to be: ingest, planner.<shard>, binder; or what it does
    once: snapshot, retention."""

    def __init__(
        self, slot: str, number: int, source: random.Random, skew_ns: int, lacks: str, gone: asyncio.Future[None]
    ) -> None:
        self.slot, self.number = slot, number
        self.name = f"{slot}-{number}"
        self.source = source
        self.skew_ns = skew_ns
        """What its wall clock is ahead."""
        self.lacks = lacks
        """What its version of the code does not know: an event; the second rules, or fold (`versions`)."""
        self.gone = gone
        """Done when it is dead or has ended, for who waits for that."""
        self.condition = RUNNING
        self.backlog: list[Handle] = []
        self.context = Context()
        self.context.run(PROCESS.set, self)
        self.link: Any = None
        self.elsewhere: list[Any] = []
        """Its connections to other servers than its log's."""
        self.log: Any = None
        """As it has opened it."""
        self.starts: Any = None
        """Who started it, and starts its children (`supervisor.Starts`)."""
        self.decider: Any = None
        """The service's `Decider`, if it has one."""
        self.task: asyncio.Task[None] | None = None
        self.told_to_stop = asyncio.Event()
        self.cut_off = False
        """Whether it cannot renew its lease."""
        self.names: tuple[str, ...] = ()
        """An ingest's: of the schedulers whose pods are candidates."""
        self.minor = MINOR
        """An ingest's: of the API server's versions that it has been told of the newest."""
        self.over = False
        """Whether it is dead or has ended."""

    @property
    def running(self) -> bool:
        return not self.over and self.condition is RUNNING

    @property
    def renews(self) -> bool:
        return self.running and not self.cut_off

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def has_found_its_log(self) -> bool:
        """Whether it has looked, since it was cut off, whether this is the log that it knows."""
        return self.log is not None and self.log._found_behind == self.log.connection.breaks

    def start(self, loop: asyncio.AbstractEventLoop, main: Any, ended: Callable[[asyncio.Task[None]], None]) -> None:
        self.task = self.context.run(loop.create_task, main)
        self.task.add_done_callback(ended, context=Context())

    def kill(self) -> None:
        """kill -9: none of its code runs again, and its connections break."""
        self.condition, self.over = DEAD, True
        for link in (self.link, *self.elsewhere):
            link.is_closed = True
            link.broker.forget(link)
