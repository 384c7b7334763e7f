"""What stands in the place of modules while a history runs: clocks, timeouts, and what would only cost time.

Every process of a history is in this one, and must not see what they share here. A commit's bytes are decoded once for
all of its readers, as what comes out is frozen. A process of an older version does not know an event all the same, and
leaves out the snapshots of newer ones, whose states have another version. Intervals are shorter than in earnest, or
longer where a quiet minute costs more than it shows.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import events as ev
from events import envelope
from events.envelope import Header, MalformedCommit, Stored
from events.log import EventLog
from events.snapshots import Kept
from services import start, writer
from services.binder import service as binder
from services.binder.service import rounds
from services.console import retention
from services.decider import Decider
from services.ingest import service as ingest
from services.planner import service as planner
from services.snapshots import SnapshotKeeper
from services.state import fold
from services.state.form import Form
from tests.simulation import clock
from tests.simulation.launch import KEPT_FOR_S
from tests.simulation.loop import PROCESS, Timeout, VirtualLoop
from tests.simulation.planting import BEYOND_FROM, FURTHER_FROM
from tests.simulation.supervisor import ONCE
from tests.simulation.versions import two_versions

RENEW_AFTER_S = 13.0
"""Instead of hours: an idle writer renews its subject in nearly every history."""
LOOK_AT_LEASES_EVERY_S = 1.0
WRITE_BEHIND_EVERY_S = 1.0
SILENT_S = 6.0
"""Instead of minutes, from `BEYOND_FROM` on: after so long without a word ingest lists a kind."""
REFUSED_TIMES = 2
"""Four and two times as seldom as the binder does: a fifth of a quiet history's cost. What was refused for good is tried
again after half a minute instead of five."""


class _Known(Decider):
    """Known to its process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        PROCESS.get().decider = self


class Reading:
    """Decodes each header and each payload once."""

    def __init__(self) -> None:
        self._events: dict[bytes, list[ev.Event]] = {}
        self._headers: dict[tuple[str, bytes], Header | None] = {}

    def events(self, stored: Stored) -> list[ev.Event]:
        """Raises MalformedCommit, also for a reader of an older version of the code, which lacks an event."""
        process = PROCESS.get()
        if process is not None and process.lacks and b'"type":"%b"' % process.lacks.encode() in stored.payload:
            raise MalformedCommit(f"commit {stored.sequence}: Invalid value {process.lacks!r}")
        found = self._events.get(stored.payload)
        if found is None:
            found = self._events[stored.payload] = envelope.decode_events(stored)
        return found

    def header(self, stored: Stored) -> Header | None:
        key = stored.subject, stored.header
        if key not in self._headers:
            self._headers[key] = _header_of(stored)
        return self._headers[key]


_header_of, _restored = envelope.header_of, start.restored


@contextmanager
def simulated(loop: VirtualLoop, seed: int, tried: Counter[str]) -> Iterator[None]:
    """While a history runs. `tried` counts starts from a snapshot."""
    assert fold.decode_events is envelope.decode_events, "the fold decodes otherwise"
    reading, names = Reading(), random.Random(f"{seed}/names")

    async def run_child(_: SnapshotKeeper) -> Any:
        return await PROCESS.get().starts.child("snapshot")

    async def restored(log: EventLog, kept: Kept, form: Form[Any]) -> Any:
        process = PROCESS.get()
        found = None if process.lacks else await _restored(log, kept, form)
        if process.slot not in ONCE:
            tried["starts from a snapshot" if found is not None else "snapshots left out"] += 1
        return found

    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    with ExitStack() as stack:
        stack.enter_context(two_versions())
        stack.enter_context(clock.virtual(loop, random.Random(f"{seed}/jitter")))
        for module, name, other in (
            (planner, "Decider", _Known),
            (binder, "Decider", _Known),
            (binder, "WATCH_S", LOOK_AT_LEASES_EVERY_S),
            (rounds, "ROUND_S", WRITE_BEHIND_EVERY_S),
            (rounds, "REFUSED_TIMES", REFUSED_TIMES),
            (writer, "RENEW_AFTER_S", RENEW_AFTER_S),
            (fold, "decode_events", reading.events),
            (fold, "header_of", reading.header),
            (envelope, "header_of", reading.header),
            (SnapshotKeeper, "_run_child", run_child),
            (start, "restored", restored),
            (secrets, "token_hex", lambda size: f"{names.getrandbits(8 * size):0{2 * size}x}"),
            (asyncio, "to_thread", at_once),
            (asyncio, "timeout", Timeout),
        ):
            stack.enter_context(patch.object(module, name, other))
        if seed >= FURTHER_FROM:  # before, a commit of a time to come may be of the day that is to come
            stack.enter_context(patch.object(retention, "DAY_NS", round(KEPT_FOR_S * 1e9)))
        if seed >= BEYOND_FROM:
            stack.enter_context(patch.object(ingest, "SILENT_S", SILENT_S))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
