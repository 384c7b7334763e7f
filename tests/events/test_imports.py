"""Imports into NATS while answers are lost, or somebody else writes."""

from __future__ import annotations

import pytest

from events.answers import Unanswered
from events.jetstream import JetStreamLog
from events.log import LogError
from tests.events.test_homes import stored
from tests.events.writing import collect, fill


async def test_an_import_goes_on_where_answers_are_lost(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: it ended with the first, and a person had to begin it again."""
    commits = [stored(sequence, log.cluster) for sequence in range(1, 301)]
    lost = {5: "before", 70: "behind", 131: "before", 132: "behind", 300: "behind"}
    publish = log._publish

    async def losing(subject: str, headers: dict[str, str], payload: bytes, **at: int) -> int:
        how = lost.pop(int(headers["Nats-Expected-Last-Sequence"]) + 1, "")
        sequence = 0 if how == "before" else await publish(subject, headers, payload, **at)
        if how:
            raise Unanswered("no answer")
        return sequence

    monkeypatch.setattr(log, "_publish", losing)
    await log.append_stored(commits)
    assert not lost
    assert await collect(log.read()) == commits


async def test_an_import_ends_where_somebody_else_writes(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = log._publish

    async def overtaken(subject: str, headers: dict[str, str], payload: bytes, **at: int) -> int:
        if headers["Nats-Msg-Id"] == "id-3":
            monkeypatch.undo()
            await fill(log, "planner.0", 1)
        return await publish(subject, headers, payload, **at)

    monkeypatch.setattr(log, "_publish", overtaken)
    with pytest.raises(LogError, match="commit 3 is somebody else's: the log is not a continuation"):
        await log.append_stored([stored(sequence, log.cluster) for sequence in range(1, 6)])
