"""The server's permissions, by trying everything: what a user may do is exactly what stands here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from events import micro, object_store, permissions, subjects
from events.answers import Denied, Refused
from events.cloudevents import FeedMessage
from events.connection import Connection
from events.feed import Feed
from events.jetstream import JetStreamLog
from events.lease import Lease, Watch, holder_of
from events.log import LogError, Unavailable
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.subscription import subscribe
from tests.events.writing import HEADER, append, collect, payload, sequences

CLUSTER = "guarded"
LOG, FEED = "muster-guarded", "muster-feed-guarded"
STREAMS = {"log": LOG, "leases": "muster-leases-guarded", "feed": FEED, "snapshots": "OBJ_muster-snapshots-guarded"}
WRITERS = {"ingest": "ingest", "planner": "planner.0", "binder": "binder", "admin": "admin"}
SHARDS = ("0", "blue")


def passwords(shards: tuple[str, ...] = ()) -> dict[str, str]:
    return {user: f"of {user}" for user in permissions.users(shards)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Two clusters' accounts; the other's users are called other-…"""
    other = permissions.account("other", dict.fromkeys(permissions.users(), "other"))
    text = permissions.configuration(CLUSTER, passwords()).replace("accounts {", "accounts {\n" + other, 1)
    with EmbeddedServer(tmp_path_factory.mktemp("guarded"), extra=_renamed(text)) as running:
        yield running


def _renamed(text: str) -> str:
    ours, theirs = text.index(f"muster-{CLUSTER} "), text.index("muster-other ")
    assert theirs < ours
    return text[:ours].replace('user: "', 'user: "other-') + text[ours:]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """With a user for each shard."""
    text = permissions.configuration(CLUSTER, passwords(SHARDS), SHARDS)
    with EmbeddedServer(tmp_path_factory.mktemp("sharded"), extra=text) as running:
        yield running


@asynccontextmanager
async def connected(server: EmbeddedServer, user: str) -> AsyncIterator[Connection]:
    connection = await Connection(server.url).connect(user=user, password=f"of {user}")
    yield connection
    await connection.close()


async def opened(server: EmbeddedServer, user: str, *, create: bool = True) -> JetStreamLog:
    return await JetStreamLog.open(server.url, CLUSTER, create=create, user=user, password=f"of {user}")


# ----------------------------------------------------------------------------------------------------------- the matrix

OF_STREAM = ("CREATE", "INFO", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE")
OF_STREAM += ("PEER.REMOVE", "LEADER.STEPDOWN")
OF_CONSUMER = ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "LEADER.STEPDOWN", "PAUSE")
JOB_VERBS = ("submit", "status", "list", "cancel", "explain")
FEDERATION_STREAMS = {
    "federation's log": "muster-federation",
    "federation's leases": "muster-leases-federation",
    "federation's feed": "muster-feed-federation",
    "federation's snapshots": "OBJ_muster-snapshots-federation",
    "bodies": "OBJ_muster-bodies-federation",
}
NEVER_LAST = {"Nats-Expected-Last-Subject-Sequence": "1000000"}
"""Whoever may publish is refused by the stream: trying changes nothing."""

