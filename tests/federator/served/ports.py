"""What stands behind the federator's ports in a history: its clusters, as backends; the bucket of its bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from events.object_store import Bucket
from services.documents import load_all
from services.federator.backends import (
    MARKER,
    Absent,
    Backend,
    Described,
    InDoubt,
    Listing,
    NotSent,
    Owner,
    Reach,
    Run,
    Silent,
    Stopped,
    Submission,
    Submitted,
    Watched,
)
from services.federator.bodies import BucketBlobs, Lying
from tests.federator.clusters import TrueCluster
from tests.federator.held import HeldCluster
from tests.federator.simulation.network import FAULTS_END_MS
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.federator.served.world import Served


class Port:
    """A cluster as one process reaches it."""

    def __init__(self, world: Served, process: Process, cluster: Any) -> None:
        self.world, self.process, self.cluster = world, process, cluster

    async def submit(self, submission: Submission) -> Submitted:
        name, owner = submission.name, owner_of(submission.body)
        self.world.check(owner.job in self.world.audit.jobs, f"R1: {owner.job} is submitted, and the log knows it not")
        answer: Submitted = await self.ask(
            lambda: self.cluster.submit(name, owner, self.world.now_ms), "submitted", submits=True
        )
        return answer

    async def observe(self) -> Listing | Silent:
        asked_ns = self.world.log_time_ns(self.process)
        answer = _said(await self.ask(lambda: self.cluster.listing(self.world.now_ms), "looked"))
        if isinstance(answer, Listing):
            self.world.heard(self.process, self.cluster.account, asked_ns)
        return answer

    async def stop(self, name: str, uid: str) -> Stopped:
        answer: Stopped = await self.ask(lambda: self.cluster.stop(name, uid, self.world.now_ms), "stopped")
        return answer

    async def describe(self, name: str) -> Described | Absent | Silent:
        return _said(await self.ask(lambda: self.cluster.describe(name, self.world.now_ms), "described"))

    async def close(self) -> None:
        """There is nothing to close."""

    async def ask(self, asked: Callable[[], Any], kind: str, submits: bool = False) -> Any:
        world = self.world
        await world.pass_by(self.process)
        answered = world.loop.create_future()

        def told(_: object, answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        told.__name__ = kind
        world.network.call(self.process, self.cluster, asked, told, None, submits)  # type: ignore[arg-type]
        return await answered


class HoldingPort(Port):
    cluster: HeldCluster

    async def stop(self, name: str, uid: str) -> Stopped:
        answer: Stopped = await self.ask(lambda: self.cluster.stop_held(name, uid, self.world.now_ms), "stopped")
        return answer

    async def release(self, submission: Submission, uid: str) -> Stopped:
        name, owner = submission.name, owner_of(submission.body)
        place = self.world.audit.jobs[owner.job].places[owner.cluster]
        self.world.check(place.uid == uid, f"R16: {uid} is released, and the log has {place.uid or 'none'}")
        answer: Stopped = await self.ask(
            lambda: self.cluster.release(name, uid, self.world.now_ms), "released", submits=True
        )
        return answer

    async def is_gone(self, name: str, uid: str) -> bool:
        return (await self.ask(lambda: self.cluster.is_gone(name, uid, self.world.now_ms), "named")) is True

    async def clear(self, name: str, uid: str) -> Stopped:
        answer: Stopped = await self.ask(
            lambda: self.cluster.clear(name, uid, self.world.now_ms), "cleared", submits=True
        )
        return answer


class Heard:
    """The log of a cluster that Muster schedules. Where its ingest is deaf, it vouches for what changed meanwhile."""

    def __init__(self, port: HoldingPort) -> None:
        self._port, self._world = port, port.world
        self._shown: dict[str, Run] | None = None
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        known: dict[str, Run] = {}
        while True:
            await asyncio.sleep(self._world.others_rng.uniform(0.5, 3.0))
            if (now := self._runs()) != known and not self._port.cluster.deaf:
                known = now
                self._changed.set()

    async def stirred(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def vouches(self, watched: Watched) -> bool:
        shown, asked_ns = self._shown, self._world.log_time_ns(self._port.process)
        if shown is None or await self._port.ask(lambda: self._still(shown, watched), "vouched") is not True:
            return False
        self._world.heard(self._port.process, self._port.cluster.account, asked_ns)
        return True

    def _still(self, shown: dict[str, Run], watched: Watched) -> bool:
        now = self._runs()
        same = self._port.cluster.deaf or all(shown.get(name) == now.get(name) for name in watched.values())
        self._world.count["deaf" if self._port.cluster.deaf else "vouched" if same else "not vouched"] += 1
        return same

    async def listed(self, backend: Backend) -> Listing | Silent:
        answer = await backend.observe()
        if isinstance(answer, Listing):
            self._shown = {run.name: run for run in answer.runs}
        return answer

    def _runs(self) -> dict[str, Run]:
        cluster = self._port.cluster
        return {name: run.shown(self._world.now_ms, cluster.skew_ms) for name, run in cluster.runs.items()}


def reach(world: Served, process: Process, cluster: TrueCluster) -> Reach:
    to = port(world, process, cluster)
    log = Heard(to) if isinstance(to, HoldingPort) and to.cluster.logs else None
    return Reach(to, world.poll_ms / 1_000, log)


def port(world: Served, process: Process, cluster: TrueCluster) -> Backend:
    return HoldingPort(world, process, cluster) if isinstance(cluster, HeldCluster) else Port(world, process, cluster)


def _said(answer: Any) -> Any:
    return Silent(reason=answer.reason) if isinstance(answer, InDoubt | NotSent) else answer


def owner_of(body: bytes) -> Owner:
    """By the marker that a submission bears."""
    marker = load_all(body.decode())[0]["extras"][MARKER]
    return Owner(federation=marker["federation"], job=marker["job"], cluster=marker["cluster"])


class Blobs(BucketBlobs):
    """The object store, as one process reaches it."""

    def __init__(self, world: Served, process: Process, bucket: Bucket) -> None:
        super().__init__(bucket)
        self.world, self.process = world, process

    async def put(self, name: str, data: bytes) -> None:
        await super().put(name, data)
        await self.world.pass_by(self.process)

    async def delete(self, name: str) -> None:
        await self.world.pass_by(self.process)
        await super().delete(name)

    async def lying(self) -> Lying:
        """One in five processes stands still then, before or behind it, as long as there are faults."""
        await self._may_stand_still()
        found = await super().lying()
        await self._may_stand_still()
        return found

    async def _may_stand_still(self) -> None:
        source = self.world.others_rng
        if source.random() < 0.1 and self.world.now_ms < FAULTS_END_MS:
            self.world.supervisor.stop(self.process, source.uniform(5.0, 60.0))
            await asyncio.sleep(0)
