"""The feed over a real NATS server: nothing lost, nothing twice, in order, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import pytest

from events import Event, envelope, memory, permissions, subjects
from events.cloudevents import FeedMessage
from events.envelope import MalformedCommit
from events.feed import Feed, Interrupted
from events.jetstream import JetStreamLog
from events.log import LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from services.feed import core, service
from tests.feed.commits import TIME_NS, append, header
from tests.feed.feeding import DAY_S, KEEP_ALL_S, expected, feeding, fill, kept, permit, refuse, take, tick
from tests.waiting import until


@pytest.mark.parametrize(("portion", "portion_bytes"), [(2, 1_000_000), (512, 1_000_000), (512, 1)])
async def test_the_whole_log_in_its_order_and_then_what_is_appended(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch, portion: int, portion_bytes: int
) -> None:
    monkeypatch.setattr(service, "WINDOW", portion)
    monkeypatch.setattr(service, "PORTION_BYTES", portion_bytes)
    log = await JetStreamLog.open(server.url, cluster)
    await fill(log, commits=20)
    async with feeding(log, server.url):
        assert await take(server.url, cluster, 60) == await expected(log)
        await append(log, "planner.0", [refuse("a/g", "pod/b/p"), tick(0)])
        taken = await take(server.url, cluster, 63)
        assert taken == await expected(log)
        assert [message.id for message in taken[60:]] == ["21.0", "21.0.1", "21.1"]
    await log.close()


async def test_a_log_that_ends_before_what_was_fed_is_another(server: EmbeddedServer, cluster: str) -> None:
    """One that was made anew, or imported from an older copy: the feed was silent until it was as long."""
    before, anew = MemoryLog(cluster), MemoryLog(cluster)
    await fill(before, commits=5)
    await fill(anew, commits=4)
    async with feeding(before, server.url):
        assert len(await take(server.url, cluster, 15)) == 15
    async with feeding(anew, server.url) as task:
        with pytest.raises(
            LogError, match=r"the feed holds 5\.2 of 2026-01-01T00:00:00\.123456789Z and the log ends at 4"
        ):
            await task
    assert await kept(server.url, cluster) == 15
    await fill(before, commits=1)
    async with feeding(before, server.url):
        assert len(await take(server.url, cluster, 18)) == 18, "its own log is no other"


async def test_an_end_of_before_makes_no_other_log(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was stopped tells it until it hears of the new one. As it was: the feed ended with 4."""
    log, clock = MemoryLog(cluster), asyncio.get_running_loop().time
    await fill(log, commits=5)
    async with feeding(log, server.url):
        assert len(await take(server.url, cluster, 15)) == 15
    await fill(log, commits=1)
    known, told = log.end, []

    async def end() -> int:
        told.append(clock())
        return await known() if told[-1] - told[0] >= service.DOUBTED_S / 2 else 4

    monkeypatch.setattr(service, "DOUBTED_S", 0.1)
    monkeypatch.setattr(log, "end", end)
    async with feeding(log, server.url):
        assert len(await take(server.url, cluster, 18)) == 18


@pytest.mark.parametrize(
    ("longer", "writer", "time_ns", "whose"),
    [
        (0, "binder", TIME_NS + 1, r"\S+790Z"),
        (3, "binder", TIME_NS + 1, r"\S+790Z"),
        (3, "stranger", TIME_NS, "nobody we know"),
    ],
)
async def test_a_log_that_has_another_commit_there_is_another(
    server: EmbeddedServer, cluster: str, longer: int, writer: str, time_ns: int, whose: str
) -> None:
    """One that was made anew and has grown: its beginning was left out without a word."""
    before, anew = MemoryLog(cluster), MemoryLog(cluster)
    await fill(before, commits=5)
    for place in range(1, 6 + longer):  # alike but for the one that was published last
        await append(anew, *((writer, [tick(0)], time_ns) if place == 5 else ("binder", [tick(0)], TIME_NS)))
    async with feeding(before, server.url):
        assert len(await take(server.url, cluster, 15)) == 15
    async with feeding(anew, server.url) as task:
        with pytest.raises(
            LogError, match=rf"holds 5\.2 of \S+789Z and the log has a commit of {whose} there: that was"
        ):
            await task
    assert await kept(server.url, cluster) == 15


