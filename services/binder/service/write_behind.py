"""What users read: conditions of pods that wait or cannot be read, Kubernetes events, the status of PodGroups,
annotations of timed-out pods.

A commit only notes whom it may concern, by the table `NOTICED`; what is written is derived from the state when its turn
comes (`rounds`), so a change that was overtaken costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import events as ev
from events import dialects
from events.envelope import Commit
from services.binder.binding import REFUSALS
from services.binder.report import failed_binding, rejected, scheduled
from services.binder.service.conditions import Conditions
from services.binder.service.kubernetes_events import KubernetesEvents
from services.binder.service.pod_groups import PodGroups
from services.binder.service.rejected_pods import RejectedPods
from services.binder.service.rounds import Rate, Rounds
from services.binder.service.timeout_marks import TimeoutMarks
from services.decider import Decider
from services.kubernetes.client import Client


class Rates(NamedTuple):
    """Bounds on what is written behind: PodScheduled conditions, Kubernetes events, status of PodGroups, annotations of
    timed-out pods."""

    conditions_per_s: float = 15.0
    events_per_s: float = 50.0
    groups_per_s: float = 20.0
    marks_per_s: float = 50.0


DEFAULT_RATES = Rates()
SLICE_REJECTED = 2_048
"""Rejections that a start looks at between two yields: some 15 ms."""


class WriteBehind:
    """Five queues, each with rounds of its own: a request without an answer holds up its namespace there alone."""

    def __init__(
        self, decider: Decider, client: Client, *, holder: str, busy: Callable[[], bool], rates: Rates
    ) -> None:
        """`holder` names this process; `busy`: whether bindings wait."""
        self._decider = decider
        self.rounds = Rounds(busy)
        self.pod_groups = PodGroups(decider, client, Rate(rates.groups_per_s))
        self.marks = TimeoutMarks(decider, client, self.rounds, Rate(rates.marks_per_s))
        self.events = KubernetesEvents(client, holder, Rate(rates.events_per_s))
        self.conditions = Conditions(decider, client, self.events, self.rounds, Rate(rates.conditions_per_s))
        self.rejected_pods = RejectedPods(decider, client, self.rounds, self.conditions.rate, self.conditions.doubt)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for queue in (self.pod_groups, self.marks, self.events, self.conditions, self.rejected_pods):
                tasks.create_task(self.rounds.now_and_then(queue))
            await self.rounds.put_back_forever()

    def resume(self) -> Generator[None, None, None]:
        """After a start: whatever users may not have been told yet. In slices; rounds may come in between."""
        yield from self.conditions.resume()
        yield from self.pod_groups.resume()
        self.marks.resume()
        for number, rejection in enumerate(self._decider.state.rejections.values(), 1):
            if number % SLICE_REJECTED == 0:
                yield
            self.rejected_pods.note(rejection)
            self.events.add(rejected(rejection, 0))

    def notice(self, commit: Commit) -> None:
        """Note what a folded commit may have changed for users."""
        for event in commit.events:
            note = NOTICED.get(type(event))
            if note is not None:
                note(self, event, commit.header.time_ns)
        self.pod_groups.note(self._decider.state.regrouped)
        for uid in self._decider.state.moved:
            self._note_member(uid)

    def note_refused(self, event: ev.GroupsRefused, _: int) -> None:
        for key in event.groups:
            self._note_group(key)

    def note_set_aside(self, event: ev.DisagreementDetected, _: int) -> None:
        self._note_group(event.group)

    def note_bound(self, event: ev.PodBound, time_ns: int) -> None:
        self.events.add(scheduled(event, time_ns))
        self.pod_groups.note_pod(event.uid)

    def note_failed_binding(self, event: ev.BindingFailed, _: int) -> None:
        if event.reason in REFUSALS:
            self.tell(event)
            self.conditions.note_refused(event)

    def tell(self, event: ev.BindingFailed) -> None:
        """The pod, what its binding met."""
        self.events.add(failed_binding(event))

    def note_marks(self, event: ev.GangTimedOut | ev.TimeoutMarkRenewed, _: int) -> None:
        self.marks.note(uid for uid, _ in event.pods)

    def note_rejected(self, event: ev.DeclarationRejected, time_ns: int) -> None:
        self.events.add(rejected(event, time_ns))
        self.rejected_pods.note(event)
        self.note_rejection_ended(event, time_ns)

    def note_rejection_ended(self, event: ev.RejectionEnded | ev.DeclarationRejected, _: int) -> None:
        """Pods that wait for a PodGroup are told what is wrong with it."""
        gang = self._decider.state.gangs.get(dialects.gang_declared_by(event.kind, event.namespace, event.name))
        if gang is not None:
            self._note_group(gang.group)

    def note_observed(self, event: ev.PodObserved, _: int) -> None:
        self._note_member(event.uid)

    def note_pod(self, event: ev.PodFinished | ev.PodAssigned | ev.PodTerminating, _: int) -> None:
        self.pod_groups.note_pod(event.uid)

    def note_reported(self, event: ev.ConditionsReported, _: int) -> None:
        """Until here the log had older conditions of these pods: whether they still hold was judged by those."""
        self.conditions.note(uid for uid, _ in event.pods)

    def note_gone(self, event: ev.PodDeleted, _: int) -> None:
        self.conditions.note_gone(event.uid)
        self.marks.note_gone(event.uid)
        self.pod_groups.note_pod(event.uid)

    def note_pod_group(self, event: ev.PodGroupObserved | ev.PodGroupDeleted, _: int) -> None:
        self.pod_groups.note((dialects.gang_key(event.dialect, event.namespace, event.name),))

    def _note_member(self, uid: str) -> None:
        """A pod that comes to those that were refused waits for the same."""
        pod = self._decider.state.pods.get(uid)
        group = self._decider.state.groups.get(pod.group) if pod is not None else None
        if group is not None and group.cohort:
            self.conditions.note((uid,))
        self.pod_groups.note_pod(uid)

    def _note_group(self, key: str) -> None:
        group = self._decider.state.groups.get(key)
        if group is not None:
            self.conditions.note_group(group)
            self.pod_groups.note(group.gangs)


NOTICED: dict[type, Callable[[WriteBehind, Any, int], None]] = {
    ev.GroupsRefused: WriteBehind.note_refused,
    ev.DisagreementDetected: WriteBehind.note_set_aside,
    ev.ConditionsReported: WriteBehind.note_reported,
    ev.PodBound: WriteBehind.note_bound,
    ev.BindingFailed: WriteBehind.note_failed_binding,
    ev.GangTimedOut: WriteBehind.note_marks,
    ev.TimeoutMarkRenewed: WriteBehind.note_marks,
    ev.DeclarationRejected: WriteBehind.note_rejected,
    ev.RejectionEnded: WriteBehind.note_rejection_ended,
    ev.PodObserved: WriteBehind.note_observed,
    ev.PodAssigned: WriteBehind.note_pod,
    ev.PodTerminating: WriteBehind.note_pod,
    ev.PodDeleted: WriteBehind.note_gone,
    ev.PodFinished: WriteBehind.note_pod,
    ev.PodGroupObserved: WriteBehind.note_pod_group,
    ev.PodGroupDeleted: WriteBehind.note_pod_group,
}
"""event → what it may have changed for users; the last argument is the commit's wall time (ns)."""
