"""What a cluster's own Muster log tells of the federator's runs: which of its events a list of the cluster may show.

Facts alone are heard, which is what ingest saw: a pod got its node, is on its way out, ended, is gone. A pod that waits
is no news. No fact says that its containers began to run, or how a Job ended: an event says when to look, never what
there is to see. A pod is known by its name: ``<Job>-<completion index>-<random>``.
"""

from __future__ import annotations

from collections.abc import Iterable

from events import Event, PodAssigned, PodDeleted, PodFinished, PodObserved, PodTerminating
from services.federator.backends import RUNNING, WAITING, Owner, Watched
from services.federator.backends.gangs import job_names
from services.federator.observing import is_due
from services.federator.records import SUBMITTED, Cluster
from services.federator.state import State

_TELLING = (PodAssigned, PodTerminating, PodFinished, PodDeleted)


def job_of(event: Event, namespace: str) -> str:
    """The Job of whose pod the event tells something that a list may show; empty: none in this namespace."""
    if isinstance(event, _TELLING) or (isinstance(event, PodObserved) and event.status != "pending"):
        return event.name.rsplit("-", 2)[0] if event.namespace == namespace else ""
    return ""


def watched(state: State, cluster: Cluster, federation: str) -> dict[str, str]:
    """The names of Jobs under which events tell of this account's runs → the run's name."""
    found: dict[str, str] = {}
    for uid, alias in state.open[cluster.account]:
        name = state.jobs[uid].places[alias].name
        for job in job_names(name, Owner(federation=federation, job=uid, cluster=alias)):
            found[job] = name
    return found


def runs_of(jobs: Iterable[str], watched: Watched) -> set[str]:
    """The runs that events about these Jobs tell of; not those of strangers."""
    return {name for job in jobs if (name := watched.get(job) or watched.get(job.rpartition("-")[0]))}


def needs_list(state: State, cluster: Cluster, asked_ns: int) -> bool:
    """Whether the cluster itself must be asked, whatever its log says.

    A decision rests on a list: the answer that ends a guard or extra time is one. What is to be stopped is listed until
    its end is seen, and what was just accepted until it is seen at all.
    """
    if not cluster.answers or is_due(state, cluster, asked_ns):
        return True
    places = (state.jobs[uid].places[alias] for uid, alias in state.open[cluster.account])
    return any(place.is_there and (place.phase != SUBMITTED or place.run not in (WAITING, RUNNING)) for place in places)