PUBLISHES: dict[str, str] = {
    **{f"append {writer}": f"muster.{CLUSTER}.{writer}" for writer in (*WRITERS.values(), "planner.blue", "intruder")},
    **{f"lease {role}": f"muster-leases.{CLUSTER}.{role}" for role in (*WRITERS.values(), "planner.blue", "feed")},
    "feed message": f"muster-feed.{CLUSTER}.PodBound.team.pod",
    "snapshot chunk": f"$O.muster-snapshots-{CLUSTER}.C.x",
    "snapshot meta": f"$O.muster-snapshots-{CLUSTER}.M.x",
    "ack of the log": f"$JS.ACK.{LOG}.c.1.1.1.1.1",
    "ack of the feed": f"$JS.ACK.{FEED}.c.1.1.1.1.1",
    "flow of the log": f"$JS.FC.{LOG}.c.x",
    "flow of the feed": f"$JS.FC.{FEED}.c.x",
    **{f"unnamed consumer {name}": f"$JS.API.CONSUMER.CREATE.{stream}" for name, stream in STREAMS.items()},
    "answer to the binder": "_INBOX_binder.x.y",
    **{f"{verb} {name}": f"$JS.API.STREAM.{verb}.{stream}" for name, stream in STREAMS.items() for verb in OF_STREAM},
    **{
        f"consumer {verb} {name}": f"$JS.API.CONSUMER.{verb}.{stream}.c"
        for name, stream in STREAMS.items()
        for verb in OF_CONSUMER
    },
    **{
        f"{verb} {name}": f"$JS.API.STREAM.{verb}.{stream}"
        for name, stream in FEDERATION_STREAMS.items()
        for verb in OF_STREAM
    },
    **{
        f"consumer {verb} {name}": f"$JS.API.CONSUMER.{verb}.{stream}.c"
        for name, stream in FEDERATION_STREAMS.items()
        for verb in OF_CONSUMER
    },
    "append federator": "muster.federation.federator",
    "append federation's binder": "muster.federation.binder",
    "lease federator": "muster-leases.federation.federator",
    "body chunk": "$O.muster-bodies-federation.C.x",
    "body meta": "$O.muster-bodies-federation.M.x",
    **{f"job {verb}": f"muster-jobs.federation.{verb}" for verb in (*JOB_VERBS, "give-up", "other")},
    "another federation's job": "muster-jobs.other.submit",
    **{f"service {asked}": f"$SRV.{asked}" for asked in ("PING", "INFO.muster-federator", "STATS.muster-federator.x")},
    "another service": "$SRV.INFO.other",
    "answer to whoever asks for jobs": "_INBOX_jobs.x.y",
    **{f"JetStream {verb}": f"$JS.API.{verb}" for verb in ("INFO", "STREAM.LIST", "STREAM.NAMES", "SERVER.REMOVE")},
    "servers": "$SYS.REQ.SERVER.PING",
}
SUBSCRIBES = {
    "hear all": ">",
    "hear the log": f"muster.{CLUSTER}.>",
    "hear the binder": f"muster.{CLUSTER}.binder",
    "hear all leases": f"muster-leases.{CLUSTER}.>",
    **{f"hear lease {role}": f"muster-leases.{CLUSTER}.{role}" for role in (*WRITERS.values(), "planner.blue", "feed")},
    "hear the feed": f"muster-feed.{CLUSTER}.>",
    "hear the snapshots": "$O.>",
    "hear JetStream": "$JS.>",
    "hear all inboxes": "_INBOX.>",
    "hear the binder's inbox": "_INBOX_binder.>",
    "hear the reader's inbox": "_INBOX_reader.>",
    "hear the federator": "muster.federation.federator",
    "hear lease federator": "muster-leases.federation.federator",
    "hear the bodies": "$O.muster-bodies-federation.>",
    "hear jobs": "muster-jobs.federation.*",
    "hear all jobs": "muster-jobs.>",
    "hear service PING": "$SRV.PING",
    "hear service INFO": "$SRV.INFO.muster-federator.x",
    "hear all services": "$SRV.>",
    "hear the federator's inbox": "_INBOX_federator.>",
    "hear the inbox of jobs": "_INBOX_jobs.>",
}

