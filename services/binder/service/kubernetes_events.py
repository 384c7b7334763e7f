"""Kubernetes events, as ``kubectl describe`` shows them. Of a namespace's burst the oldest may be lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from services.binder.report import KubernetesEvent
from services.binder.service.rounds import Queue, Rate, Write
from services.kubernetes.client import Client, Regarding

EVENTS_KEPT = 20_000
"""Of one namespace."""


class KubernetesEvents:
    """Those that are not written yet."""

    def __init__(self, client: Client, holder: str, rate: Rate) -> None:
        """`holder` names this process in them."""
        self._client, self._holder, self.rate = client, holder, rate
        self.waiting = Queue[KubernetesEvent](_namespace_of, most=EVENTS_KEPT)

    def add(self, event: KubernetesEvent) -> None:
        self.waiting.put(event)

    def due(self, most: int) -> Iterator[Write]:
        while self.waiting and most > 0:
            most -= 1
            yield self.write(self.waiting.take())

    def write(self, event: KubernetesEvent) -> Write:
        return self.waiting.write(event, partial(self._write, event), lasting=False)

    async def _write(self, event: KubernetesEvent) -> int:
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

    def report(self) -> None:
        """The log does not know of them."""


def _namespace_of(event: KubernetesEvent) -> str:
    return event.regarding[2]
