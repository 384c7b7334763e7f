"""R18, of a cluster that is restored to an earlier moment: what had ended there, and is not kept, may run again.

The text knows no backups. Only lists tell that a cluster was restored. One that shows a run which an earlier list showed
ended does, as nothing else undoes an end; whose it is says its marker. It is stopped, and its job settles anew. The
winner's own is left alone, as there is no second one, and so is what an operator gave up (R21).
"""

from __future__ import annotations

from services.federator.backends import TERMINAL, UNKNOWN, Run
from services.federator.records import ENDED, Job, Place


def is_unwanted(job: Job, place: Place) -> bool:
    """Whether nothing of it may run any more."""
    return place.phase == ENDED and not place.given_up and place.cluster != job.kept


def runs_again(place: Place, run: Run) -> bool:
    """What is held runs nothing: it is cleared, as is what came late."""
    return run.uid == place.uid and not run.held and run.state != UNKNOWN and run.state not in TERMINAL
