"""Where a log lives: a NATS URL or the path of a file, and copies between them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from events import subjects
from events.envelope import Stored, header_of
from events.log import EventLog, LogError
from events.snapshots import BrokenSnapshot

SCHEMES = ("nats", "tls", "ws", "wss")
SUFFIX = ".db"
LARGEST_OF_NOBODYS = 1_000_000
"""Bytes: what any server takes."""
EXPECTED_URL = "expected a NATS URL such as nats://127.0.0.1:4222"


async def open_log(
    location: str, cluster: str | None = None, *, create: bool = False, replicas: int = 1, **credentials: Any
) -> EventLog:
    """Opens the log at `location`: ``nats://host:4222`` (the cluster also as its path: ``…/prod``) or ``log.db``.

    Several servers of one NATS cluster stand behind each other, with commas. `cluster` may be left out for a file, which
    knows its own. `create` makes the log where it is absent. `credentials` are `Connection.connect`'s.
    Raises LogError, which says what was expected; Unavailable and Denied for a server.
    """
    if is_server(location):
        servers, path = split(location)
        named = cluster or path
        if not subjects.valid_cluster(named):
            raise LogError(
                f"{without_credentials(location)}: a log in NATS needs its cluster's name "
                f"({subjects.EXPECTED_CLUSTER}), not {named!r}"
            )
        from events.jetstream import JetStreamLog

        return await JetStreamLog.open(servers, named, create=create, replicas=replicas, **credentials)
    if location.endswith(SUFFIX):
        from events.sqlite import SqliteLog

        return SqliteLog(location, cluster, create=create)
    shown = without_credentials(location) or repr(location)
    raise LogError(f"{shown}: {EXPECTED_URL}, or the path of a file *{SUFFIX}")


def is_server(location: str) -> bool:
    """Whether this means to be the URL of NATS servers."""
    return location.partition("://")[0].lower() in SCHEMES


def without_credentials(location: str) -> str:
    """For messages: without what is before the @ of a URL, a password perhaps; also where its scheme was left out.

    A file may have an @ in its name.
    """
    if "://" not in location and location.endswith(SUFFIX):
        return location
    return ",".join(map(_without_credentials, re.split(r",(?=[a-zA-Z]+://)", location)))


def _without_credentials(url: str) -> str:
    """Of a URL that may name several servers. A comma before the last @ may be the password's: what stands there is shown
    only where it has an @ of its own, and a port."""
    servers = re.sub(r"^[a-zA-Z]+://", "", url)
    before, _, last = servers.rpartition("@")
    return url.removesuffix(servers) + ",".join([*re.findall(r"@([^,@]+:[0-9]+),", f"{before},"), last])


def split(location: str) -> tuple[str, str]:
    """The servers' URLs, with commas, and the cluster's name, where it stands as a path behind one of them.

    Raises LogError for what is none.
    """
    try:
        if not is_server(location):
            raise ValueError(location)
        parts = [_server(text if "://" in text else f"nats://{text}") for text in location.split(",")]
    except ValueError as error:
        hint = "; a password with / ? # or a comma goes into MUSTER_NATS_PASSWORD" if "@" in location else ""
        raise LogError(f"{_without_credentials(location)}: {EXPECTED_URL}{hint}") from error
    servers = ",".join(urlunsplit(part._replace(path="")) for part in parts)
    return servers, next((part.path.strip("/") for part in parts if part.path.strip("/")), "")


def named_behind(location: str | None) -> str:
    """The log that a URL names as its path, or ''. What is no URL names none: whoever connects says what was expected."""
    with suppress(LogError):
        return split(location or "")[1]
    return ""


def _server(url: str) -> SplitResult:
    """Raises ValueError."""
    server = urlsplit(url)
    if server.scheme not in SCHEMES or not server.hostname or server.port == 0:
        raise ValueError(url)
    return server


async def copy(source: EventLog, target: EventLog) -> int:
    """Copies all commits at their own sequences (export, import); returns how many.

    What `target` holds already is left alone: an interrupted copy is taken up where it ended, and an archive grows by
    what is new, be its beginning purged in `source` by now. A log that begins behind 1 comes with the snapshot on which
    its beginning stands.
    Raises LogError when `target` holds something else, ends before `source` begins, or forgets what is copied; and when
    it, or for NATS a commit, is of another cluster: subjects and message ids would lie.
    """
    if source.cluster != target.cluster:
        raise LogError(f"the log of cluster {source.cluster!r} cannot become that of {target.cluster!r}")
    done, (first, _) = await target.end(), await source.bounds()
    if done:
        if done < first - 1:
            raise LogError(
                f"the source begins at {first} and the target ends at {done}: the commits between them were purged. "
                f"Copy into an empty one; this one stays as it is"
            )
        if done >= first:
            await _check_prefix(source, target, done)
    copied, begins = 0, (await target.bounds()).first if done else 0
    async for batch in source.read(done):
        begins = begins or batch[0].sequence
        await _append(target, batch)
        copied += len(batch)
    if copied and (now := (await target.bounds()).first) > begins:
        raise LogError(
            f"the target begins at {now} and not at {begins}: it forgot some of the {copied} commits that were copied. "
            f"Expected one without limits"
        )
    await _copy_base(source, target)
    return copied


async def side_by_side(
    log: EventLog, other: EventLog, after: int = 0, until: int | None = None
) -> AsyncGenerator[tuple[list[Stored], list[Stored]], None]:
    """The batches that `log.read` gives, each with what `other` has up to its last place; no more is held. Close it.
    Raises what `read` raises."""
    async with aclosing(log.read(after, until)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            last = batch[-1].sequence
            yield batch, [stored async for part in other.read(after, last) for stored in part]
            after = last


async def _copy_base(source: EventLog, target: EventLog) -> None:
    """The oldest snapshot from which what `target` holds can be folded, unless it has one or begins at 1."""
    first, end = await target.bounds()
    if first == 1 or any(first - 1 <= kept.sequence <= end for kept in await target.snapshots.listed()):
        return
    for kept in reversed(await source.snapshots.listed()):
        if first - 1 <= kept.sequence <= end:
            with suppress(BrokenSnapshot):  # then the next one; what lies before it can be read, not folded
                await target.snapshots.put(kept, await source.snapshots.get(kept))
                return


async def _check_prefix(source: EventLog, target: EventLog, end: int) -> None:
    """The last commit of `target` must be the source's own at that place."""
    source_end = await source.end()
    if 0 < source_end < end and _same(await target.at(source_end), await source.at(source_end), source.cluster):
        raise LogError(
            f"the target has all {source_end} commits of the source, and {end - source_end} more behind them"
        )
    here, there = await target.at(end), await source.at(end)
    if not _same(here, there, source.cluster):
        last = f" (the last is of {subjects.writer_of(here.subject)})" if here is not None else ""
        raise LogError(f"the target's {end} commits are not a beginning of the source{last}: copy into an empty log")


