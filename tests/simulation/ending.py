"""How a history ends before its time: with the first thing that must not be, wherever that shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.plan import Outcome


class Ending:
    """`broken` is done with the first violation."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.violation: BaseException | None = None
        self.broken: asyncio.Future[None] = loop.create_future()

    def fail(self, error: BaseException) -> None:
        self.violation = self.violation or error
        if not self.broken.done():
            self.broken.set_result(None)

    def conclude(
        self, main: Coroutine[Any, Any, None], meanwhile: ExitStack, digest: Callable[[], str], outcome: Outcome
    ) -> None:
        """The whole history, and then its digest, for which what holds `meanwhile` does not. Whatever ends it before its
        time is a violation."""
        try:
            self._loop.run_until_complete(main)
            if self.violation is not None:
                raise self.violation
            meanwhile.close()
            outcome.digest = digest()
        except Exception as error:
            self.violation = error
            outcome.violation = f"{type(error).__name__}: {error}"

    def safely(self, what: Callable[..., Any], *about: Any) -> None:
        """What a check finds ends the history, wherever it was called."""
        try:
            what(*about)
        except Exception as error:
            self.fail(error)
