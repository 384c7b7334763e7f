"""R17: a job's name on a cluster.

    name: mc-job-name-<alias-1>

Clusters keep names for ever, whoever had them, and the text does not say what happens when one is taken. What is there
is somebody else's and is left alone; the job is submitted under the next name.
"""

from __future__ import annotations

from collections.abc import Iterator

from events import Event, StopIntended, SubmissionIntended
from services.federator.records import NAMELESS, Job
from services.federator.specialize import name_on

MOST_NAMES = 3
NO_NAME = "NoName"


def renamed(job: Job) -> Iterator[Event]:
    for place in job.places.values():
        if place.phase == NAMELESS:
            number = place.number + 1
            if number > MOST_NAMES:
                yield StopIntended(job=job.uid, cluster=place.cluster, reason=NO_NAME)
            else:
                name = name_on(job.name, place.cluster, number)
                yield SubmissionIntended(job=job.uid, cluster=place.cluster, name=name, number=number)
