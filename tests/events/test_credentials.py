"""A .creds file: what a server with operators, accounts and users takes, and what is said of a file that is none."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from events.answers import Denied
from events.connection import Connection
from events.credentials import File, InvalidCredentials, expiry, read
from events.server import EmbeddedServer
from tests.waiting import until

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3


class Key:
    """An nkey: Ed25519, written in base 32 with its kind before it and a checksum behind it."""

    def __init__(self, kind: int, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.seed = _written(bytes([0x90 | kind >> 5, (kind & 0x1F) << 3]) + seed)
        self.public = _written(bytes([kind]) + self._key.public_key().public_bytes_raw())

    def jwt(self, subject: str, kind: str, until_s: int = 0, **claims: object) -> str:
        said: dict[str, object] = {"iat": 1_700_000_000, "iss": self.public, "sub": subject, "name": kind, "jti": ""}
        said |= {"exp": until_s} if until_s else {}
        said["jti"] = hashlib.sha256(json.dumps(said).encode()).hexdigest()
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_part(head)}.{_part({**said, 'nats': {'type': kind, 'version': 2, **claims}})}"
        return f"{text}.{_base64(self._key.sign(text.encode()))}"


def _written(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _part(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


operator, user = Key(OPERATOR, b"o" * 32), Key(USER, b"u" * 32)
account, system = Key(ACCOUNT, b"a" * 32), Key(ACCOUNT, b"s" * 32)
LIMITS = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}


def creds(jwt: str, seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def sign(file: Path, until_s: int = 0, by: Key = account) -> None:
    """The user may come, with this file, until then; 0: for good."""
    file.write_text(creds(by.jwt(user.public, "user", until_s, subs=-1, data=-1, payload=-1), user.seed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "user.creds"
    sign(path)
    return path


@pytest.fixture
def of_accounts(tmp_path: Path) -> Iterator[EmbeddedServer]:
    accounts = {key.public: operator.jwt(key.public, "account", limits=LIMITS) for key in (account, system)}
    extra = (
        f"operator: {operator.jwt(operator.public, 'operator')}\nsystem_account: {system.public}\n"
        f"resolver: MEMORY\nresolver_preload: {json.dumps(accounts)}\n"
    )
    with EmbeddedServer(tmp_path / "nats", extra=extra) as server:
        yield server


async def test_credentials_that_are_given_go_before_those_in_the_url(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, extra='authorization { user: binder, password: "one" }') as server:
        connection = Connection(server.url.replace("//", "//planner:two@"))
        await connection.connect(user="binder", password="one")
        try:
            await connection.ask("$JS.API.INFO")
        finally:
            await connection.close()


async def test_a_server_of_accounts_takes_the_user(file: Path, of_accounts: EmbeddedServer) -> None:
    """As it was: the package that nats-py signs with was not installed, and every start ended with a traceback."""
    connection = await Connection(of_accounts.url).connect(user_credentials=str(file))
    try:
        heard = await connection.client.subscribe("greetings")
        await connection.client.publish("greetings", b"hello")
        assert (await heard.next_msg(30)).data == b"hello"
    finally:
        await connection.close()


async def test_whose_time_is_over_comes_back_with_what_the_file_says_then(
    file: Path, of_accounts: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: the client closed for good, and the service ended for a connection that was closed.

    The server says why, which TCP may lose: where it closed what it had not read yet, the connection is reset.
    """
    sign(file, until_s=int(time.time()) + 4)
    connection = await Connection(of_accounts.url).connect(user_credentials=str(file))
    sign(file)
    try:
        await until(lambda: connection.generation, "the connection with the renewed file")
        await connection.client.flush()
    finally:
        await connection.close()
    assert "user authentication expired" in caplog.text or "Connection reset by peer" in caplog.text


@pytest.mark.parametrize(
    ("until_s", "said"), [(1_700_000_060, ", whose JWT expires at 2023-11-14T22:14:20Z"), (1 << 60, ""), (0, "")]
)
async def test_who_is_refused_is_told_which_file_it_was_and_when_that_ends(
    until_s: int, said: str, file: Path, of_accounts: EmbeddedServer
) -> None:
    """As it was: "the credentials of this user", whatever was wrong with whichever file."""
    sign(file, until_s, by=user)  # which is no account
    with pytest.raises(Denied) as denied:
        await Connection(of_accounts.url).connect(user_credentials=str(file))
    assert str(denied.value).endswith(f"the NATS server refused the credentials of the user of {file}{said}")


@pytest.mark.parametrize("jwt", ["a.b.c", "abc", "a.bm90IGpzb24.c", "a.W10.c"])
def test_of_what_is_no_jwt_nobody_says_when_it_ends(jwt: str, file: Path) -> None:
    file.write_text(creds(jwt, user.seed))
    assert expiry(str(file)) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "expected a .creds file of NATS, with a user's JWT and the seed of his key"),
        (creds("a.b.c", ""), "expected a .creds file of NATS"),
        (creds("", user.seed), "expected a .creds file of NATS"),
        (creds("a.b.c", "SU?"), "the seed is damaged, or not a user's"),
        (creds("a.b.c", user.seed[:-1]), "the seed is damaged"),
        (creds("a.b.c", user.seed.replace("OV", "OW")), "the seed is damaged"),
        (creds("a.b.c", account.seed), "not a user's"),
    ],
)
async def test_what_is_no_credentials_file_is_named_before_anything_is_sent(
    text: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "user.creds"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidCredentials, match=f"{file}: .*{said}"):
        await Connection("nats://127.0.0.1:1").connect(user_credentials=str(file))


def test_a_file_that_is_renewed_counts_from_the_next_connection_on(file: Path) -> None:
    """One that is gone, or half written, counts as it was: the client never stops reconnecting."""
    asked = File(str(file))
    first, jwt = asked.sign("nonce"), asked.jwt()
    renewed = Key(USER, b"n" * 32)
    file.write_text(creds("a.new.one", renewed.seed))
    second = asked.sign("nonce")
    assert second != first
    assert (asked.jwt(), jwt != b"a.new.one") == (b"a.new.one", True)
    file.write_text(creds("a.newer.one", ""))
    assert (asked.sign("nonce"), asked.jwt()) == (second, b"a.new.one")
    file.unlink()
    assert (asked.sign("nonce"), asked.jwt()) == (second, b"a.new.one")


def test_the_seed_is_read_as_nats_writes_it(file: Path) -> None:
    """The pair of NATS' own documentation of nkeys."""
    file.write_text(creds("a.b.c", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"))
    public = Key(USER, read(str(file)).seed).public
    assert public == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
