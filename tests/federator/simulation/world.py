"""One history: the clusters, the queue of what will happen, the federator's log and its snapshots."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

import events as ev
from events import Event
from events.envelope import FIRST_VERSION
from events.federation import Contender
from services.federator.records import SETTLED, account_of
from services.federator.rules import forgotten
from services.federator.snapshot import FORM
from services.federator.specialize import name_on
from services.federator.state import State
from services.state.form import at_once
from tests.federator.audit import Audit, Violation
from tests.federator.clusters import TrueCluster
from tests.federator.simulation.network import FAULTS_END_MS, KEPT, LATEST_MS, Network
from tests.federator.simulation.people import People
from tests.federator.simulation.process import Crash, Process

LONGEST_MS = 3_600_000
"""By then everything must have settled: faults end after four minutes, and an operator looks at what lasts."""
LOOKED_AT_MS = FAULTS_END_MS + LATEST_MS + 100_000
"""By an operator: what could land late has landed."""
FOUND_MS = FAULTS_END_MS + LATEST_MS + 300_000
"""By then a list shows what a restored cluster runs again, or what came last of all, and it is stopped."""
ORIGIN = "fed"
"""Of the jobs' UIDs; empty: as in logs of before there were origins."""
AGAIN_MS = 120_000
"""Within this time a user submits a job again whose name is free."""
MOST_COMMITS = 5_000
"""Hundreds are usual: more is somebody who repeats himself."""


