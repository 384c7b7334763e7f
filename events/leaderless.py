"""When a client leaves a NATS server that hears no leader.

Of three servers, one whose storage ran full answers by itself that a stream has no leader, and one that is cut off from
the others that JetStream is unavailable, or nothing at all. Both keep their clients, though the other two servers lead
and store: so the client has to leave. It does when one question has been asked again and again, and no leader answered
it for `LEFT_AFTER_S`. Where nobody leads, as with two of three away, it comes back to where it was.
"""

from __future__ import annotations

LEFT_AFTER_S = 10.0
"""The choice of a leader takes half of it."""
GIVEN_UP_AFTER_S = 30.0
"""A question that is not repeated for so long is not asked any more. The longest lease is renewed every 20 s."""


class Leaderless:
    """The questions that no leader answers. A question is known by its subject."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float]] = {}
        """question → since when nobody answers it, and when that was seen last."""

    def answered(self, question: str) -> None:
        self._asked.pop(question, None)

    def unanswered(self, question: str, asked_s: float, now_s: float) -> bool:
        """Whether it is time to leave the server; the answer was waited for since `asked_s`.

        Leaders in another domain are as far from all servers.
        """
        if question.startswith("$JS.") and not question.startswith("$JS.API."):
            return False
        self._asked = {one: span for one, span in self._asked.items() if asked_s - span[1] < GIVEN_UP_AFTER_S}
        since_s, _ = self._asked.get(question, (now_s, now_s))
        self._asked[question] = since_s, now_s
        return now_s - since_s >= LEFT_AFTER_S

    def forget(self) -> None:
        """It is another server now."""
        self._asked.clear()
