"""What users and controllers read on a PodGroup, in the words of its own dialect; derived from the state.

Running counts bound pods: a fact for each kubelet's first heartbeat would cost a fifth event in a pod's life (D7). What
else counts is what the controllers of scheduler-plugins, Koordinator and Volcano count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from events import dialects
from services.state import reasons
from services.state.fold import State
from services.state.records import BOUND, FAILED, FINISHED, SUCCEEDED, TERMINATING, Cohort, Gang

ENDED = ("Finished", "Failed", "Completed")
"""Phases of a gang that has ended."""
CONDITIONS = {
    "kubernetes/v1alpha2": "PodGroupScheduled",
    "kubernetes/v1beta1": "PodGroupInitiallyScheduled",
}
"""What each version of Kubernetes' own PodGroups calls its condition; who waits for one looks for its name."""


class Standing(NamedTuple):
    """A gang's members by what became of them, against its minimum."""

    members: int
    running: int
    leaving: int
    """Bound, and being deleted."""
    succeeded: int
    failed: int
    minimum: int
    refused: Cohort | None

    @property
    def half(self) -> bool:
        """Some run, and there is no room for those that are missing."""
        below = self.running + self.succeeded < self.minimum
        return bool(self.running and below and self.refused and reasons.follows(self.refused.reason).no_room)


def standing(state: State, gang: Gang) -> Standing:
    pods = [state.pods[uid] for uid in gang.members]
    statuses = [pod.status for pod in pods]
    running, succeeded, failed = (statuses.count(status) for status in (BOUND, SUCCEEDED, FAILED))
    leaving = sum(pod.status == TERMINATING and bool(pod.node) for pod in pods)
    minimum = gang.declaration.min_member if gang.declaration is not None else 1
    group = state.groups.get(gang.group)
    refused = state.cohorts[group.cohort] if group is not None and group.cohort else None
    return Standing(len(pods), running, leaving, succeeded, failed, minimum, refused)


def phase(state: State, gang: Gang) -> str:
    """The phase in one word; Kubernetes' own PodGroups have none, and get coscheduling's here."""
    return _PHASES.get(dialects.family(gang.dialect), _coscheduling)(standing(state, gang))


def group_status(state: State, gang: Gang) -> dict[str, object]:
    """The status of the PodGroup that declares the gang; empty while there is nothing to say."""
    dialect = state.pod_groups[gang.pod_group].dialect
    found = standing(state, gang)
    if dialects.family(dialect) == "kubernetes":
        return _condition(CONDITIONS[dialect], gang, found.refused)
    batch = dialects.family(dialect) in _PHASES
    running = found.running if batch else found.running + found.leaving
    status: dict[str, object] = {
        "phase": phase(state, gang),
        "running": running,
        "succeeded": found.succeeded,
        "failed": found.failed,
    }
    if dialects.api_group(dialect) == "scheduling.sigs.k8s.io":
        status["scheduled"] = running + found.succeeded
    return status


def where_ended(state: State, gang: Gang, status: dict[str, object]) -> dict[str, dict[str, object]]:
    """What is written instead of `status` where a phase stands by which the gang has ended: that nothing of it runs. It
    has ended until another pod comes, though its pods are removed, and the log does not say how when they are gone.

    Volcano's controller waits for the phase of a PodGroup of which nothing ever ran: there is nothing to look for.
    """
    waited_for = dialects.family(gang.dialect) in _PHASES and not gang.satisfied
    if "phase" not in status or status["phase"] in ENDED or waited_for:
        return {}
    over = all(state.pods[uid].status in FINISHED for uid in gang.members)
    return {phase: {"running": 0} for phase in ENDED} if over else {}


def _coscheduling(gang: Standing) -> str:
    """Pending, Scheduling, Running, Unknown, Finished, Failed: coscheduling's and Koordinator's.

    Their controllers count who is being deleted until it is gone; and who finished, before who failed.
    """
    placed = gang.running + gang.leaving + gang.succeeded
    if gang.succeeded >= gang.minimum:
        return "Finished"
    if gang.failed and gang.failed + placed >= gang.minimum:
        return "Failed"
    if placed >= gang.minimum:
        return "Running"
    if gang.half:
        return "Unknown"
    return "Scheduling" if gang.members >= gang.minimum else "Pending"


def _volcano(gang: Standing) -> str:
    """Pending, Inqueue, Running, Unknown, Completed: Volcano's and kube-batch's.

    Volcano's controller makes the pods of a Job once its PodGroup is Inqueue. Queues' capacity holds nobody back here, so
    that every PodGroup is, but one that can never be scheduled. Who is being deleted keeps the phase until it is gone.
    """
    ended = gang.succeeded + gang.failed
    placed = gang.running + gang.leaving + ended
    if gang.half:
        return "Unknown"
    if placed >= gang.minimum and placed:
        return "Running" if ended < gang.members else "Completed"
    never = gang.refused is not None and gang.refused.reason in ("GangTooLarge", "SetAside")
    return "Pending" if never else "Inqueue"


_PHASES: dict[str, Callable[[Standing], str]] = {"volcano": _volcano, "kube-batch": _volcano}


def _condition(type_: str, gang: Gang, refused: Cohort | None) -> dict[str, object]:
    """Kubernetes' own. Once it is true it stays so, as kube-scheduler has it."""
    if gang.satisfied:
        said = {"status": "True", "reason": "Scheduled", "message": ""}
    elif refused is not None and reasons.follows(refused.reason).no_room:
        said = {"status": "False", "reason": reasons.UNSCHEDULABLE, "message": refused.message}
    elif refused is not None and refused.reason == "SetAside":
        said = {"status": "False", "reason": "SchedulerError", "message": refused.message}
    else:
        return {}
    return {"conditions": [{"type": type_, **said}]}
