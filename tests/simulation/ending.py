"""How a history ends before its time: with the first thing that must not be, wherever that shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Ending:
    """`broken` is done with the first violation."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.violation: BaseException | None = None
        self.broken: asyncio.Future[None] = loop.create_future()

    def fail(self, error: BaseException) -> None:
        self.violation = self.violation or error
        if not self.broken.done():
            self.broken.set_result(None)

    def safely(self, what: Callable[..., Any], *about: Any) -> None:
        """What a check finds ends the history, wherever it was called."""
        try:
            what(*about)
        except Exception as error:
            self.fail(error)
