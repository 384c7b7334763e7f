"""The annotation of pods whose gang timed out (seed 002): from intents, until the answer is definite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import events as ev
from events import dialects
from services.binder.service.rounds import Rate, Rounds, Write, queue_of_pods
from services.decider import Decider
from services.kubernetes.annotation import annotate
from services.kubernetes.client import Client
from services.state import timeouts
from services.state.records import Pod


class TimeoutMarks:
    """Pods that are to say that their gang timed out."""

    def __init__(self, decider: Decider, client: Client, rounds: Rounds, rate: Rate) -> None:
        self._decider, self._client, self._rounds, self.rate = decider, client, rounds, rate
        self.pods = queue_of_pods(decider)
        self.doubtful: set[str] = set()
        """Pods with an attempt that may still land: it had no answer, or was an earlier process's."""
        self._marked: dict[str, str] = {}
        self._renewed: dict[str, str] = {}
        """UID → resourceVersion: what became of marks since the last report."""

    def note(self, uids: Iterable[str]) -> None:
        self.pods.put(*uids)

    def note_gone(self, uid: str) -> None:
        self.doubtful.discard(uid)

    def resume(self) -> None:
        self.note(self._decider.state.marks)
        self.doubtful.update(self._decider.state.marks)

    def due(self, most: int) -> Iterator[Write]:
        """Intents that are not settled."""
        state = self._decider.state
        while self.pods and most > 0:
            uid = self.pods.take()
            mark, pod = state.marks.get(uid), state.pods.get(uid)
            if pod is None:
                self.note_gone(uid)  # once more: its answer may have come later
            elif mark is not None and not mark.written:
                most -= 1
                yield self.pods.write(uid, partial(self._write, uid, pod, mark.resource_version))

    async def _write(self, uid: str, pod: Pod, resource_version: str) -> int:
        """One attempt. What is in doubt is tried again in the next round, unchanged."""
        namespace, name = pod.fact.namespace, pod.fact.name
        if self._may_be_tried(pod) and uid not in self.doubtful:
            self._give_up(uid, pod, "its gang may be tried again")
            return 0
        said = (dialects.TIMEOUT_ANNOTATION, "true")
        found = await annotate(self._client, namespace, name, uid, resource_version, said)
        if found.outcome == "in_doubt":
            self.doubtful.add(uid)
            self.pods.put(uid)
            return 1
        if found.outcome == "refused" and uid in self.doubtful:  # that is no answer to the attempt that may still land
            self._rounds.failed.append(partial(self.pods.put, uid))
            return 1
        self.doubtful.discard(uid)
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

    def report(self) -> None:
        if self._marked:
            self._decider.report(ev.TimeoutMarked(pods=tuple(self._marked.items())))
        if self._renewed:
            self._decider.report(ev.TimeoutMarkRenewed(pods=tuple(self._renewed.items())))
        self._marked, self._renewed = {}, {}
