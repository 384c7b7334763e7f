"""Faults: what may go wrong, when, and what it hits.

A history's faults are drawn before it begins, as data: so one can be left out, and the rest stays as it is. A fault is
armed at its time. Some strike then (a crash, an outage, a clock that jumps); others wait for the next request of their
kind and hit that one: so every step between an intent, its effect and its outcome is hit sooner or later.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from services.kubernetes.errors import Unreachable
from services.kubernetes.transport import Answer
from services.simulator import errors

if TYPE_CHECKING:
    from tests.simulation.broker import Link, Message
    from tests.simulation.kube import ApiServer
    from tests.simulation.processes import Process

TIMEOUT_S = 30.0
"""After this long without an answer Muster's Kubernetes client gives up a request."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a history."""

    at_s: float
    """Seconds from the start at which it is armed."""
    kind: str
    on: str = ""
    """What request it waits for: append; list, watch, get, bind, patch, evict, event. Empty: it strikes at once."""
    slot: str = ""
    """Whose: ingest, planner.a, planner.b, binder; empty: anybody's."""
    for_s: float = 0.0
    """How long it lasts, or how late something comes."""
    code: int = 0
    """The HTTP status of an answer."""
    times: int = 1
    """How many requests it hits."""


class Faults:
    """Those that are armed and wait for a request, and what each kind has hit."""

    def __init__(self, kill: Callable[[Process], None], stop: Callable[[Process, float], None]) -> None:
        self.hits: Counter[str] = Counter()
        self.refused: dict[str, float] = {}
        """Pods whose bindings a webhook refuses, and until when."""
        self._kill, self._stop = kill, stop
        self._armed: dict[str, list[tuple[Fault, list[int]]]] = {}
        self._answers: dict[str, float] = {}
        """By where it goes: how much later an answer comes; a negative one never does."""

    def arm(self, fault: Fault) -> None:
        self._armed.setdefault(fault.on, []).append((fault, [fault.times]))

    def lift(self) -> None:
        """No request fails any more."""
        self._armed.clear()
        self.refused.clear()

    def struck(self, fault: Fault) -> None:
        self.hits[f"{fault.on} {fault.kind}".strip()] += 1

    def _hit(self, on: str, process: Process) -> Fault | None:
        waiting = self._armed.get(on)
        if not waiting:
            return None
        for position, (fault, left) in enumerate(waiting):
            if fault.slot in ("", process.slot):
                left[0] -= 1
                if not left[0]:
                    del waiting[position]
                self.struck(fault)
                return fault
        return None

    # ------------------------------------------------------------------------------------------------------------- log

    def append(self, link: Link, message: Message, there_s: float) -> None:
        """A commit leaves its process and would arrive at `there_s`."""
        broker, loop = link.broker, link.broker.loop
        arrive = (broker.receive, link, link.epoch, message)
        fault = self._hit("append", link.process)
        match fault and fault.kind:
            case None:
                loop.at(there_s, *arrive)
            case "lost":
                pass
            case "late":
                loop.at(there_s + fault.for_s, broker.receive, link, -1, message)
            case "twice":
                loop.at(there_s, *arrive)
                loop.at(there_s + fault.for_s, broker.receive, link, -1, message)
            case "unavailable":
                loop.at(there_s, broker.unavailable, link, message)
            case "in process":
                loop.at(there_s, broker.refuse, link, message, 400, 10164, "last sequence by subject mismatch")
            case "unanswered" | "answered late":
                self._answers[message.reply] = fault.for_s or -1.0
                loop.at(there_s, *arrive)
            case "crash before":
                self._kill(link.process)
            case "crash after":
                loop.at(there_s, *arrive)
                self._kill(link.process)
            case "stop before":
                self._stop(link.process, fault.for_s)
                loop.at(there_s + fault.for_s, broker.receive, link, -1, message)
            case "stop after":
                loop.at(there_s, *arrive)
                self._stop(link.process, fault.for_s)
            case _:
                raise NotImplementedError(fault)

    def answer(self, link: Link, to: str, message: Message) -> None:
        """An answer of the log's server goes back."""
        delay_s = self._answers.pop(message.subject, 0.0) if self._answers else 0.0
        if not delay_s:
            link.deliver(to, [message])
        elif delay_s > 0:
            link.broker.loop.after(delay_s, link.deliver, to, [message])

    def delivered(self, link: Link, batch: list[Message]) -> list[Message]:
        """What arrives of commits that are sent to a reader: one in their middle may be lost."""
        fault = self._hit("read", link.process)
        if fault is None or len(batch) < 2:
            return batch
        return batch[:-2] + batch[-1:]

    # ------------------------------------------------------------------------------------------------------ Kubernetes

    def request(
        self,
        server: ApiServer,
        process: Process,
        on: str,
        name: str,
        execute: Callable[[], Answer],
        answer: asyncio.Future[Answer],
    ) -> None:
        """A request leaves its process."""
        loop = server.loop

        def reply(found: Answer | Exception) -> None:
            loop.after(server.latency_s(process), server.settle, process, answer, found)

        def run() -> None:
            reply(execute() if server.up else _reset(on))

        def fail_after(delay_s: float, sent: bool = True) -> None:
            loop.after(min(delay_s, TIMEOUT_S), server.settle, process, answer, _reset(on, sent=sent))

        if not server.up:
            fail_after(0.001, sent=False)
            return
        latency_s = server.latency_s(process)
        fault = self._hit(on, process)
        if fault is None and on == "bind" and self.refused.get(name, 0.0) > loop.now_s:
            fault = _WEBHOOK
        match fault and fault.kind:
            case None:
                loop.after(latency_s, run)
            case "refused":
                reply(_refusal(fault.code))
            case "failed":
                loop.after(latency_s, lambda: (execute(), reply(_refusal(fault.code))))
            case "unreachable":
                fail_after(0.001, sent=False)
            case "lost":
                fail_after(fault.for_s)
            case "unanswered":
                loop.after(latency_s, execute)
                fail_after(fault.for_s)
            case "late":
                loop.after(fault.for_s, execute)
                fail_after(fault.for_s / 4)
            case "late, refused meanwhile":
                self.refused[name] = loop.now_s + fault.for_s
                loop.after(fault.for_s, execute)
                fail_after(0.05)
            case "webhook":
                self.refused[name] = loop.now_s + fault.for_s
                reply(_refusal(403))
            case "slow":
                loop.after(fault.for_s, run)
            case "crash before":
                self._kill(process)
            case "crash after":
                loop.after(latency_s, execute)
                self._kill(process)
            case "stop before":
                self._stop(process, fault.for_s)
                loop.after(fault.for_s + latency_s, run)
            case "stop after":
                loop.after(latency_s, run)
                self._stop(process, fault.for_s)
            case _:
                raise NotImplementedError(fault)


