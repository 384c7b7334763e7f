"""Three replicas: an answer may be lost in more ways, and a publish may still be under way when it is tried again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from deploy.e2e.processes import free_port
from events import object_store, subjects
from events.answers import NO_ROOM, NobodyThere, Unanswered
from events.connection import Connection
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.server import EmbeddedServer
from events.snapshots import Kept
from tests.events.writing import append, append_through
from tests.nats_server import connected
from tests.waiting import until

REPLICAS = 3


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, EmbeddedServer]]:
    """Three servers of one NATS cluster, by name."""
    ports = [free_port() for _ in range(REPLICAS)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as running:
        servers = {}
        for name, port in zip(("one", "two", "three"), ports, strict=True):
            extra = f'server_name: {name}\ncluster {{ name: all, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            servers[name] = running.enter_context(EmbeddedServer(tmp_path / name, extra=extra))
        yield servers


async def leader(log: JetStreamLog) -> str:
    answer = msgspec.json.decode(await log._patiently(f"STREAM.INFO.{log.stream}"))
    return str(answer["cluster"]["leader"])


async def test_a_leader_that_dies_loses_and_repeats_nothing(servers: dict[str, EmbeddedServer], cluster: str) -> None:
    total = 400
    url = ",".join(server.url for server in servers.values())
    writer = await JetStreamLog.open(url, cluster, replicas=REPLICAS)
    reader = await JetStreamLog.open(url, cluster)

    async def crash(written: list[int]) -> None:
        await until(lambda: len(written) >= total // 3)
        killed = servers[await leader(writer)]
        killed.kill()
        await until(lambda: len(written) >= 2 * total // 3)
        killed.start()

    await append_through(writer, reader, total, crash)
    async with Lease(writer.connection, cluster, "binder", "me", replicas=REPLICAS) as held:
        assert not held.lost.is_set()
    await writer.close()
    await reader.close()


@pytest.mark.parametrize(("log", "told"), [(REPLICAS, 1), (1, REPLICAS)])
async def test_a_snapshot_that_is_taken_by_hand_has_the_replicas_of_its_log(
    servers: dict[str, EmbeddedServer], cluster: str, log: int, told: int
) -> None:
    """As it was: the bucket was made with one, as `muster snapshot` was told of no other number, and stayed so for those
    that the binder took later. With that server went what a purged log begins with. More than its log has it may have."""
    url = ",".join(server.url for server in servers.values())
    service = await JetStreamLog.open(url, cluster, replicas=log)
    by_hand = await JetStreamLog.open(url, cluster, replicas=told)
    await by_hand.snapshots.put(Kept(sequence=1, digest="d", state=1, bytes=4), b"data")
    made = msgspec.json.decode(await service.connection.ask(f"$JS.API.STREAM.INFO.{object_store.stream(cluster)}"))
    assert made["config"]["num_replicas"] == REPLICAS
    await by_hand.close()
    await service.close()


@pytest.fixture
def two_then_three(
    servers: dict[str, EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> tuple[EmbeddedServer, str, str]:
    """The third server; a URL of the others; one whose first is the third. Who leaves it does so after a second."""
    monkeypatch.setattr("events.connection.random.shuffle", lambda urls: None)
    monkeypatch.setattr("events.leaderless.LEFT_AFTER_S", 1.0)
    third, others = servers["three"], f"{servers['one'].url},{servers['two'].url}"
    return third, others, f"{third.url},{others}"


def is_at(connection: Connection, server: EmbeddedServer) -> bool:
    url = connection.client.connected_url
    return url is not None and url.port == server.port


async def test_a_server_that_is_cut_off_from_the_others_is_left(
    two_then_three: tuple[EmbeddedServer, str, str], cluster: str
) -> None:
    """As it was: whoever had met it waited for ever, while the other two went on."""
    third, others, url = two_then_three
    writer = await JetStreamLog.open(others, cluster, replicas=REPLICAS)
    third.stop()
    nowhere = f'listen: "127.0.0.1:{free_port()}", routes: ["nats://127.0.0.1:1"] }}'
    third.extra = re.sub("listen: .*", nowhere, third.extra)
    third.start()
    sequence = await append(writer, "binder", 1, 0)
    async with connected(url) as connection:
        assert is_at(connection, third)
        assert await JetStreamLog(connection, cluster).end() == sequence
        assert not is_at(connection, third)
    await writer.close()


async def test_a_server_that_is_full_and_knows_no_leader_is_left(
    two_then_three: tuple[EmbeddedServer, str, str], cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on answering whatever is not about a stream's state, and stores nothing. A server whose storage limit is
    reached while it leads may answer so, or may not: here its answers are made so."""
    third, others, url = two_then_three
    writer = await JetStreamLog.open(others, cluster, replicas=REPLICAS)
    sequence = await append(writer, "binder", 1, 0)
    async with connected(url) as connection:
        request = connection.request

        async def leaderless(subject: str, *arguments: Any, **named: Any) -> Msg:
            message = await request(subject, *arguments, **named)
            if is_at(connection, third) and "STREAM.INFO" in subject:
                told = msgspec.json.decode(message.data)
                del told["cluster"]["leader"]
                message.data = msgspec.json.encode(told)
            return message

        monkeypatch.setattr(connection, "request", leaderless)
        log = JetStreamLog(connection, cluster)
        asking = asyncio.create_task(log.end())
        while not asking.done():
            assert await log.last(subjects.subject(cluster, "binder"))
            await asyncio.sleep(0.05)
        assert await asking == sequence
        assert not is_at(connection, third)
    await writer.close()


async def test_who_knows_one_server_stays(own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.leaderless.LEFT_AFTER_S", 0.0)
    async with connected(own_server.url) as connection:
        for _ in range(3):
            with pytest.raises(NobodyThere):
                await connection.publish("muster.nobody", b"")
        assert connection.client.is_connected
        assert connection.generation == 0


async def test_who_is_not_connected_does_not_say_that_it_asks_another(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: each ten seconds while no server was there, and nothing was done."""
    monkeypatch.setattr("events.leaderless.LEFT_AFTER_S", 0.0)
    async with connected(f"{own_server.url},nats://127.0.0.1:9") as connection:
        own_server.kill()
        await until(lambda: not connection.client.is_connected, "the connection to break")
        with pytest.raises(Unanswered):
            await connection.ask("$JS.API.INFO", within_s=0.1)
        assert "another server is asked" not in caplog.text


async def test_a_leaders_not_now_is_an_answer(own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions that were not answered."""
    told: list[dict[str, Any]] = []

    async def answered_so(*_: Any, **__: Any) -> Msg:
        return Msg(connection.client, data=msgspec.json.encode(told.pop(0)))

    async with connected(f"{own_server.url},nats://127.0.0.1:9") as connection:
        monkeypatch.setattr(connection, "request", answered_so)
        nobody, not_now = ({"error": {"code": 503, "err_code": number}} for number in (10008, NO_ROOM))
        told += [nobody, not_now]
        for _ in range(2):
            with pytest.raises(Unanswered):
                await connection.ask("$JS.API.INFO")
        assert not connection._leaderless._asked
