"""Subscribers, each with a durable consumer of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from events import GangPermitted
from events.answers import Denied, Refused
from events.client import Client
from events.cloudevents import PatternError
from events.connection import Connection
from events.feed import Feed
from events.log import LogError
from events.memory import MemoryLog
from events.objects import Binding, NodeBindings
from events.server import EmbeddedServer
from events.subscription import ACK_WAIT_S, subscribe
from services.feed import core
from tests.events.proxy import proxy
from tests.feed.commits import append
from tests.feed.feeding import expected, feeding, permit, take, tick
from tests.waiting import answered

EXAMPLE = Path(__file__).parents[2] / "examples" / "subscriber.py"
WITHOUT_MUSTER = """
import runpy, sys
sys.modules["events"] = sys.modules["services"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
async def log(server: EmbeddedServer, cluster: str) -> MemoryLog:
    """What the feed of the cluster tells: permits in two namespaces among ticks."""
    log = MemoryLog(cluster)
    for group in ("team-a/x", "team-b/model.v2", "team-a/y", "team-b/model"):
        await append(log, "binder", [tick(0), permit(group)])
    feed = await Feed.open(server.url, cluster)
    await feed.position()
    await feed.publish(await expected(log))
    await feed.close()
    return log


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("GangPermitted", ["1.1", "2.1", "3.1", "4.1"]),
        ("GangPermitted.team-a", ["1.1", "3.1"]),
        ("*.team-b.>", ["2.1", "4.1"]),
        ("GangPermitted.team-b.model", ["4.1"]),
        ("GangPermitted.team-b.model%2Ev2", ["2.1"]),
        ("Ticked", ["1.0", "2.0", "3.0", "4.0"]),
    ],
)
async def test_a_pattern_chooses(server: EmbeddedServer, log: MemoryLog, pattern: str, found: list[str]) -> None:
    taken = await take(server.url, log.cluster, len(found), pattern)
    assert [message.id for message in taken] == found


async def test_a_name_goes_on_behind_what_it_had_taken(server: EmbeddedServer, log: MemoryLog) -> None:
    """The message in hand when the subscriber left counts as not taken: it comes again."""
    first = await take(server.url, log.cluster, 3, durable="one")
    again = await take(server.url, log.cluster, 6, durable="one")
    other = await take(server.url, log.cluster, 8, durable="other")
    everything = await expected(log)
    assert first == everything[:3]
    assert again == everything[2:]
    assert other == everything


async def test_a_name_to_which_a_server_pushes_is_refused(server: EmbeddedServer, log: MemoryLog) -> None:
    """As it was: it was pulled from without a pause, and nothing was said."""
    connection = await Connection(server.url).connect()
    stream = f"muster-feed-{log.cluster}"
    pushed = {"durable_name": "x", "name": "x", "deliver_subject": "somewhere", "ack_policy": "explicit"}
    config = {**pushed, "filter_subject": f"muster-feed.{log.cluster}.>"}
    asked = {"stream_name": stream, "config": config}
    await connection.ask(f"$JS.API.CONSUMER.CREATE.{stream}.x.muster-feed.{log.cluster}.>", asked)
    await connection.close()
    with pytest.raises(LogError, match="durable 'x' is a consumer to which the server pushes: choose another name"):
        await anext(subscribe(server.url, log.cluster, ">", "x"))


@pytest.mark.parametrize(("durable", "kept_s"), [("steady", None), (None, 3600)])
async def test_one_message_is_in_hand_and_only_the_place_of_a_name_is_kept(
    server: EmbeddedServer, log: MemoryLog, durable: str | None, kept_s: int | None
) -> None:
    """With more in hand at a time, what was in hand of a subscriber that died would come behind what followed it."""
    messages = subscribe(server.url, log.cluster, ">", durable)
    await anext(messages)
    feed = await Feed.open(server.url, log.cluster)
    listed = json.loads(await feed._api(f"CONSUMER.LIST.{feed.stream}"))["consumers"]
    (found,) = [consumer for consumer in listed if consumer["name"].startswith(durable or "subscriber-")]
    assert (found["config"]["max_ack_pending"], found["num_ack_pending"]) == (1, 1)
    assert found["config"]["ack_wait"] == ACK_WAIT_S * 1_000_000_000, "who takes his time is not sent it again"
    assert found["config"].get("inactive_threshold") == (kept_s and kept_s * 1_000_000_000)
    await messages.aclose()

    async def as_it_should_be() -> bool:
        return await subscribers(feed) == (1 if durable else 0)

    await answered(as_it_should_be, "the place to be given up, or kept")
    await feed.close()