DISCOVERS = {"service PING", "service INFO.muster-federator", "service STATS.muster-federator.x"}
READS = {"INFO log", "MSG.GET log", "consumer CREATE log", "consumer MSG.NEXT log", "consumer DELETE log"}
KEEPS_A_LEASE = {"CREATE leases", "MSG.GET leases"}
RESTORES = {"MSG.GET snapshots", "INFO snapshots"}
TAKES_SNAPSHOTS = {"snapshot chunk", "snapshot meta", "CREATE snapshots", "INFO snapshots", "PURGE snapshots"}
ALLOWED: dict[str, set[str]] = {
    "ingest": READS | RESTORES | KEEPS_A_LEASE | {"append ingest", "CREATE log", "lease ingest", "hear lease ingest"},
    "planner": READS
    | RESTORES
    | KEEPS_A_LEASE
    | {"append planner.0", "append planner.blue", "CREATE log"}
    | {"lease planner.0", "lease planner.blue", "hear lease planner.0", "hear lease planner.blue"},
    "binder": READS
    | RESTORES
    | KEEPS_A_LEASE
    | {"append binder", "CREATE log", "lease binder", "hear lease binder", "hear the binder's inbox"}
    | {"hear lease planner.0", "hear lease planner.blue"}
    | TAKES_SNAPSHOTS,
    "admin": READS | RESTORES | {"append admin"},
    "feed": READS
    | KEEPS_A_LEASE
    | {"CREATE log", "lease feed", "hear lease feed"}
    | {"feed message", "CREATE feed", "INFO feed", "UPDATE feed", "MSG.GET feed"},
    "reader": READS | RESTORES | {"MSG.GET leases", "hear the reader's inbox"},
    "keeper": READS | RESTORES | TAKES_SNAPSHOTS | {"PURGE log"},
    "subscriber": {"consumer CREATE feed", "consumer DURABLE.CREATE feed", "consumer INFO feed"}
    | {"consumer MSG.NEXT feed", "consumer DELETE feed", "INFO feed", "ack of the feed"}
    | {"unnamed consumer feed", "flow of the feed"},
    "federator": {f"{one} federation's log" for one in ("INFO", "MSG.GET", "CREATE")}
    | {f"consumer {one} federation's log" for one in ("CREATE", "MSG.NEXT", "DELETE")}
    | {"append federator", "lease federator", "hear lease federator"}
    | {f"{one} federation's leases" for one in ("CREATE", "MSG.GET")}
    | {
        f"{one} {kept}"
        for one in ("CREATE", "INFO", "PURGE", "MSG.GET")
        for kept in ("bodies", "federation's snapshots")
    }
    | {"body chunk", "body meta"}
    | {"hear jobs", "hear service PING", "hear service INFO", "hear the federator's inbox"},
    "jobs": {f"job {verb}" for verb in JOB_VERBS} | DISCOVERS | {"hear the inbox of jobs"},
    "planner-blue": READS
    | RESTORES
    | KEEPS_A_LEASE
    | {"append planner.blue", "CREATE log", "lease planner.blue", "hear lease planner.blue"},
}


@pytest.mark.parametrize("user", ALLOWED)
async def test_a_user_may_do_this_and_no_more(guarded: EmbeddedServer, sharded: EmbeddedServer, user: str) -> None:
    async with connected(sharded if "-" in user else guarded, user) as connection:
        granted = {name for name, subject in PUBLISHES.items() if await may_publish(connection, subject)}
        granted |= {name for name, subject in SUBSCRIBES.items() if await may_subscribe(connection, subject)}
    assert granted == ALLOWED[user]


def test_every_user_is_tried_but_peoples() -> None:
    everybody = {*permissions.users(), *permissions.users(("blue",))}
    assert set(ALLOWED) == everybody - {
        permissions.OPERATOR,
        permissions.FEDERATION_OPERATOR,
        permissions.SYSTEM,
    }
    assert set(WRITERS) == set(subjects.WRITES) - subjects.FEDERATION_ROLES


async def may_publish(connection: Connection, subject: str) -> bool:
    """What may be sent is sent in a form that JetStream refuses, or that nobody takes."""
    connection.last_error = None
    await connection.client.publish(subject, b"{", reply=connection.client.new_inbox(), headers=NEVER_LAST)
    return await nothing_denied(connection, f'permissions violation for publish to "{subject}"')


async def may_subscribe(connection: Connection, subject: str) -> bool:
    connection.last_error = None
    await connection.client.subscribe(subject)
    return await nothing_denied(connection, f'permissions violation for subscription to "{subject}"')


