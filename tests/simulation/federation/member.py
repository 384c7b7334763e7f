"""One member of a federated history: a cluster with its services, as `World` has it, and the federation around it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from services.simulator.controllers import Controllers
from services.simulator.store import Change, Collection
from tests.simulation.federation.training import NAMESPACE
from tests.simulation.kube import ApiServer
from tests.simulation.plan import Plan
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
            self.member.jobs_ever[change.new.object["metadata"]["uid"]] = None
            self.member.safely(self.member.federation.witness.job_changed, self.member, change, self.acting)

    def set_back(self) -> None:
        super().set_back()
        self.member.set_back()


class _Controllers(Controllers):
    def begin_anew(self, gone: Iterable[str]) -> None:
        """As another process does: whatever is there is new. `gone`: UIDs of owners that are not."""
        for told in (self._dependents, self._concerned, self._bereaved, self._read):
            told.clear()
        self._gone = dict.fromkeys(gone)


class Member(World):
    server_type = MemberApi
    rest_within_s, cycles = 600.0, 2_000
    """A federation comes to rest more slowly: what a cluster refused is tried again after a minute."""

    def __init__(self, federation: Federation, alias: str, plan: Plan) -> None:
        self.federation, self.alias = federation, alias
        super().__init__(plan, federation.loop)
        self.account = federation.account(alias)
        self.is_heard = self.source.random() < HEARD
        self.kube.member = self  # type: ignore[attr-defined]
        self.kube.dated = True
        self.kube.ahead_s = self.source.choice((0, self.source.randint(-MOST_SKEW_S, MOST_SKEW_S)))
        self.controllers = _Controllers(self.kube.api)
        self.jobs_ever: dict[str, None] = {}
        """UIDs of Jobs that are or were there."""
        self.restored = False
        """Whether its etcd was, from a backup."""

    def begin(self) -> None:
        super().begin()
        self.kube.api.apply_new({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    @property
    def has_leases(self) -> bool:
        return self.federation.has_leases

    def set_back(self) -> None:
        self.restored = True
        jobs = self.kube.api.by_path["batch", "v1", "jobs"].entries.values()
        there = {job.object["metadata"]["uid"] for job in jobs}
        self.controllers.begin_anew(uid for uid in self.jobs_ever if uid not in there)
        self.federation.witness.held_again_on(self)

    def movers(self) -> list[asyncio.Task[Any]]:
        """What moves pods and Jobs, for as long as the history goes on."""
        moving: list[Coroutine[Any, Any, None]] = [self.kube.kubelet.run(), self.controllers.run()]
        return [self.loop.create_task(one) for one in moving]

    def wants_more(self) -> bool:
        return self.federation.wants_more()

    def restless(self) -> str:
        awaited = self.kube.awaited_by(self.federation.supervisor.alive())
        return super().restless() or ("the federator awaits an answer" if awaited else self.federation.restless())

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.federation.fail(error)
