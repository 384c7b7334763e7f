"""What NATS takes from whoever may publish, or has a server answer to a subject of theirs, costs nothing but itself."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from events import jetstream, lease, object_store
from events.cloudevents import FeedMessage
from events.connection import Connection
from events.consumer import PULL_BYTES
from events.envelope import encode_header, header_of
from events.feed import Feed
from events.homes import _check_subjects, as_imported, copy
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.log import LogError
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.sqlite import SqliteLog
from services.console.retention import _check_archived
from tests.events.test_homes import stored
from tests.events.writing import HEADER, append, collect, sequences
from tests.nats_server import connected
from tests.waiting import answered as waited_for
from tests.waiting import until

HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


ODD = [
    (b"nobody", b"ABCD"),
    (b"nobody", b"\0"),
    (b"nobody", b"NATS/1.0 503 \xff\r\n\r\n"),
    (b"nobody", b"NATS/1.0\r\nMuster-Commit: \xff\r\nNats-Msg-Id: a\0b\r\n\r\n"),
    (b"nobody", b"Muster-Commit: a\r\nNats-Msg-Id: b\r\n\r\n"),
    (b"\xff", b""),
    (b"a\xe2\x82A\xf0\x80\x80b", b""),
    (b"a\x0bb", b""),
    (b"a\x0cb", b"NATS/1.0\r\na: b\r\n\r\n"),
    (b"a\xc2\xa0b\x1c\x85", b""),
]
"""(last word of a subject, block of headers)"""


async def sent(server: EmbeddedServer, *frames: bytes) -> None:
    """By a client that checks nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HELLO + b"".join(frames) + b"PING\r\n")
    said = b""
    while b"PONG\r\n" not in said:
        said += await reader.read(1 << 16)
    assert b"-ERR" not in said
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def sent_into(stream: str, connection: Connection, server: EmbeddedServer, *frames: bytes) -> None:
    """Returns when `stream` has a message for each. A server answers a PING when it has read what came before; it is
    stored later, and who asked at once found fewer."""

    async def stored() -> int:
        return int(json.loads(await connection.ask(f"$JS.API.STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def are_there() -> bool:
        return await stored() == before + len(frames)

    before = await stored()
    await sent(server, *frames)
    await waited_for(are_there, f"{len(frames)} messages in {stream}")


def published(subject: bytes, headers: bytes = b"") -> bytes:
    if headers:
        return b"HPUB %b %d %d\r\n%bx\r\n" % (subject, len(headers), len(headers) + 1, headers)
    return b"PUB %b 1\r\nx\r\n" % subject


def answered(stream: str, subject: bytes) -> bytes:
    """JetStream's answer to whom may ask for no more than how a stream is."""
    return b"PUB $JS.API.STREAM.INFO.%b %b 0\r\n\r\n" % (stream.encode(), subject)


@pytest.mark.parametrize(("word", "headers"), ODD)
async def test_whatever_stands_in_a_log_is_read_and_so_is_what_comes_behind_it(
    server: EmbeddedServer, log: JetStreamLog, cluster: str, word: bytes, headers: bytes
) -> None:
    """As it was: nats-py failed at it, and every reader began again there, for ever; none could start."""
    await append(log, "binder", 1, 0)
    frame = published(b"muster.%b.%b" % (cluster.encode(), word), headers)
    await sent_into(log.stream, log.connection, server, frame)
    await append(log, "binder", 2, 1)
    commits = await collect(log.read())
    assert sequences(commits) == [1, 2, 3]
    assert [await log.at(sequence) for sequence in (1, 2, 3)] == commits, "else it is taken for another log"
    other = await JetStreamLog.open(server.url, cluster)
    follower = other.follow(0)
    assert sequences(await anext(follower)) == [1, 2, 3]
    await follower.aclose()
    await other.close()


async def test_whatever_stands_in_a_log_is_in_its_archive_and_in_what_is_made_of_that(
    server: EmbeddedServer, own_server: EmbeddedServer, log: JetStreamLog, cluster: str, tmp_path: Path
) -> None:
    frames = [published(b"muster.%b.%b" % (cluster.encode(), word), headers) for word, headers in ODD]
    await sent_into(log.stream, log.connection, server, *frames)
    file = SqliteLog(tmp_path / "log.db", cluster, create=True)
    assert await copy(log, file) == len(ODD)
    other = await JetStreamLog.open(own_server.url, cluster)
    assert await copy(file, other) == len(ODD)
    assert await collect(other.read()) == await collect(file.read()) == await collect(log.read())
    await other.close()


async def test_what_no_client_can_send_keeps_its_place_in_what_is_made_of_an_archive(
    own_server: EmbeddedServer, cluster: str, tmp_path: Path
) -> None:
    """A message of the feed's that a consumer delivered onto a subject of the log, and an answer of 24 MB."""
    file = SqliteLog(tmp_path / "log.db", cluster, create=True)
    commits = [stored(sequence, cluster) for sequence in range(1, 6)]
    odd = msgspec.structs.replace(commits[1], header=b"")
    commits[1] = msgspec.structs.replace(odd, subject=f"muster-feed.{cluster}.Renewed.-.-")
    commits[3] = msgspec.structs.replace(odd, sequence=4, message_id="", payload=b"x" * 24_000_000)
    commits[4] = msgspec.structs.replace(commits[4], header=b"\xff{}")
    file.append_stored(commits)
    log = await JetStreamLog.open(own_server.url, cluster)
    assert await copy(file, log) == 5
    assert await copy(file, log) == 0, "they are alike"
    there = await collect(log.read())
    assert [commit.subject.rpartition(".")[2] for commit in there][1::2] == ["nobody"] * 2
    assert [there[0], there[2]] == [commits[0], commits[2]]
    back = SqliteLog(tmp_path / "back.db", cluster, create=True)
    assert await copy(log, back) == 5
    await _check_archived(log, file, 1, 4)
    other = msgspec.structs.replace(commits[2], subject="muster.another.binder", header=encode_header(HEADER))
    with pytest.raises(LogError, match="expected one of cluster"):
        _check_subjects(cluster, [as_imported(other, cluster)])
    await log.close()


async def test_an_answer_onto_a_subject_that_is_no_text_is_read(
    server: EmbeddedServer, log: JetStreamLog, cluster: str
) -> None:
    await sent_into(log.stream, log.connection, server, answered(log.stream, b"muster.%b.\xff" % cluster.encode()))
    assert [commit.subject for commit in await collect(log.read())] == [f"muster.{cluster}.\ufffd"]


async def test_what_asks_to_be_answered_on_no_text_ends_no_connection(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        came = asyncio.Queue[str]()

        async def hear(said: object) -> None:
            came.put_nowait(getattr(said, "reply", ""))

        before = connection.generation
        await connection.client.subscribe(f"{cluster}.asked", cb=hear)
        await connection.client.flush()
        await sent(server, *(b"PUB %b.asked %b 1\r\nx\r\n" % (cluster.encode(), reply) for reply in (b"\xff", b"b")))
        assert [await came.get() for _ in range(2)] == ["\ufffd", "b"]
        assert connection.generation == before


async def test_a_message_of_more_than_a_pull_request_is_read(tmp_path: Path, cluster: str) -> None:
    """As it was: it was asked for without end, wherever a server takes larger ones than ours does."""
    with EmbeddedServer(tmp_path, extra="max_payload: 33554432") as server:
        log = await JetStreamLog.open(server.url, cluster)
        await append(log, "binder", 1, 0)
        large = b"x" * (17 * 1024 * 1024)
        await log.connection.client.publish(f"muster.{cluster}.nobody", large)
        await append(log, "binder", 2, 1)
        assert [len(commit.payload) for commit in await collect(log.read())][1] == len(large)
        await log.close()


async def test_one_message_id_twice_in_an_archive_is_waited_for(
    server: EmbeddedServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A policy that is set as it was, once all that its admin had said before was purged. As it was: the server took the
    second for the first, and the import ended."""
    monkeypatch.setattr(jetstream, "DEDUPLICATION_S", 1)
    again = await JetStreamLog.open(server.url, f"{log.cluster}-again")
    commits = [stored(sequence, again.cluster) for sequence in range(1, 200)]
    for place, of in ((3, 2), (120, 90), (121, 3), (198, 1)):
        commits[place] = msgspec.structs.replace(commits[place], message_id=commits[of].message_id)
    await again.append_stored(commits)
    assert await collect(again.read()) == commits
    assert "it forgets that after 1 s" in caplog.text
    await again.close()


async def test_a_snapshot_is_found_behind_what_somebody_else_said(server: EmbeddedServer, log: JetStreamLog) -> None:
    """As it was: it was listed, and gone when it was to be read; a purged log could not be started from."""
    kept = Kept(sequence=7, digest="d", state=1, bytes=3)
    await log.snapshots.put(kept, b"abc")
    name = base64.urlsafe_b64encode(f"{7:020}".encode())
    subject = b"$O.%b.M.%b" % (object_store.bucket(log.cluster).encode(), name)
    stream, said = object_store.stream(log.cluster), answered(log.stream, subject)
    await sent_into(stream, log.connection, server, said, said)
    assert [one.sequence for one in await log.snapshots.listed()] == [7]
    assert await log.snapshots.get(kept) == b"abc"
    await log.snapshots.delete(kept)
    assert await log.snapshots.listed() == []
    await sent_into(stream, log.connection, server, said)
    assert await log.snapshots.listed() == []


async def test_a_feed_goes_on_behind_what_somebody_else_said(
    server: EmbeddedServer, log: JetStreamLog, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: it ended with that, and so did each that was started."""

    def message(number: int) -> FeedMessage:
        return FeedMessage(id=f"{number}.0", subject=f"muster-feed.{log.cluster}.PodBound.a.b", body=b"{}")

    feed = await Feed.open(server.url, log.cluster)
    said = answered(feed.stream, b"muster-feed.%b.X" % log.cluster.encode())
    assert await feed.position() is None
    await sent_into(feed.stream, log.connection, server, said)
    assert await feed.position() is None
    await feed.publish([message(number) for number in (1, 2)])
    subject = f"muster-feed.{log.cluster}.X"
    await feed.connection.publish(
        subject, b"{}", {"Nats-Msg-Id": "acb91cd2"}
    )  # as a reader has a commit of the log written
    await sent_into(feed.stream, log.connection, server, said, said, said)
    last = await feed.position()
    assert (last and last.id, feed.sequence) == (message(2).id, 7)
    assert "from 4 on somebody else publishes here" in caplog.text
    await feed.publish([message(3)])
    assert feed.sequence == 8
    await feed.close()


async def test_a_message_of_nobodys_that_takes_the_place_of_the_feeds_ends_it(
    server: EmbeddedServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos, seed 60: what came behind it was accepted, as the sequence that it expects was there, and an event
    was missing without a word."""
    subject = f"muster-feed.{log.cluster}.PodBound.a.b"
    told = [FeedMessage(id=f"{number}.0", subject=subject, body=b"{}") for number in range(1, 5)]
    feed = await Feed.open(server.url, log.cluster)
    await feed.position()
    await feed.publish(told[:1])
    publish, came = feed._publish, asyncio.Event()

    async def overtaken(message: FeedMessage, expected: int) -> int:
        if message is told[2]:
            await feed.connection.client.request(f"muster-feed.{log.cluster}.X", b"")
            came.set()
        elif message is told[3]:
            await came.wait()
        return await publish(message, expected)

    monkeypatch.setattr(feed, "_publish", overtaken)
    with pytest.raises(LogError, match=r"a message of theirs stands where 3\.0 was to stand"):
        await feed.publish(told[1:])
    await feed.close()


async def test_a_lease_is_kept_whatever_is_said_that_is_none(server: EmbeddedServer, cluster: str) -> None:
    """As it was: whoever held it stepped down."""
    async with connected(server.url) as connection, Lease(connection, cluster, "binder", "me", 1) as held:
        subject = lease.subject(cluster, "binder").encode()
        for _ in range(3):
            before = held._sequence
            await sent(server, answered(lease.stream(cluster), subject))
            await until(lambda: held.lost.is_set() or held._sequence > before + 1, "two more renewals")  # noqa: B023
        assert not held.lost.is_set()
        assert await lease.holder_of(connection, cluster, "binder") == "me"


async def test_an_answer_of_any_size_is_read(server: EmbeddedServer, log: JetStreamLog) -> None:
    """A server bounds what is published to it, and not what it says itself: each `<` is six bytes of its JSON."""
    await append(log, "binder", 1, 0)
    feed = await Feed.open(server.url, log.cluster)
    wanted = b"muster-feed.%b.%b" % (log.cluster.encode(), b"<" * 4_000_000)
    asked = b'{"stream_name":"%b","config":{"ack_policy":"none","filter_subject":"%b"}}' % (
        feed.stream.encode(),
        wanted,
    )
    onto = b"muster.%b.nobody" % log.cluster.encode()
    create = b"PUB $JS.API.CONSUMER.CREATE.%b %b %d\r\n%b\r\n"
    frame = create % (feed.stream.encode(), onto, len(asked), asked)
    await sent_into(log.stream, log.connection, server, frame)
    await append(log, "binder", 2, 1)
    commits = await collect(log.read())
    assert sequences(commits) == [1, 2, 3]
    assert max(len(commit.payload) for commit in commits) > PULL_BYTES
    await feed.close()


async def test_a_snapshot_is_read_though_somebody_else_says_more_among_its_chunks(
    server: EmbeddedServer, log: JetStreamLog
) -> None:
    kept = Kept(sequence=7, digest="d", state=1, bytes=3)
    await log.snapshots.put(kept, b"abc")
    (found,) = await log.snapshots._bucket.listed()
    subject = b"$O.%b.C.%b" % (object_store.bucket(log.cluster).encode(), found.nuid.encode())
    await sent_into(object_store.stream(log.cluster), log.connection, server, answered(log.stream, subject))
    assert await log.snapshots.get(kept) == b"abc"


async def test_a_snapshot_is_listed_in_few_requests_among_very_many_messages_of_nobodys(
    server: EmbeddedServer, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: each start read them all, one by one."""
    bucket = object_store.bucket(log.cluster).encode()
    kept = Kept(sequence=7, digest="d", state=1, bytes=3)
    await log.snapshots.put(kept, b"abc")
    names = [b"x", *(base64.urlsafe_b64encode(f"{number:020}".encode()) for number in (7, *range(100, 200)))]
    said = [answered(log.stream, b"$O.%b.M.%b" % (bucket, name)) for name in names]
    frames = [*said[:1] * 1_000, *said[1:2] * 1_000, *said[2:]]
    await sent_into(object_store.stream(log.cluster), log.connection, server, *frames)
    asked: list[str] = []
    ask = log.connection.ask

    async def counting(subject: str, *more: object, **options: object) -> bytes:
        asked.append(subject)
        return await ask(subject, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(log.connection, "ask", counting)
    assert await log.snapshots.listed() == [kept]
    assert len(asked) < 64 + 2 * len(names) + 10
    await log.snapshots.put(msgspec.structs.replace(kept, sequence=8), b"abc")
    asked.clear()
    assert [one.sequence for one in await log.snapshots.listed()] == [8, 7]
    assert len(asked) < 64 + 10, "what is nobody's was cleared away"


async def test_a_commit_of_another_clusters_that_is_delivered_into_a_log_is_nobodys(
    server: EmbeddedServer, log: JetStreamLog
) -> None:
    """Its writer's first, which expects nothing before it. As it was, it was taken for this cluster's own binder's."""
    other = await JetStreamLog.open(server.url, f"{log.cluster}-other")
    await append(other, "binder", 1, 0)
    ask, name = other.connection.ask, "x"
    config = {"name": name, "ack_policy": "none", "deliver_policy": "all"}
    await ask(f"$JS.API.CONSUMER.CREATE.{other.stream}.{name}", {"stream_name": other.stream, "config": config})
    onto = f"muster.{log.cluster}.nobody"
    await other.connection.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{other.stream}.{name}", b"1", reply=onto)
    await waited_for(log.end, "the commit in the log")
    await append(log, "binder", 2, 0)
    first, second = await collect(log.read())
    assert first.subject == f"muster.{other.cluster}.binder"
    assert (header_of(first), header_of(second)) == (None, HEADER)
    assert await log.at(1) == first
    await other.close()
