"""Jobs and their places as a log tells them to somebody who has neither the federator's fold nor its rules."""

from __future__ import annotations

from typing import Any

import events as ev
from services.federator.records import account_of

MS = 1_000_000


class Seen:
    """A place, as the log tells it."""

    def __init__(self, contender: Any) -> None:
        self.cluster: str = contender.cluster
        self.account = account_of(contender.user, contender.uri)
        self.priority: int = contender.priority_milli
        self.names: list[str] = [contender.name]
        self.wanted = True
        self.over = False
        self.accepted = False
        self.nameless = False
        """Whether its name is somebody else's, and no other is submitted yet: nothing of it can be there."""
        self.uid = ""
        self.doubted = False
        """Whether an attempt besides the accepted one may be on its way."""
        self.given_up = False
        self.rashly = False
        """Whether somebody gave it up who had not looked."""
        self.remains = ""
        """The UID of what is to be cleared there."""
        self.run = ""
        self.attempt = 0
        self.started_ns = -1
        self.earned_ns = 0


class Told:
    """A job, as the log tells it."""

    def __init__(self, event: ev.JobFederated) -> None:
        self.uid = event.job
        self.guard_ns = event.guard_ms * MS
        self.scale_ms = event.scale_ms
        self.places = {contender.cluster: Seen(contender) for contender in event.clusters}
        self.holder = ""
        self.held_ns = 0
        self.decided = ""
        self.winner = ""
        self.cancelled = False
        self.settled = False
        self.forgotten = False

    def wanted(self) -> list[Seen]:
        return [place for place in self.places.values() if place.wanted and not place.over]

    def is_over(self) -> bool:
        """R22: whether it is settled, the winner ended, and nothing is to be cleared, or was given up. One of before
        there were origins never is."""
        places = self.places.values()
        return (
            self.settled
            and "." in self.uid
            and all(place.over and not place.remains and not place.given_up for place in places)
        )

    def extra_time_ends_ns(self, place: Seen) -> int:
        points_milli = place.priority - self.places[self.holder].priority
        return self.held_ns + points_milli * self.scale_ms * MS // 1_000
