"""Logs that two versions of Muster wrote in turn are read, verified and begun from as they were.

Recorded on 27 November 2026 with processes of older commits and of ``28e4dc3``; their bytes never change.

``cluster.db.xz``: a real control plane with 5 nodes, gangs of six dialects and single pods that came, finished and went
while each service was replaced. The code of 22 November (``d4a9457``) wrote up to 231 and put its snapshot of 205 into
the file; the later one took over as ingest (232), planner (239) and binder (325); at last the older planner (393, after
kill -9) and binder (423) came back.

``federation.db.xz``: 36 jobs for four clusters of OpenPAI, whose answers were lost, late and refused, while the federator
was killed or ended 24 times and the code of 24 November (``f38870a``) and the later one took turns.

Where such a log is decided otherwise, somebody's log is: CHANGELOG.md has to say so ("Where `muster verify` shows a
difference in an old log"), and this test expects just that difference from then on.
"""

from __future__ import annotations

import lzma
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from events.homes import open_log
from events.sqlite import SqliteLog
from services.console.verify import verify
from services.snapshots import take
from services.start import state_at
from services.state import snapshot
from services.state.fold import State
from tests.homes import commits_of

HERE = Path(__file__).parent
OLDER = 205
"""The place of the snapshot that the older version took of the cluster."""
END = 456


async def recorded(name: str, directory: Path) -> SqliteLog:
    file = directory / f"{name}.db"
    file.write_bytes(lzma.decompress((HERE / f"{name}.db.xz").read_bytes()))
    log = await open_log(str(file))
    assert isinstance(log, SqliteLog)
    return log


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = await recorded("cluster", tmp_path)
    yield log
    await log.close()


async def folded(log: SqliteLog, until: int) -> State:
    """From the first commit, without any snapshot."""
    state = State()
    for stored in await commits_of(log):
        if stored.sequence <= until:
            state.apply_stored(stored)
    return state


@pytest.mark.parametrize(
    ("name", "end", "decided", "otherwise", "snapshots"), [("cluster", END, 83, 4, 3), ("federation", 761, 97, 0, 6)]
)
async def test_what_either_version_decided_is_decided_again(
    name: str, end: int, decided: int, otherwise: int, snapshots: int, tmp_path: Path
) -> None:
    """But for four cycles over pods that backed off beside room that had been given back, as a gang of a lower priority
    came (ARCHITECTURE.md, D82). And every `SnapshotTaken` of either has the digest of today's fold at its place."""
    log = await recorded(name, tmp_path)
    report = await verify(log, validate_every=1)
    assert (report.violation, report.why_unverifiable) == ("", "")
    assert (report.differences, report.last) == (otherwise, end)
    assert (report.decided, report.reproduced, report.snapshots) == (decided, decided - otherwise, snapshots)
    if report.difference is not None:
        assert (report.difference.sequence, report.difference.writer) == (128, "planner.0")
        placed = [one["group"] for one in report.difference.decided if one["type"] == "GangPlaced"]
        assert placed == ["pod/default/s00012", "pod/default/s00015"]
    await log.close()


async def test_a_start_stands_on_the_older_versions_snapshot(cluster: SqliteLog) -> None:
    start = await state_at(cluster)
    assert start.base is not None
    assert (start.base.sequence, start.state.sequence) == (OLDER, END)
    assert snapshot.digest(await folded(cluster, OLDER)) == start.base.digest
    assert snapshot.digest(await folded(cluster, END)) == snapshot.digest(start.state)


async def test_so_it_does_where_all_before_was_purged(cluster: SqliteLog) -> None:
    whole = await verify(cluster)
    await cluster.purge(OLDER + 1)
    left = await verify(cluster)
    assert (left.verified, left.start, left.decided) == (True, OLDER, 37)
    assert left.digest == whole.digest


async def test_a_snapshot_of_today_goes_beside_the_older_one(cluster: SqliteLog) -> None:
    """Into the table of a version whose snapshots did not name their commit."""
    kept = await take(cluster)
    assert [(one.sequence, bool(one.commit)) for one in await cluster.snapshots.listed()] == [
        (END, True),
        (OLDER, False),
    ]
    assert (await state_at(cluster)).base == kept
