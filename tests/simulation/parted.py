"""One of three servers is cut off from the other two, with some of the clients.

It led the log and the leases, and goes on answering what they were at that moment until it finds out that it leads nobody
any more. It stores nothing, makes no consumer, and what it had consumers for gets no further. The others go on without
it. Who connects meanwhile may come to either side, and who leaves it comes to the others; once the servers are together
again, who stayed reads on, or has to connect anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.bucket import NOT_FOUND

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.network import Link, Message

LEADS_S = 10.0
"""How long it takes to find out."""
ARE_THERE = 1 / 3
"""Of those who are connected, or connect."""


class Parted:
    """The server that is alone, and what it knows."""

    def __init__(self, broker: Broker) -> None:
        self.first, self.end = broker.first, len(broker.stored)
        self._broker = broker
        self._last, self._words = dict(broker.last), dict(broker.leases.last)
        self._leads_until_s = broker.loop.now_s + LEADS_S
        self._links = {link: None for link in broker.links if self._is_drawn()}
        self._left: set[Link] = set()
        """Who does not come back."""

    def _is_drawn(self) -> bool:
        return self._broker.source.random() < ARE_THERE

    def __contains__(self, link: object) -> bool:
        return link in self._links

    def comes(self, link: Link) -> None:
        """It connects, to this server or another."""
        if link not in self._left and self._is_drawn():
            self._links[link] = None

    def goes(self, link: Link, *, for_good: bool = False) -> None:
        self._links.pop(link, None)
        if for_good:
            self._left.add(link)

    def received(self, link: Link, message: Message, verb: str, stream: str) -> None:
        """What is asked of JetStream: it answers what a leader knows by itself."""
        if self._broker.loop.now_s < self._leads_until_s and (told := self._told(message, verb, stream)) is not None:
            self._broker.answer(link, message, told)

    def _told(self, message: Message, verb: str, stream: str) -> dict[str, Any] | None:
        """None: nothing."""
        asked = msgspec.json.decode(message.data) if message.data else {}
        match verb, stream:
            case "STREAM.INFO", self._broker.stream:
                return {"state": {"first_seq": self.first, "last_seq": self.end}}
            case "STREAM.MSG.GET", self._broker.stream:
                sequence = asked.get("seq") or self._last.get(asked["last_by_subj"], 0)
                return self._broker.message(sequence) if self.first <= sequence <= self.end else NOT_FOUND
            case "STREAM.MSG.GET", self._broker.leases.name:
                word = self._words.get(asked["last_by_subj"])
                return NOT_FOUND if word is None else word.told()
        return None

    def together(self) -> None:
        """Who stayed reads on, or connects anew."""
        for link in [*self._links]:
            if self._broker.source.random() < 0.5:
                link.break_until(self._broker.loop.now_s)
