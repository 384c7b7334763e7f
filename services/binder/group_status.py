"""What users and controllers read on a PodGroup, in the words of its own dialect; derived from the state.

Running counts bound pods: a fact for each kubelet's first heartbeat would cost a fifth event in a pod's life (D7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from events import dialects
from services.state import reasons
from services.state.fold import State
from services.state.records import BOUND, FAILED, SUCCEEDED, Cohort, Gang


class Standing(NamedTuple):
    """A gang's members by what became of them, against its minimum."""

    members: int
    running: int
    succeeded: int
    failed: int
    minimum: int
    refused: Cohort | None

    @property
    def started(self) -> bool:
        return self.running + self.succeeded >= self.minimum

    @property
    def half(self) -> bool:
        """Some run, and there is no room for those that are missing."""
        return bool(self.running and not self.started and self.refused and reasons.follows(self.refused.reason).no_room)


def standing(state: State, gang: Gang) -> Standing:
    statuses = [state.pods[uid].status for uid in gang.members]
    running, succeeded, failed = (statuses.count(status) for status in (BOUND, SUCCEEDED, FAILED))
    minimum = gang.declaration.min_member if gang.declaration is not None else 1
    group = state.groups.get(gang.group)
    refused = state.cohorts[group.cohort] if group is not None and group.cohort else None
    return Standing(len(statuses), running, succeeded, failed, minimum, refused)


def phase(state: State, gang: Gang) -> str:
    """The phase in one word; Kubernetes' own PodGroups have none, and get coscheduling's here."""
    return _PHASES.get(dialects.family(gang.dialect), _coscheduling)(standing(state, gang))


def group_status(state: State, gang: Gang) -> dict[str, object]:
    """The status of the PodGroup that declares the gang; empty while there is nothing to say."""
    dialect = state.pod_groups[gang.pod_group].dialect
    found = standing(state, gang)
    if dialects.family(dialect) == "kubernetes":
        return _condition(gang, found.refused)
    status: dict[str, object] = {
        "phase": phase(state, gang),
        "running": found.running,
        "succeeded": found.succeeded,
        "failed": found.failed,
    }
    if dialects.api_group(dialect) == "scheduling.sigs.k8s.io":
        status["scheduled"] = found.running + found.succeeded
    return status


def _coscheduling(gang: Standing) -> str:
    """Pending, Scheduling, Running, Unknown, Finished, Failed: coscheduling's and Koordinator's."""
    if gang.failed and gang.failed + gang.running + gang.succeeded >= gang.minimum:
        return "Failed"
    if gang.succeeded >= gang.minimum:
        return "Finished"
    if gang.started:
        return "Running"
    if gang.half:
        return "Unknown"
    return "Scheduling" if gang.members >= gang.minimum else "Pending"


def _volcano(gang: Standing) -> str:
    """Pending, Inqueue, Running, Unknown, Completed: Volcano's and kube-batch's.

    Volcano's controller makes the pods of a Job once its PodGroup is Inqueue. Queues' capacity holds nobody back here, so
    that every PodGroup is, but one that can never be scheduled.
    """
    ended = gang.succeeded + gang.failed
    if gang.running + ended >= gang.minimum and gang.running + ended:
        return "Running" if ended < gang.members else "Completed"
    if gang.half:
        return "Unknown"
    never = gang.refused is not None and gang.refused.reason in ("GangTooLarge", "SetAside")
    return "Pending" if never else "Inqueue"


_PHASES: dict[str, Callable[[Standing], str]] = {"volcano": _volcano, "kube-batch": _volcano}


def _condition(gang: Gang, refused: Cohort | None) -> dict[str, object]:
    """Kubernetes' own: the condition PodGroupScheduled. Once it is true it stays so, as kube-scheduler has it."""
    if gang.satisfied:
        said = {"status": "True", "reason": "Scheduled", "message": ""}
    elif refused is not None and reasons.follows(refused.reason).no_room:
        said = {"status": "False", "reason": reasons.UNSCHEDULABLE, "message": refused.message}
    elif refused is not None and refused.reason == "SetAside":
        said = {"status": "False", "reason": "SchedulerError", "message": refused.message}
    else:
        return {}
    return {"conditions": [{"type": "PodGroupScheduled", **said}]}
