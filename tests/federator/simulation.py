"""Histories of a federation from a seed: n clusters, faults, and what must hold through all of it.

``python -m tests.federator.simulation --seeds N --from K [--plant NAME]`` runs N histories and prints how often each
fault happened; ``--replay SEED`` prints one history's log. The federator's own core, fold and observations run, over
clusters that are simulated (`clusters`) and a network that loses and delays; only its process is another, without a loop.
What must hold stands in `audit`.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import events as ev
from events import Event
from events.federation import Contender
from services.federator import core, observing
from services.federator.backends import Described, InDoubt, Listing, NotSent, Owner, Silent, Stopped, Submitted, Taken
from services.federator.records import RACING, SETTLED, Key, account_of
from services.federator.specialize import name_on
from services.federator.state import State
from services.state.clock import HEARTBEAT_NS
from tests.federator.audit import Audit, Violation
from tests.federator.clusters import TrueCluster, foreign

MS = 1_000_000
EPOCH_MS = 1_700_000_000_000
FAULTS_END_MS = 240_000
LONGEST_MS = 3_600_000
"""By then everything must have settled: faults end after four minutes."""
MOST_COMMITS = 5_000
"""Hundreds are usual: more is somebody who repeats himself."""
TIMEOUT_MS = 6_000
MOST_SKEW_MS = 300_000


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
        self.gathered: list[tuple[str, int, Any]] = []
        """Answers that are looked at together: account, when it was asked, what it said."""
        self.state = State()
        for number, commit in enumerate(world.log, 1):
            self.state.apply(number, commit)
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
        world.step(self)

    def begin(self) -> None:
        self.append(ev.FederatorTaken(holder=str(self.epoch)))
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
        if not isinstance(answer, NotSent):
            self.tried.add(key)
        if key not in self.state.submitting:
            return self.free(key)
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        if isinstance(answer, Taken):
            cluster, name = self.world.clusters[place.account], place.name
            asked = lambda: cluster.describe(name, self.world.now_ms)  # noqa: E731
            return self.world.call(self, cluster, asked, self.described, key)
        said = core.submission_answered(job, place, answer, key in self.tried)
        if said is not None:
            self.append(said)
        return self.free(key) if key not in self.state.submitting else self.later(key)

    def described(self, key: Key, answer: Any) -> None:
        if key not in self.state.submitting or not isinstance(answer, Described):
            return self.later(key)
        job = self.state.jobs[key[0]]
        self.append(core.name_described(job, job.places[key[1]], self.owner(key), answer))
        return self.free(key)

    def stop(self, key: Key) -> None:
        place = self.state.jobs[key[0]].places[key[1]]
        cluster = self.world.clusters[place.account]
        self.world.step(self)
        name = place.name
        self.world.call(self, cluster, lambda: cluster.stop(name, self.world.now_ms), self.stopped, key)

    def stopped(self, key: Key, answer: Stopped) -> None:
        if key in self.state.stopping:
            job = self.state.jobs[key[0]]
            said = core.stop_answered(job, job.places[key[1]], answer)
            if said is not None:
                self.append(said)
        self.later(key)

    # ------------------------------------------------------------------------------------------------- observations

    def poll(self, account: str) -> None:
        if not self.state.open[account] and not self.world.requests:
            return
        cluster = self.world.clusters[account]
        asked_ns = observing.log_time_ns(self.state, self.clock_ns())
        self.world.call(self, cluster, lambda: cluster.listing(self.world.now_ms), self.looked, (account, asked_ns))

    def looked(self, asked: tuple[str, int], answer: Listing | InDoubt | NotSent | Silent) -> None:
        self.gathered.append((*asked, answer))
        if not self.world.gathers:
            self.look()
        elif len(self.gathered) == 1:
            self.world.after(1_000, self, self.look)

    def look(self) -> None:
        """At what was answered meanwhile, in one commit."""
        state, world = self.state, self.world
        clock_ns = max(self.clock_ns(), state.clock.time_ns)
        said = [
            seen
            for account, asked_ns, answer in self.gathered
            if (seen := self.seen(account, asked_ns, answer, clock_ns))
        ]
        racing = any(job.phase == RACING for job in state.jobs.values())
        if said or (racing and clock_ns - state.clock.time_ns >= HEARTBEAT_NS):
            self.append(observing.ticked(state, clock_ns), *said)
        for account, _, _ in self.gathered:
            world.after(5_000 + (0 if world.gathers else world.rng.randrange(3_000)), self, self.poll, account)
        self.gathered.clear()
        self.pump()

    def seen(self, account: str, asked_ns: int, answer: Any, clock_ns: int) -> Event | None:
        now_ns = observing.log_time_ns(self.state, clock_ns)
        before_ns = self.answered.get(account, -1)
        if not isinstance(answer, Listing):
            return observing.silent(self.state, account, "no answer", before_ns=before_ns)
        self.answered[account] = asked_ns
        return observing.observed(self.state, account, answer, asked_ns=asked_ns, now_ns=now_ns, before_ns=before_ns)


class World:
    """One history."""

    cluster_type: type[TrueCluster] = TrueCluster
    process_type: type[Process] = Process

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.seed = seed
        self.now_ms = 0
        self.count: Counter[str] = Counter()
        self.log: list[tuple[Event, ...]] = []
        self.epoch = 0
        self.queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.serial = 0
        self.steps = 0
        guard_ms = rng.choice((0, 10_000, 30_000, 30_000, 60_000))
        self.guard_ms = guard_ms
        self.scale_ms = rng.choice((0, 200, 1_000))
        self.gathers = rng.random() < 0.4
        """Whether answers of several clusters are looked at together."""
        aliases = [f"c{index}" for index in range(rng.choice((2, 2, 3, 3, 4, 5)))]
        self.aliases = aliases
        self.clusters = {
            account_of("ann", alias): self.cluster_type(account_of("ann", alias), rng, max(guard_ms, 5_000))
            for alias in aliases
        }
        self.requests = [self.request(index) for index in range(rng.choice((1, 1, 1, 2)))]
        self.plan_faults()
        self.audit = Audit(self)
        self.process: Process | None = None
        self.at(0, self.start)
        for index, request in enumerate(list(self.requests)):
            self.at(index * 7_000, self.ask, request)
            if rng.random() < 0.08:
                self.at(rng.randrange(FAULTS_END_MS), self.cancel, request.job)

    def request(self, index: int) -> ev.JobFederated:
        rng = self.rng
        name = f"job-{index}"
        priorities = [rng.choice((0, 10, 50, 50, 90, 100)) * 1_000 for _ in self.aliases]
        if rng.random() < 0.2:
            priorities = [0] * len(priorities)
        contenders = [
            Contender(cluster=a, uri=a, user="ann", gpu_type="", priority_milli=p, name=name_on(name, a))
            for a, p in zip(self.aliases, priorities, strict=True)
        ]
        return ev.JobFederated(
            job=f"u{index}",
            name=name,
            digest="",
            guard_ms=self.guard_ms,
            scale_ms=self.scale_ms,
            clusters=tuple(contenders),
        )

    # -------------------------------------------------------------------------------------------------------- faults

    def plan_faults(self) -> None:
        rng = self.rng
        calm = rng.random() < 0.1
        roll = (lambda share: False) if calm else (lambda share: rng.random() < share)
        self.lost_request = 0.06 if roll(0.6) else 0.0
        self.lost_answer = 0.08 if roll(0.6) else 0.0
        self.late = 0.15 if roll(0.6) else 0.0
        self.crash_steps = {rng.randrange(1, 80) for _ in range(rng.choice((0, 1, 2, 4)))} if not calm else set()
        for cluster in self.clusters.values():
            if roll(0.5):
                cluster.skew_ms = rng.randrange(-MOST_SKEW_MS, MOST_SKEW_MS)
                self.count["clock skew"] += 1
            if roll(0.3):
                cluster.cut_ms = self.period(90_000)
            if roll(0.2):
                cluster.limited_ms = self.period(60_000)
            if roll(0.15):
                cluster.forbidden_ms = self.period(60_000)
            if roll(0.25):
                cluster.stop_refused_ms = self.period(120_000)
            cluster.content_refused = roll(0.03)
            for request in self.requests:
                for contender in request.clusters:
                    if account_of("ann", contender.uri) == cluster.account and roll(0.08):
                        cluster.runs[contender.name] = foreign(contender.name)
                        self.count["foreign job of the same name"] += 1

    def period(self, longest_ms: int) -> tuple[int, int]:
        begin_ms = self.rng.choice((0, self.rng.randrange(FAULTS_END_MS)))
        return begin_ms, min(begin_ms + self.rng.randrange(longest_ms), FAULTS_END_MS)

    def step(self, process: Process) -> None:
        """Something a process does; here it may end, or be stopped for a while and be replaced."""
        self.steps += 1
        if self.steps not in self.crash_steps:
            return
        if self.rng.random() < 0.7:
            self.count["crash"] += 1
            raise Crash
        self.count["paused and replaced"] += 1
        process.paused_until_ms = self.now_ms + self.rng.randrange(5_000, 90_000)
        self.at(self.now_ms + self.rng.randrange(2_000, 20_000), self.start)

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
        rng, now_ms = self.rng, self.now_ms
        faulty = now_ms < FAULTS_END_MS
        begin_ms, end_ms = cluster.cut_ms
        if begin_ms <= now_ms < end_ms:
            self.count["partition"] += 1
            if rng.random() < 0.5:
                return self.after(10, process, told, about, NotSent(reason="refused"))
            return self.after(TIMEOUT_MS, process, told, about, InDoubt(reason="no route"))
        if faulty and rng.random() < self.lost_request:
            self.count["lost request"] += 1
            return self.after(TIMEOUT_MS, process, told, about, InDoubt(reason="lost"))
        if faulty and submits and rng.random() < self.late:
            self.count["late submission"] += 1
            self.at(now_ms + rng.choice((8_000, 60_000, 600_000)), asked)
            return self.after(TIMEOUT_MS, process, told, about, InDoubt(reason="late"))
        if faulty and rng.random() < self.lost_answer:
            self.count["lost answer"] += 1
            self.at(now_ms + rng.randrange(1_000), asked)
            return self.after(TIMEOUT_MS, process, told, about, InDoubt(reason="answer lost"))
        return self.at(now_ms + rng.randrange(300), self.arrive, process, asked, told, about)

    def arrive(self, process: Process, asked: Callable[[], Any], told: Callable[[Any, Any], None], about: Any) -> None:
        answer = asked()
        kind = type(answer).__name__
        if kind == "Limited":
            self.count["429"] += 1
        elif kind == "Refused":
            self.count["stop refused" if told.__name__ == "stopped" else "submission refused"] += 1
        self.after(self.rng.randrange(300), process, told, about, answer)

    # ------------------------------------------------------------------------------------------------------ the queue

    def at(self, time_ms: int, what: Callable[..., Any], *about: Any) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (time_ms, self.serial, what, about))

    def after(self, delay_ms: int, process: Process, what: Callable[..., None], *about: Any) -> None:
        """Something that a process does then, if it is still there."""
        self.at(self.now_ms + delay_ms, self.continued, process, what, about)

    def continued(self, process: Process, what: Callable[..., None], about: tuple[Any, ...]) -> None:
        if not process.alive:
            return None
        if self.now_ms < process.paused_until_ms:
            return self.at(process.paused_until_ms, self.continued, process, what, about)
        self.guarded(process, what, *about)
        return None

    def guarded(self, process: Process, what: Callable[..., None], *about: Any) -> None:
        try:
            what(*about)
        except Crash:
            process.alive = False
            if process is self.process:
                self.at(self.now_ms + self.rng.randrange(500, 20_000), self.start)

    def start(self) -> None:
        process = self.process = self.process_type(self)
        self.guarded(process, process.begin)

    def ask(self, request: ev.JobFederated) -> None:
        """A user's client: it asks until it has its answer."""
        process = self.process
        if process is None or not process.alive or self.now_ms < process.paused_until_ms:
            return self.at(self.now_ms + 1_000, self.ask, request)
        if request.job not in process.state.jobs:
            self.guarded(process, self.accept, process, request)
        if process.alive:
            self.requests.remove(request)
        else:
            self.at(self.now_ms + 1_000, self.ask, request)
        return None

    def accept(self, process: Process, request: ev.JobFederated) -> None:
        process.append(request)
        process.pump()

    def cancel(self, uid: str) -> None:
        process = self.process
        if (
            process is None
            or not process.alive
            or self.now_ms < process.paused_until_ms
            or uid not in process.state.jobs
        ):
            return self.at(self.now_ms + 1_000, self.cancel, uid)
        if (said := core.cancelled(process.state.jobs[uid])) is not None:
            self.count["cancelled by its user"] += 1
            self.guarded(process, self.say, process, said)
        return None

    def say(self, process: Process, said: Event) -> None:
        process.append(said)
        process.pump()

    def run(self) -> None:
        """To the end. Raises Violation."""
        while self.queue and self.now_ms < LONGEST_MS:
            if len(self.log) > MOST_COMMITS:
                raise Violation(f"{MOST_COMMITS} commits, and it goes on")
            self.now_ms, _, what, about = heapq.heappop(self.queue)
            what(*about)
            if self.is_over():
                break
        self.audit.end()

    def is_over(self) -> bool:
        """Faults are over, everything is settled, and nothing is under way any more but looks."""
        if self.now_ms < FAULTS_END_MS + 20_000 or self.requests or self.process is None or not self.process.alive:
            return False
        if any(job.phase != SETTLED for job in self.process.state.jobs.values()):
            return False
        return all(what.__name__ == "continued" for _, _, what, _ in self.queue)