async def nothing_denied(connection: Connection, denial: str) -> bool:
    """A denial comes before the answer to a ping that was sent behind what is denied."""
    await connection.client.flush()
    if connection.last_error is not None:
        assert denial.lower() in str(connection.last_error)
    return connection.last_error is None


# ----------------------------------------------------------------------------------------- what each role needs, it can


@pytest.mark.parametrize("role", WRITERS)
async def test_a_role_writes_its_own_subject_and_no_other(guarded: EmbeddedServer, role: str) -> None:
    await (await opened(guarded, "ingest")).close()  # the log is there, as whoever starts first makes it
    log = await opened(guarded, role, create=role != "admin")
    own = subjects.subject(CLUSTER, WRITERS[role])
    last = await log.last(own)
    sequence = await append(log, WRITERS[role], 1, last.sequence if last else 0)
    for other in set(WRITERS.values()) - {WRITERS[role]}:
        with pytest.raises(Denied, match=subjects.subject(CLUSTER, other)):
            await append(log, other, 1, 0)
    assert sequence in sequences(await collect(log.read()))
    await log.close()


@pytest.mark.parametrize("role", ["ingest", "planner.0", "binder", "feed"])
async def test_a_role_leases_itself(guarded: EmbeddedServer, role: str) -> None:
    user = role.partition(".")[0]
    async with connected(guarded, user) as connection, Lease(connection, CLUSTER, role, "me"):
        async with connected(guarded, "reader") as reader:
            assert await holder_of(reader, CLUSTER, role) == "me"
        async with connected(guarded, "binder") as binder, Watch(binder, CLUSTER, "planner.*", 5) as watch:
            assert await watch.is_free(role) is False


@pytest.mark.parametrize(
    ("role", "user"), [("binder", "planner"), ("planner.0", "binder"), ("ingest", "feed"), ("feed", "ingest")]
)
async def test_a_standby_that_is_another_roles_user_is_told_at_once(
    guarded: EmbeddedServer, role: str, user: str
) -> None:
    """As it was: it waited, counted as ready, and heard of it when it was to take over."""
    own = role.partition(".")[0]
    async with connected(guarded, own) as holder, Lease(holder, CLUSTER, role, "me"), connected(guarded, user) as other:
        denied = rf"muster-leases\.{CLUSTER}\.{role}: the NATS server denies user '{user}' publishing to this subject"
        async with asyncio.timeout(20):
            with pytest.raises(Denied, match=denied):
                await Lease(other, CLUSTER, role, "other").acquire()
        assert await holder_of(holder, CLUSTER, role) == "me"


async def test_snapshots_are_the_binders_to_keep_and_everybodys_to_restore(guarded: EmbeddedServer) -> None:
    binder = await opened(guarded, "binder")
    first, second = (Kept(sequence=at, digest="d", state=1, bytes=3) for at in (1, 2))
    for kept in (first, second):
        await binder.snapshots.put(kept, b"abc")
    await binder.snapshots.delete(first)
    for user in ("ingest", "planner", "admin", "reader"):
        other = await opened(guarded, user)
        assert await other.snapshots.listed() == [second]
        assert await other.snapshots.get(second) == b"abc"
        with pytest.raises(Denied):
            await other.snapshots.put(second, b"forged")
        with pytest.raises(Denied):
            await other.snapshots.delete(second)
        await other.close()
    assert await binder.snapshots.get(second) == b"abc"
    await binder.close()


async def test_the_feed_is_published_and_subscribed_to(guarded: EmbeddedServer) -> None:
    feed = await Feed.open(guarded.url, CLUSTER, user="feed", password="of feed")
    assert await feed.position() is None
    sent = FeedMessage(id="1.0", subject=f"muster-feed.{CLUSTER}.PodBound.team.pod", body=b"{}")
    await feed.publish([sent])
    await feed.close()
    again = await Feed.open(guarded.url, CLUSTER, max_age_s=3600, user="feed", password="of feed")
    assert (await again.bounds())[0] == 3600
    await again.close()
    messages = subscribe(guarded.url, CLUSTER, "PodBound", "me", user="subscriber", password="of subscriber")
    async with asyncio.timeout(30), aclosing(messages):
        assert await anext(messages) == sent


