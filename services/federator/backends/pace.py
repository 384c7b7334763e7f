"""How often one may ask: the client's own side of a server's limits.

OpenPAI counts in windows that begin when it likes. Whoever never asks more than `most` times in any stretch of the
window's length stays within each of them.
"""

from __future__ import annotations

from collections import deque


class Pace:
    """At most `most` in any `window_ms`; 0: without end. The time is given, in ms of a clock that never goes back."""

    def __init__(self, most: int, window_ms: int) -> None:
        self.most, self.window_ms = most, window_ms
        self._taken: deque[int] = deque()

    def wait_ms(self, now_ms: int, kept: int = 0) -> int:
        """0, or how long until there is room for one more, with `kept` places left for others."""
        while self._taken and self._taken[0] <= now_ms - self.window_ms:
            self._taken.popleft()
        surplus = len(self._taken) - (self.most - kept)
        if not self.most or surplus < 0:
            return 0
        return (
            self._taken[min(surplus, len(self._taken) - 1)] + self.window_ms - now_ms if self._taken else self.window_ms
        )

    def take(self, now_ms: int) -> None:
        if self.most:
            self._taken.append(now_ms)
