"""The federator's process without a loop: what it does, and what it forgets when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import events as ev
from events import Event
from services.federator import core, observing
from services.federator.backends import (
    Absent,
    Described,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Owner,
    Refused,
    Silent,
    Stopped,
    Submitted,
    Taken,
)
from services.federator.records import RACING, Key
from services.state.clock import HEARTBEAT_NS

if TYPE_CHECKING:
    from tests.federator.clusters import TrueCluster
    from tests.federator.simulation.world import World

MS = 1_000_000
EPOCH_MS = 1_700_000_000_000
MOST_SKEW_MS = 300_000
BEAT_MS = HEARTBEAT_NS // MS


class Crash(Exception):
    """This process has ended."""


class Process:
    """One federator process. What it remembers dies with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.paused_until_ms = 0
        self.busy: set[Key] = set()
        self.tried: set[Key] = set()
        self.answered: dict[str, int] = {}
        self.polled: set[str] = set()
        self.idle: set[str] = set()
        """Accounts that were polled, until no job was open there."""
        self.gathered: list[tuple[str, int, Any, list[Key]]] = []
        """Answers that are looked at together: account, when it was asked, what it said, of what it has nothing."""
        self.state = world.started()
        world.epoch += 1
        self.epoch = world.epoch
        wall_ms = EPOCH_MS + world.now_ms + world.rng.randrange(-MOST_SKEW_MS, MOST_SKEW_MS)
        self.ahead_ns = max(wall_ms * MS, self.state.clock.time_ns) - world.now_ms * MS

    def clock_ns(self) -> int:
        return self.world.now_ms * MS + self.ahead_ns

    def append(self, *said: Event) -> None:
        """A commit of its own; whoever was replaced ends here."""
        world = self.world
        if self.epoch != world.epoch:
            world.count["append of a replaced process"] += 1
            raise Crash
        world.step(self)
        world.log.append(said)
        self.state.apply(len(world.log), said)
        world.audit.read(said)
        if world.snapshots_every and len(world.log) % world.snapshots_every == 0:
            world.after(500, self, self.append, world.keep())
        world.step(self)

    def begin(self) -> None:
        self.append(ev.FederatorTaken(holder=str(self.epoch)))
        self.world.after(BEAT_MS, self, self.beat)
        self.pump()

    def pump(self) -> None:
        """Decide until there is nothing to say, then see to effects and polls."""
        state, world = self.state, self.world
        while said := core.decide(state):
            self.append(*said)
        for key in [*state.submitting]:
            if key not in self.busy:
                self.busy.add(key)
                self.submit(key)
        for key in [*state.stopping]:
            if key not in self.busy:
                self.busy.add(key)
                self.stop(key)
        for account in state.clusters:
            if account not in self.polled:
                self.polled.add(account)
                world.after(0 if world.gathers else world.rng.randrange(5_000), self, self.poll, account)
            elif account in self.idle and state.open[account]:
                self.idle.discard(account)
                world.after(0, self, self.poll, account)

    def free(self, key: Key) -> None:
        self.busy.discard(key)
        self.pump()

    def later(self, key: Key) -> None:
        self.world.after(2_000 + self.world.rng.randrange(6_000), self, self.free, key)

    # ------------------------------------------------------------------------------------------------------- effects

    def owner(self, key: Key) -> Owner:
        return Owner(federation="fed", job=key[0], cluster=key[1])

    def submit(self, key: Key) -> None:
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        if core.is_withdrawn(place, key in self.tried):
            self.append(ev.SubmissionWithdrawn(job=job.uid, cluster=place.cluster))
            self.world.after(0, self, self.free, key)
            return
        cluster = self.world.clusters[place.account]
        owner, name = self.owner(key), place.name
        self.world.step(self)
        self.world.call(
            self, cluster, lambda: cluster.submit(name, owner, self.world.now_ms), self.submitted, key, submits=True
        )

    def submitted(self, key: Key, answer: Submitted) -> None:
        if not isinstance(answer, NotSent | Limited):
            self.tried.add(key)
        if key not in self.state.submitting:
            return self.free(key)
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        refused = isinstance(answer, Refused) and answer.of_content and place.may_be_ours
        if isinstance(answer, Taken) or refused:
            cluster, name = self.world.clusters[place.account], place.name
            asked = lambda: cluster.describe(name, self.world.now_ms)  # noqa: E731
            return self.world.call(self, cluster, asked, self.described, (key, answer))
        said = core.submission_answered(job, place, answer, key in self.tried)
        if said is not None:
            self.append(said)
        return self.free(key) if key not in self.state.submitting else self.later(key)

    def described(self, about: tuple[Key, Submitted], answer: Any) -> None:
        (key, before), refused = about, isinstance(about[1], Refused) and isinstance(answer, Absent)
        if key not in self.state.submitting or not (isinstance(answer, Described) or refused):
            return self.later(key)
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        said = (
            core.submission_answered(job, place, before, tried=True)
            if refused
            else core.name_described(job, place, self.owner(key), answer)
        )
        if said is not None:
            self.append(said)
        return self.free(key)

    def stop(self, key: Key) -> None:
        place = self.state.jobs[key[0]].places[key[1]]
        cluster = self.world.clusters[place.account]
        self.world.step(self)
        name, uid = place.name, place.uid
        self.world.call(self, cluster, lambda: cluster.stop(name, uid, self.world.now_ms), self.stopped, key)

    def stopped(self, key: Key, answer: Stopped) -> None:
        if key in self.state.stopping:
            job = self.state.jobs[key[0]]
            said = core.stop_answered(job, job.places[key[1]], answer)
            if said is not None:
                self.append(said)
        self.later(key)

    # ------------------------------------------------------------------------------------------------- observations

    def poll(self, account: str) -> None:
        open_there = self.state.open[account] or self.world.requests
        if not open_there and not self.world.network.restores:
            self.idle.add(account)
            return
        cluster = self.world.clusters[account]
        asked_ns = observing.log_time_ns(self.state, self.clock_ns())
        self.world.call(self, cluster, lambda: cluster.listing(self.world.now_ms), self.looked, (account, asked_ns))

    def looked(self, asked: tuple[str, int], answer: Listing | InDoubt | NotSent | Silent) -> None:
        lacking = observing.missing(self.state, asked[0], answer) if isinstance(answer, Listing) else []
        self.named((asked, answer, lacking, []), None)
        looks = self.world.network.restores and isinstance(answer, Listing)
        for key in observing.back(self.state, asked[0], answer) if looks else []:
            cluster, name = self.world.clusters[asked[0]], self.state.jobs[key[0]].places[key[1]].name
            by_name = lambda cluster=cluster, name=name: cluster.describe(name, self.world.now_ms)  # noqa: E731
            self.world.call(self, cluster, by_name, self.came_back, key)

    def named(self, about: tuple[Any, Any, list[Key], list[Key]], described: Any) -> None:
        """Of what a list lacks the cluster is asked by name, one after the other."""
        asked, answer, lacking, absent = about
        if described is not None:
            key = lacking.pop(0)
            absent += [key] if isinstance(described, Absent) else []
        if lacking:
            cluster, place = self.world.clusters[asked[0]], self.state.jobs[lacking[0][0]].places[lacking[0][1]]
            return self.world.call(self, cluster, self.left_of(cluster, place.name, place.uid), self.named, about)
        self.gathered.append((*asked, answer, absent))
        if not self.world.gathers:
            self.look()
        elif len(self.gathered) == 1:
            self.world.after(1_000, self, self.look)
        return None

    def left_of(self, cluster: TrueCluster, name: str, uid: str) -> Callable[[], Any]:
        """Answered `Absent` where that is nothing."""
        return lambda: cluster.describe(name, self.world.now_ms)

    def came_back(self, key: Key, described: Any) -> None:
        job = self.state.jobs.get(key[0])
        if job is None or not isinstance(described, Described):
            return
        said = core.came_back(job, job.places[key[1]], self.owner(key), described)
        if said is not None:
            self.world.count["runs again"] += 1
            self.append(said)
            self.pump()

    def beat(self) -> None:
        """Log time goes on while a job races, however seldom clusters are listed."""
        racing = any(job.phase == RACING for job in self.state.jobs.values())
        clock_ns = max(self.clock_ns(), self.state.clock.time_ns)
        if racing and clock_ns - self.state.clock.time_ns >= HEARTBEAT_NS:
            self.append(observing.ticked(self.state, clock_ns))
            self.pump()
        self.world.after(BEAT_MS, self, self.beat)

    def look(self) -> None:
        """At what was answered meanwhile, in one commit."""
        state, world = self.state, self.world
        clock_ns = max(self.clock_ns(), state.clock.time_ns)
        said = [
            seen
            for account, asked_ns, answer, absent in self.gathered
            if (seen := self.seen(account, asked_ns, answer, absent, clock_ns))
        ]
        if said:
            self.append(observing.ticked(state, clock_ns), *said)
        for account, _, _, _ in self.gathered:
            world.after(world.poll_ms + (0 if world.gathers else world.rng.randrange(3_000)), self, self.poll, account)
        self.gathered.clear()
        self.pump()

    def seen(self, account: str, asked_ns: int, answer: Any, absent: list[Key], clock_ns: int) -> Event | None:
        now_ns = observing.log_time_ns(self.state, clock_ns)
        before_ns = self.answered.get(account, -1)
        if not isinstance(answer, Listing):
            return observing.silent(self.state, account, "no answer", before_ns=before_ns)
        self.answered[account] = asked_ns = min(asked_ns, now_ns)
        return observing.observed(
            self.state, account, answer, asked_ns=asked_ns, now_ns=now_ns, before_ns=before_ns, absent=absent
        )
