"""Snapshots in JetStream's object store, bucket ``muster-snapshots-<cluster>``.

An object is chunks under a subject of its own and a meta message that names them, in the form that every NATS client
reads (``nats object get``). The meta message comes last: an object is there as a whole or not at all.

It is written and read here by requests whose refusals and lost answers are told apart (`events.connection`). nats-py's
own client waits for ever for a chunk that is gone, tells a denial as a timeout, asks for the names of all streams, and
leaves a marker behind for every object that it deletes.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator

import msgspec

from events.connection import STREAM_NOT_FOUND, Connection, Message, Refused, decoded, retrying
from events.snapshots import BrokenSnapshot, Kept
from events.wire import UNDECODABLE

CHUNK_BYTES = 512 * 1024
DIGEST, STATE = "Muster-State-Digest", "Muster-State-Version"
_OF_BYTES = "SHA-256="


class _Object(msgspec.Struct, omit_defaults=True):
    """The object store's meta message, as far as it matters here."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    headers: dict[str, list[str]] = {}


def bucket(cluster: str) -> str:
    return f"muster-snapshots-{cluster}"


def stream(cluster: str) -> str:
    """The stream behind the bucket."""
    return f"OBJ_{bucket(cluster)}"


def subjects(cluster: str) -> tuple[str, str]:
    """(of chunks, of meta messages)."""
    return f"$O.{bucket(cluster)}.C.>", f"$O.{bucket(cluster)}.M.>"


class ObjectStore:
    """A log's snapshots in NATS. The bucket is made when something is put."""

    def __init__(self, connection: Connection, cluster: str, replicas: int = 1) -> None:
        self._connection, self._cluster, self._replicas = connection, cluster, replicas
        self._bucket, self._stream = bucket(cluster), stream(cluster)

    async def put(self, kept: Kept, data: bytes) -> None:
        """A crash in between leaves chunks that nothing names; the next `put` clears them away."""
        await retrying()(self._connection.create_stream, self._configuration())
        named = _Object(name=f"{kept.sequence:020}", bucket=self._bucket, nuid=secrets.token_hex(11), size=len(data))
        named.digest = _digest(data)
        named.headers = {DIGEST: [kept.digest], STATE: [str(kept.state)]}
        for start in range(0, len(data), CHUNK_BYTES):
            named.chunks += 1
            part = data[start : start + CHUNK_BYTES]
            identity = {"Nats-Msg-Id": f"{named.nuid}.{named.chunks}"}
            await retrying()(self._connection.publish, self._chunks(named.nuid), part, identity)
        meta = msgspec.json.encode(named)
        await retrying()(self._connection.publish, self._meta(named.name), meta, {"Nats-Rollup": "sub"})
        await self._sweep()

    async def listed(self) -> list[Kept]:
        return [_kept(found) for found in await self._objects()]

    async def get(self, kept: Kept) -> bytes:
        what = f"{self._bucket}: snapshot {kept.sequence}"
        found = [found for found in await self._objects() if _kept(found) == kept]
        if not found:
            raise BrokenSnapshot(f"{what} is gone")
        parts = [message.data async for message in self._messages(self._chunks(found[0].nuid))]
        data = b"".join(parts)
        if len(data) != found[0].size or _digest(data) != found[0].digest:
            raise BrokenSnapshot(f"{what}: {len(data)} of {found[0].size} bytes, or not those that were put")
        return data

    async def delete(self, kept: Kept) -> None:
        for found in await self._objects():
            if _kept(found) == kept:
                await self._purge(self._meta(found.name))
                await self._purge(self._chunks(found.nuid))

    # ---------------------------------------------------------------------------------------------------------- inside

    async def _objects(self) -> list[_Object]:
        """Those that are snapshots, the newest first."""
        listed = [_snapshot(message.data) async for message in self._messages(self._meta())]
        return sorted((one for one in listed if one is not None), key=lambda one: one.name, reverse=True)

    async def _messages(self, subject: str) -> AsyncIterator[Message]:
        """All on this subject, in order; none where there is no bucket."""
        after = 0
        while True:
            try:
                message: Message | None = await retrying()(self._connection.next_message, self._stream, subject, after)
            except Refused as refused:
                if refused.number != STREAM_NOT_FOUND:
                    raise
                return
            if message is None:
                return
            yield message
            after = message.seq

    async def _sweep(self) -> None:
        """Purge chunks that no object names: of one that was replaced, or was never finished."""
        named = {self._chunks(found.nuid) for found in await self._objects()}
        asked = {"subjects_filter": self._chunks()}
        info: bytes = await retrying()(self._connection.ask, f"$JS.API.STREAM.INFO.{self._stream}", asked)
        for subject in decoded(_decode_info, self._stream, info).state.subjects:
            if subject not in named:
                await self._purge(subject)

    async def _purge(self, subject: str) -> None:
        await retrying()(self._connection.ask, f"$JS.API.STREAM.PURGE.{self._stream}", {"filter": subject})

    def _chunks(self, nuid: str = "*") -> str:
        return f"$O.{self._bucket}.C.{nuid}"

    def _meta(self, name: str = "") -> str:
        token = base64.urlsafe_b64encode(name.encode()).decode() if name else "*"
        return f"$O.{self._bucket}.M.{token}"

    def _configuration(self) -> dict[str, object]:
        """As every NATS client makes a bucket."""
        return {
            "name": self._stream,
            "subjects": list(subjects(self._cluster)),
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "num_replicas": self._replicas,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }


def _digest(data: bytes) -> str:
    return _OF_BYTES + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def _snapshot(meta: bytes) -> _Object | None:
    """None for what somebody else put into the bucket, or deleted."""
    try:
        found = _decode_object(meta)
        _kept(found)
    except (*UNDECODABLE, KeyError, ValueError):
        return None
    return None if found.deleted else found


def _kept(found: _Object) -> Kept:
    """Raises KeyError, ValueError."""
    (digest,), (state,) = found.headers[DIGEST], found.headers[STATE]
    return Kept(sequence=int(found.name), digest=digest, state=int(state), bytes=found.size)


class _State(msgspec.Struct):
    subjects: dict[str, int] = {}


class _Info(msgspec.Struct):
    state: _State


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_info = msgspec.json.Decoder(_Info).decode
