"""Bodies lie encrypted under the digest of what is stored, and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from events.object_store import CHUNK_BYTES, Bucket, bodies_bucket, stream_of
from events.server import EmbeddedServer
from services.federator.bodies import (
    Blobs,
    Bodies,
    BodyGone,
    BodyLocked,
    BucketBlobs,
    Cipher,
    InvalidKey,
    Lying,
)
from tests.federator.blobs import MemoryBlobs
from tests.nats_server import cluster, connected, server

__all__ = ["cluster", "server"]

BODY = b"protocolVersion: super-2\nsecrets:\n  password: hunter2\n"
KEY = Cipher.new_key()


@pytest.fixture(params=["memory", "jetstream"])
async def blobs(request: pytest.FixtureRequest, cluster: str) -> AsyncIterator[Blobs]:
    if request.param == "memory":
        yield MemoryBlobs()
    else:
        running: EmbeddedServer = request.getfixturevalue("server")
        async with connected(running.url) as connection:
            yield BucketBlobs(Bucket(connection, bodies_bucket(cluster)))


@pytest.fixture
def bodies(blobs: Blobs) -> Bodies:
    return Bodies(blobs, Cipher([KEY]))


@pytest.mark.parametrize("body", [BODY, b"", b"x" * (2 * CHUNK_BYTES)], ids=["small", "empty", "chunks"])
async def test_a_body_comes_back_as_it_was_kept(bodies: Bodies, body: bytes) -> None:
    assert await bodies.read(await bodies.keep(body)) == body


async def test_what_is_stored_shows_nothing_and_cannot_be_guessed(bodies: Bodies, blobs: Blobs) -> None:
    first, second = await bodies.keep(BODY), await bodies.keep(BODY)
    assert first != second, "the digest is no oracle for who guesses the body"
    for digest in (first, second):
        stored = await blobs.get(digest)
        assert stored is not None
        assert b"hunter2" not in stored
        assert b"super-2" not in stored


async def test_a_settled_jobs_body_goes(bodies: Bodies, blobs: Blobs) -> None:
    digest, other = await bodies.keep(BODY), await bodies.keep(b"other")
    for _ in range(2):
        await bodies.forget(digest)
    with pytest.raises(BodyGone, match=digest):
        await bodies.read(digest)
    assert (await blobs.lying()).names == [other]


async def test_what_the_log_does_not_name_goes_at_a_start(bodies: Bodies, blobs: Blobs) -> None:
    assert await bodies.forget_all_but(frozenset(), await bodies.lying()) == 0
    kept = [await bodies.keep(f"{number}".encode()) for number in range(5)]
    assert await bodies.forget_all_but(frozenset(kept[1:3]), await bodies.lying()) == 3
    assert sorted((await blobs.lying()).names) == sorted(kept[1:3])


async def test_who_clears_late_leaves_what_was_kept_meanwhile(bodies: Bodies, blobs: Blobs) -> None:
    """It was stopped as it started, and another process took over and accepts jobs."""
    left = await bodies.keep(b"of a crash")
    before = await bodies.lying()
    kept = await bodies.keep(BODY)
    assert await bodies.forget_all_but(frozenset(), before) == 1
    assert await bodies.read(kept) == BODY
    with pytest.raises(BodyGone):
        await bodies.read(left)


@pytest.mark.parametrize("spoil", [lambda data: data[:-8] + b"AAAAAAA=", lambda data: b"", lambda data: data + b"x"])
async def test_what_somebody_changed_is_not_given_out(
    bodies: Bodies, blobs: Blobs, spoil: Callable[[bytes], bytes]
) -> None:
    digest = await bodies.keep(BODY)
    stored = await blobs.get(digest)
    assert stored is not None
    await blobs.put(digest, spoil(stored))
    with pytest.raises(BodyGone, match="something else"):
        await bodies.read(digest)


async def test_keys_are_rotated(blobs: Blobs) -> None:
    old, new = Cipher.new_key(), Cipher.new_key()
    before = await Bodies(blobs, Cipher([old])).keep(BODY)
    both = Bodies(blobs, Cipher([new, old]))
    after = await both.keep(BODY)
    assert await both.read(before) == await both.read(after) == BODY
    assert await Bodies(blobs, Cipher([new])).read(after) == BODY
    with pytest.raises(BodyLocked, match="none of the keys"):
        await Bodies(blobs, Cipher([new])).read(before)


@pytest.mark.parametrize("keys", [[], ["short"], [KEY, "c2hvcnQ="]])
def test_a_key_that_is_none_is_not_shown(keys: list[str]) -> None:
    with pytest.raises(InvalidKey) as error:
        Cipher(keys)
    assert not any(key in str(error.value) for key in keys)


def test_it_is_beyond_what_is_needed_with_another_body_or_with_more_chunks_than_bodies() -> None:
    needed = frozenset(["a"])
    assert not Lying([], []).is_beyond(needed)
    assert not Lying(["a"], ["of a"]).is_beyond(needed)
    assert Lying(["a", "b"], ["of a", "of b"]).is_beyond(needed)
    assert Lying(["a"], ["of a", "of nobody"]).is_beyond(needed)


async def test_unfinished_chunks_are_cleared_away(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        bucket = Bucket(connection, bodies_bucket(cluster))
        bodies = Bodies(BucketBlobs(bucket), Cipher([KEY]))
        digest = await bodies.keep(BODY)
        await connection.publish(f"$O.{bucket.name}.C.orphan", b"half")
        assert await bodies.forget_all_but(frozenset([digest]), await bodies.lying()) == 0
        assert await connection.last_message(stream_of(bucket.name), f"$O.{bucket.name}.C.orphan") is None
        assert await bodies.read(digest) == BODY


async def test_however_many_bodies_there_are_a_start_asks_two_questions(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's body is there for as long as its winner runs. As it was: each was asked for by itself, twice."""
    async with connected(server.url) as connection:
        bodies = Bodies(BucketBlobs(Bucket(connection, bodies_bucket(cluster))), Cipher([KEY]))
        kept = [await bodies.keep(f"{number}".encode()) for number in range(20)]
        asked, ask = [], connection.ask

        async def counted(subject: str, *arguments: Any, **more: Any) -> bytes:
            asked.append(subject)
            return await ask(subject, *arguments, **more)

        monkeypatch.setattr(connection, "ask", counted)
        lying = await bodies.lying()
        assert await bodies.forget_all_but(frozenset(kept), lying) == 0
    assert (lying.names, len(lying.parts)) == (sorted(kept), 20)
    assert len(asked) == 2