def run(seed: int) -> tuple[str, Counter[str]]:
    """What was violated, if anything, and the faults."""
    world = World(seed)
    try:
        world.run()
    except Violation as violation:
        return str(violation), world.count
    return "", world.count


def _work(given: tuple[int, int, str]) -> tuple[list[tuple[int, str]], Counter[str]]:
    first, seeds, plant = given
    count: Counter[str] = Counter()
    failed = []
    if plant:
        from tests.federator import plants

        plants.PLANTS[plant]()
    for seed in range(first, first + seeds):
        violation, faults = run(seed)
        count += faults
        if violation:
            failed.append((seed, violation))
    return failed, count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.federator.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", type=int, dest="first", default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plant", default="", help="with this rule broken (tests.federator.plants)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one history, its log printed")
    given = parser.parse_args()
    if given.replay is not None:
        return _replay(given.replay, given.plant)
    portion = 250
    portions = [
        (begin, min(portion, given.first + given.seeds - begin), given.plant)
        for begin in range(given.first, given.first + given.seeds, portion)
    ]
    began_s = time.monotonic()
    failed: list[tuple[int, str]] = []
    count: Counter[str] = Counter()
    with multiprocessing.Pool(given.workers) as pool:
        for found, faults in pool.imap_unordered(_work, portions):
            failed += found
            count += faults
    for name, number in sorted(count.items()):
        print(f"{number:10,}  {name}")
    for seed, violation in sorted(failed)[:10]:
        print(f"seed {seed}: {violation}")
    took_s = time.monotonic() - began_s
    each_ms = took_s * given.workers * 1_000 / given.seeds
    print(
        f"{given.seeds:,} histories from {given.first}, {count.total():,} faults, {len(failed)} violated; "
        f"{took_s:.0f} s, {each_ms:.1f} ms each"
    )
    return 1 if failed else 0


def _replay(seed: int, plant: str) -> int:
    if plant:
        from tests.federator import plants

        plants.PLANTS[plant]()
    world = World(seed)
    violation = ""
    try:
        world.run()
    except Violation as found:
        violation = str(found)
    for number, commit in enumerate(world.log, 1):
        for event in commit:
            print(number, event)
    print(violation or "nothing was violated")
    return 1 if violation else 0


if __name__ == "__main__":
    sys.exit(main())