async def test_an_operator_mends_what_nobody_else_may(guarded: EmbeddedServer) -> None:
    async with connected(guarded, "operator") as connection:
        await connection.ask("$JS.API.STREAM.CREATE.spare", {"name": "spare", "subjects": ["spare"]})
        await connection.ask("$JS.API.STREAM.DELETE.spare")


async def test_the_system_user_sees_the_servers_and_no_log(guarded: EmbeddedServer) -> None:
    async with connected(guarded, "system") as connection:
        assert (await connection.request("$SYS.REQ.SERVER.PING", b"")).data
        with pytest.raises(LogError):
            await connection.ask(f"$JS.API.STREAM.INFO.{LOG}")


# ------------------------------------------------------------------------------------------------------- the federation


@asynccontextmanager
async def answering(connection: Connection) -> AsyncIterator[None]:
    """The federator's service, which answers a submission with what was submitted."""

    async def echo(data: bytes) -> Any:
        return json.loads(data)

    prefix, service = subjects.jobs(subjects.FEDERATION), subjects.FEDERATOR_SERVICE
    async with micro.served(connection, service, "0.0.0", "", prefix, dict.fromkeys(JOB_VERBS, echo)):
        yield


async def test_jobs_asks_and_hears_its_own_answers_only(guarded: EmbeddedServer) -> None:
    prefix = subjects.jobs(subjects.FEDERATION)
    async with (
        connected(guarded, "federator") as federator,
        answering(federator),
        connected(guarded, "jobs") as client,
        connected(guarded, "federation-operator") as operator,
    ):
        for asking in (client, operator):
            for verb in JOB_VERBS:
                assert await micro.ask(asking, prefix, verb, {"name": "x"}) == {"name": "x"}
            info = json.loads((await asking.request(f"$SRV.INFO.{subjects.FEDERATOR_SERVICE}", b"")).data)
            assert len(info["endpoints"]) == len(JOB_VERBS)
        with pytest.raises(Denied, match="_INBOX_jobs"):  # nobody asked
            await federator.ask("_INBOX_jobs.x.y", b"{}")
        assert federator.last_error is not None
        assert "_inbox_jobs.x.y" in str(federator.last_error).lower()


async def test_jobs_has_no_answer_put_where_it_does_something(guarded: EmbeddedServer) -> None:
    """As it was, each of these answers purged what the federator keeps, or stood in its log, and ended it."""
    prefix, bodies = subjects.jobs(subjects.FEDERATION), object_store.bodies_bucket(subjects.FEDERATION)
    subject = subjects.subject(subjects.FEDERATION, "federator")
    purge = f"$JS.API.STREAM.PURGE.{object_store.stream_of(bodies)}"
    async with (
        connected(guarded, "federator") as federator,
        answering(federator),
        connected(guarded, "jobs") as client,
    ):
        signed_in = {"user": "federator", "password": "of federator"}
        log = await JetStreamLog.open(guarded.url, subjects.FEDERATION, **signed_in)
        end = await log.end()
        bucket = object_store.Bucket(federator, bodies)
        await bucket.put("x", b"a body")
        for asked in (f"{prefix}.submit", "$SRV.PING", f"$SRV.STATS.{subjects.FEDERATOR_SERVICE}"):
            for answer_to in (purge, subject):
                await client.client.publish(asked, b"{}", reply=answer_to)
        assert await micro.ask(client, prefix, "submit", {}) == {}, "they were heard"
        await client.request("$SRV.PING", b"")
        kept = await bucket.find("x")
        assert kept is not None
        assert await log.end() == end
        await bucket.delete(kept)
        await log.close()


async def test_nobody_of_a_cluster_reaches_the_federator(guarded: EmbeddedServer) -> None:
    """Not even who may do everything in the cluster's account."""
    async with (
        connected(guarded, "federator") as federator,
        answering(federator),
        connected(guarded, "operator") as operator,
    ):
        with pytest.raises(Unavailable, match="is `muster federator` running"):
            await micro.ask(operator, subjects.jobs(subjects.FEDERATION), "list", {})


