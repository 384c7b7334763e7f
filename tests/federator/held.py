"""Histories over clusters that hold submissions and give names away again, as Kubernetes does.

``python -m tests.federator.simulation --world held``. Everything of `simulation` holds, and at the end nothing is left on
any cluster but what is kept: whatever is late, and whoever slept through the end and goes on.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec

import events as ev
from services.federator import core, observing
from services.federator.backends import (
    STOPPED,
    WAITING,
    Absent,
    Accepted,
    Described,
    Listing,
    Owner,
    Refused,
    Run,
    Silent,
    Stopped,
    Submitted,
)
from services.federator.records import Key, Stray
from tests.federator import simulation
from tests.federator.audit import Violation
from tests.federator.clusters import TrueCluster, TrueRun, a_life, within
from tests.federator.simulation import FAULTS_END_MS, Process, World
from tests.federator.simulation.network import FOR_EVER_MS


class HeldRun(TrueRun):
    """One that runs when it is released."""

    def __init__(self, name: str, owner: Owner | None, uid: str, now_ms: int) -> None:
        super().__init__(name, owner, [(now_ms, WAITING, 0)])
        self.uid = uid
        self.held = True

    def ends(self, now_ms: int) -> bool:
        return self.held or super().ends(now_ms)

    def stop(self, now_ms: int, shown_ms: int, dead_ms: int) -> None:
        if self.held:
            self.held, self.stopped, self.life = False, True, [(now_ms, STOPPED, 0)]
        super().stop(now_ms, shown_ms, dead_ms)

    def shown(self, now_ms: int, skew_ms: int) -> Run:
        return msgspec.structs.replace(super().shown(now_ms, skew_ms), uid=self.uid, held=self.held)


class HeldCluster(TrueCluster):
    holds = True

    def __init__(self, account: str, rng: Random, guard_ms: int) -> None:
        super().__init__(account, rng, guard_ms)
        self.made = 0
        self.logs = self.deaf = False
        """Whether Muster schedules it, and its log is heard; whether its ingest hears nothing any more."""

    def submit(self, name: str, owner: Owner, now_ms: int) -> Submitted:
        answer = super().submit(name, owner, now_ms)
        if not isinstance(answer, Accepted):
            return answer
        self.made += 1
        self.runs[name] = self.ever[-1] = HeldRun(name, owner, f"{name}/{self.made}", now_ms)
        return Accepted(uid=f"{name}/{self.made}", held=True)

    def of(self, name: str, uid: str) -> HeldRun | None:
        run = self.runs.get(name)
        return run if isinstance(run, HeldRun) and run.uid == uid else None

    def release(self, name: str, uid: str, now_ms: int) -> Stopped:
        run = self.of(name, uid)
        if run is None or run.stopped:
            return Absent()
        if run.held and within(self.stop_refused_ms, now_ms):
            return Refused(code="Forbidden", message="", of_content=False)
        if run.held:
            run.held, run.life = False, a_life(self.rng, now_ms, self.guard_ms)
        return Accepted(uid=uid)

    def stop_held(self, name: str, uid: str, now_ms: int) -> Stopped:
        return Absent() if self.of(name, uid) is None else self.stop(name, uid, now_ms)

    def clear(self, name: str, uid: str, now_ms: int) -> Stopped:
        run = self.of(name, uid)
        if run is None:
            return Absent()
        if not (run.ends(now_ms) or run.returned):
            raise Violation(f"{uid} is cleared, and runs")
        del self.runs[name]
        if not run.ends(now_ms):
            run.end(now_ms + self.rng.randrange(20_000))
        return Accepted(uid=uid)

    def is_gone(self, name: str, uid: str, now_ms: int) -> bool:
        """Of a run that is deleted pods may be left."""
        left = any(run.uid == uid and not run.ends(now_ms) for run in self.ever)
        return not left and self.of(name, uid) is None

    def listing(self, now_ms: int) -> Listing:
        found = super().listing(now_ms)
        held = [run for run in self.runs.values() if isinstance(run, HeldRun) and run.held]
        described = [Described(run=run.shown(now_ms, self.skew_ms), owner=run.owner) for run in held]
        return msgspec.structs.replace(found, held=tuple(described))


class HoldingProcess(Process):
    known: dict[str, dict[str, Stray]] = {}  # noqa: RUF012
    """By account: the strays that were known when it was asked last. Never changed in place."""
    again: dict[str, frozenset[str]] = {}  # noqa: RUF012
    """By account: UIDs of runs that the last list showed held, and the log had released by then. Nor is this."""

    def pump(self) -> None:
        super().pump()
        for keys, effect in ((self.state.releasing, self.release), (self.state.clearing, self.clear)):
            for key in [*keys]:
                if key not in self.busy:
                    self.busy.add(key)
                    effect(key)

    def cluster(self, key: Key) -> Any:
        return self.world.clusters[self.state.jobs[key[0]].places[key[1]].account]

    def release(self, key: Key) -> None:
        place, cluster = self.state.jobs[key[0]].places[key[1]], self.cluster(key)
        name, uid = place.name, place.uid
        self.world.step(self)
        asked = lambda: cluster.release(name, uid, self.world.now_ms)  # noqa: E731
        self.world.call(self, cluster, asked, self.released, key, submits=True)

    def released(self, key: Key, answer: Stopped) -> None:
        if key in self.state.releasing:
            job = self.state.jobs[key[0]]
            if isinstance(answer, Accepted):
                self.append(ev.RunReleased(job=job.uid, cluster=key[1]))
            elif isinstance(answer, Refused) and (said := core.release_refused(job, job.places[key[1]], answer)):
                self.world.count["release refused"] += 1
                self.append(said)
                self.pump()
        self.later(key)

    def clear(self, key: Key) -> None:
        cluster, (name, uid) = self.cluster(key), self.state.jobs[key[0]].places[key[1]].remains
        self.world.step(self)
        asked = lambda: cluster.clear(name, uid, self.world.now_ms)  # noqa: E731
        self.world.call(self, cluster, asked, self.cleared, (key, uid), submits=True)

    def cleared(self, about: tuple[Key, str], answer: Stopped) -> None:
        key, uid = about
        place = self.state.jobs[key[0]].places[key[1]]
        if place.remains[1] == uid and isinstance(answer, Accepted | Absent):
            self.world.count["cleared"] += 1
            self.append(ev.RemainsCleared(job=key[0], cluster=key[1], uid=uid))
        self.later(key)

    def stop(self, key: Key) -> None:
        place, cluster = self.state.jobs[key[0]].places[key[1]], self.cluster(key)
        name, uid = place.name, place.uid
        self.world.step(self)
        asked = lambda: cluster.stop_held(name, uid, self.world.now_ms)  # noqa: E731
        self.world.call(self, cluster, asked, self.stopped, key)

    def poll(self, account: str) -> None:
        """Whether anything is open or not: late submissions are looked for."""
        cluster = self.world.clusters[account]
        asked_ns = observing.log_time_ns(self.state, self.clock_ns())
        self.known = {**self.known, account: dict(self.state.strays.get(account, {}))}
        self.world.call(self, cluster, lambda: cluster.listing(self.world.now_ms), self.looked, (account, asked_ns))

    def looked(self, asked: tuple[str, int], answer: Any) -> None:
        if isinstance(answer, Listing):
            self.clear_strays(asked[0], answer)
            remains = observing.remains(self.state, asked[0], "fed", answer)
            strays = observing.strays(self.state, asked[0], "fed", answer)
            self.world.count["late submission found"] += len(remains)
            self.world.count["late submission of a forgotten job"] += len(strays)
            released = [*observing.released(self.state, asked[0], answer), *self.held_again(asked[0], answer)]
            if found := [*released, *remains, *strays]:
                self.append(*found)
                self.pump()
        super().looked(asked, answer)

    def held_again(self, account: str, listing: Listing) -> list[ev.SubmissionHeld]:
        """What this list and the one before show held, though it was released."""
        found = observing.held_again(self.state, account, "fed", listing)
        before, self.again = self.again.get(account, ()), {**self.again, account: frozenset(found)}
        self.world.count["held again"] += sum(uid in before for uid in found)
        return [found[uid] for uid in found if uid in before]

    def left_of(self, cluster: Any, name: str, uid: str) -> Any:
        """By its UID: whatever has the name now."""
        gone = lambda: cluster.is_gone(name, uid, self.world.now_ms)  # noqa: E731
        return lambda: Absent() if gone() else Silent(reason="something is left")

    def clear_strays(self, account: str, listing: Listing) -> None:
        """Those that were known before this list was asked for."""
        cluster: Any = self.world.clusters[account]
        held = {one.run.uid for one in listing.held}
        for uid, stray in self.known[account].items():
            said = ev.StrayCleared(account=account, job=stray.job, cluster=stray.cluster, uid=uid)
            if uid not in held:
                self.stray_cleared(said, Absent())
                continue
            self.world.step(self)
            asked = lambda name=stray.name, uid=uid: cluster.clear(name, uid, self.world.now_ms)  # noqa: E731
            self.world.call(self, cluster, asked, self.stray_cleared, said, submits=True)

    def stray_cleared(self, said: ev.StrayCleared, answer: Stopped) -> None:
        there = said.uid in self.state.strays.get(said.account, ())
        if there and isinstance(answer, Accepted | Absent):
            self.world.count["cleared"] += 1
            self.append(said)


class HeldWorld(World):
    cluster_type = HeldCluster
    process_type = HoldingProcess
    for_good = False

    def left(self) -> list[str]:
        """Runs of ours that nobody keeps, on clusters that answer; what was given up may run there after all. What was
        cleared, and that a restored cluster has again, is held or is found as it runs."""
        jobs = self.audit.jobs
        kept = {(job.uid, job.winner) for job in jobs.values() if job.winner and not job.cancelled}
        given_up = {(uid, alias) for uid, job in jobs.items() for alias, place in job.places.items() if place.given_up}
        return [
            run.uid
            for cluster in self.clusters.values()
            for run in cluster.runs.values()
            if isinstance(run, HeldRun) and run.owner is not None and (run.owner.job, run.owner.cluster) not in kept
            if run.held or not (run.returned or (run.owner.job, run.owner.cluster) in given_up)
            if FOR_EVER_MS not in (*cluster.cut_ms, *cluster.forbidden_ms)
        ]

    def is_over(self) -> bool:
        if self.now_ms < FAULTS_END_MS + 20_000 or not super().is_over() or self.process is None:
            return False
        return not (self.folded.strays or self.left() or self.intended())

    def intended(self) -> list[Key]:
        """What is still to be done, on clusters that answer."""
        jobs = self.folded.jobs
        accounts = {(uid, alias): jobs[uid].places[alias].account for uid, alias in self.folded.intents()}
        return [key for key, account in accounts.items() if FOR_EVER_MS not in self.clusters[account].cut_ms]

    def run(self) -> None:
        super().run()
        if left := self.left():
            raise Violation(f"garbage: {left}")


def run(seed: int) -> tuple[str, Counter[str]]:
    """What was violated, if anything, and the faults."""
    return simulation.run(seed, HeldWorld)
