"""JetStream's stream behind the object store's bucket, as far as `events.object_store` asks it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from events.answers import NO_MESSAGE_FOUND
from events.consumer import MESSAGE_ID
from events.object_store import DIGEST, STATE, Object
from events.object_store import _digest as digest_of
from tests.simulation.network import Message

ROLLUP = "Nats-Rollup"
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
NOT_FOUND = {"error": {"code": 404, "err_code": NO_MESSAGE_FOUND, "description": "no message found"}}


class Put(NamedTuple):
    subject: str
    data: bytes
    at_s: float


class Bucket:
    """Chunks and meta messages, by sequence."""

    def __init__(self, stream: str, now_s: Callable[[], float]) -> None:
        """`now_s`: the server's clock, from some beginning."""
        self.stream = stream
        self._now_s = now_s
        self.exists = False
        self.denied: list[int] = []
        """Sequences of snapshots that are whole, and of which the log says otherwise."""
        self.messages: dict[int, Put] = {}
        self.purged: Callable[[], None] = lambda: None
        """Called when something went."""
        self._end = 0
        self._ids: dict[str, int] = {}

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the server's API says."""
        match verb:
            case "STREAM.CREATE":
                self.exists = True
                return {}
            case "STREAM.MSG.GET":
                if "last_by_subj" in asked:
                    return self._last(asked["last_by_subj"])
                return self._next(asked["seq"], asked["next_by_subj"])
            case "STREAM.INFO":
                found: dict[str, int] = {}
                for put in self.messages.values():
                    if _matches(asked["subjects_filter"], put.subject):
                        found[put.subject] = found.get(put.subject, 0) + 1
                return {"state": {"subjects": found}, "ts": _time(self._now_s())}
            case "STREAM.PURGE":
                return {"success": True, "purged": self._purge(asked["filter"])}
        raise NotImplementedError(verb)

    def put(self, message: Message) -> dict[str, Any]:
        """Store it, once for its id; the acknowledgement."""
        headers = message.headers or {}
        identity = headers.get(MESSAGE_ID, "")
        if identity in self._ids:
            return {"stream": self.stream, "seq": self._ids[identity], "duplicate": True}
        if headers.get(ROLLUP) == "sub":
            self._purge(message.subject)
        self._end += 1
        self.messages[self._end] = Put(message.subject, message.data, self._now_s())
        if identity:
            self._ids[identity] = self._end
        return {"stream": self.stream, "seq": self._end}

    def restore(self, messages: dict[int, Put], denied: list[int]) -> None:
        """From a backup."""
        self.messages, self.denied = dict(messages), list(denied)
        self._end = max(self.messages, default=0)
        self._ids.clear()

    def names(self, messages: dict[int, Put] | None = None) -> set[str]:
        """Of objects that are there as a whole, or would be of these messages."""
        data: dict[str, bytes] = {}
        for subject, part, _ in (self.messages if messages is None else messages).values():
            data[subject] = data.get(subject, b"") + part
        prefix = f"$O.{self.stream.removeprefix('OBJ_')}"
        metas = [msgspec.json.decode(found, type=Object) for subject, found in data.items() if ".M." in subject]
        return {meta.name for meta in metas if digest_of(data.get(f"{prefix}.C.{meta.nuid}", b"")) == meta.digest}

    def damage(self, source: random.Random, least: int = 2) -> bool:
        """A bit of the newest snapshot's bytes changes, where `least` are there; whether it did."""
        chunks = [sequence for sequence, put in self.messages.items() if ".C." in put.subject]
        if len(chunks) < least:
            return False
        data = self.messages[chunks[-1]].data
        place = source.randrange(len(data))
        changed = data[:place] + bytes([data[place] ^ 1 << source.randrange(8)]) + data[place + 1 :]
        self.messages[chunks[-1]] = self.messages[chunks[-1]]._replace(data=changed)
        return True

    def alter(self, source: random.Random, confirmed: Collection[int]) -> bool:
        """The newest snapshot is another state: one that its name denies, that the log denies (where it confirms the
        snapshot), or that a later version made. Whether there is one to whose loss another is left."""
        metas = [sequence for sequence, put in self.messages.items() if ".M." in put.subject]
        if len(metas) < 2:
            return False
        named = msgspec.json.decode(self.messages[metas[-1]].data, type=Object)
        (chunk,) = [place for place, put in self.messages.items() if put.subject.endswith(f".C.{named.nuid}")]
        if digest_of(self.messages[chunk].data) != named.digest:
            return False  # it is damaged already
        content = gzip.decompress(self.messages[chunk].data)
        how = source.choice(("its name", "the log", "its version")) if int(named.name) in confirmed else "its name"
        if how == "its version":
            content = re.sub(rb"^state_version .*\n", b"", content, flags=re.M) + b"state_version 9\n"
            named.headers[STATE] = ["9"]
        else:
            content = re.sub(rb"^set_aside (.*)$", rb"set_aside 1\1", content, flags=re.M)
        if how == "the log":
            self.denied.append(int(named.name))
        if how != "its name":
            named.headers[DIGEST] = [hashlib.sha256(content).hexdigest()]
        data = gzip.compress(content, mtime=0)
        named.size, named.digest = len(data), digest_of(data)
        self.messages[chunk] = self.messages[chunk]._replace(data=data)
        self.messages[metas[-1]] = self.messages[metas[-1]]._replace(data=msgspec.json.encode(named))
        return True

    def forget_altered(self, said: Collection[int]) -> None:
        """Those that the log denied, and that it says nothing of now: nobody could know."""
        for sequence in [one for one in self.denied if one not in said]:
            self.denied.remove(sequence)
            for put in [put for put in self.messages.values() if ".M." in put.subject]:
                named = msgspec.json.decode(put.data, type=Object)
                if int(named.name) == sequence:
                    self._purge(put.subject)
                    self._purge(f"$O.{self.stream.removeprefix('OBJ_')}.C.{named.nuid}")

    def _next(self, sequence: int, pattern: str) -> dict[str, Any]:
        for place, put in self.messages.items():
            if place >= sequence and _matches(pattern, put.subject):
                return _told(place, put)
        return NOT_FOUND

    def _last(self, subject: str) -> dict[str, Any]:
        for place, put in reversed(self.messages.items()):
            if put.subject == subject:
                return _told(place, put)
        return NOT_FOUND

    def _purge(self, pattern: str) -> int:
        gone = [sequence for sequence, put in self.messages.items() if _matches(pattern, put.subject)]
        for sequence in gone:
            del self.messages[sequence]
        if gone:
            self.purged()
        return len(gone)


def _told(place: int, put: Put) -> dict[str, Any]:
    """As the server's API gives a message."""
    data = base64.b64encode(put.data).decode()
    return {"message": {"subject": put.subject, "seq": place, "data": data, "time": _time(put.at_s)}}


def _time(at_s: float) -> str:
    return (BEGINNING + timedelta(seconds=at_s)).isoformat()


def _matches(pattern: str, subject: str) -> bool:
    """Whether a subject fits one in which `*` stands for a token."""
    expected, found = pattern.split("."), subject.split(".")
    return len(expected) == len(found) and all(one in ("*", other) for one, other in zip(expected, found, strict=True))
