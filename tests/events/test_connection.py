"""A connection, mostly where no server is needed to see it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import nats.errors
import pytest
import uvloop
from tenacity import RetryCallState

from events.answers import Denied, Unanswered
from events.client import Client
from events.connection import _OPTIONS, Connection
from events.log import Unavailable
from events.patience import patiently, retrying
from events.server import EmbeddedServer
from events.tls import Transport
from tests.nats_server import connected
from tests.waiting import until

USERS = 'authorization { users: [ { user: planner, password: "one" } ] }'


async def test_a_cancellation_that_meets_the_answer_to_a_flush_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a service that was told to end in this moment ran on."""
    answer, asked = asyncio.get_running_loop().create_future(), asyncio.Event()

    flushes = []

    async def flush(client: object, timeout: int) -> None:  # noqa: ASYNC109
        flushes.append(client)
        asked.set()
        await asyncio.wait_for(answer, timeout)

    monkeypatch.setattr("nats.aio.client.Client.flush", flush)
    flushing = asyncio.create_task(Client().flush())
    await asked.wait()
    answer.set_result(None)
    flushing.cancel()
    await asyncio.wait({flushing})
    assert flushing.cancelled()
    await asyncio.sleep(0)
    assert len(flushes) == 1, "for nobody"


async def test_a_flush_that_was_cancelled_keeps_nobody_from_hearing_what_comes_behind_its_answer(
    own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: nats-py failed at the answer, read no more, and the connection was made anew seconds later. Found by
    ending services while they start."""
    async with connected(own_server.url) as connection:
        own_server.pause()
        before = asyncio.all_tasks()
        flushing = asyncio.create_task(connection.client.flush(timeout=600))
        await until(lambda: connection.client._pongs, "it to be asked for")
        flushing.cancel()
        await asyncio.wait({flushing})
        await until(lambda: asyncio.all_tasks() <= before, "what asked to end with it")
        own_server.resume()
        await connection.ask("$JS.API.INFO")
        assert connection.generation == 0
    assert caplog.messages == []


async def test_a_flush_is_answered_behind_what_was_sent(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for the connection to take more does not go behind the question."""
    monkeypatch.setitem(_OPTIONS, "ping_interval", 3_600)  # no other questions, and nobody misses the server meanwhile
    async with connected(own_server.url) as connection:
        client, written, takes = connection.client, bytearray(), asyncio.Event()
        transport = client._transport
        assert isinstance(transport, Transport)
        assert transport._io_writer is not None
        write = transport._io_writer.write

        def heard(data: bytes) -> None:
            written.extend(data)
            write(data)

        monkeypatch.setattr(transport._io_writer, "write", heard)
        monkeypatch.setattr(transport._io_writer, "writelines", lambda lines: heard(b"".join(lines)))
        monkeypatch.setattr(transport._io_writer, "drain", takes.wait)
        own_server.pause()
        await client.publish("first", b"")
        await until(lambda: b"first" in written, "the first")
        await client.publish("second", b"")
        flushing = asyncio.create_task(client.flush())
        await until(lambda: b"PING" in written, "the question")
        takes.set()
        await until(lambda: b"second" in written, "what had waited")
        own_server.resume()
        await flushing
        assert b"second" in written.rpartition(b"PING")[0]
    with pytest.raises(nats.errors.ConnectionClosedError):
        await client.flush()


async def test_a_server_that_is_tried_again_has_one_connection(own_server: EmbeddedServer) -> None:
    """Who is refused tries again for as long as it takes, ten times a second."""
    async with connected(own_server.url) as connection:
        client = connection.client
        assert client._current_server is not None
        assert isinstance(client._transport, Transport)
        first = client._transport._io_writer
        await client._connect_to_server(client._current_server)
        assert first is not None
        assert first.is_closing()


async def test_who_is_told_that_nobody_answers_leaves_no_connection_behind(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hangs as soon as it has greeted."""
    connection = Connection(own_server.url)

    async def flush() -> None:
        raise nats.errors.FlushTimeoutError

    monkeypatch.setattr(connection.client, "flush", flush)
    with pytest.raises(Unavailable, match="flush timeout"):
        await connection.connect()
    assert connection.client.is_closed


async def test_who_is_told_to_end_while_it_connects_leaves_no_connection_behind(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-py's `wait_for` misses the cancellation when the server's greeting comes in that moment, and connects."""
    connection = Connection(own_server.url)
    greet, greeting = connection.client._process_connect_init, asyncio.Event()

    async def missed() -> None:
        greeting.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await greet()

    monkeypatch.setattr(connection.client, "_process_connect_init", missed)
    before = asyncio.all_tasks()
    connecting = asyncio.create_task(connection.connect())
    await greeting.wait()
    connecting.cancel()
    await asyncio.wait({connecting})
    assert connecting.cancelled()
    assert connection.client.is_closed
    assert asyncio.all_tasks() - before == set()


async def test_a_stream_that_somebody_changed_is_there(own_server: EmbeddedServer) -> None:
    async with connected(own_server.url) as connection:
        await connection.create_stream({"name": "one", "subjects": ["one"], "max_msgs": 7})
        await connection.create_stream({"name": "one", "subjects": ["one"]})


# --------------------------------------------------------------------------------------------------- who waits is told


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.connection.TOLD_AFTER_S", 0.05)
    monkeypatch.setattr("events.connection.CONNECT_WITHIN_S", 0.4)
    monkeypatch.setattr("events.patience.TOLD_AFTER_S", 0.05)
    monkeypatch.setattr("events.patience.PATIENCE_S", 0.4)


@pytest.mark.usefixtures("impatient")
async def test_who_waits_for_a_server_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """As it was: ten seconds of silence."""
    with pytest.raises(Unavailable, match="no NATS server answered within"):
        await Connection("nats://127.0.0.1:1").connect()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("nats://127.0.0.1:1: no NATS server answers yet")
    assert told[0].endswith(" s more")


def test_who_waits_is_told_on_stderr_and_stdout_stays_empty() -> None:
    command = [sys.executable, "-m", "services", "verify", "nats://127.0.0.1:1/prod", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stderr is not None
        told = waiting.stderr.readline()
        waiting.terminate()
        assert waiting.stdout.read() == ""
    assert told.startswith("nats://127.0.0.1:1: no NATS server answers yet")


@pytest.mark.parametrize(
    ("greeting", "within_s", "told"),
    [(b"INFO []\r\n", 60.0, r"no NATS server: 'list'"), (b"", 0.4, r"answered within 0 s$")],
)
async def test_what_is_no_nats_server_is_told(
    greeting: bytes, within_s: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a traceback for the first, a reason that is empty for the other."""
    monkeypatch.setattr("events.connection.CONNECT_WITHIN_S", within_s)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match=told):
            await Connection(f"nats://127.0.0.1:{port}").connect()


def url_of(server: EmbeddedServer, scheme: str) -> str:
    (ports,) = server.store.glob("*.ports")
    (url,) = {"nats": [server.url], "ws": json.loads(ports.read_text())["websocket"]}[scheme]
    return str(url)


@pytest.mark.filterwarnings("ignore:parameter 'timeout'")
@pytest.mark.parametrize("scheme", ["nats", "ws"])
async def test_a_server_that_never_greets_does_not_keep_a_client_from_the_others(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: over websockets, five minutes."""
    monkeypatch.setattr("events.connection.random.shuffle", lambda servers: None)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    with EmbeddedServer(tmp_path, extra="websocket { host: 127.0.0.1, port: -1, no_tls: true }") as server:
        good = url_of(server, scheme)
        async with await asyncio.start_server(hang, "127.0.0.1", 0) as hanging:
            port = hanging.sockets[0].getsockname()[1]
            async with connected(f"{scheme}://127.0.0.1:{port},{good}") as connection:
                await connection.ask("$JS.API.INFO")


def reload(server: EmbeddedServer, extra: str) -> None:
    """With this instead of what stood behind the generated configuration."""
    file = server.store / "nats-server.conf"
    file.write_text(file.read_text().replace(server.extra, extra))
    server.extra = extra
    os.kill(server.pid, signal.SIGHUP)


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ('authorization { users: [ { user: planner, password: "another" } ] }', "refused the credentials"),
        (f"{USERS}\nmax_connections: 0", "maximum connections exceeded"),
    ],
    ids=["another password", "too many connections"],
)
async def test_whom_a_server_puts_out_says_why_and_comes_back_when_he_may(
    now: str, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: the client closed for good, and the service ended for a connection that was closed."""
    with EmbeddedServer(tmp_path, extra=USERS) as server:
        async with connected(server.url.replace("//", "//planner:one@")) as connection:
            reload(server, now)
            await until(lambda: told in caplog.text, "the server's reason")
            reload(server, USERS)
            await until(lambda: connection.generation, "the connection that is made again")
            await connection.ask("$JS.API.INFO")


@pytest.mark.parametrize(
    ("users", "credentials", "who"),
    [
        ('user: planner, password: "p@ss/w"', "planner:p%40ss%2Fw", "user 'planner'"),
        ('token: "s3cr3t/"', "s3cr3t%2F", "this user"),
    ],
)
async def test_credentials_in_the_url_are_for_all_servers(
    users: str, credentials: str, who: str, tmp_path: Path
) -> None:
    """As for other clients of NATS. As it was: for that one server, and not decoded; a token was shown as a user."""
    with EmbeddedServer(tmp_path, extra=f"authorization {{ {users} }}") as server:
        host = server.url.partition("//")[2]
        for urls in (f"nats://{credentials}@{host},nats://{host}", f"nats://{host},nats://{credentials}@{host}"):
            async with connected(urls) as connection:
                await connection.ask("$JS.API.INFO")
                assert connection._who == who
                assert "s3cr3t" not in connection.client._inbox_prefix.decode()


async def test_who_may_not_subscribe_any_more_is_told_and_keeps_his_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: put out and connected again several times a second, as the server refused it again each time."""
    with EmbeddedServer(tmp_path, extra="max_subscriptions: 1") as server:
        async with connected(server.url) as connection:
            await connection.client.subscribe("news")
            await until(lambda: "takes no more subscriptions" in caplog.text, "the server's reason")
            await connection.ask("$JS.API.INFO")
            assert connection.client.is_connected
            assert not connection.generation


async def test_whose_inbox_is_taken_away_is_told_at_once(tmp_path: Path) -> None:
    """As it was: it asked for half a minute, deaf, and then said that nobody had answered."""
    deaf = USERS.replace(" } ] }", ', permissions: { subscribe: "else" } } ] }')
    with EmbeddedServer(tmp_path, extra=USERS) as server:
        async with connected(server.url.replace("//", "//planner:one@")) as connection:
            reload(server, deaf)
            async with asyncio.timeout(5):
                with pytest.raises(Denied, match="denies user 'planner' the inbox _INBOX_planner"):
                    await _ask_on(connection)


async def test_whom_one_subject_is_denied_hears_his_answers(tmp_path: Path) -> None:
    mine = USERS.replace(" } ] }", ', permissions: { subscribe: "_INBOX_planner.>" } } ] }')
    with EmbeddedServer(tmp_path, extra=mine) as server:
        async with connected(server.url.replace("//", "//planner:one@")) as connection:
            await connection.client.subscribe("news")
            await until(lambda: "news" in str(connection.last_error), "the server's no")
            await connection.ask("$JS.API.INFO")


async def _ask_on(connection: Connection) -> None:
    while True:
        await connection.ask("$JS.API.INFO")


@pytest.mark.usefixtures("impatient")
async def test_who_waits_for_an_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        raise Unanswered("prod: no answer")

    with pytest.raises(Unanswered):
        await patiently(ask)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert told[0].startswith("prod: no answer; asked again for ")


@pytest.mark.usefixtures("impatient")
async def test_who_waits_without_end_is_told_that(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> str:
        if not caplog.messages:
            raise Unanswered("prod: no answer")
        return "yes"

    assert await patiently(ask, forever=True) == "yes"
    assert caplog.messages == ["prod: no answer; asked again until it is answered"]


def test_it_is_asked_again_at_random_intervals_that_grow_to_a_second() -> None:
    again, longest = retrying(), []
    asked = RetryCallState(again, None, (), {})
    for asked.attempt_number in (1, 4, 30):
        longest.append(max(again.wait(asked) for _ in range(200)))
    assert 0.0 < longest[0] <= 0.02 < longest[1] <= 0.16 < longest[2] <= 1.0


async def test_an_answer_that_comes_soon_is_worth_no_word(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.patience.TOLD_AFTER_S", 60.0)
    asked = []

    async def ask() -> int:
        asked.append(1)
        if len(asked) < 4:
            raise Unanswered("prod: no answer")
        return len(asked)

    assert await patiently(ask) == 4
    assert not caplog.records


GREETING = b'INFO {"server_id":"X","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
GONE = struct.pack("ii", 1, 0)
"""SO_LINGER with which a close is a reset."""


def _reset(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, GONE)


def _greets_and_resets(link: socket.socket) -> None:
    link.sendall(GREETING)
    _reset(link)


def _resets_behind_the_answer(link: socket.socket) -> None:
    link.sendall(GREETING)
    link.recv(4096)
    link.sendall(b"PONG\r\n")
    _reset(link)


def _says(words: bytes, *, greeted: bool = False) -> Callable[[socket.socket], None]:
    def say(link: socket.socket) -> None:
        if greeted:
            link.sendall(GREETING)
            link.recv(4096)
        link.sendall(words)
        with suppress(OSError):  # until it is left
            while link.recv(4096):
                pass

    return say


@pytest.mark.parametrize(
    "answer",
    [
        _reset,
        _greets_and_resets,
        _resets_behind_the_answer,
        _says(b"x" * 200_000),
        _says(b"INFO 5\r\n"),
        _says(b"-ERR\r\n", greeted=True),
        _says(b"-ERR \xff\xfe\r\n", greeted=True),
    ],
    ids=[
        "a reset",
        "a reset behind the greeting",
        "a reset behind the answer",
        "long",
        "odd",
        "no reason",
        "not UTF-8",
    ],
)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_whatever_answers_in_the_servers_place_it_is_found_again(
    own_server: EmbeddedServer,
    loop: Callable[[], asyncio.AbstractEventLoop],
    answer: Callable[[socket.socket], None],
) -> None:
    """A proxy, say, while the server is away. As it was: nats-py tried no more, and a standby waited for ever."""

    async def found_again() -> None:
        async with connected(own_server.url) as connection:
            await connection.client.subscribe("news")
            own_server.kill()
            async with _Stranger(own_server.port, answer) as stranger:
                await until(lambda: stranger.answered > 2, "it to try again and again")
            own_server.start()
            await patiently(connection.ask, "$JS.API.INFO")

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(found_again())


async def test_how_a_connection_ended_is_said_once() -> None:
    """As it was: asyncio might say it again, with a traceback, wherever what is left of it was collected (chaos)."""
    with socket.create_server(("127.0.0.1", 0)) as spare:
        port = spare.getsockname()[1]
    async with _Stranger(port, _resets_behind_the_answer):
        transport = Transport()
        await transport.connect(urlparse(f"nats://127.0.0.1:{port}"), 4096, 5)
        ended = transport._io_writer.transport.get_protocol()._closed
        assert await transport.readline() == GREETING
        transport.write(b"PING\r\n")
        with pytest.raises(ConnectionResetError):
            await transport.read(-1)
        await until(ended.done, "the end")
        assert not ended._log_traceback, "it would be told of"


class _Stranger:
    """Something on the port that answers each connection like this, and ends it."""

    def __init__(self, port: int, answer: Callable[[socket.socket], None]) -> None:
        self.answered = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run)

    async def __aenter__(self) -> _Stranger:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        await asyncio.to_thread(self._thread.join)
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):  # it is shut down
            while True:
                link, _ = self._listener.accept()
                with link, suppress(OSError):
                    link.settimeout(5)
                    self._answer(link)
                self.answered += 1