async def test_who_was_away_for_longer_than_the_feed_keeps_its_events_is_told(
    server: EmbeddedServer, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await take(server.url, log.cluster, 1, "GangPermitted", durable="away")
    assert not caplog.text
    feed = await Feed.open(server.url, log.cluster, max_age_s=1)

    async def forgotten() -> bool:
        return await feed.position() is None

    await answered(forgotten, "the feed to forget what is too old")
    await (await Feed.open(server.url, log.cluster)).close()
    sequence = await append(log, "binder", [permit("team-a/late")])
    await feed.publish(core.messages(log.commits[sequence - 1], log.cluster))
    await feed.close()
    assert [message.id for message in await take(server.url, log.cluster, 1, "GangPermitted", durable="away")] == [
        "5.0"
    ]
    lost = "what of them came for 'away' while it was away is lost to it"
    assert caplog.messages == [f"{feed.stream} no longer has its messages 3 to 8; {lost}"]
    caplog.clear()
    await take(server.url, log.cluster, 1, "GangPermitted")
    assert not caplog.text, "nobody was away"


async def test_the_one_message_that_was_forgotten_behind_what_was_taken_is_told(
    server: EmbeddedServer, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    """What was in hand when it left counts as taken once the feed has forgotten that: so the server has it."""
    await take(server.url, log.cluster, 2, durable="away")
    feed = await Feed.open(server.url, log.cluster)
    for forgotten, told in (((1, 2), []), ((3, 4), ["4 to 4"])):
        for sequence in forgotten:
            await feed._api(f"STREAM.MSG.DELETE.{feed.stream}", {"seq": sequence})
        await take(server.url, log.cluster, 1, durable="away")
        assert re.findall(r"\d+ to \d+", caplog.text) == told
    await feed.close()


async def test_who_may_not_ask_what_the_feed_has_is_served_all_the_same(tmp_path: Path) -> None:
    """Permissions of an earlier version: whether something is lost to it, nobody says then."""
    denied = '{ publish: { deny: "$JS.API.STREAM.INFO.>" } }'
    users = "authorization { users: [ { user: owner, password: one }, %s ] }"
    reader = f"{{ user: reader, password: one, permissions: {denied} }}"
    with EmbeddedServer(tmp_path, extra=users % reader) as server:
        log = MemoryLog("old")
        await append(log, "binder", [tick(0), tick(1)])
        async with feeding(log, server.url, user="owner", password="one"):
            for _ in range(2):
                (message,) = await take(server.url, "old", 1, durable="one", user="reader", password="one")
                assert message.id == "1.0"


async def test_who_is_told_to_end_in_the_moment_of_a_message_ends_behind_it(
    server: EmbeddedServer, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.11's wait_for has it: the message is returned, and the cancellation gone."""
    calls = 0

    async def next_msg(subscription: Subscription, **within: float) -> Msg:
        nonlocal calls
        calls += 1
        assert calls == 1, "it goes on"
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return await real(subscription, **within)

    real = Subscription.next_msg
    monkeypatch.setattr(Subscription, "next_msg", next_msg)
    taken: list[str] = []

    async def reading() -> None:
        async for message in subscribe(server.url, log.cluster, ">"):
            taken.append(message.id)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(reading())
    assert taken == ["1.0"]


async def subscribers(feed: Feed) -> int:
    said = json.loads(await feed._api(f"STREAM.INFO.{feed.stream}"))
    return int(said["state"]["consumer_count"])


async def test_without_history_only_what_comes(server: EmbeddedServer, log: MemoryLog) -> None:
    messages = subscribe(server.url, log.cluster, "GangPermitted", "late", history=False)
    arriving = asyncio.create_task(anext(messages))
    feed = await Feed.open(server.url, log.cluster)
    await answered(partial(subscribers, feed), "the subscriber")
    await feed.position()
    sequence = await append(log, "binder", [permit("team-a/late")])
    await feed.publish(core.messages(log.commits[sequence - 1], log.cluster))
    assert (await arriving).event().subject == "team-a/late"
    await messages.aclose()
    await feed.close()


async def test_a_subscriber_outlives_the_server(own_server: EmbeddedServer, cluster: str) -> None:
    log = MemoryLog(cluster)
    await append(log, "binder", [permit("a/before")])
    async with feeding(log, own_server.url):
        messages = subscribe(own_server.url, cluster, "GangPermitted", "steady")
        assert (await anext(messages)).event().subject == "a/before"
        own_server.kill()
        own_server.start()
        await append(log, "binder", [permit("a/after")])
        seen = ""
        while seen != "a/after":  # the one before may come again: its acknowledgement was under way
            seen = str((await anext(messages)).event().subject)
        await messages.aclose()


async def test_a_server_that_answers_no_pull_is_left(
    server: EmbeddedServer, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: who waited at the one of three servers that is cut off from the others pulled from it again and again.
    Such a server answers pings, and nothing about streams."""
    monkeypatch.setattr("events.connection.random.shuffle", lambda urls: None)
    monkeypatch.setattr("events.connection.REQUEST_WITHIN_S", 0.3)
    monkeypatch.setattr("events.leaderless.LEFT_AFTER_S", 0.5)
    monkeypatch.setattr("events.subscription.SILENCE_S", 0.3)
    publish, cut_off = Client.publish, set[int]()

    async def publish_here(client: Client, subject: str, *arguments: Any, **named: Any) -> None:
        port = client.connected_url.port if client.connected_url else 0
        if port == first.port and "CONSUMER.MSG.NEXT" in subject:
            cut_off.add(port)
        if port not in cut_off or not subject.startswith("$JS."):
            await publish(client, subject, *arguments, **named)

    monkeypatch.setattr(Client, "publish", publish_here)
    async with proxy(server.port) as first, asyncio.timeout(60):
        assert len(await take(f"{first.url},{server.url}", log.cluster, 4, "GangPermitted")) == 4
        assert cut_off


async def test_who_has_ended_leaves_nothing_running(server: EmbeddedServer, log: MemoryLog) -> None:
    """A connection is a few tasks, and pings the server every second."""
    before = asyncio.all_tasks()
    await take(server.url, log.cluster, 1)
    assert asyncio.all_tasks() == before


async def test_what_somebody_else_published_into_the_feed_has_no_id(server: EmbeddedServer, log: MemoryLog) -> None:
    connection = await Connection(server.url).connect()
    await connection.publish(f"muster-feed.{log.cluster}.Ticked.by.hand", b"x")
    await connection.close()
    last = (await take(server.url, log.cluster, 9))[-1]
    assert (last.id, last.body) == ("", b"x")


async def test_a_name_is_bound_to_its_pattern(server: EmbeddedServer, log: MemoryLog) -> None:
    await take(server.url, log.cluster, 1, "GangPermitted", durable="one")
    with pytest.raises(LogError, match=r"'one' subscribes to .*GangPermitted.>, not to .*Ticked"):
        await take(server.url, log.cluster, 1, "Ticked", durable="one")


async def test_a_deleted_consumer_ends_its_subscriber(server: EmbeddedServer, log: MemoryLog) -> None:
    messages = subscribe(server.url, log.cluster, "GangPermitted", "doomed")
    for _ in range(4):
        await anext(messages)
    waiting = asyncio.create_task(anext(messages))
    feed = await Feed.open(server.url, log.cluster)
    await feed.connection.ask(f"$JS.API.CONSUMER.DELETE.{feed.stream}.doomed")
    with pytest.raises(LogError, match="'doomed'"):
        await waiting
    await feed.close()


async def test_who_may_not_pull_is_told(tmp_path: Path) -> None:
    """As it was: asked again every three seconds for ever, and without a word."""
    denied = '{ publish: { deny: "$JS.API.CONSUMER.MSG.>" } }'
    users = f"authorization {{ users: [ {{ user: reader, password: one, permissions: {denied} }} ] }}"
    with EmbeddedServer(tmp_path, extra=users) as server:
        login = {"user": "reader", "password": "one"}
        await (await Feed.open(server.url, "deaf", **login)).close()
        with pytest.raises(Denied, match=r"CONSUMER\.MSG\.NEXT"):
            await asyncio.wait_for(anext(subscribe(server.url, "deaf", "*", **login)), 10)


async def test_whose_pulls_are_refused_is_told(server: EmbeddedServer, log: MemoryLog) -> None:
    """As it was: asked again at once, a thousand times a second, and without a word."""
    cluster = log.cluster
    await take(server.url, cluster, 1, "GangPermitted", durable="bounded")
    feed = await Feed.open(server.url, cluster)
    config = json.loads(await feed.connection.ask(f"$JS.API.CONSUMER.INFO.{feed.stream}.bounded"))["config"]
    await feed.connection.ask(
        f"$JS.API.CONSUMER.CREATE.{feed.stream}.bounded.{config['filter_subject']}",
        {"stream_name": feed.stream, "config": {**config, "max_batch": 1}, "action": "update"},
    )
    with pytest.raises(LogError, match=r"'bounded' may not be asked for 256 .*: Exceeded MaxRequestBatch of 1"):
        await asyncio.wait_for(anext(subscribe(server.url, cluster, "GangPermitted", durable="bounded")), 10)
    await feed.close()


async def test_what_the_server_refuses_is_told_in_its_words(server: EmbeddedServer, cluster: str) -> None:
    """Of a feed that is there nobody is told that there is none."""
    stream = f"muster-feed-{cluster}"
    connection = await Connection(server.url).connect()
    bounded = {"name": stream, "subjects": [f"muster-feed.{cluster}.>"], "max_consumers": 1}
    await connection.create_stream(bounded)
    await connection.publish(f"muster-feed.{cluster}.Ticked", b"x")
    await connection.close()
    await take(server.url, cluster, 1, durable="first")
    with pytest.raises(Refused, match="maximum consumers limit reached"):
        await take(server.url, cluster, 1, durable="second")


async def test_errors_name_what_was_expected(server: EmbeddedServer, cluster: str) -> None:
    with pytest.raises(LogError, match=r"does `muster feed` run.*named by --cluster"):
        await take(server.url, cluster, 1)
    with pytest.raises(LogError, match="durable name 'a b': expected letters"):
        await take(server.url, cluster, 1, durable="a b")
    with pytest.raises(PatternError, match="GangPermitted"):
        await take(server.url, cluster, 1, "GangPermited")


async def test_the_example_needs_nothing_of_muster(server: EmbeddedServer, cluster: str, tmp_path: Path) -> None:
    """Run outside the repository, with Muster's packages kept out; started again, it goes on behind what it had
    acknowledged: all but the last line that it printed, at least."""
    pods = [Binding(uid=f"u{number}", resource_version="1") for number in range(3)]
    bindings = (NodeBindings(node="node-1", pods=(pods[0], pods[1])), NodeBindings(node="node-2", pods=(pods[2],)))
    log = MemoryLog(cluster)
    await append(log, "binder", [tick(0), GangPermitted(group="a/x", proposals=(), bindings=bindings, dropped=())])
    await append(log, "binder", [permit("a/y")])
    async with feeding(log, server.url):
        await take(server.url, cluster, 3)
        assert await _example(server.url, cluster, tmp_path, last="2.0 ") == [
            "1.1 2026-01-01T00:00:00.123456789Z a/x: 3 pods, 2 on node-1, 1 on node-2",
            "2.0 2026-01-01T00:00:00.123456789Z a/y: 0 pods, ",
        ]
        await append(log, "binder", [permit("a/z")])
        lines = await _example(server.url, cluster, tmp_path, last="3.0 ")
        assert lines[-1] == "3.0 2026-01-01T00:00:00.123456789Z a/z: 0 pods, "
        assert [line[:4] for line in lines[:-1]] in ([], ["2.0 "])


def test_the_example_says_what_is_wrong(server: EmbeddedServer, tmp_path: Path) -> None:
    """As it was: exit code 1 for wrong usage, tracebacks for the rest."""
    said = {}
    for arguments in ((), (server.url, "nobody")):
        command = [sys.executable, str(EXAMPLE), *arguments]
        ended = subprocess.run(command, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False)
        said[ended.returncode] = ended.stderr.splitlines()[-1]
    assert said[2].endswith("the following arguments are required: URL, CLUSTER")
    assert said[1].startswith("error: ")
    assert "stream not found" in said[1]


async def test_the_example_ends_badly_when_nothing_will_come_any_more(
    server: EmbeddedServer, cluster: str, tmp_path: Path
) -> None:
    """Its consumer was deleted, as with its stream. As it was: it stood there, and would have for ever."""
    log = MemoryLog(cluster)
    await append(log, "binder", [permit("a/x")])
    async with feeding(log, server.url):
        await take(server.url, cluster, 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE), server.url, cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"1.0 ")
        connection = await Connection(server.url).connect()
        await connection.ask(f"$JS.API.CONSUMER.DELETE.muster-feed-{cluster}.example-of-gangs")
        await connection.close()
        async with asyncio.timeout(120):
            _, said = await process.communicate()
        assert process.returncode == 1
        assert said.startswith(b"error: ")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _example(url: str, cluster: str, where: Path, last: str) -> list[str]:
    """What it prints, up to the line that begins with `last`; it is then killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WITHOUT_MUSTER, str(EXAMPLE), url, cluster),
        stdout=subprocess.PIPE,
        cwd=where,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith(last):
            lines.append((await process.stdout.readline()).decode().removesuffix("\n"))
            assert lines[-1], "it ended"
        return lines
    finally:
        process.kill()
        await process.wait()
