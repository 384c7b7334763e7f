"""Where jobs' bodies are: encrypted, outside of the log, under the digest that the log has.

A job may have secrets in it, and a log is for ever. So the log has 64 hexadecimal digits, and the body is in
JetStream's object store until the job is settled and its winner has ended (`core.needs_body`). The digest is that of what
is stored, not of the body: whoever reads the log and guesses a password cannot try it out, and the same body kept twice
has two digests.

Fernet (of `cryptography`) encrypts and authenticates. Of several keys the first encrypts and all decrypt: a new key is
put in front, and an old one can go when the bodies from before are gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from events.object_store import BrokenObject, Bucket

Digest = str


class BodyGone(Exception):
    """There is no body of this digest, or it cannot be had back as it was kept. Names the digest."""


class BodyLocked(Exception):
    """None of the keys opens it; another may. Names the digest."""


class InvalidKey(ValueError):
    """Says what is expected of a key, and shows none."""


class Lying(NamedTuple):
    """What lay there at some time."""

    names: list[str]
    parts: list[str]
    """Chunks of blobs, finished or not."""

    @property
    def has_loose_parts(self) -> bool:
        """Which body a part is of, only each body says. A sealed one has chunks, all on one subject: so some are nobody's
        where these are more than the bodies."""
        return len(self.parts) > len(self.names)

    def is_beyond(self, needed: frozenset[Digest]) -> bool:
        """Whether some of it is nobody's."""
        return self.has_loose_parts or not needed.issuperset(self.names)


class Blobs(Protocol):
    """Bytes by name."""

    async def put(self, name: str, data: bytes) -> None: ...

    async def get(self, name: str) -> bytes | None:
        """Raises BrokenObject."""
        ...

    async def delete(self, name: str) -> None:
        """Does nothing where it is gone already."""
        ...

    async def lying(self) -> Lying: ...

    async def sweep(self, lying: Lying) -> None:
        """Clear away those parts that no blob names."""
        ...


class Cipher:
    """Keys as Fernet has them: 32 bytes, URL-safe base64; the first encrypts. Raises InvalidKey."""

    def __init__(self, keys: Iterable[str]) -> None:
        given = list(keys)
        try:
            self._fernet = MultiFernet([Fernet(key) for key in given])
        except ValueError:
            raise InvalidKey("expected at least one key, each of 32 bytes in URL-safe base64") from None

    @staticmethod
    def new_key() -> str:
        return Fernet.generate_key().decode()

    def sealed(self, body: bytes) -> bytes:
        return self._fernet.encrypt(body)

    def opened(self, data: bytes) -> bytes:
        """Raises InvalidToken."""
        return self._fernet.decrypt(data)


class Bodies:
    """Bodies of jobs that still need them."""

    def __init__(self, blobs: Blobs, cipher: Cipher) -> None:
        self._blobs, self._cipher = blobs, cipher

    async def keep(self, body: bytes) -> Digest:
        """It is stored when this returns. A crash before the log names it leaves it to `forget_all_but`."""
        data = self._cipher.sealed(body)
        digest = _digest(data)
        await self._blobs.put(digest, data)
        return digest

    async def read(self, digest: Digest) -> bytes:
        """Raises BodyGone, BodyLocked, LogError."""
        try:
            data = await self._blobs.get(digest)
            if data is None:
                raise BodyGone(f"body {digest} is not there (any more)")
            if _digest(data) != digest:
                raise BodyGone(f"body {digest}: something else lies there")
            return self._cipher.opened(data)
        except BrokenObject as error:
            raise BodyGone(f"body {digest}: {error}") from error
        except InvalidToken:
            raise BodyLocked(f"body {digest}: none of the keys opens it") from None

    async def forget(self, digest: Digest) -> None:
        """Of a job that needs it no more; does nothing where it is gone already."""
        await self._blobs.delete(digest)

    async def lying(self) -> Lying:
        """What lies there; asked before the log's subject is taken, and given to `forget_all_but`. Raises LogError."""
        return await self._blobs.lying()

    async def forget_all_but(self, needed: frozenset[Digest], of: Lying) -> int:
        """Delete what was there before the subject was taken, or kept, and the log does not name at that place: it never
        will, as whoever stored it is refused. Returns how many. What came since is others': this process may have been
        stopped and replaced meanwhile."""
        gone = [name for name in of.names if name not in needed]
        for name in gone:
            await self._blobs.delete(name)
        await self._blobs.sweep(of)
        return len(gone)


class BucketBlobs:
    """In JetStream's object store, bucket ``muster-bodies-<federation>``."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def put(self, name: str, data: bytes) -> None:
        await self._bucket.put(name, data)

    async def get(self, name: str) -> bytes | None:
        found = await self._bucket.find(name)
        return None if found is None else await self._bucket.get(found)

    async def delete(self, name: str) -> None:
        found = await self._bucket.find(name)
        if found is not None:
            await self._bucket.delete(found)

    async def lying(self) -> Lying:
        parts = await self._bucket.parts()
        return Lying(await self._bucket.names(), parts)

    async def sweep(self, lying: Lying) -> None:
        if lying.has_loose_parts:
            await self._bucket.sweep(lying.parts)


def _digest(data: bytes) -> Digest:
    return hashlib.sha256(data).hexdigest()
