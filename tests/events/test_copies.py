"""Copies whose target, or whose commits, are not as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from events.connection import Connection
from events.homes import copy
from events.jetstream import JetStreamLog
from events.log import LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from tests.events.writing import append, fill


@pytest.mark.parametrize("limits", [{"max_msgs": 4}, {"max_msgs_per_subject": 1}], ids=str)
async def test_a_stream_that_forgets_what_is_copied_is_told(
    server: EmbeddedServer, cluster: str, limits: dict[str, Any]
) -> None:
    """As it was: all were copied, it said, and most were gone."""
    connection = await Connection(server.url).connect()
    stream = {"name": f"muster-{cluster}", "subjects": [f"muster.{cluster}.>"]}
    await connection.create_stream(stream | {"discard": "old"} | limits)
    memory = MemoryLog(cluster)
    await fill(memory, "binder", 9)
    await append(memory, "ingest", 1, 0)
    log = await JetStreamLog.open(server.url, cluster)
    with pytest.raises(LogError, match=r"begins at [79] and not at 1: it forgot some of the 10 commits"):
        await copy(memory, log)
    await log.close()
    await connection.close()


async def test_a_commit_of_another_cluster_is_not_given_to_its_log(server: EmbeddedServer) -> None:
    """Of a file whose cluster was renamed by hand. As it was: 30 s later the answer of the log that the commit is of, or
    its log had it."""
    memory = MemoryLog("theirs")
    await fill(memory, "binder", 3)
    memory.cluster = "ours"
    theirs, ours = [await JetStreamLog.open(server.url, cluster) for cluster in ("theirs", "ours")]
    with pytest.raises(LogError, match=r"^commit 1 on muster\.theirs\.binder: expected one of cluster 'ours'$"):
        await copy(memory, ours)
    assert [await log.end() for log in (theirs, ours)] == [0, 0]
    await theirs.close()
    await ours.close()
