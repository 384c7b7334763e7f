"""Objects in JetStream's object store: buckets in the form that every NATS client reads (``nats object get``).

An object is chunks under a subject of its own and a meta message that names them. The meta message comes last: an object
is there as a whole or not at all. `Bucket` is one bucket; `ObjectStore` keeps a log's snapshots in one,
``muster-snapshots-<cluster>``.

Requests of our own read and write it, and tell refusals from lost answers (`events.answers`). nats-py's client waits
for ever for a chunk that is gone, reports a denial as a timeout, asks for the names of all streams, and leaves a marker
behind for every object that it deletes.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from events.answers import MESSAGE_ID, STREAM_NOT_FOUND, Denied, Message, NoRoom, Refused, Unanswered, decoded
from events.connection import Connection
from events.log import LogError
from events.patience import patiently
from events.snapshots import BrokenSnapshot, Kept
from events.wire import UNDECODABLE

CHUNK_BYTES = 512 * 1024
ABANDONED_AFTER = timedelta(minutes=2)
"""Chunks of an object that is not finished are of nobody if none came for so long: who puts an object asks one thing
between two chunks, and gives up when that is not answered within `PATIENCE_S`."""
DIGEST, STATE, PLACE = "Muster-State-Digest", "Muster-State-Version", "Muster-Commit-Id"
_OF_BYTES = "SHA-256="
MANY = 64
"""Meta messages, beyond which their names are asked for."""
DIGITS = 20
"""Of a snapshot's name: the sequence that it is of."""


class BrokenObject(LogError):
    """An object that is gone, or cannot be had back as it was put."""


class Object(msgspec.Struct, omit_defaults=True):
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


def bodies_bucket(federation: str) -> str:
    """Where the federator keeps what jobs have in them."""
    return f"muster-bodies-{federation}"


def stream(cluster: str) -> str:
    """The stream behind the bucket."""
    return stream_of(bucket(cluster))


def stream_of(bucket: str) -> str:
    return f"OBJ_{bucket}"


def subjects(bucket: str) -> tuple[str, str]:
    """(of chunks, of meta messages)."""
    return f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"