@pytest.mark.parametrize("first", [3, 4])
async def test_what_was_purged_is_believed(server: EmbeddedServer, cluster: str, first: int) -> None:
    log = MemoryLog(cluster)
    await fill(log, commits=2)
    async with feeding(log, server.url):
        await take(server.url, cluster, 6)
    await fill(log, commits=3)
    await log.purge(first)
    async with feeding(log, server.url):
        taken = await take(server.url, cluster, 12)
    assert [message.id for message in taken[5:8]] == ["2.2", f"{first}.0", f"{first}.1"]


async def test_a_stream_into_which_somebody_publishes_as_a_feed_would(server: EmbeddedServer, cluster: str) -> None:
    feed, said = await Feed.open(server.url, cluster), "message '5.0' on .*: expected a CloudEvent"
    await feed.position()
    await feed.publish([FeedMessage(id="5.0", subject=f"muster-feed.{cluster}.PodBound.a.b", body=b"{}")])
    log = MemoryLog(cluster)
    await fill(log, commits=6)
    with pytest.raises(
        LogError, match=rf"muster-feed-{cluster}: its last message: {said}.*: somebody else publishes here"
    ):
        await service.run(log, feed, max_age_s=KEEP_ALL_S)
    await feed.close()


async def test_a_restart_goes_on_behind_the_last_message_even_within_a_commit(
    server: EmbeddedServer, cluster: str
) -> None:
    """However old what follows is: a feed that was stopped for longer than it keeps anything has no gap."""
    log = MemoryLog(cluster)
    await append(log, "planner.0", [tick(0), refuse("a/g", "a/h", "a/i"), tick(1)])
    everything = await expected(log)
    feed = await Feed.open(server.url, cluster)
    assert await feed.position() is None
    await feed.publish(everything[:3])
    await feed.close()
    await fill(log, commits=5)
    async with feeding(log, server.url, DAY_S):
        assert await take(server.url, cluster, 20) == await expected(log)
    assert await kept(server.url, cluster) == 20, "nothing was published twice"


