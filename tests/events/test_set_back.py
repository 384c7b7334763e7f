"""A log that ends where it ended before: its server did not sync what it acknowledged, or was given a backup. Sequences
come a second time, for other commits. The simulator of faults found what comes of that (`tests/simulation/set_back.py`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from events import subjects
from events.answers import EXPECTED_LAST, MESSAGE_ID, StreamState, Unanswered
from events.consumer import COMMIT
from events.jetstream import JetStreamLog
from events.log import LogError
from events.server import EmbeddedServer
from tests.events.writing import append, collect, number_of
from tests.waiting import until


class Machine:
    """One that a server runs on."""

    def __init__(self, server: EmbeddedServer, store: Path, kept: Path) -> None:
        self.server, self._store, self._kept = server, store, kept

    def synced(self) -> None:
        """What is there now survives."""
        self.server.kill()
        shutil.copytree(self._store, self._kept)
        self.server.start()

    def loses_power(self) -> None:
        """And comes back with what was synced."""
        self.server.kill()
        shutil.rmtree(self._store)
        shutil.copytree(self._kept, self._store)
        self.server.start()


@pytest.fixture
def machine(own_server: EmbeddedServer, tmp_path: Path) -> Machine:
    return Machine(own_server, tmp_path / "nats", tmp_path / "synced")


@pytest.fixture
async def other(own_server: EmbeddedServer, cluster: str) -> AsyncIterator[JetStreamLog]:
    """Another process's, which knows nothing of what is lost."""
    opened = await JetStreamLog.open(own_server.url, cluster)
    yield opened
    await opened.close()


@pytest.fixture
async def log(own_server: EmbeddedServer, cluster: str) -> AsyncIterator[JetStreamLog]:
    opened = await JetStreamLog.open(own_server.url, cluster)
    yield opened
    await opened.close()


async def lose(machine: Machine, cluster: str, *commits: tuple[str, int, int]) -> None:
    """What was not synced is lost, and these stand there now: onto whose subject, which, and behind which of it."""
    machine.loses_power()
    fresh = await JetStreamLog.open(machine.server.url, cluster)
    for commit in commits:
        await append(fresh, *commit)
    await fresh.close()


async def numbers(log: JetStreamLog) -> list[int]:
    return [number_of(commit) for commit in await collect(log.read())]


