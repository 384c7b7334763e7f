"""Logs in each of the three homes, empty or with the commits of a walk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from events import envelope, subjects
from events.envelope import FIRST_VERSION, Stored
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import EventLog
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.sqlite import SqliteLog
from services.state import snapshot
from services.state.fold import State


@pytest.fixture(params=["memory", "sqlite", "jetstream"])
async def each_home(request: pytest.FixtureRequest, tmp_path: Path, cluster: str) -> AsyncIterator[EventLog]:
    """An empty log in each of the three homes."""
    opened: EventLog
    if request.param == "memory":
        opened = MemoryLog(cluster)
    elif request.param == "sqlite":
        opened = await open_log(str(tmp_path / "log.db"), cluster, create=True)
    else:
        server: EmbeddedServer = request.getfixturevalue("server")
        opened = await open_log(server.url, cluster, create=True)
    yield opened
    await opened.close()


async def put_commits(log: EventLog, commits: list[Stored]) -> None:
    """These commits as the beginning of an empty log, as its own cluster's."""
    own = [
        msgspec.structs.replace(one, subject=subjects.subject(log.cluster, subjects.writer_of(one.subject)))
        for one in commits
    ]
    if isinstance(log, SqliteLog):
        log.append_stored(own)
    elif isinstance(log, JetStreamLog):
        await log.append_stored(own)
    else:
        for one in own:
            last = await log.last(one.subject)
            await log.append(one.subject, envelope.decode_header(one), one.payload, last.sequence if last else 0)


async def commits_of(log: EventLog) -> list[Stored]:
    return [stored async for batch in log.read() for stored in batch]


def folded(commits: list[Stored], until: int) -> State:
    """The state after the first `until` commits, from the first one on."""
    state = State()
    for stored in commits[:until]:
        state.apply_stored(stored)
    return state


async def put_snapshot(log: EventLog, of: State, **otherwise: int | str) -> Kept:
    """A snapshot of this state, or one that says something else of itself."""
    data, digest = snapshot.FORM.pack(of)
    kept = Kept(sequence=of.sequence, digest=digest, state=FIRST_VERSION, bytes=len(data))
    kept = msgspec.structs.replace(kept, **otherwise)  # type: ignore[arg-type]
    await log.snapshots.put(kept, data)
    return kept