async def test_a_publisher_that_another_has_passed_is_interrupted(server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    await fill(log, commits=4)
    everything = await expected(log)
    one, other = await Feed.open(server.url, cluster), await Feed.open(server.url, cluster)
    assert await one.position() is None
    await one.publish(everything[:3])
    assert await other.position() == everything[2]
    await one.publish(everything[3:6])
    with pytest.raises(Interrupted, match="wrong last sequence"):
        await other.publish(everything[3:])
    last = await other.position()
    assert last is not None
    await other.publish(behind(everything, last.id))
    assert await take(server.url, cluster, 12) == everything
    await one.close()
    await other.close()


def behind(messages: list[FeedMessage], last: str) -> list[FeedMessage]:
    return [message for message in messages if core.place_of(message.id) > core.place_of(last)]


async def test_two_that_begin_an_empty_feed_in_different_places_leave_no_gap(
    server: EmbeddedServer, cluster: str
) -> None:
    log = MemoryLog(cluster)
    await fill(log, commits=4)
    everything = await expected(log)
    one, other = await Feed.open(server.url, cluster), await Feed.open(server.url, cluster)
    assert await one.position() is None
    assert await other.position() is None
    await one.publish(everything[:2])
    with pytest.raises(Interrupted, match="wrong last sequence"):
        await other.publish(everything[4:])
    assert await other.position() == everything[1], "nothing of the other's was taken"
    await one.close()
    await other.close()


async def test_two_feeds_of_one_cluster_publish_everything_once(server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    async with feeding(log, server.url), feeding(log, server.url):
        for _ in range(10):
            await fill(log, commits=10)
            await asyncio.sleep(0)
        assert await take(server.url, cluster, 300) == await expected(log)
    assert await kept(server.url, cluster) == 300


async def test_a_server_that_dies_under_way_costs_nothing(own_server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    async with feeding(log, own_server.url):
        await fill(log, commits=100)
        await take(own_server.url, cluster, 10)
        own_server.kill()
        await fill(log, commits=100)
        own_server.start()
        assert await take(own_server.url, cluster, 600) == await expected(log)
    assert await kept(own_server.url, cluster) == 600


async def test_what_is_appended_from_now_on_is_young_whatever_the_feeds_clock_says(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was ahead by more than is kept published nothing, for as long as that process ran."""
    caplog.set_level(logging.INFO, service.__name__)
    log = MemoryLog(cluster)
    await fill(log, commits=2)
    feed = await Feed.open(server.url, cluster)
    task = asyncio.create_task(service.run(log, feed, max_age_s=DAY_S))
    await until(lambda: "publishing" in caplog.messages)
    await fill(log, commits=2)
    assert await take(server.url, cluster, 6) == (await expected(log))[6:]
    task.cancel()
    await asyncio.wait({task})
    await feed.close()


async def test_a_feed_that_holds_nothing_begins_with_what_is_young_enough(server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    now_ns = time.time_ns()
    await append(log, "stranger", [permit("a/forged")], time_ns=now_ns)  # nobody's begins nothing
    await append(log, "binder", [permit("a/old")], time_ns=now_ns - 2 * DAY_S * 10**9)
    await append(log, "binder", [permit("a/new")], time_ns=now_ns)
    feed = await Feed.open(server.url, cluster)
    task = asyncio.create_task(service.run(log, feed, max_age_s=DAY_S))
    (message,) = await take(server.url, cluster, 1)
    assert message.id == "3.0"
    task.cancel()
    await asyncio.wait({task})
    await feed.close()


async def test_what_is_no_writers_commit_is_set_aside_and_told(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog(cluster)
    await append(log, "binder", [permit("a/g")])
    forged = envelope.encode_events([permit("a/forged")])
    await log.append(subjects.subject(cluster, "binder"), header("planner.0"), forged, 1)  # in another's name
    for _ in range(99):
        await append(log, "stranger", [permit("a/forged")])
    await append(log, "binder", [permit("a/h")])
    async with feeding(log, server.url):
        taken = await take(server.url, cluster, 2)
    assert [message.id for message in taken] == ["1.0", "102.0"]
    (record,) = [record for record in caplog.records if record.message.startswith("set aside: 1,")]
    assert vars(record)["place"] == 2, "of a flood one line is told"


async def test_a_writers_commit_that_cannot_be_read_ends_the_service(server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    log.append_now(f"muster.{cluster}.binder", header("binder"), b'[{"type":"NotYetInvented"}]', 0)
    async with feeding(log, server.url) as task:
        with pytest.raises(MalformedCommit, match="commit 1"):
            await task


async def test_a_feed_goes_on_behind_a_message_that_somebody_deleted(server: EmbeddedServer, cluster: str) -> None:
    """As it was: if that was the last, it was interrupted twice a second, for ever."""
    feed = await Feed.open(server.url, cluster)
    subject = f"muster-feed.{cluster}.PodBound.a.b"
    told = [FeedMessage(id=f"{place}.0", subject=subject, body=b"{}") for place in (1, 2, 3)]
    assert await feed.position() is None
    await feed.publish(told[:2])
    await feed.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{feed.stream}", {"seq": 2})
    assert await feed.position() == told[0]
    await feed.publish(told[2:])
    assert await feed.position() == told[2]
    await feed.close()


@pytest.mark.parametrize("purged", ["all", "the last"])
async def test_a_feed_publishes_again_what_somebody_deleted(server: EmbeddedServer, cluster: str, purged: str) -> None:
    """As it was: JetStream took it for repeated, for two minutes, and the feed was interrupted twice a second."""
    log = MemoryLog(cluster)
    await fill(log, commits=2)
    async with feeding(log, server.url):
        await take(server.url, cluster, 6)
    feed = await Feed.open(server.url, cluster)
    if purged == "all":
        await feed.connection.ask(f"$JS.API.STREAM.PURGE.{feed.stream}")
    else:
        await feed.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{feed.stream}", {"seq": 6})
    await feed.close()
    async with feeding(log, server.url):
        assert await take(server.url, cluster, 6) == await expected(log)
    assert await kept(server.url, cluster) == (12 if purged == "all" else 7)


async def test_what_is_taken_for_repeated_interrupts(server: EmbeddedServer, cluster: str) -> None:
    """It is somewhere else, or nowhere: somebody has just deleted it."""
    feed = await Feed.open(server.url, cluster)
    found = (await feed._info()).config
    await feed.connection.ask(f"$JS.API.STREAM.UPDATE.{feed.stream}", {**found, "duplicate_window": 60 * 10**9})
    told = [FeedMessage(id="1.0", subject=f"muster-feed.{cluster}.PodBound.a.b", body=b"{}")]
    await feed.position()
    await feed.publish(told)
    await feed.connection.ask(f"$JS.API.STREAM.PURGE.{feed.stream}")
    await feed.position()
    with pytest.raises(Interrupted, match="the server says that what was published is at 1"):
        await feed.publish(told)
    await feed.close()


async def test_what_a_power_failure_took_is_published_again(own_server: EmbeddedServer, cluster: str) -> None:
    """At once. As it was: behind the next commit, for which a quiet cluster waits long."""
    log = MemoryLog(cluster)
    await fill(log, commits=2)
    async with feeding(log, own_server.url):
        await take(own_server.url, cluster, 6)
        feed = await Feed.open(own_server.url, cluster)
        for sequence in (5, 6):
            await feed.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{feed.stream}", {"seq": sequence})
        await feed.close()
        own_server.kill()
        own_server.start()
        assert await take(own_server.url, cluster, 6) == await expected(log)


async def test_a_stream_that_takes_nothing_is_asked_ever_more_seldom(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "PAUSE_S", 0.01)
    monkeypatch.setattr(service, "LONGEST_PAUSE_S", 0.04)
    log = MemoryLog(cluster)
    await fill(log, commits=1)
    feed = await Feed.open(server.url, cluster)
    found = (await feed._info()).config
    await feed.connection.ask(f"$JS.API.STREAM.UPDATE.{feed.stream}", {**found, "max_msg_size": 10})
    task = asyncio.create_task(service.run(log, feed, max_age_s=KEEP_ALL_S))
    await until(lambda: caplog.text.count("interrupted; tried again in 0.04 s") > 1, "the longest pause")
    told = [record.getMessage() for record in caplog.records if "interrupted" in record.getMessage()]
    assert told[:3] == [f"interrupted; tried again in {pause_s} s" for pause_s in (0.01, 0.02, 0.04)]
    task.cancel()
    await asyncio.wait({task})
    await feed.close()


@pytest.mark.parametrize("batch", [1, memory.BATCH])
async def test_what_begins_a_feed_is_followed_by_all_that_comes(
    server: EmbeddedServer, cluster: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: what a writer with a clock that is behind appended was left out, for as long as that process ran."""
    monkeypatch.setattr(memory, "BATCH", batch)
    log = MemoryLog(cluster)
    now_ns, old_ns = time.time_ns(), time.time_ns() - 2 * DAY_S * 10**9
    groups = ("older", old_ns), ("old", old_ns), ("new", now_ns), ("behind", old_ns), ("newer", now_ns)
    for group, time_ns in groups:
        await append(log, "binder", [permit(f"a/{group}")], time_ns=time_ns)
    feed = await Feed.open(server.url, cluster)
    task = asyncio.create_task(service.run(log, feed, max_age_s=DAY_S))
    assert [message.id for message in await take(server.url, cluster, 3)] == ["3.0", "4.0", "5.0"]
    task.cancel()
    await asyncio.wait({task})
    await feed.close()


async def test_feed_and_subscriber_need_no_more_than_their_permissions(
    own_server: EmbeddedServer, cluster: str
) -> None:
    own_server.stop()
    own_server.extra = permissions.configuration(cluster, dict.fromkeys(permissions.users(), "secret"))
    own_server.start()
    log = MemoryLog(cluster)
    events: Sequence[Event] = [permit("a/g")]
    await append(log, "binder", events, time_ns=TIME_NS)
    async with feeding(log, own_server.url, user="feed", password="secret"):
        for durable in (None, "named"):
            options = {"user": "subscriber", "password": "secret"} | ({"durable": durable} if durable else {})
            (message,) = await take(own_server.url, cluster, 1, "GangPermitted", **options)
            assert message.id == "1.0"
