"""What a service's process does around its service."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

import events as ev
from events.envelope import MalformedCommit
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.lease import Lease, Watch, holder_of
from events.log import LogError, Unavailable
from events.server import EmbeddedServer
from events.subjects import FEDERATION
from services import settings
from services.console import launch, roles
from services.health import Health
from services.kubernetes.access import Access, AccessError, direct
from services.kubernetes.errors import Unreachable
from services.state.form import UnknownCommit, UnknownVersion
from services.writer import SteppedDown
from tests.feed.commits import append
from tests.waiting import until


async def _left_alone(error: Exception) -> None:
    asyncio.get_running_loop().create_future().set_exception(error)
    gc.collect()


def test_a_lookup_that_ends_when_its_connection_is_given_up_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """As it was: `Future exception was never retrieved`, as of a bug, for each attempt while DNS was slow."""
    with asyncio.Runner(loop_factory=launch._new_event_loop) as runner:
        runner.run(_left_alone(socket.gaierror(-3, "Temporary failure in name resolution")))
        assert caplog.messages == []
        runner.run(_left_alone(OSError("another")))
    assert ["never retrieved" in said for said in caplog.messages] == [True]


@pytest.mark.parametrize(("limit", "told"), [(1 << 20, 1), (8 << 20, 0)], ids=["NATS' default", "Muster's"])
async def test_a_server_that_does_not_take_every_decision_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int, told: int
) -> None:
    """As it was: nobody heard of it before a planner met a decision that was larger, and ended at every start."""
    with EmbeddedServer(tmp_path, extra=f"max_payload: {limit}") as server:
        log = await launch._opened(settings.read({"nats_url": server.url, "cluster": "test"}, {}))
        await log.close()
    expected = (
        f"takes no messages of more than {limit} bytes, and a decision may have 8000000: expected max_payload: 8MB"
    )
    assert [message for message in caplog.messages if expected in message] == caplog.messages
    assert len(caplog.messages) == told


@pytest.fixture
def collector() -> Iterator[None]:
    """Leaves it as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    gc.enable()


@pytest.mark.usefixtures("collector")
async def test_a_service_collects_its_garbage(nats: str) -> None:
    """`muster` turns the collector off while it imports: off for good, whatever is in a circle would never go."""
    chosen = settings.read({"nats_url": nats, "cluster": "test"})
    gc.disable()
    running = asyncio.create_task(launch._hold_and_run("planner", chosen, asyncio.Event(), Health()))
    await until(gc.isenabled, "the collector to be on")
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nats://a:4222", ""),
        ("http://a", "--nats, MUSTER_NATS_URL: http://a: expected a NATS URL"),
        ("log.db", "--nats, MUSTER_NATS_URL: log.db: expected a NATS URL"),
    ],
)
def test_where_a_log_cannot_be_is_said_before_anything_starts(where: str, said: str) -> None:
    """As it was: a federator ended with a traceback; a planner took the file for its log, made it where its name was
    misspelt, and what it had written into an exported log kept that from being exported into any more."""
    assert launch.no_log(where).partition(" such as")[0] == said


# ------------------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (UnknownVersion("rules version 7"), launch.UNKNOWN_COMMIT),
        (UnknownCommit("an event that is none of ours"), launch.UNKNOWN_COMMIT),
        (MalformedCommit("no events"), launch.UNKNOWN_COMMIT),
        (settings.InvalidSetting("--cluster"), launch.USAGE),
        (SteppedDown("another planner"), launch.STEPPED_DOWN),
        (Unavailable("no answer"), launch.UNREACHABLE),
        (Unreachable("get pods", "Unreachable", "no answer", sent=False), launch.UNREACHABLE),
        (AccessError("no kubeconfig"), launch.UNREACHABLE),
        (OSError("port 1 is taken"), launch.UNREACHABLE),
    ],
)
async def test_a_service_says_why_it_ends_and_ends_with_that_code(
    why: Exception, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(*_: object) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail(why))

    monkeypatch.setattr(launch, "_hold_and_run", run)
    assert await launch._serve("binder", settings.read({}, {})) == code
    (record,) = caplog.records
    assert str(why) in record.getMessage()