@pytest.fixture
async def set_back(
    machine: Machine, log: JetStreamLog, other: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """The planner's one commit is left, and the binder's two, which `log` has read, are not: others stand there now."""
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(other, "planner.a", 1, 0)
    machine.synced()
    await append(other, "binder", 2, 0)
    await append(other, "binder", 3, 2)
    found = await numbers(log)
    await lose(machine, log.cluster, ("binder", 20, 0), ("binder", 30, 2), ("planner.b", 40, 0))
    return found


async def test_who_has_read_what_is_lost_appends_nothing(set_back: list[int], log: JetStreamLog) -> None:
    """Though its own last commit is left, and is what it expects."""
    assert set_back == [1, 2, 3]
    with pytest.raises(LogError, match="commit 3 is another than was there: the log has lost what it acknowledged"):
        await append(log, "planner.a", 4, 1)
    fresh = await JetStreamLog.open(log.connection.url, log.cluster)
    assert await numbers(fresh) == [1, 20, 30, 40]
    await fresh.close()


async def test_nor_does_who_wrote_it(set_back: list[int], other: JetStreamLog) -> None:
    """The sequence that it expects stands again on its subject, for somebody else's commit."""
    with pytest.raises(LogError, match="commit 3 is another than was there"):
        await append(other, "binder", 4, 3)


async def test_nor_does_who_had_to_ask_whether_it_is_there(
    machine: Machine, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 715417: of two ingests each took the other's taking, in the same place, for its own."""
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(log, "planner.a", 1, 0)
    machine.synced()
    assert await log.end() == 1  # connected again
    publish = log.connection.publish

    async def unanswered(*what: Any) -> int:
        monkeypatch.setattr(log.connection, "publish", publish)
        await publish(*what)
        raise Unanswered("the answer is lost")

    monkeypatch.setattr(log.connection, "publish", unanswered)
    assert await append(log, "binder", 2, 0) == 2
    await lose(machine, log.cluster, ("binder", 20, 0))
    with pytest.raises(LogError, match="commit 2 is another than was there"):
        await append(log, "binder", 3, 2)


async def test_nor_does_who_has_read_a_message_of_nobodys_in_its_place(
    machine: Machine, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts, though it says nothing: who had read it passed over the commit that stands there now (seed 660368)."""
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(log, "planner.a", 1, 0)
    machine.synced()
    assert await log.end() == 1  # connected again
    await log.connection.publish(subjects.subject(log.cluster, "ingest"), b"hello?")
    assert len(await collect(log.read())) == 2
    await lose(machine, log.cluster, ("binder", 20, 0))
    with pytest.raises(LogError, match="commit 2 is another than was there"):
        await append(log, "planner.a", 2, 1)


async def test_nor_does_who_finds_the_last_that_he_knows_behind_another(
    machine: Machine, log: JetStreamLog, other: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer was in doubt, and sent it again: the same commit in the same place. A planner went on over a switch of
    versions that was lost (found with more logs that are set back than the seeds have)."""
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(other, "planner.a", 1, 0)
    machine.synced()
    await append(other, "binder", 2, 0)
    await append(other, "ingest", 3, 0)
    assert await numbers(log) == [1, 2, 3]
    await lose(machine, log.cluster, ("binder", 20, 0), ("ingest", 3, 0))
    with pytest.raises(LogError, match="commit 2 is another than was there"):
        await append(log, "planner.a", 4, 1)


async def test_who_reads_nothing_and_has_nothing_to_say_is_told(set_back: list[int], other: JetStreamLog) -> None:
    """An ingest in a quiet cluster. As it was, it went on until its next commit, which may be six hours later."""
    with pytest.raises(LogError, match="commit 3 is another than was there"):
        await other.stays(60.0)


async def test_nobody_purges_what_he_has_not_read(set_back: list[int], log: JetStreamLog) -> None:
    """A retention that archived what is lost: what stands there now would have been nowhere else."""
    with pytest.raises(LogError, match="commit 3 is another than was there"):
        await log.purge(3)
    fresh = await JetStreamLog.open(log.connection.url, log.cluster)
    assert await numbers(fresh) == [1, 20, 30, 40]
    await fresh.close()


async def test_who_is_told_of_it_while_he_waits(
    machine: Machine, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(log, "planner.a", 1, 0)
    machine.synced()
    await append(log, "planner.a", 2, 1)
    waiting = asyncio.create_task(log.stays(3600.0))
    await until(lambda: log.connection.wake)
    machine.loses_power()
    with pytest.raises(LogError, match="ends at 1 and lost what was there up to 2"):
        await waiting
    assert not log.connection.wake


async def test_who_waits_over_a_log_that_stays_goes_through_outages(
    own_server: EmbeddedServer, log: JetStreamLog
) -> None:
    await append(log, "planner.a", 1, 0)
    waiting = asyncio.create_task(log.stays(3600.0))
    await until(lambda: log.connection.wake)
    for _ in range(2):
        own_server.kill()
        await until(lambda: log.connection.breaks > log._found_behind)
        own_server.start()
        await until(lambda: log.connection.breaks == log._found_behind)
    assert not waiting.done()
    waiting.cancel()


async def test_who_follows_is_told(set_back: list[int], log: JetStreamLog) -> None:
    with pytest.raises(LogError, match="commit 3 is another than was there"):
        await collect(log.follow(3))


async def test_who_follows_while_it_happens_is_told(
    machine: Machine, log: JetStreamLog, other: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(other, "planner.a", 1, 0)
    machine.synced()
    async with aclosing(log.follow()) as batches:
        await append(other, "binder", 2, 0)
        while number_of((await anext(batches))[-1]) != 2:
            pass
        machine.loses_power()
        fresh = await JetStreamLog.open(machine.server.url, log.cluster)
        await append(fresh, "binder", 20, 0)
        await append(fresh, "binder", 30, 2)
        with pytest.raises(LogError, match="commit 2 is another than was there"):
            await anext(batches)
        await fresh.close()


async def test_who_follows_and_had_just_looked_is_told(
    machine: Machine, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planner that was stopped between its look and its consumer (seed 642766) went on behind its place in the other
    log, knew what it read there, and was found to be right from then on."""
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    await append(log, "planner.a", 1, 0)
    machine.synced()
    await append(log, "binder", 2, 0)
    asked = log._state

    async def lost_meanwhile() -> StreamState:
        monkeypatch.setattr(log, "_state", asked)
        machine.loses_power()
        fresh = await JetStreamLog.open(machine.server.url, log.cluster)
        await append(fresh, "binder", 20, 0)
        await append(fresh, "binder", 30, 2)
        await fresh.close()
        return await asked()

    monkeypatch.setattr(log, "_state", lost_meanwhile)
    async with aclosing(log.follow(2)) as batches:  # type: ignore[type-var]
        with pytest.raises(LogError, match="commit 2 is another than was there"):
            await anext(batches)


async def test_whoever_knows_nothing_of_what_is_lost_goes_on(
    machine: Machine, log: JetStreamLog, other: JetStreamLog
) -> None:
    await append(log, "planner.a", 1, 0)
    machine.synced()
    await append(other, "binder", 2, 0)
    machine.loses_power()
    assert await append(log, "planner.a", 3, 1) == 2
    assert await numbers(log) == [1, 3]


async def test_a_commit_that_comes_while_the_server_is_away_waits_until_it_is_known_which_log_it_is(
    machine: Machine, log: JetStreamLog, other: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py would send what it kept before anybody had looked."""
    await append(other, "planner.a", 1, 0)
    machine.synced()
    await append(other, "binder", 2, 0)
    assert await numbers(log) == [1, 2]
    machine.server.kill()
    await until(lambda: not log.connection.client.is_connected, "the connection to break")
    appending = asyncio.ensure_future(append(log, "planner.a", 3, 1))
    machine.loses_power()
    monkeypatch.setattr("events.patience.PATIENCE_S", 1.0)
    with pytest.raises(LogError, match="ends at 1 and lost what was there up to 2"):
        await appending
    fresh = await JetStreamLog.open(machine.server.url, log.cluster)
    assert await numbers(fresh) == [1]
    await fresh.close()


async def test_a_commit_that_nats_py_kept_is_not_sent(own_server: EmbeddedServer, log: JetStreamLog) -> None:
    subject = subjects.subject(log.cluster, "binder")
    own_server.kill()
    await until(lambda: not log.connection.client.is_connected, "the connection to break")
    for headers in (
        {MESSAGE_ID: "first", COMMIT: "{}"},
        {MESSAGE_ID: "second", COMMIT: "{}"},
        {MESSAGE_ID: "of-the-feed", EXPECTED_LAST: "0"},
        {MESSAGE_ID: "of-somebody"},
    ):
        await log.connection.client.publish(subject, b"[]", headers=headers)
    own_server.start()
    (stored,) = await collect(log.follow(), 1)
    assert (stored.sequence, stored.message_id) == (1, "of-somebody")


async def test_who_follows_and_had_read_up_to_where_it_is_purged_since_is_told(
    set_back: list[int], log: JetStreamLog, other: JetStreamLog
) -> None:
    """What he knows cannot be looked for any more: a planner that was away went on behind the last commit that was
    purged, where it had read another (seed 706845)."""
    fresh = await JetStreamLog.open(log.connection.url, log.cluster)
    await fresh.purge(4)
    await fresh.close()
    with pytest.raises(LogError, match="commit 3 was purged while the connection was away: nobody can tell"):
        await collect(log.follow(3))


async def test_what_was_purged_while_the_connection_stood_was_no_other(log: JetStreamLog, other: JetStreamLog) -> None:
    await append(log, "planner.a", 1, 0)
    await append(other, "binder", 2, 0)
    await other.purge(2)
    assert await append(log, "planner.a", 3, 0) == 3
    assert [number_of(commit) for commit in await collect(log.follow(1), 2)] == [2, 3]


async def test_a_commit_that_is_known_and_was_deleted_by_hand_is_no_loss(
    own_server: EmbeddedServer, log: JetStreamLog, other: JetStreamLog
) -> None:
    """What was behind it is still there."""
    await append(other, "binder", 1, 0)
    await append(log, "planner.a", 2, 0)
    await append(other, "ingest", 3, 0)
    await other.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{log.stream}", {"seq": 2})
    own_server.kill()
    own_server.start()
    assert await append(log, "planner.a", 4, 0) == 4
