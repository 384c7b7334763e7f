"""The PodScheduled condition of pods that wait and cannot be taken as they are declared.

The Kubernetes event that says so is gone after an hour, and a pod that was unschedulable before would go on saying that,
on which autoscalers act. The log has no fact of such a pod by which to tell whether it still waits, and for whom: it is
read before it is written. Then the log is: somebody who was replaced long ago must not tell the pod as it is now what was
wrong with it then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import events as ev
from services.binder.service.rounds import Queue, Rate, Rounds, Write
from services.decider import Decider
from services.kubernetes.client import Client, second_time
from services.kubernetes.errors import Conflict, Unreachable
from services.kubernetes.objects import Pod
from services.kubernetes.transport import UNREADABLE
from services.state.refusals import rejected

KIND = "Pod"
REASON = "DeclarationRejected"


class RejectedPods:
    """Pods whose rejection they may not have been told yet, by the key under which the state has it."""

    def __init__(
        self, decider: Decider, client: Client, rounds: Rounds, rate: Rate, overwrites: Callable[[str], None]
    ) -> None:
        """`overwrites` hears of each pod whose condition is written from here."""
        self._decider, self._client, self._rounds = decider, client, rounds
        self.rate, self._overwrites = rate, overwrites
        self.waiting = Queue(_namespace_of)

    def note(self, event: ev.DeclarationRejected) -> None:
        if event.kind == KIND:
            self.waiting.put(f"{KIND}/{event.namespace}/{event.name}")

    def due(self, most: int) -> Iterator[Write]:
        """Those that no node is known of."""
        state = self._decider.state
        while self.waiting and most > 0:
            key = self.waiting.take()
            rejection = state.rejections.get(key)
            pod = state.pods.get(rejection.uid) if rejection is not None else None
            if rejection is not None and (pod is None or not pod.node):
                most -= 2
                yield self.waiting.write(key, partial(self._write, key, rejection))

    async def _write(self, key: str, rejection: ev.DeclarationRejected) -> int:
        try:
            pod = await self._client.get_pod(rejection.namespace, rejection.name)
        except Unreachable as error:
            if error.reason == UNREADABLE:
                return 1  # whose it is cannot be read either
            raise
        if pod is None or not _waits(pod, rejection.uid):
            return 1
        await self._decider.hear_all()
        if self._decider.state.rejections.get(key) != rejection:
            return 1
        if pod.spec.scheduling_gates:  # its condition says so; no fact will say that they are gone
            self._rounds.refused.append(partial(self.waiting.put, key))
            return 1
        said = {"type": "PodScheduled", "status": "False", "reason": REASON, "message": rejected(rejection)}
        if all(condition.type != "PodScheduled" for condition in pod.status.conditions or ()):
            said["lastTransitionTime"] = second_time(time.time_ns())
        if rejection.uid in self._decider.state.pods:  # others are told anew in any case, once they can be read
            self._overwrites(rejection.uid)
        version = pod.metadata.resource_version
        names = (rejection.namespace, rejection.name, rejection.uid)
        try:
            await self._client.patch_pod_status(*names, version, {"conditions": [said]})
        except Conflict:
            pod = await self._client.get_pod(rejection.namespace, rejection.name)
            if pod is not None and pod.metadata.resource_version == version:
                raise  # nobody wrote it: a webhook says so
            self.waiting.put(key)
            return 3
        return 2

    def report(self) -> None:
        """The log does not know of them."""


def _waits(pod: Pod, uid: str) -> bool:
    """Whether it is still that pod, and may come onto a node."""
    metadata = pod.metadata
    return metadata.uid == uid and not pod.spec.node_name and metadata.deletion_timestamp is None


def _namespace_of(key: str) -> str:
    return key.split("/")[1]