def _same(here: Stored | None, there: Stored | None, cluster: str) -> bool:
    if here is None or there is None:
        return False
    here, there = as_imported(here, cluster), as_imported(there, cluster)
    return (here.subject, here.message_id) == (there.subject, there.message_id)


def as_imported(stored: Stored, cluster: str) -> Stored:
    """As NATS can be given it. A message of nobody's may have come to the log as no client could send it, on another
    subject or larger than is taken: its place is kept, by one that says nothing."""
    odd = not stored.subject.startswith(subjects.subject(cluster, "")) or len(stored.payload) > LARGEST_OF_NOBODYS
    if not odd or header_of(stored) is not None:
        return stored
    nobody = subjects.subject(cluster, "nobody")
    return Stored(sequence=stored.sequence, subject=nobody, message_id="", header=b"", payload=b"")


async def _append(target: EventLog, batch: list[Stored]) -> None:
    from events.jetstream import JetStreamLog
    from events.sqlite import SqliteLog

    if isinstance(target, SqliteLog):
        target.append_stored(batch)
    elif isinstance(target, JetStreamLog):
        placed = [as_imported(commit, target.cluster) for commit in batch]
        _check_subjects(target.cluster, placed)
        await target.append_stored(placed)
    else:
        raise LogError("a copy goes to a file or to NATS")


def _check_subjects(cluster: str, batch: list[Stored]) -> None:
    """NATS takes a commit into the log that its subject is of. Raises LogError for another cluster's."""
    for commit in batch:
        if not commit.subject.startswith(subjects.subject(cluster, "")):
            raise LogError(f"commit {commit.sequence} on {commit.subject}: expected one of cluster {cluster!r}")
