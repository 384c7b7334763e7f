"""Calls that may hang, such as a kubeconfig's plugin: in a thread that nobody waits for.

The event loop's own executor is joined at the end of a process, which then would not end either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """One call, as often as it is asked for, and one at a time: one that hangs is asked of again, not begun again."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._under_way: asyncio.Future[T] | None = None

    async def __call__(self, within_s: float) -> T:
        """What the call returns or raises. Raises TimeoutError when it takes longer, and leaves it under way; also where
        no thread can be had, as then it would be without end."""
        if self._under_way is None:
            under_way = asyncio.get_running_loop().create_future()
            try:
                Thread(target=self._run, args=(under_way,), daemon=True).start()
            except RuntimeError as error:
                raise TimeoutError from error
            self._under_way = under_way
        under_way = self._under_way
        await asyncio.wait({under_way}, timeout=within_s)
        if not under_way.done():
            raise TimeoutError
        if self._under_way is under_way:  # whoever hears of it first; it may have begun the next one by now
            self._under_way = None
        return under_way.result()

    def _run(self, under_way: asyncio.Future[T]) -> None:
        settle: partial[None]
        try:
            settle = partial(under_way.set_result, self._call())
        except Exception as error:
            settle = partial(under_way.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            under_way.get_loop().call_soon_threadsafe(settle)
