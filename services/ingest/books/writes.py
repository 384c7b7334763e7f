"""The binder's own writes to pods, as the log knew them when this ingest began: no fact need have said so yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from events import objects
from events.dialects import api_group, declared_in
from events.facts import PodObserved
from services.ingest import restored
from services.ingest.dialects.koordinator import DIALECT as KOORDINATOR
from services.ingest.restored import Outcome

if TYPE_CHECKING:
    from services.state.records import Pod as PodRecord


class Writes:
    """By the pods' UIDs."""

    def __init__(self) -> None:
        self.marked: frozenset[str] | None = frozenset()
        """Pods that the binder was annotating when this ingest began; None since everything was listed: it may be any."""
        self.outcomes: dict[str, Outcome] = {}
        """Where they were acknowledged before this ingest began, and no fact had said so; until all is listed."""
        self.written: dict[str, int] = {}
        """The resourceVersion up to which the log knew the pod when this ingest began, be it from a fact or from a write
        of the binder's own. Only pending pods of Koordinator's that the binder is not annotating."""

    def take_over(self, pod: PodRecord, observed: PodObserved) -> None:
        """A pod of the state from which this ingest begins. `observed`: what facts alone say of it."""
        if outcome := restored.outcome(pod, observed):
            self.outcomes[observed.uid] = outcome
        # Not of a pod that the binder is annotating: its user may have acted between two versions that the log has.
        pending = observed.status == "pending" and _is_koordinators(observed)
        if pending and observed.uid not in (self.marked or ()):
            self.written[observed.uid] = objects.version(pod.resource_version)

    def synced(self) -> None:
        """Everything was listed: what the log says of a pod is from now on what was seen of it last."""
        self.marked = None
        self.outcomes.clear()

    def undo(self, uid: str) -> None:
        """What was written to the pod never was."""
        self.written.pop(uid, None)
        self.outcomes.pop(uid, None)

    def may_be_settled(self, pod: PodObserved, known: int) -> bool:
        """Whether a timeout's annotation may have come and gone on this pod of a list while nobody watched, so that the
        binder may wait for a fact without it. `known`: the version up to which it was watched.

        That may be any pod of Koordinator's that is pending or runs. Of the first list, those that run are left out
        unless the binder was annotating them (`marked`): most have changed since the log's last word about them, and all
        of those would be written again.
        """
        if pod.status == "bound" and self.marked is not None:
            annotated = pod.uid in self.marked
        else:
            annotated = pod.status in ("pending", "bound") and _is_koordinators(pod)
        return annotated and objects.version(pod.resource_version) > max(known, self.written.get(pod.uid, 0))


def _is_koordinators(pod: PodObserved) -> bool:
    """Whether the binder may annotate it with Koordinator's timeout. A PodGroup may make its gang Koordinator's, too.

    Its user may have taken the annotation away before anybody saw it (`services.state.timeouts`). Only a fact that is
    newer than the annotation, and without it, says so.
    """
    gang = pod.gang
    return gang is not None and api_group(KOORDINATOR) in declared_in(gang.gang, gang.dialect)
