"""Where the answers to a connection's requests come: one standing inbox, and a token of it for each request.

nats-py's own `request` waits out its timeout even when no answer can come: a publish that the server's permissions deny
is only an asynchronous error, and an answer under way when the connection breaks is lost. Here every request is a
future, and whatever ends the hope of its answer ends the future at once, saying why.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from nats.aio.msg import Msg

from events.answers import Denied, Unanswered
from events.client import Client


class Inbox:
    """`open` it; `expecting` gives each request its reply subject, and the future of what comes there."""

    def __init__(self, url: str) -> None:
        self.deaf: Denied | None = None
        """Why no answer can come any more: the inbox was taken away, and is not given back without a reconnection."""
        self._url = url
        self._prefix = ""
        self._tokens = itertools.count()
        self._expected: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        """token → the subject that was asked, and its answer."""

    async def open(self, client: Client) -> None:
        self._prefix = client.new_inbox()
        await client.subscribe(f"{self._prefix}.*", cb=self._on_answer)

    @contextmanager
    def expecting(self, subject: str) -> Iterator[tuple[str, asyncio.Future[Msg]]]:
        """The reply subject of a request, and its answer to come. Raises Denied where none can come."""
        if self.deaf is not None:
            raise self.deaf
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._expected[token] = subject, answer
        try:
            yield f"{self._prefix}.{token}", answer
        finally:
            del self._expected[token]

    def broke(self) -> None:
        """The connection is gone, and with it what was under way. A new one hears again."""
        self.deaf = None
        for subject, answer in self._waiting():
            answer.set_exception(Unanswered(f"{subject}: the connection to {self._url} broke"))

    def publish_denied(self, denied: str, who: str) -> None:
        """A denied publish is not answered. nats-py lowers the server's words."""
        for subject, answer in self._waiting():
            if subject.lower() == denied:
                answer.set_exception(publish_denied(subject, who))

    def subscription_denied(self, denied: str, who: str) -> None:
        """Nothing is heard any more, if it is this inbox that is denied."""
        if not self._prefix or not denied.startswith(self._prefix.lower()):
            return
        self.deaf = Denied(
            f"{self._url}: the NATS server denies {who} the inbox {self._prefix}: expected a prefix that it may "
            f"subscribe to (MUSTER_NATS_INBOX_PREFIX)"
        )
        for _, answer in self._waiting():
            answer.set_exception(self.deaf)

    def _waiting(self) -> list[tuple[str, asyncio.Future[Msg]]]:
        return [(subject, answer) for subject, answer in self._expected.values() if not answer.done()]

    async def _on_answer(self, message: Msg) -> None:
        _, answer = self._expected.get(message.subject.rpartition(".")[2], (None, None))
        if answer is not None and not answer.done():
            answer.set_result(message)


def publish_denied(subject: str, who: str) -> Denied:
    return Denied(f"{subject}: the NATS server denies {who} publishing to this subject")