_WEBHOOK = Fault(at_s=0.0, kind="refused", code=403)
_REASONS = {
    403: ("Forbidden", 'admission webhook "no.example" denied the request'),
    429: ("TooManyRequests", "too many requests"),
    500: ("InternalError", "etcdserver: request timed out"),
    503: ("ServiceUnavailable", "apiserver not ready"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
}


def _refusal(code: int) -> Answer:
    return Answer(code, errors.ApiError(code, *_REASONS[code]).body, 1.0 if code == 429 else None)


def _reset(on: str, *, sent: bool = True) -> Unreachable:
    return Unreachable(on, "ServerDisconnectedError" if sent else "ClientConnectorError", "simulated", sent=sent)


# ------------------------------------------------------------------------------------------------------------ the draw


class Draw(msgspec.Struct, frozen=True):
    """A row of the table that faults are drawn from."""

    weight: float
    kind: str
    on: str = ""
    slots: tuple[str, ...] = ("",)
    for_s: tuple[float, float] = (0.0, 0.0)
    codes: tuple[int, ...] = (0,)
    times: int = 1
    """At most."""


ALL = ("ingest", "planner.a", "planner.b", "binder")
KUBE = ("ingest", "binder")
BUSY = (429, 500, 503, 504)
DRAWS: tuple[Draw, ...] = ()
"""What faults are drawn from."""


def draw(source: random.Random, count: int, until_s: float) -> list[Fault]:
    """`count` faults between the start and `until_s`."""
    rows = source.choices(DRAWS, [row.weight for row in DRAWS], k=count)
    drawn = [
        Fault(
            at_s=round(source.uniform(0.5, until_s), 3),
            kind=row.kind,
            on=row.on,
            slot=source.choice(row.slots),
            for_s=round(source.uniform(*row.for_s), 3),
            code=source.choice(row.codes),
            times=source.randint(1, row.times),
        )
        for row in rows
    ]
    return sorted(drawn, key=lambda fault: fault.at_s)
