"""The stream of a cluster's leases in the simulated server: the last word on each subject, which the server forgets when
its time is over, unless its clock is set back. Whoever listens hears each word, also one that is refused; nobody is told
of what is forgotten.

What must hold: over somebody's word that the server has not forgotten another claims the lease only when it was not
renewed for twice its time. Behind a server that was set back sequences come a second time, and with them the right to
say something behind them: then two may hold one lease, until one of them is next refused. The log keeps them apart.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from events import lease
from events.answers import EXPECTED
from events.lease import TTL, Held
from tests.simulation.bucket import NOT_FOUND
from tests.simulation.network import Message
from tests.simulation.witness import Violation

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.network import Link

LIVES = 2
"""Times of its life without a renewal show that a holder is dead."""
WRONG_LAST = {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}
NO_STREAM = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
_decode_held = msgspec.json.Decoder(Held).decode


class Word(NamedTuple):
    sequence: int
    message: Message
    at_s: float

    @property
    def holder(self) -> str:
        """Empty: it was given back."""
        return _decode_held(self.message.data).holder

    @property
    def ttl_s(self) -> int:
        return int((self.message.headers or {})[TTL].removesuffix("s"))

    def told(self) -> dict[str, Any]:
        """As the server answers who asks for it."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in (self.message.headers or {}).items())
        hdrs = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
        data = base64.b64encode(self.message.data).decode()
        return {"message": {"subject": self.message.subject, "seq": self.sequence, "hdrs": hdrs, "data": data}}


class LeaseStream:
    def __init__(self, broker: Broker) -> None:
        self.name = lease.stream(broker.cluster)
        self.exists = False
        self.last: dict[str, Word] = {}
        """By subject."""
        self.sequence = 0
        self._come_again = 0
        """Up to here sequences may come a second time."""
        self.kept_until_s = 0.0
        """Until then nothing is forgotten: the server's clock was ahead, and is set right."""
        self.violated: Callable[[Violation], object] = lambda _: None
        self._broker = broker

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the server's API says."""
        match verb:
            case "STREAM.CREATE":
                self.exists = True
                return {"config": asked, "state": {"first_seq": 0, "last_seq": self.sequence}}
            case "STREAM.MSG.GET":
                word = self.last.get(asked["last_by_subj"])
                return NOT_FOUND if word is None else word.told()
        raise NotImplementedError(verb)

    def heard(self, said_by: Link, message: Message) -> None:
        """By all that listen, whatever becomes of it, on the same side of servers that are parted."""
        alone = self._broker.is_alone(said_by)
        for link in [one for one in self._broker.links if self._broker.is_alone(one) == alone]:
            for pattern in [one for one in link.subscribed if _matches(one, message.subject)]:
                link.deliver(pattern, [message._replace(reply="")])

    def put(self, message: Message) -> dict[str, Any]:
        """Behind what it expects on its subject; the acknowledgement, or the refusal."""
        headers, there = message.headers or {}, self.last.get(message.subject)
        if not self.exists:
            return NO_STREAM
        if int(headers[EXPECTED]) != (0 if there is None else there.sequence):
            return WRONG_LAST
        self.sequence += 1
        word = self.last[message.subject] = Word(self.sequence, message, self._broker.loop.now_s)
        if there is not None:
            self._check(there, word)
        self._broker.loop.after(word.ttl_s, self._is_over, word)
        return {"stream": self.name, "seq": word.sequence}

    def _check(self, before: Word, word: Word) -> None:
        is_anothers = "" not in (before.holder, word.holder) and before.holder != word.holder
        if is_anothers and before.sequence > self._come_again and word.at_s - before.at_s < LIVES * before.ttl_s:
            after_s = word.at_s - before.at_s
            self.violated(Violation(f"{word.holder} claims what {before.holder} renewed {after_s:g} s before"))

    def _is_over(self, word: Word) -> None:
        if self.last.get(word.message.subject) != word:
            return
        if (left_s := self.kept_until_s - self._broker.loop.now_s) > 0:
            self._broker.loop.after(left_s, self._is_over, word)
        else:
            del self.last[word.message.subject]

    def forget(self, subject: str) -> bool:
        """Before its time: somebody took it away by hand. Whether there was anything."""
        return self.last.pop(subject, None) is not None

    def delete(self) -> None:
        """By hand: whoever starts next makes it anew."""
        self._come_again = max(self._come_again, self.sequence)
        self.exists, self.sequence = False, 0
        self.last.clear()

    def restore(self, sequence: int) -> None:
        """It ended there in the backup; what it had then is too old by now."""
        self._come_again = max(self._come_again, self.sequence)
        self.sequence = min(self.sequence, sequence)
        self.last.clear()


def _matches(pattern: str, subject: str) -> bool:
    """As NATS matches them, of patterns that end with a wildcard for one part."""
    return pattern == subject or (pattern.endswith(".*") and subject.rpartition(".")[0] == pattern[:-2])
