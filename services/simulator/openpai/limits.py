"""How many requests a server takes in a time: fixed windows that begin anew for everybody at once (express-rate-limit 5).

A request that is refused counts too, and ``Retry-After`` is the length of the window, however much of it is over.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """At most `most` in `length_ms`, for each key; 0: without end."""

    most: int
    length_ms: int
    begun_ms: int = 0
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def take(self, key: str, now_ms: int) -> bool:
        """Whether there was room for one more."""
        if now_ms - self.begun_ms >= self.length_ms or now_ms < self.begun_ms:
            self.begun_ms = now_ms
            self.counts.clear()
        self.counts[key] += 1
        return not self.most or self.counts[key] <= self.most

    def headers(self, key: str) -> dict[str, str]:
        ends_s = -(-(self.begun_ms + self.length_ms) // 1000)
        left = max(0, self.most - self.counts[key])
        return {
            "X-RateLimit-Limit": str(self.most),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Reset": str(ends_s),
        }

    @property
    def retry_after_s(self) -> int:
        return -(-self.length_ms // 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's defaults; 0: no limit."""

    requests_per_minute: int = 600
    """For each address."""
    lists_per_minute: int = 60
    """For each user, as are submissions."""
    submissions_per_hour: int = 60
