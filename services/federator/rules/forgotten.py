"""R22: jobs that are over, and when they are forgotten.

The text does not mention it; without it the state would grow with every job. Nothing that a job left behind may need
its record: where names are taken for ever, whatever is late fails, forgotten or not; where submissions are held, what
comes late is known by its marker, as the job's UID says that it is this log's (`records.origin_of`). Jobs from before
there were origins stay, and so does what somebody gave up: it may be there after all, and its name is not given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from events import JobForgotten
from services.federator.records import ENDED, NOTHING, SETTLED, Job, origin_of

KEPT = 1_024
"""Jobs that are over and still known: whoever asks how a job ended, or submits it again for want of an answer, does
that sooner."""
MOST = 200
"""Jobs of one commit."""


def is_over(job: Job, origin: str) -> bool:
    """Whether its record is only there to be looked at. `origin`: of this log's UIDs."""
    return (
        job.phase == SETTLED
        and bool(origin)
        and origin_of(job.uid) == origin
        and all(
            place.phase == ENDED and place.remains == NOTHING and not place.given_up for place in job.places.values()
        )
    )


def forgotten(over: Mapping[str, None]) -> Iterator[JobForgotten]:
    """Of those that are over, in the order in which that came to be, all but the last `KEPT`."""
    for uid in islice(over, min(MOST, max(0, len(over) - KEPT))):
        yield JobForgotten(job=uid)