async def test_what_others_put_or_mark_there_keeps_no_start_from_clearing(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        bucket = Bucket(connection, bodies_bucket(cluster))
        bodies = Bodies(BucketBlobs(bucket), Cipher([KEY]))
        kept, deleted, left = [await bodies.keep(BODY) for _ in range(3)]
        await (await connection.client.jetstream().object_store(bucket.name)).delete(deleted)
        await connection.publish(f"$O.{bucket.name}.M.no-base64!", b"{}")
        lying = await bodies.lying()
        assert lying.names == sorted([kept, deleted, left])
        assert await bodies.forget_all_but(frozenset([kept]), lying) == 2
        assert [found.name for found in await bucket.listed()] == [kept]


async def test_chunks_of_a_body_that_was_being_kept_are_its_own(server: EmbeddedServer, cluster: str) -> None:
    """A start looked while an earlier process was half done, whose commit came first."""
    async with connected(server.url) as connection:
        bucket = Bucket(connection, bodies_bucket(cluster))
        bodies = Bodies(BucketBlobs(bucket), Cipher([KEY]))
        digest = await bodies.keep(BODY)
        looked = Lying([], (await bodies.lying()).parts)
        assert await bodies.forget_all_but(frozenset([digest]), looked) == 0
        assert await bodies.read(digest) == BODY


async def test_nats_own_client_can_read_what_is_there(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        digest = await Bodies(BucketBlobs(Bucket(connection, bodies_bucket(cluster))), Cipher([KEY])).keep(BODY)
        store = await connection.client.jetstream().object_store(bodies_bucket(cluster))
        found = await store.get(digest)
        assert found.data is not None
        assert Cipher([KEY]).opened(found.data) == BODY
