"""JetStream's stream behind the object store's bucket, as far as `events.object_store` asks it."""

from __future__ import annotations

import base64
import random
from typing import Any, NamedTuple

from events.connection import NO_MESSAGE_FOUND
from events.consumer import MESSAGE_ID
from tests.simulation.network import Message

ROLLUP = "Nats-Rollup"
NOT_FOUND = {"error": {"code": 404, "err_code": NO_MESSAGE_FOUND, "description": "no message found"}}


class Put(NamedTuple):
    subject: str
    data: bytes


class Bucket:
    """Chunks and meta messages, by sequence."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.exists = False
        self.messages: dict[int, Put] = {}
        self._end = 0
        self._ids: dict[str, int] = {}

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the server's API says."""
        match verb:
            case "STREAM.CREATE":
                self.exists = True
                return {}
            case "STREAM.MSG.GET":
                return self._next(asked["seq"], asked["next_by_subj"])
            case "STREAM.INFO":
                found: dict[str, int] = {}
                for put in self.messages.values():
                    if _matches(asked["subjects_filter"], put.subject):
                        found[put.subject] = found.get(put.subject, 0) + 1
                return {"state": {"subjects": found}}
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
        self.messages[self._end] = Put(message.subject, message.data)
        if identity:
            self._ids[identity] = self._end
        return {"stream": self.stream, "seq": self._end}

    def damage(self, source: random.Random) -> bool:
        """A bit of the newest snapshot's bytes changes; whether there is one to whose loss another is left."""
        chunks = [sequence for sequence, put in self.messages.items() if ".C." in put.subject]
        if len(chunks) < 2:
            return False
        subject, data = self.messages[chunks[-1]]
        place = source.randrange(len(data))
        changed = data[:place] + bytes([data[place] ^ 1 << source.randrange(8)]) + data[place + 1 :]
        self.messages[chunks[-1]] = Put(subject, changed)
        return True

    def _next(self, sequence: int, pattern: str) -> dict[str, Any]:
        for place, put in self.messages.items():
            if place >= sequence and _matches(pattern, put.subject):
                data = base64.b64encode(put.data).decode()
                return {"message": {"subject": put.subject, "seq": place, "data": data}}
        return NOT_FOUND

    def _purge(self, pattern: str) -> int:
        gone = [sequence for sequence, put in self.messages.items() if _matches(pattern, put.subject)]
        for sequence in gone:
            del self.messages[sequence]
        return len(gone)


def _matches(pattern: str, subject: str) -> bool:
    """Whether a subject fits one in which `*` stands for a token."""
    expected, found = pattern.split("."), subject.split(".")
    return len(expected) == len(found) and all(one in ("*", other) for one, other in zip(expected, found, strict=True))
