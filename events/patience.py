"""Patience with a log that does not answer just now: the question is asked again, at random intervals that grow to a
second. Who waits for more than a second is told so once, in the log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from events.answers import Unanswered

TOLD_AFTER_S = 1.0
"""After so long a wait, the log says what for, and until when."""
PATIENCE_S = 30.0
"""How long an append or a read goes on trying before it is Unavailable. `follow` never gives up."""

_logger = logging.getLogger(__name__)
T = TypeVar("T")


def retrying(forever: bool = False) -> AsyncRetrying:
    """Again while there is no answer; the last error is raised as it is. The log says so once."""
    told = False

    def tell(attempt: RetryCallState) -> None:
        nonlocal told
        waited_s = attempt.seconds_since_start or 0.0
        if not told and waited_s >= TOLD_AFTER_S and attempt.outcome is not None:
            told = True
            until = "until it is answered" if forever else f"for {max(0.0, PATIENCE_S - waited_s):.0f} s more"
            _logger.warning("%s; asked again %s", attempt.outcome.exception(), until)

    return AsyncRetrying(
        retry=retry_if_exception_type(Unanswered),
        wait=wait_random_exponential(multiplier=0.02, max=1.0),
        stop=stop_never if forever else stop_after_delay(PATIENCE_S),
        before_sleep=tell,
        reraise=True,
    )


async def patiently(ask: Callable[..., Awaitable[T]], *arguments: Any, forever: bool = False) -> T:
    """What it says, asked again while there is no answer; the last error is raised as it is."""
    try:
        return await ask(*arguments)  # nearly always; tenacity's bookkeeping costs as much as the request
    except Unanswered:
        return await retrying(forever)(ask, *arguments)
