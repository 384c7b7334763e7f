"""What lies between the federator and its clusters; what goes wrong on it, and on them, for the first four minutes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from services.federator.backends import InDoubt, NotSent
from services.federator.records import account_of
from tests.federator.clusters import Backup, TrueCluster, foreign
from tests.federator.simulation.process import MOST_SKEW_MS, Process

if TYPE_CHECKING:
    from tests.federator.simulation.world import World

FAULTS_END_MS = 240_000
FOR_EVER_MS = 1 << 40
LATEST_MS = 600_000
"""How late a submission may land."""
TIMEOUT_MS = 6_000
KEPT = 0
"""Jobs that are over and still known: mostly none, so that whatever is late finds them forgotten."""
REFUSING_CONTENTS = 0.03
"""How many clusters refuse for a while what they would take before and behind it."""
RESTORED = 0.2
"""In how many histories a cluster is restored to an earlier moment."""


class Network:
    """One history's."""

    def __init__(self, world: World) -> None:
        """Plans the faults of the clusters, too."""
        self.world = world
        self.rng = rng = world.rng
        self.calm = rng.random() < 0.1
        self.lost_request = 0.06 if self.roll(0.6) else 0.0
        self.lost_answer = 0.08 if self.roll(0.6) else 0.0
        self.late = 0.15 if self.roll(0.6) else 0.0
        self.lasting = False
        """Whether something may be left that only an operator can settle."""
        self.restores = False
        """Whether clusters are restored: each is listed all the time, be a job open there or not."""
        for cluster in world.clusters.values():
            self._plan(cluster)
            if world.for_good:
                self._plan_for_good(cluster)
        if not self.calm:
            self._plan_restores(Random(f"restores {world.seed}"))
            self._plan_contents(Random(f"contents {world.seed}"))

    def roll(self, share: float) -> bool:
        return not self.calm and self.rng.random() < share

    def _plan(self, cluster: TrueCluster) -> None:
        world, rng = self.world, self.rng
        if self.roll(0.5):
            cluster.skew_ms = rng.randrange(-MOST_SKEW_MS, MOST_SKEW_MS)
            world.count["clock skew"] += 1
        if self.roll(0.3):
            cluster.cut_ms = self._period(90_000)
        if self.roll(0.2):
            cluster.limited_ms = self._period(60_000)
        if self.roll(0.15):
            cluster.forbidden_ms = self._period(60_000)
        if self.roll(0.25):
            cluster.stop_refused_ms = self._period(120_000)
        cluster.content_refused = self.roll(0.03)
        for request in world.requests:
            for contender in request.clusters:
                if account_of("ann", contender.uri) == cluster.account and self.roll(0.08):
                    cluster.runs[contender.name] = foreign(contender.name)
                    world.count["foreign job of the same name"] += 1

    def _plan_for_good(self, cluster: TrueCluster) -> None:
        """What nothing mends."""
        world, rng = self.world, self.rng
        cluster.identifies = rng.random() < world.identifying
        begin_ms = rng.randrange(FAULTS_END_MS)
        if cluster.identifies and self.roll(0.4):
            world.at(begin_ms, world.people.delete, cluster)
        elif self.roll(0.03):
            cluster.cut_ms = begin_ms, FOR_EVER_MS
            world.at(begin_ms, world.people.decommission, cluster)
        elif self.roll(0.03):
            cluster.forbidden_ms = begin_ms, FOR_EVER_MS
            world.count["refuses for good"] += 1
        else:
            return
        self.lasting = True

    def _plan_restores(self, rng: Random) -> None:
        """Some clusters are restored to what they were at an earlier moment, at most once each. Chance of its own: what
        happens else in a history stays as it was."""
        if rng.random() >= RESTORED:
            return
        world, self.restores = self.world, True
        world.kept = rng.choice((KEPT, 8))
        for cluster in rng.sample(list(world.clusters.values()), rng.choice((1, 1, 2))):
            if cluster.identifies and not cluster.holds:
                continue  # there is no such cluster: who gives identities holds
            taken_ms = rng.randrange(FAULTS_END_MS - 10_000)
            world.at(taken_ms, self._back_up, cluster, rng.randrange(taken_ms + 5_000, FAULTS_END_MS))
            self.lasting |= not cluster.holds

    def _plan_contents(self, rng: Random) -> None:
        """Some refuse contents for a while; most jobs are submitted at the beginning."""
        for cluster in self.world.clusters.values():
            if rng.random() < REFUSING_CONTENTS and (cluster.holds or not cluster.identifies):
                begin_ms = rng.randrange(1, 15_000)
                cluster.contents_ms = begin_ms, begin_ms + rng.randrange(60_000)
                self.restores = True

    def _back_up(self, cluster: TrueCluster, restored_ms: int) -> None:
        self.world.at(restored_ms, self._restore, cluster, cluster.backup(), self.world.now_ms)

    def _restore(self, cluster: TrueCluster, backup: Backup, taken_ms: int) -> None:
        if not cluster.closed:
            self.world.count["restored"] += 1
            cluster.restore(backup, taken_ms, self.world.now_ms)

    def _period(self, longest_ms: int) -> tuple[int, int]:
        begin_ms = self.rng.choice((0, self.rng.randrange(FAULTS_END_MS)))
        return begin_ms, min(begin_ms + self.rng.randrange(longest_ms), FAULTS_END_MS)

    # ------------------------------------------------------------------------------------------------------- requests

    def call(
        self,
        process: Process,
        cluster: TrueCluster,
        asked: Callable[[], Any],
        told: Callable[[Any, Any], None],
        about: Any,
        submits: bool = False,
    ) -> None:
        """A request over the network, and its answer, or none."""
        world, rng, now_ms = self.world, self.rng, self.world.now_ms
        faulty = now_ms < FAULTS_END_MS
        begin_ms, end_ms = cluster.cut_ms
        if begin_ms <= now_ms < end_ms:
            world.count["partition"] += 1
            if rng.random() < 0.5:
                return world.after(10, process, told, about, NotSent(reason="refused"))
            return world.after(TIMEOUT_MS, process, told, about, InDoubt(reason="no route"))
        if faulty and rng.random() < self.lost_request:
            world.count["lost request"] += 1
            return world.after(TIMEOUT_MS, process, told, about, InDoubt(reason="lost"))
        if faulty and submits and rng.random() < self.late:
            world.count["late submission"] += 1
            world.at(now_ms + rng.choice((8_000, 60_000, LATEST_MS)), asked)
            return world.after(TIMEOUT_MS, process, told, about, InDoubt(reason="late"))
        if faulty and rng.random() < self.lost_answer:
            world.count["lost answer"] += 1
            world.at(now_ms + rng.randrange(1_000), asked)
            return world.after(TIMEOUT_MS, process, told, about, InDoubt(reason="answer lost"))
        return world.at(now_ms + rng.randrange(300), self._arrive, process, asked, told, about)

    def _arrive(self, process: Process, asked: Callable[[], Any], told: Callable[[Any, Any], None], about: Any) -> None:
        world, answer = self.world, asked()
        kind = type(answer).__name__
        if kind == "Limited":
            world.count["429"] += 1
        elif kind == "Refused":
            world.count["stop refused" if told.__name__ == "stopped" else "submission refused"] += 1
        world.after(self.rng.randrange(300), process, told, about, answer)