class World:
    """One history."""

    cluster_type: type[TrueCluster] = TrueCluster
    process_type: type[Process] = Process
    audit_type: type[Audit] = Audit
    people_type: type[People] = People
    identifying = 0.3
    """In how many clusters runs have identities, and are deleted by hand."""
    for_good = True
    """Whether things happen that nothing mends: runs are deleted, clusters go, operators give up."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.others_rng = Random(f"others {seed}")
        """For what came later than these seeds: the rest of a history stays as it was."""
        self.seed = seed
        self.poll_ms = self.others_rng.choice((5_000, 5_000, 5_000, 45_000))
        """Between two lists of a cluster: also longer than what counts as a jump."""
        self._now_ms = 0
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
        self.people = self.people_type(self)
        self.kept = KEPT
        self.network = Network(self)
        self.call = self.network.call
        calm = self.network.calm
        self.crash_steps = {rng.randrange(1, 80) for _ in range(rng.choice((0, 1, 2, 4)))} if not calm else set()
        self.snapshots_every = rng.choice((0, 0, 5, 20))
        """Commits; 0: none are taken."""
        self.snapshot: tuple[bytes, str] | None = None
        """The newest, and its digest."""
        self.audit = self.audit_type(self)
        self.process: Process | None = None
        self.at(0, self.start)
        for index, request in enumerate(list(self.requests)):
            self.at(index * 7_000, self.people.ask, request)
            if rng.random() < 0.08:
                self.at(rng.randrange(FAULTS_END_MS), self.people.cancel, request.job)
        if self.for_good and self.network.roll(0.06):
            self.at(rng.randrange(FAULTS_END_MS), self.people.rush)
        if self.network.lasting:
            self.at(LOOKED_AT_MS, self.people.look)

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @property
    def folded(self) -> State:
        """What the log says."""
        assert self.process is not None
        return self.process.state

    def answered_ns(self, account: str) -> int:
        """When the federator that speaks asked what the account answered last, in log time; -1: never."""
        assert self.process is not None
        return self.process.answered.get(account, -1)

    def request(self, index: int) -> ev.JobFederated:
        rng = self.rng
        name = f"job-{index}"
        priorities = [rng.choice((0, 10, 50, 50, 90, 100)) * 1_000 for _ in self.aliases]
        if rng.random() < 0.2:
            priorities = [0] * len(priorities)
        if self.others_rng.random() < 0.3:  # parts of a point
            priorities = [min(100_000, p + self.others_rng.randrange(1_000)) for p in priorities]
        contenders = [
            Contender(cluster=a, uri=a, user="ann", gpu_type="", priority_milli=p, name=name_on(name, a))
            for a, p in zip(self.aliases, priorities, strict=True)
        ]
        return ev.JobFederated(
            job=f"{ORIGIN}.u{index}" if ORIGIN else f"u{index}",
            name=name,
            digest="",
            guard_ms=self.guard_ms,
            scale_ms=self.scale_ms,
            clusters=tuple(contenders),
        )

    def again(self, job: str) -> None:
        """A job was forgotten: some submit it again, once."""
        self.count["forgotten"] += 1
        if job.endswith("again") or self.others_rng.random() < 0.5:
            return
        self.count["submitted again"] += 1
        request = next(
            event for commit in self.log for event in commit if isinstance(event, ev.JobFederated) and event.job == job
        )
        self.requests.append(msgspec.structs.replace(request, job=f"{job}-again"))
        self.at(self.now_ms + self.others_rng.randrange(AGAIN_MS), self.people.ask, self.requests[-1])

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

    # ---------------------------------------------------------------------------------------------------- processes

    def start(self) -> None:
        if self.snapshot is not None:
            self.count["started from a snapshot"] += 1
        process = self.process = self.process_type(self)
        self.guarded(process, process.begin)

    def started(self) -> State:
        """The state at the log's end, from the newest snapshot and what follows it."""
        state = State() if self.snapshot is None else at_once(FORM.unpack(*self.snapshot))
        for number in range(state.sequence, len(self.log)):
            state.apply(number + 1, self.log[number])
        return state

    def keep(self) -> ev.SnapshotTaken:
        """Another process takes a snapshot."""
        state = self.started()
        self.snapshot = FORM.pack(state)
        data, digest = self.snapshot
        return ev.SnapshotTaken(sequence=state.sequence, digest=digest, bytes=len(data), state=FIRST_VERSION)

    def step(self, process: Process) -> None:
        """Something a process does; here it may end, or be stopped for a while, and mostly be replaced."""
        self.steps += 1
        if self.steps not in self.crash_steps:
            return
        if self.rng.random() < 0.7:
            self.count["crash"] += 1
            raise Crash
        process.paused_until_ms = self.now_ms + self.rng.randrange(5_000, 90_000)
        replaced_ms = self.now_ms + self.rng.randrange(2_000, 20_000)
        if self.others_rng.random() < 0.3:
            self.count["paused, and goes on"] += 1
            return
        self.count["paused and replaced"] += 1
        self.at(replaced_ms, self.start)

    def run(self) -> None:
        """To the end. Raises Violation."""
        kept, forgotten.KEPT = forgotten.KEPT, self.kept
        try:
            self._run()
        finally:
            forgotten.KEPT = kept

    def _run(self) -> None:
        while self.queue and self.now_ms < LONGEST_MS:
            if len(self.log) > MOST_COMMITS:
                raise Violation(f"{MOST_COMMITS} commits, and it goes on")
            self._now_ms, _, what, about = heapq.heappop(self.queue)
            what(*about)
            if self.is_over():
                break
        self.audit.end()

    def is_loose(self) -> bool:
        """Whether something runs that is not kept, and may still be found, as where a cluster was restored."""
        return self.now_ms < FOUND_MS and any(self.audit.loose(job) for job in self.audit.jobs.values())

    def is_over(self) -> bool:
        """Faults are over, everything is settled, and nothing is under way any more but looks."""
        if self.now_ms < FAULTS_END_MS + 20_000 or self.requests or self.process is None or not self.process.alive:
            return False
        state = self.process.state
        if any(job.phase != SETTLED for job in state.jobs.values()) or [*forgotten.forgotten(state.over)]:
            return False
        if self.is_loose():
            return False
        return all(what.__name__ == "continued" for _, _, what, _ in self.queue)