async def test_bodies_are_the_federators_alone(guarded: EmbeddedServer) -> None:
    name = object_store.bodies_bucket(subjects.FEDERATION)
    async with connected(guarded, "federator") as federator, connected(guarded, "jobs") as client:
        bucket = object_store.Bucket(federator, name)
        for body in ("one", "two"):
            await bucket.put(body, body.encode())
        found = await bucket.find("one")
        assert found is not None
        with pytest.raises(Denied):
            await object_store.Bucket(client, name).find("one")
        assert await bucket.get(found) == b"one"
        await bucket.delete(found)
        await bucket.sweep(await bucket.parts())
        assert [one.name for one in await bucket.listed()] == ["two"]


# ---------------------------------------------------------------------------------------------------------- ways around


async def test_a_subscriber_of_the_feed_does_not_see_the_log(guarded: EmbeddedServer) -> None:
    with pytest.raises(Denied, match=LOG):
        await opened(guarded, "subscriber", create=False)


async def test_a_consumer_cannot_write_the_log_with_its_own_messages(guarded: EmbeddedServer) -> None:
    """A push consumer publishes for the server; onto the stream that it reads the server refuses."""
    log = await opened(guarded, "planner")
    target = subjects.subject(CLUSTER, "binder")
    create = f"$JS.API.CONSUMER.CREATE.{log.stream}.sneaky"
    config = {"name": "sneaky", "deliver_subject": target, "ack_policy": "none"}
    with pytest.raises(Exception, match="cycle"):
        await log.connection.ask(create, {"stream_name": log.stream, "config": config, "action": "create"})
    await log.close()


@pytest.mark.parametrize(
    "change", [{"max_msgs": 1}, {"max_age": 3600 * 10**9}, {"subjects": ["muster.guarded.binder"]}]
)
async def test_creating_the_stream_again_does_not_change_it(guarded: EmbeddedServer, change: dict[str, Any]) -> None:
    log = await opened(guarded, "planner")
    config = log._configuration(1) | change
    with pytest.raises(Refused, match="already in use"):
        await log.connection.ask(f"$JS.API.STREAM.CREATE.{log.stream}", config)
    await log.close()


async def test_another_cluster_is_another_account(guarded: EmbeddedServer) -> None:
    ours = await opened(guarded, "binder")
    theirs = await JetStreamLog.open(
        guarded.url, "other", user="other-binder", password="other", inbox_prefix="_INBOX_binder"
    )
    with pytest.raises(Denied, match=r"muster\.other\.binder"):
        await ours.append("muster.other.binder", HEADER, payload(1), 0)
    assert await theirs.end() == 0
    await ours.close()
    await theirs.close()


async def test_a_wrong_password_is_told_at_once(guarded: EmbeddedServer) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Denied, match="refused the credentials of user 'binder'"):
            await JetStreamLog.open(guarded.url, CLUSTER, user="binder", password="guess")


async def test_nobody_comes_in_without_a_user(guarded: EmbeddedServer) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Denied, match=r"refused the credentials of a client without a user \(MUSTER_NATS_USER\)"):
            await JetStreamLog.open(guarded.url, CLUSTER)


async def test_who_may_not_ask_is_named(guarded: EmbeddedServer) -> None:
    """People have several users, and half of the time the wrong one stands in the environment."""
    with pytest.raises(Denied, match=r"STREAM\.INFO.*: the NATS server denies user 'subscriber' publishing to this"):
        await JetStreamLog.open(guarded.url, CLUSTER, user="subscriber", password="of subscriber", create=False)


async def test_an_inbox_that_the_user_may_not_hear_is_told_at_once(guarded: EmbeddedServer) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(Denied, match=r"denies user 'reader' the inbox _INBOX_binder\..*MUSTER_NATS_INBOX_PREFIX"):
            await Connection(guarded.url).connect(user="reader", password="of reader", inbox_prefix="_INBOX_binder")
