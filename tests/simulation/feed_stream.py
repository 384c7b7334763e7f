"""The stream of a cluster's feed in the simulated server, and what its readers count on: each message is the next that
the log has (`services.feed.core`), whoever publishes it, whenever, and however often.

It forgets its oldest messages. On a single server it is not synced, and loses its last ones with the server's power. What
the log lost when it was set back may stand here all the same, as it was published before: it is behind the log's end, or
of another time than what stands there now.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from events import cloudevents
from events.answers import EXPECTED_LAST
from events.cloudevents import FeedMessage
from events.consumer import MESSAGE_ID
from services.feed import core
from tests.simulation.bucket import NOT_FOUND
from tests.simulation.clock import EPOCH_NS
from tests.simulation.network import Message
from tests.simulation.witness import Violation

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

KEPT = 60
"""Messages; fewer than a history has."""
REMEMBERED_S = 0.1
"""For so long the server knows a message's id."""
MOST_LOST = 8


class FeedStream:
    def __init__(self, broker: Broker, safely: Callable[..., Any]) -> None:
        self.name = cloudevents.stream(broker.cluster)
        self.config: dict[str, Any] | None = None
        """None: there is none."""
        self.messages: list[Message] = []
        """All since it was made; what is forgotten is before `first`."""
        self.published = 0
        self._broker, self._safely = broker, safely
        self._ids: dict[str, tuple[int, float]] = {}

    @property
    def exists(self) -> bool:
        return self.config is not None

    @property
    def first(self) -> int:
        return max(1, len(self.messages) - KEPT + 1)

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What the server's API says."""
        end = len(self.messages)
        match verb:
            case "STREAM.CREATE" | "STREAM.UPDATE":
                self.config = asked
                return {"config": asked, "state": {"first_seq": 0, "last_seq": 0}}
            case "STREAM.INFO":
                return {"config": self.config, "state": {"first_seq": self.first, "last_seq": end}}
            case "STREAM.MSG.GET":
                place = asked.get("seq") or end
                return self._told(place) if self.first <= place <= end else NOT_FOUND
        raise NotImplementedError(verb)

    def put(self, message: Message) -> dict[str, Any]:
        """Behind what it expects there; the acknowledgement, or the refusal."""
        headers = message.headers or {}
        now_s, end = self._broker.loop.now_s, len(self.messages)
        if not self.exists:
            return {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
        known, at_s = self._ids.get(headers[MESSAGE_ID], (0, 0.0))
        if known and now_s - at_s < REMEMBERED_S:
            return {"stream": self.name, "seq": known, "duplicate": True}
        if int(headers.get(EXPECTED_LAST, end)) != end:
            return {"error": {"code": 400, "err_code": 10071, "description": f"wrong last sequence: {end}"}}
        self._safely(self._is_next, message)
        self.messages.append(message)
        self.published += 1
        self._ids[headers[MESSAGE_ID]] = end + 1, now_s
        return {"stream": self.name, "seq": end + 1}

    def loses_power(self, source: random.Random) -> None:
        """A stream that is not replicated."""
        if self.config is not None and self.config.get("persist_mode") == "async":
            self._ids.clear()
            del self.messages[max(self.first, len(self.messages) - source.randrange(MOST_LOST)) :]

    def delete(self) -> None:
        """By its operator, as the feed says (operations.md)."""
        self.config = None
        self.messages.clear()
        self._ids.clear()

    @property
    def place(self) -> core.Place:
        """Of the last message."""
        return _place(self.messages[-1]) if self.messages else core.BEGINNING

    @property
    def behind(self) -> str:
        """What of the log is not published yet, or that the last message is of another one; empty: nothing."""
        nothing: FeedMessage | None = None
        if self.messages and not self._is_of_this_log():
            return "its end is another log's"
        left = next(self._following(self.place), nothing)
        return "" if left is None else left.id

    def _is_next(self, message: Message) -> None:
        """Raises Violation."""
        said = _said(message)
        if self.messages and not self._is_of_this_log():
            raise Violation(f"the feed has {said.id} behind {self.place}, which was another log's")
        for one in self._following(self.place):
            if one == said:
                return
            if not self._may_be_left_out(core.place_of(one.id)[0]):
                raise Violation(f"the feed has {said.id} behind {self.place}, and the log has {one.id} there")
        raise Violation(f"the feed has {said.id} behind {self.place}, and the log has nothing there")

    def _is_of_this_log(self) -> bool:
        """Whether the log has its last message."""
        sequence, last = self.place[0], _said(self.messages[-1])
        there = self._broker.stored[sequence - 1 : sequence]
        return any(last in core.messages(one, self._broker.cluster) for one in there if not core.is_foreign(one))

    def _may_be_left_out(self, sequence: int) -> bool:
        """What was purged before it was published; and where a stream begins, what is of no day that it keeps."""
        is_purged = sequence < self._broker.first
        return is_purged or (not self.messages and core.appended_ns(self._broker.stored[sequence - 1]) < EPOCH_NS)

    def _following(self, place: core.Place) -> Iterator[FeedMessage]:
        """What the log says behind it."""
        for stored in self._broker.stored[max(0, place[0] - 1) :]:
            if not core.is_foreign(stored):
                yield from core.messages(stored, self._broker.cluster, place)

    def _told(self, sequence: int) -> dict[str, Any]:
        one = self.messages[sequence - 1]
        lines = f"NATS/1.0\r\n{MESSAGE_ID}: {(one.headers or {})[MESSAGE_ID]}\r\n\r\n"
        hdrs, data = base64.b64encode(lines.encode()).decode(), base64.b64encode(one.data).decode()
        return {"message": {"subject": one.subject, "seq": sequence, "hdrs": hdrs, "data": data}}


def _said(message: Message) -> FeedMessage:
    return FeedMessage(id=(message.headers or {})[MESSAGE_ID], subject=message.subject, body=message.data)


def _place(message: Message) -> core.Place:
    return core.place_of((message.headers or {})[MESSAGE_ID])
