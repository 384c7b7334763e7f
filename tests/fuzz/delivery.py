"""What a NATS server delivers: what it takes from whoever may publish, our client reads, and what comes behind it."""

from __future__ import annotations

import asyncio

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import Parser

from events.client import Client

INBOX = 7
AT_ONCE_BYTES = 11
NO_WORD = b" \t\r\n"
"""A server's client cannot publish on these."""


class Reading(Client):
    """A connection of which nothing but its reader is there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ps, self.stats = Parser(self), {"in_msgs": 0, "in_bytes": 0}  # type: ignore[no-untyped-call]
        self._subs = {INBOX: Subscription(self, INBOX, "inbox")}
        self.came: asyncio.Queue[Msg] = asyncio.Queue()
        self._subs[INBOX]._pending_queue = self.came


def check(data: bytes) -> None:
    """A subject, a reply and headers out of these bytes, in three messages and with another behind them."""
    subject, _, rest = data.partition(b"\n")
    reply, _, headers = rest.partition(b"\n")
    subject, reply = subject.translate(None, NO_WORD) or b"s", reply.translate(None, NO_WORD) or b"r"
    headers = headers or b"\0"
    sizes = b"%d %d" % (len(headers), len(headers) + 1)
    sent = b"MSG %b 7 %b 1\r\na\r\n" % (subject, reply)
    sent += b"HMSG %b 7 %b %b\r\n%bb\r\n" % (subject, reply, sizes, headers)
    sent += b"HMSG %b 7 %b\r\n%bc\r\n" % (subject, sizes, headers)
    came = asyncio.run(_read(sent + b"MSG last 7 1\r\nd\r\n"))
    assert [message.data for message in came] == [b"a", b"b", b"c", b"d"]
    assert [message.subject for message in came] == [naive(subject)] * 3 + ["last"]
    assert [message.reply for message in came] == [naive(reply)] * 2 + ["", ""]
    assert came[1].headers == came[2].headers


async def _read(sent: bytes) -> list[Msg]:
    reading = Reading()
    for at in range(0, len(sent), AT_ONCE_BYTES):
        await reading._ps.parse(sent[at : at + AT_ONCE_BYTES])  # type: ignore[no-untyped-call]
    return [reading.came.get_nowait() for _ in range(reading.came.qsize())]


def naive(word: bytes) -> str:
    """As Go writes a string as JSON: rune by rune, and a byte that begins none is U+FFFD."""
    text = ""
    while word:
        for size in (1, 2, 3, 4):
            try:
                text, word = text + word[:size].decode(), word[size:]
                break
            except UnicodeDecodeError:
                continue
        else:
            text, word = text + "\ufffd", word[1:]
    return text


def seeds() -> list[bytes]:
    return [
        b"muster.c.binder\n$JS.ACK.muster-c.x.1.2.3.4.5\nNATS/1.0 100 Idle Heartbeat\r\n\r\n",
        b"m.\xff\n\x0b\nABCD",
        b"\xe2\x82A\xf0\x80\x80\x80\n\xed\xa0\x80\nNATS/1.0 503 \xff\r\n\r\n",
    ]