class Bucket:
    """Objects by name. The stream is made when something is put. Every method raises LogError."""

    def __init__(self, connection: Connection, name: str, replicas: int = 1) -> None:
        self.name = name
        self._connection, self._replicas = connection, replicas
        self._stream = stream_of(name)

    async def put(self, name: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        """If the server has no room for all of it, the chunks that it took are purged at once: they fill the last room,
        which the log needs.

        A crash in between leaves chunks that nothing names, until `sweep`.
        """
        await patiently(self._connection.create_stream, self._configuration())
        named = Object(name=name, bucket=self.name, nuid=secrets.token_hex(11), size=len(data), digest=_digest(data))
        named.headers = {key: [value] for key, value in (headers or {}).items()}
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                named.chunks += 1
                part = data[start : start + CHUNK_BYTES]
                identity = {MESSAGE_ID: f"{named.nuid}.{named.chunks}"}
                await patiently(self._publish, self._chunks(named.nuid), part, identity)
            await patiently(self._publish, self._meta(name), msgspec.json.encode(named), {"Nats-Rollup": "sub"})
        except LogError as error:
            if not isinstance(error, Unanswered):
                with suppress(LogError):
                    await self._purge(self._chunks(named.nuid))
            raise

    async def find(self, name: str) -> Object | None:
        """Each that is put takes the place of all that was said of its name. So it comes first, and what is behind it
        somebody else said, unless that is another."""
        try:
            last = await patiently(self._connection.last_message, self._stream, self._meta(name))
        except Refused as refused:
            if refused.number != STREAM_NOT_FOUND:
                raise
            return None
        found = None if last is None else _meta(last.data)
        if last is not None and found is None:
            first = await anext(self._messages(self._meta(name)), None)
            found = None if first is None else _meta(first.data)
        return None if found is None or found.deleted else found

    async def listed(self, named: Callable[[str], object] = bool) -> list[Object]:
        """Those that are there, of these names."""
        found: list[Object | None] = []
        async for message in self._messages(self._meta()):
            found.append(_meta(message.data))
            if len(found) == MANY:
                with suppress(Denied):  # else all of it is read, be it somebody else's
                    found = [await self.find(name) for name in await self.names() if named(name)]
                    break
        return [one for one in found if one is not None and not one.deleted]

    async def clear(self, named: Callable[[str], object]) -> None:
        """What somebody else said of very many of these names, where nothing is there: each start would ask for it."""
        names = [name for name in await self.names() if named(name)]
        for name in names if len(names) > MANY else ():
            if await self.find(name) is None:
                await self._purge(self._meta(name))

    async def names(self) -> list[str]:
        """Of those that are there, or that another client has marked as deleted: by one question, however many they are;
        sorted."""
        info = await self._info(self._meta())
        found = [] if info is None else map(_named, info.state.subjects)
        return sorted(name for name in found if name is not None)

    async def get(self, found: Object) -> bytes:
        """Raises BrokenObject."""
        chunks: list[bytes] = []
        messages = self._messages(self._chunks(found.nuid))
        while len(chunks) < found.chunks and (message := await anext(messages, None)) is not None:
            chunks.append(message.data)  # what is behind them somebody else said
        data = b"".join(chunks)
        if len(data) != found.size or _digest(data) != found.digest:
            raise BrokenObject(f"{len(data)} of {found.size} bytes, or not those that were put")
        return data

    async def delete(self, found: Object) -> None:
        await self._purge(self._meta(found.name))
        await self._purge(self._chunks(found.nuid))

    async def parts(self) -> list[str]:
        """The subjects of all chunks that there are, be the objects that they are of finished or not."""
        info = await self._info(self._chunks())
        return [] if info is None else list(info.state.subjects)

    async def abandoned(self) -> list[str]:
        """Those `parts` that no object names, and to which nothing came for `ABANDONED_AFTER` by the server's clock."""
        info = await self._info(self._chunks())
        if info is None or info.ts is None:
            return []
        found = []
        for subject in await self._unnamed(info.state.subjects):
            last = await patiently(self._connection.last_message, self._stream, subject)
            if last is not None and last.time is not None and info.ts - last.time >= ABANDONED_AFTER:
                found.append(subject)
        return found

    async def sweep(self, parts: Iterable[str]) -> None:
        """Of these `parts`, which were listed before, purge what no object names: it is of one that was replaced or
        never finished. Any put under way when they were listed has finished, or never can."""
        for subject in await self._unnamed(parts):
            await self._purge(subject)

    async def _info(self, subject: str) -> _Info | None:
        """What the server says of these messages; None where there is no bucket."""
        asked = {"subjects_filter": subject}
        try:
            info = await patiently(self._connection.ask, f"$JS.API.STREAM.INFO.{self._stream}", asked)
        except Refused as refused:
            if refused.number != STREAM_NOT_FOUND:
                raise
            return None
        return decoded(_decode_info, self._stream, info)

    async def _unnamed(self, parts: Iterable[str]) -> list[str]:
        if not (looked_at := list(parts)):
            return []
        named = {self._chunks(found.nuid) for found in await self.listed()}
        return [subject for subject in looked_at if subject not in named]

    async def _messages(self, subject: str) -> AsyncIterator[Message]:
        """All on this subject, in order; none where there is no bucket."""
        after = 0
        while True:
            try:
                message = await patiently(self._connection.next_message, self._stream, subject, after)
            except Refused as refused:
                if refused.number != STREAM_NOT_FOUND:
                    raise
                return
            if message is None:
                return
            yield message
            after = message.seq

    async def _publish(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """Asked again, what finds no room would take whatever becomes free, before the log does. Raises LogError."""
        try:
            await self._connection.publish(subject, data, headers)
        except NoRoom as full:
            raise LogError(str(full)) from full

    async def _purge(self, subject: str) -> None:
        await patiently(self._connection.ask, f"$JS.API.STREAM.PURGE.{self._stream}", {"filter": subject})

    def _chunks(self, nuid: str = "*") -> str:
        return f"$O.{self.name}.C.{nuid}"

    def _meta(self, name: str = "") -> str:
        token = base64.urlsafe_b64encode(name.encode()).decode() if name else "*"
        return f"$O.{self.name}.M.{token}"

    def _configuration(self) -> dict[str, object]:
        """As every NATS client makes a bucket."""
        return {
            "name": self._stream,
            "subjects": list(subjects(self.name)),
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


class ObjectStore:
    """A log's snapshots in NATS."""

    def __init__(self, connection: Connection, cluster: str, replicas: int = 1) -> None:
        self._bucket = Bucket(connection, bucket(cluster), replicas)

    async def put(self, kept: Kept, data: bytes) -> None:
        """Clears away what a crash left unfinished, but not what another process is putting just now. If this is
        refused, that goes as well: perhaps it is its room that is lacking, and without room nobody can append."""
        headers = {DIGEST: kept.digest, STATE: str(kept.state)} | ({PLACE: kept.commit} if kept.commit else {})
        try:
            await self._bucket.put(_name(kept), data, headers)
        except LogError as error:
            if not isinstance(error, Unanswered):
                with suppress(LogError):  # why it failed is what counts
                    await self._bucket.sweep(await self._bucket.parts())
            raise
        await self._bucket.sweep(await self._bucket.abandoned())
        await self._bucket.clear(_is_name)

    async def listed(self) -> list[Kept]:
        """What somebody else put into the bucket is passed over."""
        found = [kept for one in await self._bucket.listed(_is_name) if (kept := _kept(one)) is not None]
        return sorted(found, key=lambda kept: kept.sequence, reverse=True)

    async def get(self, kept: Kept) -> bytes:
        what = f"{self._bucket.name}: snapshot {kept.sequence}"
        found = await self._find(kept)
        if found is None:
            raise BrokenSnapshot(f"{what} is gone")
        try:
            return await self._bucket.get(found)
        except BrokenObject as error:
            raise BrokenSnapshot(f"{what}: {error}") from error

    async def delete(self, kept: Kept) -> None:
        found = await self._find(kept)
        if found is not None:
            await self._bucket.delete(found)

    async def _find(self, kept: Kept) -> Object | None:
        found = await self._bucket.find(_name(kept))
        return found if found is not None and _kept(found) == kept else None


def _digest(data: bytes) -> str:
    return _OF_BYTES + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def _named(subject: str) -> str | None:
    """Of a meta message, which object it is about; None for what no client says."""
    try:
        return base64.urlsafe_b64decode(subject.rpartition(".")[2]).decode()
    except ValueError:
        return None


def _meta(data: bytes) -> Object | None:
    """None for what is no meta message."""
    try:
        return _decode_object(data)
    except UNDECODABLE:
        return None


def _name(kept: Kept) -> str:
    """By which snapshots are in order."""
    return f"{kept.sequence:0{DIGITS}}"


def _is_name(name: str) -> bool:
    return len(name) == DIGITS and name.isdecimal()


def _kept(found: Object) -> Kept | None:
    """None for what is no snapshot."""
    try:
        (digest,), (state,), (commit,) = found.headers[DIGEST], found.headers[STATE], found.headers.get(PLACE, [""])
        return Kept(sequence=int(found.name), digest=digest, state=int(state), bytes=found.size, commit=commit)
    except (KeyError, ValueError):
        return None


class _State(msgspec.Struct):
    subjects: dict[str, int] = {}


class _Info(msgspec.Struct):
    state: _State
    ts: datetime | None = None
    """When the server said it."""


_decode_object = msgspec.json.Decoder(Object).decode
_decode_info = msgspec.json.Decoder(_Info).decode
