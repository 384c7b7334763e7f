"""What users read: conditions of waiting pods, Kubernetes events, the status of PodGroups, annotations of timed-out pods.

Written while no binding waits and at a bounded rate. What is written is derived from the state when its turn comes, so a
change that was overtaken costs nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import events as ev
from events import dialects
from events.envelope import Commit
from services.binder.group_status import group_status, where_ended
from services.binder.report import Condition, KubernetesEvent, condition, failed_scheduling, rejected, scheduled
from services.decider import Decider
from services.kubernetes.annotation import annotate
from services.kubernetes.client import Client, Regarding, second_time
from services.kubernetes.errors import ApiError, Conflict, NotFound
from services.kubernetes.group_status import GroupStatusWriter
from services.kubernetes.resources import Resource
from services.state import membership, timeouts
from services.state.records import FAILED, PENDING, SUCCEEDED, Pod

logger = logging.getLogger("muster.binder")
ROUND_S = 0.5
"""How often something is written behind."""
OVERDUE_S = 5.0
"""Under lasting load: how often all the same."""
AGAIN_S = 15.0
"""How often what failed, and may be answered otherwise later, is tried again: an API server that restarts takes seconds,
and an object that always fails must not hold up every round."""
REFUSED_TIMES = 20
"""After so many times as long what was refused for good is: a permission may be granted, a definition be replaced."""
EVENTS_KEPT = 20_000
BURST_WRITES = 50.0
SPARE = 64
"""PodGroups that are gone and still remembered, at most, beyond as many as are there."""

Queue = OrderedDict[str, None]
"""Of a plain dict the first key takes ever longer to find when many were taken: 100,000 would cost 5 s."""


class Rates(NamedTuple):
    """Bounds on what is written behind: PodScheduled conditions, Kubernetes events, status of PodGroups, annotations of
    timed-out pods."""

    conditions_per_s: float = 15.0
    events_per_s: float = 50.0
    groups_per_s: float = 20.0
    marks_per_s: float = 50.0


DEFAULT_RATES = Rates()


class Rate:
    """A bounded rate with a burst: what was saved up while nothing was written may be spent at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._saved = BURST_WRITES
        self._since_s = time.monotonic()

    def allowance(self) -> int:
        """Writes that may be made now."""
        now_s = time.monotonic()
        self._saved = min(BURST_WRITES, self._saved + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        return max(0, int(self._saved))

    def spend(self, writes: int) -> None:
        """Count writes that were made; more than were allowed are saved up again first."""
        self._saved -= writes


class Write(NamedTuple):
    """Of one object, to be made when its turn comes: a round that is cancelled before leaves nothing unawaited."""

    make: Callable[[], Coroutine[None, None, int]]
    """Returns how many requests it took."""
    again: Callable[[], None]
    """Puts it back into its queue."""
    lasting: bool = True
    """Whether it is still worth writing minutes after it was refused. A Kubernetes event is not."""


class WriteBehind:
    """What users read. Three queues without duplicates: pods whose condition may have changed, PodGroups whose status may
    have, pods that are to say that their gang timed out; and Kubernetes events, of which a burst may lose the oldest. The
    oldest first, one round of writes at a time in each."""

    def __init__(
        self,
        decider: Decider,
        client: Client,
        *,
        holder: str,
        busy: Callable[[], bool],
        rates: Rates,
    ) -> None:
        self._decider = decider
        self._client = client
        self._holder = holder
        self._busy = busy
        self._waiting_rate = Rate(rates.conditions_per_s)
        self._event_rate = Rate(rates.events_per_s)
        self._gang_rate = Rate(rates.groups_per_s)
        self._mark_rate = Rate(rates.marks_per_s)
        self._pods: Queue = OrderedDict()
        self._gangs: Queue = OrderedDict()
        self._touched: dict[str, None] = {}
        """Gangs whose pods changed since the last round of statuses."""
        self._marks: Queue = OrderedDict()
        self._in_doubt: set[str] = set()
        """Pods whose condition may be another than the log has: a write had no answer, or was a process's before this
        one, and may still land. The next one changes the pod in any case (`lastProbeTime`), so that those fail."""
        self._doubtful: set[str] = set()
        """Marks of which an attempt may still land: it had no answer, or was a process's before this one."""
        self._marked: dict[str, str] = {}
        self._renewed: dict[str, str] = {}
        """UID → resourceVersion: what became of marks since the last report."""
        self._events: deque[KubernetesEvent] = deque(maxlen=EVENTS_KEPT)
        self._told: dict[tuple[str, str], str] = {}
        """(group, what it waits for) → UID of the pod that has the event."""
        self._reported: dict[str, dict[str, str]] = {}
        self._versions: dict[str, str] = {}
        """UID → resourceVersion of pods that were written by somebody else. Their conditions are written with that in the
        next round: a binder that was replaced knows so by then, and does not overwrite what its successor said."""
        self._gang_of: dict[str, str] = {}
        """UID → gang of pods that have not finished: when a pod is gone, the state does not know its gang any more."""
        self._written: dict[str, tuple[str, Mapping[str, object]]] = {}
        """Gang → UID of the PodGroup, and what was written to it last."""
        self._statuses = GroupStatusWriter(client)
        self._failed: deque[Callable[[], None]] = deque(maxlen=EVENTS_KEPT)
        """What puts back into their queues the writes that failed, and may not fail later."""
        self._refused: deque[Callable[[], None]] = deque(maxlen=EVENTS_KEPT)
        """And those that were refused for good, as far as the API server knew."""

    # ---------------------------------------------------------------------------------------------------------- notice

    def notice(self, commit: Commit) -> None:
        """Note what a folded commit may have changed for users, by the table `NOTICED`."""
        for event in commit.events:
            note = NOTICED.get(type(event))
            if note is not None:
                note(self, event, commit.header.time_ns)

    def note_refused(self, event: ev.GroupsRefused, _: int) -> None:
        for key in event.groups:
            self._note_group(key)

    def note_set_aside(self, event: ev.DisagreementDetected, _: int) -> None:
        self._note_group(event.group)

    def note_bound(self, event: ev.PodBound, time_ns: int) -> None:
        self._events.append(scheduled(event, time_ns))
        self._note_gang(event.uid)

    def note_marks(self, event: ev.GangTimedOut | ev.TimeoutMarkRenewed, _: int) -> None:
        self._marks.update(dict.fromkeys(uid for uid, _ in event.pods))

    def note_rejected(self, event: ev.DeclarationRejected, time_ns: int) -> None:
        self._events.append(rejected(event, time_ns))
        self.note_rejection_ended(event, time_ns)

    def note_rejection_ended(self, event: ev.RejectionEnded | ev.DeclarationRejected, _: int) -> None:
        """Pods that wait for a PodGroup are told what is wrong with it."""
        gang = self._decider.state.gangs.get(dialects.gang_declared_by(event.kind, event.namespace, event.name))
        if gang is not None:
            self._note_group(gang.group)

    def note_observed(self, event: ev.PodObserved, _: int) -> None:
        """A pod that comes to those that were refused waits for the same."""
        pod = self._decider.state.pods.get(event.uid)
        group = self._decider.state.groups.get(pod.group) if pod is not None else None
        if group is not None and group.cohort:
            self._pods[event.uid] = None
        self._note_gang(event.uid)

    def note_pod(self, event: ev.PodFinished | ev.PodAssigned | ev.PodTerminating, _: int) -> None:
        self._note_gang(event.uid)

    def note_reported(self, event: ev.ConditionsReported, _: int) -> None:
        """Until here the log had an older word of these pods: whether it is still the right one was judged by that."""
        self._pods.update(dict.fromkeys(uid for uid, _ in event.pods))

    def note_gone(self, event: ev.PodDeleted, _: int) -> None:
        self._in_doubt.discard(event.uid)
        self._doubtful.discard(event.uid)
        self._versions.pop(event.uid, None)
        self._note_gang(event.uid)

    def note_pod_group(self, event: ev.PodGroupObserved | ev.PodGroupDeleted, _: int) -> None:
        self._gangs[dialects.gang_key(event.dialect, event.namespace, event.name)] = None

    def resume(self) -> None:
        """After a start: whatever users may not have been told yet."""
        state = self._decider.state
        for cohort in state.cohorts.values():
            for key in cohort.groups:
                self._pods.update(dict.fromkeys(membership.members(state, state.groups[key])))
        self._in_doubt.update(uid for uid, pod in state.pods.items() if pod.status == PENDING and pod.reported)
        self._gangs.update(dict.fromkeys(state.gangs))
        for uid in state.pods:
            self._note_gang(uid)
        self._marks.update(dict.fromkeys(state.marks))
        self._doubtful.update(state.marks)
        self._events.extend(rejected(event, 0) for event in state.rejections.values())

    def _note_group(self, key: str) -> None:
        state = self._decider.state
        group = state.groups.get(key)
        if group is not None:
            self._pods.update(dict.fromkeys(membership.members(state, group)))
            self._gangs.update(dict.fromkeys(group.gangs))

    def _note_gang(self, uid: str) -> None:
        """The gang of a pod, and the one that it left. Who has finished and is removed still counts as it did."""
        pod = self._decider.state.pods.get(uid)
        gang = pod.gang if pod is not None else ""
        self._touched.update(dict.fromkeys(key for key in (self._gang_of.pop(uid, ""), gang) if key))
        if gang and pod is not None and pod.status not in (SUCCEEDED, FAILED):
            self._gang_of[pod.fact.uid] = gang

    def _note_groups(self) -> None:
        """Gangs whose pods changed, and those of their groups: what one waited for stands in the status of each."""
        state = self._decider.state
        for key in self._touched:
            gang = state.gangs.get(key)
            group = state.groups.get(gang.group) if gang is not None else None
            others = group.gangs if group is not None else state.named.get(key, ())  # that name one which is gone
            self._gangs.update(dict.fromkeys((key, *others)))
        self._touched.clear()

    def doubt_condition(self, uid: str) -> None:
        """Somebody is about to write the pod's condition. What comes of that the log may never hear."""
        self._in_doubt.add(uid)

    # ----------------------------------------------------------------------------------------------------------- write

    async def run(self) -> None:
        """Each queue by itself, so that a request without an answer holds up its own queue alone."""
        async with asyncio.TaskGroup() as queues:
            queues.create_task(self._now_and_then(self._gang_rate, self._due_gangs))
            queues.create_task(self._now_and_then(self._mark_rate, self._due_marks, self._report_marks))
            queues.create_task(self._now_and_then(self._event_rate, self._due_events))
            queues.create_task(self._now_and_then(self._waiting_rate, self._due_conditions, self._report_conditions))
            for rounds in itertools.count(1):
                await asyncio.sleep(AGAIN_S)
                _put_back(self._failed)
                if rounds % REFUSED_TIMES == 0:
                    _put_back(self._refused)

    async def _now_and_then(
        self, rate: Rate, due: Callable[[int], Iterator[Write]], report: Callable[[], None] | None = None
    ) -> None:
        """A round now and then, while no binding waits (under lasting load more seldom): what the queue may write, all
        at once. Many writes in one round cost much less than the same writes one by one: the process wakes up once.
        """
        written_s = time.monotonic()
        while True:
            await asyncio.sleep(ROUND_S)
            now_s = time.monotonic()
            if now_s - written_s > OVERDUE_S or not self._busy():
                written_s = now_s
                await self._round(rate, due)
                if report is not None:
                    report()

    async def _round(self, rate: Rate, due: Callable[[int], Iterator[Write]]) -> None:
        rate.spend(sum(await asyncio.gather(*map(self._write, due(rate.allowance())))))

    def _due_gangs(self, most: int) -> Iterator[Write]:
        """Statuses that differ from what was written last."""
        state = self._decider.state
        if len(self._statuses) > 2 * len(state.pod_groups) + SPARE:
            self._statuses.keep({fact.uid for fact in state.pod_groups.values()})
        self._note_groups()
        while self._gangs and most > 0:
            key, _ = self._gangs.popitem(last=False)
            gang = state.gangs.get(key)
            if gang is None or not gang.pod_group:
                self._written.pop(key, None)
                continue
            status = group_status(state, gang)
            where = where_ended(state, gang, status)
            if status and self._written.get(key) not in [(gang.source, one) for one in (status, *where.values())]:
                most -= 1
                fact = state.pod_groups[gang.pod_group]
                write = partial(self._write_gang, key, fact, status, where)
                yield Write(write, partial(_put, self._gangs, key))

    def _due_marks(self, most: int) -> Iterator[Write]:
        """Intents that are not settled."""
        state = self._decider.state
        while self._marks and most > 0:
            uid, _ = self._marks.popitem(last=False)
            mark, pod = state.marks.get(uid), state.pods.get(uid)
            if mark is not None and pod is not None and not mark.written:
                most -= 1
                write = partial(self._write_mark, uid, pod, mark.resource_version)
                yield Write(write, partial(_put, self._marks, uid))

    def _due_events(self, most: int) -> Iterator[Write]:
        for _ in range(min(most, len(self._events))):
            event = self._events.popleft()
            yield self._of_event(event)

    def _due_conditions(self, most: int) -> Iterator[Write]:
        """Conditions that the log does not know as written yet."""
        while self._pods and most > 0:
            uid, _ = self._pods.popitem(last=False)
            due = condition(self._decider.state, uid, in_doubt=uid in self._in_doubt)
            if due is None:
                self._versions.pop(uid, None)
            else:
                most -= 1
                yield Write(partial(self._write_condition, uid, due), partial(_put, self._pods, uid))

    def _report_conditions(self) -> None:
        """What was written goes into the log together: one event for a reason."""
        for reason, pods in self._reported.items():
            self._decider.report(ev.ConditionsReported(reason=reason, pods=tuple(pods.items())))
        self._reported.clear()

    def _report_marks(self) -> None:
        if self._marked:
            self._decider.report(ev.TimeoutMarked(pods=tuple(self._marked.items())))
        if self._renewed:
            self._decider.report(ev.TimeoutMarkRenewed(pods=tuple(self._renewed.items())))
        self._marked, self._renewed = {}, {}

    async def _write(self, write: Write) -> int:
        """How many requests it took. Its failure costs only itself."""
        try:
            return await write.make()
        except NotFound:
            return 1
        except ApiError as error:
            logger.warning("written behind, and refused: %s", error)
            if error.retryable:
                self._failed.append(write.again)
            elif write.lasting:
                self._refused.append(write.again)
            return 1

    async def _write_condition(self, uid: str, due: Condition) -> int:
        """The condition, and FailedScheduling for one waiting pod of a group and reason."""
        state = self._decider.state
        pod, in_doubt = state.pods.get(uid), uid in self._in_doubt
        if pod is None or condition(state, uid, in_doubt=in_doubt) != due:
            return 0  # a commit was folded since this was chosen
        fact, version = pod.fact, self._versions.pop(uid, pod.resource_version)
        said = {"type": "PodScheduled", "status": "False", "reason": due.reason, "message": due.message}
        if not pod.reported:
            said["lastTransitionTime"] = second_time(time.time_ns())
        if in_doubt:
            said["lastProbeTime"] = second_time(time.time_ns())
        self._in_doubt.add(uid)
        try:
            version = await self._client.patch_pod_status(
                fact.namespace, fact.name, uid, version, {"conditions": [said]}
            )
        except Conflict:
            seen = await self._client.get_pod(fact.namespace, fact.name)
            if seen is not None and seen.metadata.uid == uid and not seen.spec.node_name:
                self._versions[uid] = seen.metadata.resource_version
                self._pods[uid] = None
            return 2
        self._in_doubt.discard(uid)
        self._reported.setdefault(due.said, {})[uid] = version
        if self._has_event(pod.group, due.said):
            return 1
        if len(self._told) > EVENTS_KEPT:
            self._told.clear()
        self._told[pod.group, due.said] = uid
        event = failed_scheduling(fact, due.message)
        return 1 + await self._write(self._of_event(event))

    def _has_event(self, group: str, said: str) -> bool:
        """Whether a pod of the group that still waits has it: with the pod it is gone for users, too."""
        pod = self._decider.state.pods.get(self._told.get((group, said), ""))
        return pod is not None and pod.group == group and pod.status == PENDING

    async def _write_gang(
        self,
        key: str,
        fact: ev.PodGroupObserved,
        status: dict[str, object],
        where: dict[str, dict[str, object]],
    ) -> int:
        resource = Resource.custom(dialects.POD_GROUPS[fact.dialect], "podgroups")
        about = (fact.namespace, fact.name, fact.uid, fact.resource_version)
        self._written.pop(key, None)  # without an answer it may be written, and what was before is not there any more
        try:
            requests, written = await self._statuses.write(resource, *about, status, where=where)
        except Conflict:
            self._gangs[key] = None  # seen now, written in the next round: as a condition is
            return 2
        self._written[key] = (fact.uid, written)
        return requests

    async def _write_mark(self, uid: str, pod: Pod, resource_version: str) -> int:
        """The annotation that the pod's gang timed out. What is in doubt is tried again in the next round, unchanged."""
        namespace, name = pod.fact.namespace, pod.fact.name
        if self._may_be_tried(pod) and uid not in self._doubtful:
            self._give_up(uid, pod, "its gang may be tried again")
            return 0
        said = (dialects.TIMEOUT_ANNOTATION, "true")
        found = await annotate(self._client, namespace, name, uid, resource_version, said)
        if found.outcome == "in_doubt":
            self._doubtful.add(uid)
            self._marks[uid] = None
            return 1
        if found.outcome == "refused" and uid in self._doubtful:  # that is no answer to the attempt that may still land
            self._failed.append(partial(_put, self._marks, uid))
            return 1
        self._doubtful.discard(uid)
        if found.outcome == "written":
            self._marked[uid] = found.resource_version
        elif found.outcome == "changed" and not self._may_be_tried(pod):
            self._renewed[uid] = found.resource_version
        elif found.outcome != "gone":
            self._give_up(uid, pod, found.message or "its gang may be tried again")
        return 1

    def _may_be_tried(self, pod: Pod) -> bool:
        gang = self._decider.state.gangs.get(pod.gang)
        return gang is None or not timeouts.gang_stands(self._decider.state, gang)

    def _give_up(self, uid: str, pod: Pod, message: str) -> None:
        named = {"uid": uid, "namespace": pod.fact.namespace, "name": pod.fact.name}
        self._decider.report(ev.TimeoutMarkFailed(**named, message=message))

    def _of_event(self, event: KubernetesEvent) -> Write:
        return Write(partial(self._write_event, event), partial(self._events.append, event), lasting=False)

    async def _write_event(self, event: KubernetesEvent) -> int:
        await self._client.create_event(
            event.name,
            Regarding(*event.regarding),
            reason=event.reason,
            action=event.action,
            note=event.note,
            warning=event.warning,
            time_ns=event.time_ns or time.time_ns(),
            instance=self._holder,
        )
        return 1


NOTICED: dict[type, Callable[[WriteBehind, Any, int], None]] = {
    ev.GroupsRefused: WriteBehind.note_refused,
    ev.DisagreementDetected: WriteBehind.note_set_aside,
    ev.ConditionsReported: WriteBehind.note_reported,
    ev.PodBound: WriteBehind.note_bound,
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


def _put(queue: Queue, key: str) -> None:
    queue[key] = None


def _put_back(waiting: deque[Callable[[], None]]) -> None:
    while waiting:
        waiting.popleft()()
