"""The status of PodGroups, in the phases of their dialects."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial

import events as ev
from events import dialects
from services.binder.group_status import group_status, where_ended
from services.binder.service.rounds import SLICE_LOOKED, SLICE_NOTED, Queue, Rate, Write
from services.decider import Decider
from services.kubernetes.client import Client
from services.kubernetes.errors import Conflict
from services.kubernetes.group_status import GroupStatusWriter
from services.kubernetes.resources import Resource
from services.state.records import FINISHED, Pod

SPARE = 64
"""PodGroups that are gone and still remembered, at most, beyond as many as are there."""


class PodGroups:
    """Those whose status may have changed."""

    def __init__(self, decider: Decider, client: Client, rate: Rate) -> None:
        self._decider, self.rate = decider, rate
        self.gangs = Queue(_namespace_of)
        self._touched: dict[str, None] = {}
        """Gangs whose pods changed since the last round."""
        self._gang_of: dict[str, str] = {}
        """UID → gang of pods that have not finished: when a pod is gone, the state does not know its gang any more."""
        self._written: dict[str, tuple[str, Mapping[str, object]]] = {}
        """Gang → UID of the PodGroup, and what was written to it last."""
        self._statuses = GroupStatusWriter(client)

    def note(self, gangs: Iterable[str]) -> None:
        self.gangs.put(*gangs)

    def note_pod(self, uid: str) -> None:
        """The gang of a pod, and the one that it left. Who has finished and is removed still counts as it did."""
        pod = self._decider.state.pods.get(uid)
        gang = pod.gang if pod is not None else ""
        self._touched.update(dict.fromkeys(key for key in (self._gang_of.pop(uid, ""), gang) if key))
        if pod is not None and _may_change(pod):
            self._gang_of[pod.fact.uid] = gang

    def resume(self) -> Generator[None, None, None]:
        state = self._decider.state
        for number, key in enumerate(state.gangs, 1):
            if number % SLICE_NOTED == 0:
                yield
            self.gangs.put(key)
        for number, (uid, pod) in enumerate(state.pods.items(), 1):
            if number % SLICE_NOTED == 0:
                yield
            if _may_change(pod):
                self._gang_of[uid] = pod.gang

    def _note_touched(self) -> None:
        """Gangs whose pods changed, and those of their groups: what one waited for stands in the status of each."""
        state, groups = self._decider.state, dict[str, None]()
        for key in self._touched:
            gang = state.gangs.get(key)
            if gang is not None and gang.group in state.groups:
                groups[gang.group] = None
            else:
                self.note((key,))  # of its group others are told by `regrouped`
        for group in groups:
            self.note(state.groups[group].gangs)
        self._touched.clear()

    def due(self, most: int) -> Iterator[Write | None]:
        """Statuses that differ from what was written last."""
        state = self._decider.state
        if len(self._statuses) > 2 * len(state.pod_groups) + SPARE:
            self._statuses.keep({fact.uid for fact in state.pod_groups.values()})
        self._note_touched()
        looked = 0
        while self.gangs and most > 0:
            if looked >= SLICE_LOOKED:
                looked = 0
                yield None
                continue  # the next round may have begun meanwhile, and taken the rest
            key = self.gangs.take()
            gang = state.gangs.get(key)
            looked += 1 if gang is None else 1 + len(gang.members)
            if gang is None or not gang.pod_group:
                self._written.pop(key, None)
                continue
            status = group_status(state, gang)
            where = where_ended(state, gang, status)
            if status and self._written.get(key) not in [(gang.source, one) for one in (status, *where.values())]:
                most -= 1
                fact = state.pod_groups[gang.pod_group]
                yield self.gangs.write(key, partial(self._write, key, fact, status, where))

    async def _write(
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
            await self._decider.hear_all()
            self.gangs.put(key)  # seen now, written in the next round: as a condition is
            return 2
        self._written[key] = (fact.uid, written)
        return requests

    def report(self) -> None:
        """The log hears of it by ingest, as of everybody's."""


def _may_change(pod: Pod) -> bool:
    """Whether it is of a gang, and has not finished."""
    return bool(pod.gang) and pod.status not in FINISHED


def _namespace_of(gang: str) -> str:
    return dialects.name_of(gang)[0]
