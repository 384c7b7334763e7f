"""The server's permissions, by trying what is forbidden."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from events import permissions, subjects
from events.connection import Connection, Denied
from events.jetstream import JetStreamLog
from events.lease import Lease, Watch, holder_of
from events.server import EmbeddedServer
from tests.events.writing import HEADER, append, collect, payload, sequences
from tests.waiting import until

CLUSTER = "guarded"
WRITERS = {"ingest": "ingest", "planner": "planner.0", "binder": "binder", "admin": "admin"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    text = permissions.configuration(CLUSTER, {role: f"of {role}" for role in permissions.ROLES})
    text += permissions.configuration("other", dict.fromkeys(permissions.ROLES, "other")).replace(
        'user: "', 'user: "other-'
    )
    accounts, _, more = text.partition("}\naccounts {\n")  # two clusters in one block
    with EmbeddedServer(tmp_path_factory.mktemp("guarded"), extra=accounts + more) as running:
        yield running


async def connect(server: EmbeddedServer, role: str) -> Connection:
    return await Connection(server.url).connect(user=role, password=f"of {role}")


async def opened(server: EmbeddedServer, role: str, *, create: bool = True) -> JetStreamLog:
    return await JetStreamLog.open(server.url, CLUSTER, create=create, user=role, password=f"of {role}")


def test_there_is_a_user_for_each_writer() -> None:
    assert set(WRITERS) == set(subjects.WRITES)
    text = permissions.configuration("prod")
    for role in permissions.ROLES:
        assert f'user: "{role}", password: $MUSTER_{role.upper()}_PASSWORD' in text


@pytest.mark.parametrize("role", WRITERS)
async def test_a_role_writes_its_own_subject_and_no_other(guarded: EmbeddedServer, role: str) -> None:
    log = await opened(guarded, role)
    own = subjects.subject(CLUSTER, WRITERS[role])
    last = await log.last(own)
    sequence = await append(log, WRITERS[role], 1, last.sequence if last else 0)
    for other in set(WRITERS.values()) - {WRITERS[role]}:
        with pytest.raises(Denied, match=subjects.subject(CLUSTER, other)):
            await append(log, other, 1, 0)
    assert sequence in sequences(await collect(log.read()))
    await log.close()


@pytest.mark.parametrize("role", WRITERS)
async def test_a_role_leases_only_itself(guarded: EmbeddedServer, role: str) -> None:
    connection = await connect(guarded, role)
    async with Lease(connection, CLUSTER, WRITERS[role], "me"):
        pass
    other = "binder" if role != "binder" else "ingest"
    with pytest.raises(Denied, match=f"muster-leases.{CLUSTER}.{other}"):
        await Lease(connection, CLUSTER, other, "me")._publish(Lease(connection, CLUSTER, other, "me")._held, 0, 1)
    await connection.close()


@pytest.mark.parametrize("role", permissions.ROLES)
@pytest.mark.parametrize("verb", ["PURGE", "DELETE", "UPDATE", "MSG.DELETE", "SNAPSHOT", "RESTORE"])
async def test_nobody_changes_what_the_log_holds(guarded: EmbeddedServer, role: str, verb: str) -> None:
    connection = await connect(guarded, role)
    api = f"$JS.API.STREAM.{verb}.{subjects.stream(CLUSTER)}"
    with pytest.raises(Denied, match=rf"\$JS\.API\.STREAM\.{verb}"):
        await connection.ask(api, {"name": subjects.stream(CLUSTER), "seq": 1})
    await connection.close()


async def test_a_reader_reads_and_writes_nothing(guarded: EmbeddedServer) -> None:
    writer = await opened(guarded, "admin")
    last = await writer.last(subjects.subject(CLUSTER, "admin"))
    sequence = await append(writer, "admin", 5, last.sequence if last else 0)
    reader = await opened(guarded, "reader", create=False)
    assert sequence in sequences(await collect(reader.read()))
    with pytest.raises(Denied):
        await append(reader, "admin", 6, sequence)
    await writer.close()
    await reader.close()


async def test_the_binder_watches_the_planners_leases_and_a_reader_may_ask_of_them(guarded: EmbeddedServer) -> None:
    planner, binder, reader = [await connect(guarded, role) for role in ("planner", "binder", "reader")]
    held = Lease(planner, CLUSTER, "planner.5", "me")
    await held.acquire()
    assert await holder_of(reader, CLUSTER, "planner.5") == "me"
    async with Watch(binder, CLUSTER, "planner.*", 60) as watch:
        assert not await watch.is_free("planner.5")
        await held.release()
        await watch.given_back.wait()
        assert await watch.is_free("planner.5")
    assert binder.last_error is None
    for connection in (planner, binder, reader):
        await connection.close()


async def test_a_subscriber_of_the_feed_does_not_see_the_log(guarded: EmbeddedServer) -> None:
    with pytest.raises(Denied, match=subjects.stream(CLUSTER)):
        await opened(guarded, "subscriber", create=False)


async def test_nobody_listens_to_the_log_past_jetstream(guarded: EmbeddedServer) -> None:
    connection = await connect(guarded, "planner")
    await connection.client.subscribe(subjects.subject(CLUSTER, ">"))
    await until(lambda: connection.last_error is not None, "the server's word")
    assert "permissions violation for subscription" in str(connection.last_error)
    await connection.close()


async def test_a_consumer_cannot_write_the_log_with_its_own_messages(guarded: EmbeddedServer) -> None:
    """A push consumer publishes for the server; onto the stream that it reads the server refuses."""
    log = await opened(guarded, "planner")
    target = subjects.subject(CLUSTER, "binder")
    create = f"$JS.API.CONSUMER.CREATE.{log.stream}.sneaky"
    config = {"name": "sneaky", "deliver_subject": target, "ack_policy": "none"}
    with pytest.raises(Exception, match="cycle"):
        await log.connection.ask(create, {"stream_name": log.stream, "config": config, "action": "create"})
    await log.close()


async def test_another_cluster_is_another_account(guarded: EmbeddedServer) -> None:
    ours = await opened(guarded, "binder")
    theirs = await JetStreamLog.open(guarded.url, "other", user="other-binder", password="other")
    with pytest.raises(Denied, match=r"muster\.other\.binder"):
        await ours.append("muster.other.binder", HEADER, payload(1), 0)
    assert await theirs.end() == 0
    await ours.close()
    await theirs.close()


async def test_a_wrong_password_is_told_at_once(guarded: EmbeddedServer) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Denied, match="refused the credentials"):
            await JetStreamLog.open(guarded.url, CLUSTER, user="binder", password="guess")


def test_a_name_that_is_no_cluster() -> None:
    with pytest.raises(ValueError, match="expected letters"):
        permissions.configuration("a b")


def test_the_text_is_what_the_server_takes(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, extra=permissions.configuration("prod", dict.fromkeys(permissions.ROLES, "x"))):
        pass