async def test_a_bug_ends_a_service_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a line of the log, as all that is said."""
    monkeypatch.setattr(launch, "_hold_and_run", lambda *_: fail(KeyError("a bug")))
    assert await launch._serve("binder", settings.read({}, {})) == launch.BUG
    (record,) = caplog.records
    assert record.getMessage() == "a bug: KeyError: 'a bug'"
    assert record.exc_info
    assert record.exc_info[2] is not None


async def fail(why: Exception) -> None:
    raise why


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_that_is_told_to_end_has_cleaned_up_when_it_has(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = False

    async def run(*_: object) -> None:
        nonlocal cleaned
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    monkeypatch.setattr(launch, "_hold_and_run", run)
    assert await launch._serve("binder", settings.read({}, {})) == 0
    assert cleaned


async def test_a_planner_that_is_told_to_end_may_say_that_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has not opened its log has nothing to say there, and what takes too long is cut off."""
    health, other = Health(), Health()
    assert launch._grace_s("planner", health) == launch._grace_s("binder", health) == 0
    health.ready = other.ready = True
    assert launch._grace_s("binder", other) == 0
    stop, said = asyncio.Event(), []
    stop.set()

    async def leave(last_word: str, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        said.append(last_word)

    await launch._until(stop, leave("left", 100), lambda: launch._grace_s("planner", health))
    monkeypatch.setattr(launch, "LEAVE_WITHIN_S", 0.0)
    await launch._until(stop, leave("too late", 1_000_000), lambda: launch._grace_s("planner", health))
    assert said == ["left"]


# ------------------------------------------------------------------------------------------------------------ the seat


async def test_a_service_that_loses_its_lease_steps_down(nats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled first, and its end is waited for."""
    chosen = settings.read({"nats_url": nats, "cluster": "test", "lease_s": 1})
    running, ended = asyncio.Event(), []

    async def run(role: str, settings: object, log: JetStreamLog, seat: roles.Seat) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(seat.writer)

    monkeypatch.setattr(roles, "run", run)
    monkeypatch.setattr(launch, "_collect_seldom", lambda: None)
    serving = asyncio.create_task(launch._serve("feed", chosen))
    await running.wait()
    log = await open_log(nats, "test")
    assert isinstance(log, JetStreamLog)
    thief = Lease(log.connection, "test", "feed", "thief")
    last = await thief._last()
    assert last is not None
    await thief._publish(thief._held, last[0], thief.ttl_s)
    assert await serving == launch.STEPPED_DOWN
    assert ended == ["feed"]
    await log.close()


@pytest.mark.parametrize("role", ["feed", "binder"])
async def test_a_service_that_ends_hands_its_lease_over(nats: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not when its time is over; then nothing of the process is on the server any more."""
    chosen = settings.read({"nats_url": nats, "cluster": "test", "lease_s": 60})
    health, seats = Health(), []

    async def run(role: str, settings: object, log: JetStreamLog, seat: roles.Seat) -> None:
        if seat.turn is not None:
            await seat.turn()
        seats.append((health.ready, seat, log))
        await asyncio.Event().wait()

    monkeypatch.setattr(roles, "run", run)
    monkeypatch.setattr(roles, "_access", AsyncMock())
    monkeypatch.setattr(launch, "_collect_seldom", lambda: None)
    serving = asyncio.create_task(launch._hold_and_run(role, chosen, asyncio.Event(), health))
    await until(lambda: seats, "the seat")
    ((ready, seat, log),) = seats
    assert ready
    assert (seat.writer, isinstance(seat.leases, Watch), seat.turn is not None) == (role, *[role == "binder"] * 2)
    other = await open_log(nats, "test")
    assert isinstance(other, JetStreamLog)
    assert (await holder_of(other.connection, "test", role)) == chosen.holder
    serving.cancel()
    await asyncio.wait({serving})
    assert (await holder_of(other.connection, "test", role)) == ""
    assert log.connection.client.is_closed
    await other.close()


@pytest.mark.usefixtures("collector")
async def test_a_service_waits_for_nats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not ready meanwhile. As it was: it ended, and who starts it again waits longer each time."""
    seated, health = AsyncMock(), Health()
    monkeypatch.setattr(roles, "run", seated)
    monkeypatch.setattr(roles, "_access", AsyncMock())
    with EmbeddedServer(tmp_path) as server:
        server.stop()  # its port is known now, and kept: another test's server may have it else
        chosen = settings.read({"nats_url": server.url, "cluster": "test"})
        with monkeypatch.context() as impatient, socket.socket() as unheard:
            unheard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            unheard.bind(("127.0.0.1", server.port))
            impatient.setattr("events.connection.CONNECT_WITHIN_S", 0.2)
            impatient.setattr(launch, "AGAIN_S", 0.01)
            serving = asyncio.create_task(launch._hold_and_run("binder", chosen, asyncio.Event(), health))
            await until(lambda: caplog.text.count("tried again, until the log can be had") > 1, "two attempts")
        assert not serving.done()
        assert not health.ready
        server.start()
        async with asyncio.timeout(60):
            await serving
    assert seated.await_count == 1
    assert health.ready


async def test_a_service_that_waits_for_nats_can_be_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.connection.CONNECT_WITHIN_S", 0.1)
    monkeypatch.setattr(launch.logger, "warning", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert await launch._serve("feed", settings.read({"nats_url": "nats://127.0.0.1:1", "cluster": "test"})) == 0


async def test_a_planner_that_has_said_its_last_word_ends(nats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for its lease to be lost."""

    async def run(*_: object) -> None:
        pass

    monkeypatch.setattr(roles, "run", run)
    monkeypatch.setattr(launch, "_collect_seldom", lambda: None)
    async with asyncio.timeout(60):
        await launch._hold_and_run(
            "planner", settings.read({"nats_url": nats, "cluster": "test"}), asyncio.Event(), Health()
        )


@pytest.mark.parametrize(
    ("role", "shard", "writers"),
    [
        ("ingest", "7", ["ingest"]),
        ("planner", "7", ["planner.7"]),
        ("planner", "auto", [f"planner.{shard}" for shard in range(64)]),
    ],
)
def test_which_seats_a_process_may_take(role: str, shard: str, writers: list[str]) -> None:
    assert launch._writers(role, settings.read({"shard": shard}, {})) == writers


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("writer", "role", "kind"),
    [
        ("ingest", "federator", "cluster"),
        ("binder", "federator", "cluster"),
        ("federator", "planner", "federation"),
        ("federator", "feed", "federation"),
    ],
)
async def test_nobody_writes_into_a_log_of_the_other_kind(
    nats: str, writer: str, role: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: of a cluster's log that a federator had taken `verify` said that all was reproduced, and saw nothing."""
    chosen = settings.read({"nats_url": nats, "cluster": "test"})
    log = await open_log(chosen.nats_url, chosen.cluster, create=True)
    await append(log, writer, [ev.Ticked(time_ns=0, jumped_ns=0)])
    await log.close()
    monkeypatch.setattr(roles, "check_files", AsyncMock())
    said = f"^test: this is the log of a {kind}; expected another name"
    with pytest.raises(settings.InvalidSetting, match=said) as refused:
        async with asyncio.timeout(60):
            await launch._hold_and_run(role, chosen, asyncio.Event(), Health())
    assert launch._exit_code(refused.value) == launch.USAGE


@pytest.mark.usefixtures("collector")
async def test_a_clusters_service_makes_no_log_for_a_federation(nats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: it said that this is a federation's log, and left it there, empty, for who never has a federation."""
    chosen = settings.read({"nats_url": nats, "cluster": FEDERATION})
    monkeypatch.setattr(roles, "check_files", AsyncMock())
    with pytest.raises(settings.InvalidSetting, match="this is the log of a federation"):
        async with asyncio.timeout(60):
            await launch._hold_and_run("feed", chosen, asyncio.Event(), Health())
    with pytest.raises(LogError, match="no log of a cluster"):
        await open_log(chosen.nats_url, chosen.cluster)


@pytest.mark.usefixtures("collector")
async def test_replicas_that_a_single_server_cannot_have_are_told_with_the_setting(
    nats: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings.read({"nats_url": nats, "log_replicas": 3})
    monkeypatch.setattr(roles, "check_files", AsyncMock())
    with pytest.raises(settings.InvalidSetting, match="MUSTER_LOG_REPLICAS=3: expected 1, as this NATS server"):
        async with asyncio.timeout(60):
            await launch._hold_and_run("feed", chosen, asyncio.Event(), Health())


@pytest.mark.parametrize("role", ["ingest", "binder"])
async def test_who_has_no_access_to_its_cluster_is_never_ready(role: str, tmp_path: Path) -> None:
    """As it was: a standby read its kubeconfig when it took over, and a rollout put it in place of one that worked; and
    a binder was ready until it had read its own."""
    chosen = settings.read({"nats_url": "nats://127.0.0.1:1", "kubeconfig": str(tmp_path / "none")})
    health = Health()
    with pytest.raises(AccessError, match="none: expected a kubeconfig file"):
        await launch._hold_and_run(role, chosen, asyncio.Event(), health)
    assert not health.ready


@pytest.mark.parametrize("variable", ["CREDENTIALS", "CA", "CERTIFICATE", "KEY"])
async def test_a_file_for_nats_that_cannot_be_read_is_named_with_its_variable(variable: str, tmp_path: Path) -> None:
    """As it was: its path alone, and code 4; of a pipe nothing, while all of the process waited for it."""
    os.mkfifo(tmp_path / "pipe")
    name = f"MUSTER_NATS_{variable}_FILE"
    for file, said in (
        ("none", "expected a file, found no"),
        ("pipe", "expected a file, not"),
        ("", "expected a file"),
    ):
        chosen = settings.read({"nats_url": "nats://127.0.0.1:1"}, {name: str(tmp_path / file)})
        with pytest.raises(settings.InvalidSetting, match=f"^{name}: {said}"):
            await roles.check_files("planner", chosen)


async def test_a_file_that_this_user_may_not_read_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "ca").touch()
    monkeypatch.setattr(Path, "open", opened)
    chosen = settings.read({"nats_ca_file": str(tmp_path / "ca")}, {})
    with pytest.raises(settings.InvalidSetting, match=r"^MUSTER_NATS_CA_FILE: .*ca: Permission denied$"):
        await roles.check_files("planner", chosen)


async def test_a_key_without_its_certificate_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    key = {"nats_key_file": str(tmp_path / "key")}
    with pytest.raises(settings.InvalidSetting, match="expected MUSTER_NATS_CERTIFICATE_FILE beside it"):
        await roles.check_files("planner", settings.read(key, {}))
    await roles.check_files("planner", settings.read(key | {"nats_certificate_file": str(tmp_path / "key")}, {}))


async def test_a_kubeconfig_that_takes_its_time_keeps_nothing_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name a plugin. As it was: three seconds of one cost ingest its lease, and the next one its own."""
    asked, ready = threading.Event(), threading.Event()

    def load(_: str | None) -> Access:
        asked.set()
        assert ready.wait(60)
        return direct("http://h")

    monkeypatch.setattr("services.kubernetes.access.load", load)
    opening = asyncio.ensure_future(roles._client(settings.read({}, {})))
    await until(asked.is_set, "it to be asked for")
    ready.set()
    async with await opening:
        pass


@pytest.mark.parametrize(("kubeconfig", "named"), [("its.yaml", "its.yaml"), ("", "the kubeconfig")])
async def test_a_kubeconfig_that_says_nothing_is_no_access(
    kubeconfig: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plugin waits for somebody, perhaps. As any that cannot be used, it may be asked again."""
    ended = threading.Event()

    def load(_: str) -> Access:
        ended.wait()
        return direct("http://h")

    monkeypatch.setattr("services.kubernetes.access.load", load)
    monkeypatch.setattr(roles, "ACCESS_WITHIN_S", 0.01)
    with pytest.raises(AccessError, match=rf"^{named}: it, or a plugin that it names, said nothing within 0\.01 s$"):
        await roles.check_files("ingest", settings.read({"kubeconfig": kubeconfig}, {}))
    ended.set()


GOOD = "clusters: {a: {uri: http://h, user: u, token: {env: T}}}"
NO_AUTHORITY = "clusters: {a: {uri: http://h, user: u, token: {env: T}, ca_file: none.pem}}"
KEY = base64.urlsafe_b64encode(bytes(32)).decode()
NO_KUBECONFIG = "clusters: {a: {kind: kubernetes, uri: http://h, user: u, kubeconfig: none}}"


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("clusters", "keys", "said", "code"),
    [
        ("", "", "--clusters: missing; expected a file.*; --keys: missing", launch.USAGE),
        (NO_KUBECONFIG, "k", r"clusters.a.kubeconfig: .*keys: expected at least one key", launch.USAGE),
        (GOOD, "", "--keys: missing; expected a file", launch.USAGE),
        ("clusters: {}", "k", "clusters.yaml: expected a mapping", launch.USAGE),
        (NO_AUTHORITY, "k", r"clusters.yaml: clusters.a.ca_file: .*none.pem: expected certificates", launch.USAGE),
        (NO_KUBECONFIG, KEY, r"clusters.a.kubeconfig: .*none: expected a kubeconfig file", launch.UNREACHABLE),
        (GOOD, "k", "keys: expected at least one key", launch.USAGE),
    ],
)
async def test_a_federator_whose_files_cannot_be_used_is_never_ready(
    clusters: str, keys: str, said: str, code: int, tmp_path: Path
) -> None:
    """Nor when they became so while it waited for its turn. As it was: a standby took over and ended with a traceback."""
    for name, text in (("clusters.yaml", clusters), ("keys", keys)):
        (tmp_path / name).write_text(text)
    given = {
        "clusters_file": clusters and str(tmp_path / "clusters.yaml"),
        "body_keys_file": keys and str(tmp_path / "keys"),
    }
    chosen, health = settings.read({"nats_url": "nats://127.0.0.1:1", **given}, {}), Health()
    log: Any = None
    for beginning in (
        launch._hold_and_run("federator", chosen, asyncio.Event(), health),
        roles.run("federator", chosen, log, roles.Seat("federator", asyncio.Event())),
    ):
        with pytest.raises((settings.InvalidSetting, AccessError), match=said) as told:
            await beginning
        assert launch._exit_code(told.value) == code
    assert not health.ready


async def test_keys_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "clusters.yaml").write_text(GOOD)
    given = {"clusters_file": str(tmp_path / "clusters.yaml"), "body_keys_file": str(tmp_path / "none")}
    with pytest.raises(settings.InvalidSetting, match="none: "):
        await roles.check_files("federator", settings.read(given, {}))
