"""Users, who ask until they have their answer; who deletes and decommissions; operators, careful and hasty ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events import Event
from services.federator import core
from services.federator.records import ENDED, SETTLED, Clusters, Job, Place, is_seen
from services.federator.state import State
from tests.federator.clusters import TrueCluster
from tests.federator.simulation.process import Process

if TYPE_CHECKING:
    from tests.federator.simulation.world import World

HASTY, CAREFUL = "hasty", "careful"
"""Who gives up what he did not look at; and who ends by hand what is left, waits, and declares then."""
WAITS_MS = 30_000
"""A careful operator, for what he ended."""
LOOKS_EVERY_MS = 60_000


class People:
    """One history's."""

    def __init__(self, world: World) -> None:
        self.world = world

    def federator(self) -> Process | None:
        """The one that answers, if any."""
        process = self.world.process
        if process is None or not process.alive or self.world.now_ms < process.paused_until_ms:
            return None
        return process

    def ask(self, request: ev.JobFederated) -> None:
        """A user's client: it asks until it has its answer."""
        world, process = self.world, self.federator()
        if process is None:
            return world.at(world.now_ms + 1_000, self.ask, request)
        if request.job not in world.audit.jobs:
            world.guarded(process, self.say, process, request)
        if process.alive:
            world.requests.remove(request)
        else:
            world.at(world.now_ms + 1_000, self.ask, request)
        return None

    def cancel(self, uid: str) -> None:
        world, process = self.world, self.federator()
        if process is None or uid not in world.audit.jobs:
            return world.at(world.now_ms + 1_000, self.cancel, uid)
        if world.audit.jobs[uid].forgotten:
            return None
        if (said := core.cancelled(process.state.jobs[uid])) is not None:
            world.count["cancelled by its user"] += 1
            world.guarded(process, self.say, process, said)
        return None

    def say(self, process: Process, said: Event) -> None:
        process.append(said)
        process.pump()

    # ------------------------------------------------------------------------------------------------- what is gone

    def delete(self, cluster: TrueCluster) -> None:
        """Somebody deletes one of our runs there, if any goes on: what is over and may come late keeps its name."""
        now_ms = self.world.now_ms
        ours = [name for name, run in cluster.runs.items() if run.owner is not None and not run.ends(now_ms)]
        if ours:
            self.world.count["deleted by hand"] += 1
            cluster.delete(self.world.rng.choice(ours), now_ms)

    def decommission(self, cluster: TrueCluster) -> None:
        self.world.count["decommissioned"] += 1
        cluster.close(self.world.now_ms)

    # ---------------------------------------------------------------------------------------------------- operators

    def rush(self) -> None:
        """A hasty operator gives up what he may, wherever it is."""
        process = self.federator()
        jobs = list(process.state.jobs.values()) if process is not None else []
        for job in jobs:
            self.give_up(job.uid, self.world.rng.choice(list(job.places)), HASTY)

    def look(self) -> None:
        """A careful operator looks what does not settle, until everything did."""
        world, process = self.world, self.federator()
        if process is None:
            return world.at(world.now_ms + LOOKS_EVERY_MS, self.look)
        return self.look_at(process.state)

    def look_at(self, state: State) -> None:
        world, jobs = self.world, list(state.jobs.values())
        if world.audit.jobs and all(job.phase == SETTLED for job in jobs):
            return None
        for job in jobs:
            for place in _stuck(job, state.clusters):
                for run in world.clusters[place.account].ever:
                    if run.owner is not None and run.owner.job == job.uid:
                        run.end(world.now_ms)
                world.at(world.now_ms + WAITS_MS, self.give_up, job.uid, place.cluster, CAREFUL)
        return world.at(world.now_ms + LOOKS_EVERY_MS, self.look)

    def give_up(self, uid: str, alias: str, by: str) -> None:
        world, process = self.world, self.federator()
        if process is None:
            return
        job = process.state.jobs.get(uid)
        if job is None:
            return
        try:
            said = core.given_up(process.state, job, job.places[alias], by, "")
        except core.KeptUp:
            return
        world.count["given up"] += 1
        world.guarded(process, self.say, process, said)


def _stuck(job: Job, clusters: Clusters) -> list[Place]:
    """What stands between a job and its settling, where its cluster does not show it."""
    if job.phase == SETTLED:
        return []
    places = [place for place in job.places.values() if place.phase != ENDED and place.cluster != job.kept]
    return [place for place in places if not is_seen(place, clusters[place.account])]
