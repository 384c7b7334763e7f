"""The PodScheduled condition of pods that wait, and FailedScheduling for one of a group."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Iterable, Iterator
from functools import partial

import events as ev
from services.binder.report import Condition, condition, failed_scheduling
from services.binder.service.kubernetes_events import KubernetesEvents
from services.binder.service.rounds import SLICE_LOOKED, SLICE_NOTED, Rate, Rounds, Write, queue_of_pods
from services.decider import Decider
from services.kubernetes.client import Client, second_time
from services.kubernetes.errors import Conflict
from services.state import membership
from services.state.records import PENDING, Group, Pod

TOLD_KEPT = 20_000
"""Events of FailedScheduling that are remembered, at most: beyond, some are told once more."""


class Conditions:
    """Pods whose condition may have changed."""

    def __init__(self, decider: Decider, client: Client, events: KubernetesEvents, rounds: Rounds, rate: Rate) -> None:
        self._decider, self._client, self._events, self._rounds = decider, client, events, rounds
        self.rate = rate
        self.pods = queue_of_pods(decider)
        self._in_doubt: set[str] = set()
        """Pods whose condition may differ from the log's: a write had no answer, or was an earlier process's, and may
        still land. The next one changes the pod in any case (`lastProbeTime`), so that those fail."""
        self._groups: dict[str, tuple[str, ...]] = {}
        """UID → the gangs of the pod's group when it was told, which what it says may name: it may be moved to another,
        or the group be formed of others."""
        self._refused: dict[str, int] = {}
        """UID → checksum of what the API server said last when it refused the pod's binding."""
        self._versions: dict[str, str] = {}
        """UID → resourceVersion of pods that were written by somebody else. Their conditions are written with that in the
        next round: a binder that was replaced knows by then, and does not overwrite its successor's."""
        self.told: dict[tuple[str, str], str] = {}
        """(group, what it waits for) → UID of the pod that has the event."""
        self._reported: dict[str, dict[str, str]] = {}
        """Reason → UID → resourceVersion: what was written since the last report."""

    def note(self, uids: Iterable[str]) -> None:
        self.pods.put(*uids)

    def note_refused(self, event: ev.BindingFailed) -> None:
        """What the API server says of the binding is no part of what the log knows that the pod was told."""
        said = zlib.crc32(event.message.encode())
        if self._refused.get(event.uid, said) != said:
            self.doubt(event.uid)
        self._refused[event.uid] = said
        self.note((event.uid,))

    def note_group(self, group: Group) -> None:
        self.note(membership.members(self._decider.state, group))

    def note_gone(self, uid: str) -> None:
        self._in_doubt.discard(uid)
        self._groups.pop(uid, None)
        self._refused.pop(uid, None)
        self._versions.pop(uid, None)

    def doubt(self, uid: str) -> None:
        """Somebody is about to write the pod's condition. What comes of that the log may never hear."""
        self._in_doubt.add(uid)

    def resume(self) -> Generator[None, None, None]:
        """Who is in doubt comes first: a round may come before everybody is noted."""
        state = self._decider.state
        for number, (uid, pod) in enumerate(state.pods.items(), 1):
            if number % SLICE_NOTED == 0:
                yield
            if pod.reported and pod.status == PENDING:
                self._in_doubt.add(uid)
        noted = 0
        for cohort in state.cohorts.values():
            for key in cohort.groups:
                members = membership.members(state, state.groups[key])
                self.note(members)
                noted += len(members)
                if noted >= SLICE_NOTED:
                    noted = 0
                    yield

    def due(self, most: int) -> Iterator[Write | None]:
        """Conditions that the log does not know as written yet."""
        looked = 0
        while self.pods and most > 0:
            if looked >= SLICE_LOOKED:
                looked = 0
                yield None
                continue  # the next round may have begun meanwhile, and taken the rest
            looked += 1
            uid = self.pods.take()
            if uid not in self._decider.state.pods:
                self.note_gone(uid)  # once more: its answer, or what was said of it, may have come later
            elif self._condition(uid) is None:
                self._versions.pop(uid, None)
            else:
                most -= 1
                yield self.pods.write(uid, partial(self._write, uid))

    def _condition(self, uid: str) -> Condition | None:
        state = self._decider.state
        pod = state.pods.get(uid)
        moved = pod is not None and uid in self._groups and self._groups[uid] != self._gangs(pod)
        return condition(state, uid, in_doubt=moved or uid in self._in_doubt)

    def _gangs(self, pod: Pod) -> tuple[str, ...]:
        """Those of its group; of a pod without any the group itself."""
        group = self._decider.state.groups.get(pod.group)
        return group.gangs if group is not None and group.gangs else (pod.group,)

    async def _write(self, uid: str) -> int:
        """The condition as it is by now, and FailedScheduling for one waiting pod of a group and reason."""
        state = self._decider.state
        pod, due, in_doubt = state.pods.get(uid), self._condition(uid), uid in self._in_doubt
        if pod is None or due is None:
            return 0  # a commit was folded since it was chosen
        fact, gangs, version = pod.fact, self._gangs(pod), self._versions.pop(uid, pod.resource_version)
        said = {"type": "PodScheduled", "status": "False", "reason": due.reason, "message": due.message}
        if not pod.reported:
            said["lastTransitionTime"] = second_time(time.time_ns())
        self._in_doubt.add(uid)
        try:
            version = await self._patched(fact, version, said, in_doubt=in_doubt)
        except Conflict:
            seen = await self._client.get_pod(fact.namespace, fact.name)
            if seen is not None and seen.metadata.uid == uid and not seen.spec.node_name:
                if seen.metadata.resource_version == version:
                    raise  # nobody wrote it: a webhook says so
                await self._decider.hear_all()  # what is due by now, not by when this process was replaced
                self._versions[uid] = seen.metadata.resource_version
                self.pods.put(uid)
            return 2
        self._in_doubt.discard(uid)
        self._groups[uid] = gangs
        self._reported.setdefault(due.said, {})[uid] = version
        if self._has_event(pod.group, due.said):
            return 1
        if len(self.told) > TOLD_KEPT:
            self.told.clear()
        self.told[pod.group, due.said] = uid
        return 1 + await self._rounds.write(self._events.write(failed_scheduling(fact, due)))

    async def _patched(self, fact: ev.PodObserved, version: str, said: dict[str, str], *, in_doubt: bool) -> str:
        """Its resourceVersion then. In doubt, that is another than before, but for a webhook that puts back what it was:
        the clock of whoever wrote last may have said then what ours says now. Raises ApiError."""
        about = fact.namespace, fact.name, fact.uid, version
        if not in_doubt:
            return await self._client.patch_pod_status(*about, {"conditions": [said]})
        for later_ns in (0, 1_000_000_000):
            probed = {**said, "lastProbeTime": second_time(time.time_ns() + later_ns)}
            written = await self._client.patch_pod_status(*about, {"conditions": [probed]})
            if written != version:
                break
        return written

    def _has_event(self, group: str, said: str) -> bool:
        """Whether a pod of the group that still waits has it: with the pod it is gone for users, too."""
        pod = self._decider.state.pods.get(self.told.get((group, said), ""))
        return pod is not None and pod.group == group and pod.status == PENDING

    def report(self) -> None:
        """What was written goes into the log together: one event for a reason."""
        for reason, pods in self._reported.items():
            self._decider.report(ev.ConditionsReported(reason=reason, pods=tuple(pods.items())))
        self._reported.clear()
