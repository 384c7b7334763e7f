"""One member of a federated history: a cluster with its services, as `World` has it, and the federation around it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from services.simulator.controllers import Controllers
from services.simulator.store import Change, Collection
from tests.simulation.federation.training import NAMESPACE
from tests.simulation.kube import ApiServer
from tests.simulation.plan import Plan
from tests.simulation.processes import Process
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.federation.history import Federation

HEARD = 0.5
"""In how many members the federator hears the cluster's own log."""
MOST_SKEW_S = 300


class MemberApi(ApiServer):
    """Shows the federation each change of a Job."""

    member: Member

    def _changed(self, collection: Collection, change: Change) -> None:
        super()._changed(collection, change)
        if collection.resource.kind == "Job":
            self.member.safely(self.member.federation.witness.job_changed, self.member, change, self.acting)


class Member(World):
    server_type = MemberApi
    rest_within_s, cycles = 600.0, 2_000
    """A federation comes to rest more slowly: what a cluster refused is tried again after a minute."""

    def __init__(self, federation: Federation, alias: str, plan: Plan) -> None:
        super().__init__(plan, federation.loop)
        self.federation, self.alias = federation, alias
        self.account = federation.account(alias)
        self.is_heard = self.source.random() < HEARD
        self.kube.member = self  # type: ignore[attr-defined]
        self.kube.dated = True
        self.kube.ahead_s = self.source.choice((0, self.source.randint(-MOST_SKEW_S, MOST_SKEW_S)))
        self.controllers = Controllers(self.kube.api)

    def begin(self) -> None:
        super().begin()
        self.kube.api.apply_new({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def movers(self) -> list[asyncio.Task[Any]]:
        """What moves pods and Jobs, for as long as the history goes on."""
        moving: list[Coroutine[Any, Any, None]] = [self.kube.kubelet.run(), self.controllers.run()]
        return [self.loop.create_task(one) for one in moving]

    def wants_more(self) -> bool:
        return self.federation.wants_more()

    def restless(self) -> str:
        return super().restless() or self.federation.restless()

    def kill(self, process: Process) -> None:
        process.starts.kill(process)

    def stop(self, process: Process, for_s: float) -> None:
        process.starts.stop(process, for_s)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.federation.fail(error)
