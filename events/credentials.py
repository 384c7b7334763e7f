"""A NATS .creds file: the user's JWT, and the seed of the Ed25519 key that signs the server's nonce.

nats-py would do this with `nkeys`, which PyPI has as source only; `cryptography` is here anyway. The file is read for
each connection, so that one that is renewed counts from the next on.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from events.log import LogError
from events.wire import UNDECODABLE

EXPECTED = "expected a .creds file of NATS, with a user's JWT and the seed of his key"
_PART = re.compile(rb"-{3,}BEGIN (NATS USER JWT|USER NKEY SEED)-{3,}\s+(\S+)\s+-{3,}END")
_SEED_OF_USER = bytes([0x90 | 0xA0 >> 5, (0xA0 & 0x1F) << 3])
"""The two kinds, of a seed and of a user's key, as five bits each from the left: ``SU`` in base 32."""
_SEED_BYTES = 32


class InvalidCredentials(LogError):
    """Names the file, and says what was expected."""


class Credentials(NamedTuple):
    """What a server asks of a user."""

    jwt: bytes
    seed: bytes


class File:
    """As nats-py asks for it at each connection: a signature first, then the JWT."""

    def __init__(self, file: str) -> None:
        """Raises InvalidCredentials."""
        self._file = file
        self._last = read(file)

    def sign(self, nonce: str) -> bytes:
        """In base 64. A file that is not there any more counts as it was: the client never stops reconnecting."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        with suppress(InvalidCredentials):
            self._last = read(self._file)
        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(self._last.seed).sign(nonce.encode()))

    def jwt(self) -> bytes:
        return self._last.jwt


def read(file: str) -> Credentials:
    """Raises InvalidCredentials."""
    try:
        with open(file, "rb") as opened:
            parts = dict(_PART.findall(opened.read()))
    except OSError as error:
        raise InvalidCredentials(f"{file}: {EXPECTED}: {error.strerror}") from error
    jwt, seed = parts.get(b"NATS USER JWT"), parts.get(b"USER NKEY SEED")
    if jwt is None or seed is None:
        raise InvalidCredentials(f"{file}: {EXPECTED}")
    return Credentials(jwt, _unwrapped(file, seed))


class _Claims(msgspec.Struct):
    exp: int = 0


def expiry(file: str) -> str:
    """What the file's JWT says of its own end, for people, as a server does not say why it refuses; "" where nothing."""
    with suppress(InvalidCredentials, IndexError, binascii.Error, OverflowError, ValueError, OSError, *UNDECODABLE):
        claims = read(file).jwt.split(b".")[1]
        if ends_s := msgspec.json.decode(base64.urlsafe_b64decode(claims + b"=="), type=_Claims).exp:
            return f", whose JWT expires at {datetime.fromtimestamp(ends_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return ""


def _unwrapped(file: str, text: bytes) -> bytes:
    """The seed without its kind and its checksum."""
    try:
        raw = base64.b32decode(text + b"=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    kind, seed, checksum = raw[:2], raw[2:-2], raw[-2:]
    if (kind, len(seed)) != (_SEED_OF_USER, _SEED_BYTES) or checksum != _checksum(raw[:-2]):
        raise InvalidCredentials(f"{file}: {EXPECTED}: the seed is damaged, or not a user's (SU…)")
    return seed


def _checksum(data: bytes) -> bytes:
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
