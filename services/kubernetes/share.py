"""How many requests may be on their way at a time, learned from what the API server turns away.

API Priority and Fairness gives an account a share of the API server, and answers 429 at once to what is beyond it. Who
then asks for all of it again, when the server asks him to, is turned away again. So such an answer halves how many are
on their way, and once as many were answered otherwise there is one more: as TCP avoids congestion (RFC 5681, 3.1). A
webhook's 429, or a disruption budget's, says nothing of the share.

Turning away takes a server much less time than doing what it is asked. So who is turned away keeps his place for a
moment: otherwise, while one request is served, a dozen others would come and go in the place beside it.
"""

from __future__ import annotations

import asyncio
from collections import deque

LEAST = 4
"""So many always: a webhook that takes its time before it answers one must not hold up all others."""
KEPT_S = 0.1
"""How long who was turned away keeps his place."""
TURNED_AWAY = b"Too many requests"
"""So begins a 429 of the API server's own, which is plain text (apiserver, `server/filters`); others are a `Status`."""


class Share:
    """Each request `enter`s before it is sent, and has to `leave`. In between it tells what it was answered, if it was:
    that it was `turned_away`, or anything else. Who waits is let in by turn."""

    def __init__(self, most: int) -> None:
        self._most = self._at_once = float(most)
        self._on_their_way = self._cuts = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> int:
        """Waits until one more may be on its way. `turned_away` is to be told what this returns."""
        if not self._waiting and self._on_their_way < int(self._at_once):
            self._on_their_way += 1
            return self._cuts
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was let in just then
                self._on_their_way -= 1
                self._let_in()
            raise
        return self._cuts

    def turned_away(self, entered: int) -> None:
        """Of those that were on their way together, the first that this happens to speaks for all."""
        if entered == self._cuts:
            self._cuts += 1
            self._at_once = max(LEAST, min(self._at_once, self._on_their_way) / 2)

    def answered(self) -> None:
        self._at_once = min(self._most, self._at_once + 1 / self._at_once)

    def leave(self) -> None:
        self._on_their_way -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._on_their_way < int(self._at_once):
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled
                self._on_their_way += 1
                turn.set_result(None)
