"""One history of the service: the loop, the log's server, faults of both, and what must hold besides."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import yaml

import events as ev
from events import Event, envelope
from events.envelope import Stored
from events.log import LogError
from events.object_store import Bucket
from services.federator import observing
from services.federator.backends import Reach
from services.federator.records import ENDED, SETTLED, Job
from services.federator.rules import forgotten
from services.federator.service import Federator
from services.federator.snapshot import FORM
from services.federator.state import State
from services.writer import SteppedDown
from tests.federator.audit import Audit, Violation
from tests.federator.held import HeldCluster, HeldWorld
from tests.federator.jobs import for_clusters
from tests.federator.served.people import Clients
from tests.federator.served.ports import Blobs, reach
from tests.federator.served.process import FEDERATOR, NAME, RETENTION, Running, Supervisor
from tests.federator.served.stead import drawn
from tests.federator.simulation.network import FAULTS_END_MS
from tests.federator.simulation.world import LONGEST_MS, MOST_COMMITS, World
from tests.simulation import faults, strikes
from tests.simulation.broker import Broker
from tests.simulation.ending import Ending
from tests.simulation.faults import Draw, Faults, draw
from tests.simulation.loop import START_S, VirtualLoop
from tests.simulation.processes import Process
from tests.simulation.stead import simulated

SWEEP_S = 45.0
"""Instead of an hour, between two looks at clusters where no job is open."""
OVERDUE_COMMITS = 40
"""Within so many commits of others the core has its word: it waits for its turn as they do."""
SNAPSHOT_AFTER_BYTES = 3_000
RETAINED = 0.4
"""In how many histories somebody lets the retention purge the log, every half a minute."""
LOG, ONE = ("append",), (FEDERATOR,)
DRAWS = (
    *(row for row in faults.DRAWS if row.on == LOG and row.slots == ("",) and row.kind != "slow"),
    Draw(1, "refused", LOG, codes=(10023, 10077), times=8),
    Draw(4, "slow", LOG, for_s=(0.1, 1.9), times=3),
    Draw(4, "crash before", LOG),
    Draw(6, "crash after", LOG),
    Draw(4, "stop before", LOG, for_s=(0.5, 60.0)),
    Draw(4, "stop after", LOG, for_s=(0.5, 60.0)),
    Draw(2, "gap", ("read",)),
    Draw(1, "lost", ("store",)),
    Draw(1, "crash after", ("store",)),
    Draw(4, "crash", slots=ONE),
    Draw(4, "stop", slots=ONE, for_s=(0.5, 90.0)),
    Draw(4, "restart", slots=ONE),
    Draw(2, "disconnect", slots=ONE, for_s=(0.05, 5.0)),
    Draw(2, "partition", slots=ONE, for_s=(0.2, 12.0)),
    Draw(2, "log down", for_s=(0.1, 8.0)),
    Draw(1, "power loss", for_s=(0.5, 5.0)),
)
"""Faults of the log and of the process; those of clusters are `simulation.network`'s."""


class LateAudit(Audit):
    """The service says what is due in its turn, not before anything else is said."""

    late: Counter[str]

    def check_overdue(self, commit: tuple[Event, ...]) -> None:
        if isinstance(commit[0], ev.FederatorTaken):
            self.late = Counter()
        for job in self.jobs.values():
            overdue = self.overdue(job)
            self.late[job.uid] = self.late[job.uid] + 1 if overdue else 0
            if self.late[job.uid] > OVERDUE_COMMITS:
                raise Violation(f"{job.uid}: overdue: {overdue}")


class Served(Ending, World):
    people: Clients
    audit_type = LateAudit
    people_type = Clients
    identifying = 0.0
    """OpenPAI: names are kept for ever."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._unhandled)
        self.faults = Faults(self)  # type: ignore[arg-type]
        source = random.Random(f"{seed}/log")
        self.broker = Broker(self.loop, NAME, self.faults, source, self._landed, replicas=source.choice([1, 3]))
        self.broker.bodies.purged = self._body_gone
        self.told = State()
        self.names: set[str] = set()
        """Of jobs that were ever accepted."""
        self.unneeded: set[str] = set()
        """Bodies of jobs that at some time were settled, and whose winner had ended."""
        self.heard_ns: dict[tuple[Any, str], int] = {}
        """By process and account: the log time of the question that was answered last."""
        self._speaker: Process | None = None
        """Who wrote the commit that is read."""
        self.unlisted: set[str] = set()
        """Accounts that the clusters file has lost."""
        self._under_way = 0
        Ending.__init__(self, self.loop)
        World.__init__(self, seed)
        self.supervisor = Supervisor(self, source.choice([0, SNAPSHOT_AFTER_BYTES]))
        if source.random() < RETAINED:
            for at_s in range(30, FAULTS_END_MS // 1_000, 30):
                self.loop.at(START_S + at_s, self.supervisor.start, RETENTION)
        self._people_do_more(random.Random(f"{seed}/people"))
        if not self.network.calm:
            count = source.choice((0, 2, 4, 8, 12))
            for fault in draw(source, count, 0.0, FAULTS_END_MS / 1_000, DRAWS):
                self.loop.at(START_S + fault.at_s, self._strike, fault)

    def _people_do_more(self, source: random.Random) -> None:
        """Two submit a job of one name; some look; a cluster is out of the clusters file for a while."""
        if source.random() < 0.2:
            twice = source.choice(self.requests)
            self.requests.append(twice)
            self.at(source.choice((0, 7_000)) + source.randrange(1_000), self.people.ask, twice)
        for _ in range(source.choice((0, 4))):
            self.at(source.randrange(FAULTS_END_MS), self.people.look_around)
        if source.random() < 0.1:
            account = source.choice(sorted(self.clusters))
            begin_ms = source.randrange(FAULTS_END_MS)
            self.at(begin_ms, self.unlist, account)
            self.at(begin_ms + source.randrange(FAULTS_END_MS), self.list_again)
        for cluster in self.clusters.values():
            if isinstance(cluster, HeldCluster) and source.random() < 0.4:
                cluster.logs = True
                if source.random() < 0.2:
                    begin_ms = source.randrange(FAULTS_END_MS)
                    self.at(begin_ms, setattr, cluster, "deaf", True)
                    self.at(FAULTS_END_MS, setattr, cluster, "deaf", False)

    # ------------------------------------------------------------------------------------------------------- the queue

    @property
    def now_ms(self) -> int:
        return int((self.loop.now_s - START_S) * 1_000)

    def at(self, time_ms: int, what: Callable[..., Any], *about: Any) -> None:
        self._under_way += 1
        self.loop.at(START_S + time_ms / 1_000, self._happens, what, about)

    def after(self, delay_ms: int, process: Any, what: Callable[..., None], *about: Any) -> None:
        self.loop.after(delay_ms / 1_000, self.safely, what, *about)

    def _happens(self, what: Callable[..., Any], about: tuple[Any, ...]) -> None:
        self._under_way -= 1
        self.safely(what, *about)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self.supervisor.over and not isinstance(error, SteppedDown | LogError):
            self.fail(error)

    # --------------------------------------------------------------------------------------------------------- the log

    @property
    def folded(self) -> State:
        return self.told

    def answered_ns(self, account: str) -> int:
        return self.heard_ns.get((self._speaker, account), -1)

    def heard(self, process: Any, account: str, asked_ns: int) -> None:
        """The account answered this process; just after time jumped, a question may seem older than the one before."""
        self.heard_ns[process, account] = max(asked_ns, self.heard_ns.get((process, account), -1))

    def log_time_ns(self, process: Any) -> int:
        """As the process reckons it now."""
        federator: Federator = process.federator
        return observing.log_time_ns(federator.state, federator._clock.now_ns())

    def needed(self) -> set[str]:
        """Bodies, by what the log says. Of a job that needed its own no more, and is cancelled or settles anew behind
        that, nothing is submitted or released."""
        return {job.digest for job in self.told.jobs.values()} - self.unneeded

    def _body_gone(self) -> None:
        gone = self.needed() - self.broker.bodies.names()
        self.check(not gone, f"bodies {gone} go, and their jobs may need them")

    def check(self, holds: bool, otherwise: str) -> None:
        """Wherever it is called from."""
        if not holds:
            self.fail(Violation(otherwise))

    def _landed(self, stored: Stored, process: Process | None) -> None:
        self.safely(self._read, stored, process)

    def _read(self, stored: Stored, process: Process | None) -> None:
        said = tuple(envelope.decode(stored).events)
        self._speaker = process
        self.log.append(said)
        if len(self.log) > MOST_COMMITS:
            raise Violation(f"{MOST_COMMITS} commits, and it goes on")
        self.told.apply(stored.sequence, said)
        for event in said:
            if isinstance(event, ev.JobFederated):
                self.names.add(event.name)
                self.check(event.digest in self.broker.bodies.names(), f"the body of {event.name} is not there")
        self.unneeded.update(job.digest for job in self.told.jobs.values() if _is_done(job))
        self.audit.read(said)

    # ---------------------------------------------------------------------------------------------------------- faults

    def _strike(self, fault: Any) -> None:
        if fault.on:
            self.faults.arm(fault)
        elif strikes.strike(self, fault):  # type: ignore[arg-type]
            self.faults.hits[fault.name] += 1

    def kill(self, process: Process) -> None:
        self.supervisor.kill(process)

    def stop(self, process: Process, for_s: float) -> None:
        self.supervisor.stop(process, for_s)

    def unlist(self, account: str) -> None:
        """Somebody takes it out of the file, and starts the federator anew."""
        self.count["a cluster out of the file"] += 1
        self.unlisted.add(account)
        self.supervisor.restart()

    def list_again(self) -> None:
        self.unlisted.clear()
        self.supervisor.restart()

    async def pass_by(self, process: Process) -> None:
        """Something that a process does; here it may end, or be stopped for a while."""
        self.steps += 1
        if self.steps not in self.crash_steps:
            return
        if self.rng.random() < 0.7:
            self.count["crash"] += 1
            self.supervisor.kill(process)
        else:
            self.count["paused"] += 1
            self.supervisor.stop(process, self.rng.uniform(5.0, 90.0))
        await asyncio.sleep(0)

    async def reaches(self, process: Running) -> dict[str, Reach]:
        listed = [one for one in self.clusters.items() if one[0] not in self.unlisted]
        return {account: reach(self, process, cluster) for account, cluster in listed}

    def blobs(self, process: Running, bucket: Bucket) -> Blobs:
        return Blobs(self, process, bucket)

    # ----------------------------------------------------------------------------------------------------------- users

    def serving(self) -> Running | None:
        """Who answers requests, if anybody does."""
        return self.supervisor.serving()

    def document(self, request: ev.JobFederated) -> str:
        """The job, as its user wrote it."""
        return yaml.safe_dump(for_clusters(request), sort_keys=False)

    def name_of(self, uid: str) -> str:
        return f"job-{uid.removesuffix('-again').rpartition('u')[2]}"

    def again(self, job: str) -> None:
        self.count["forgotten"] += 1
        told = next(one for commit in self.log for one in commit if isinstance(one, ev.JobFederated) and one.job == job)
        if self.others_rng.random() < 0.5 or self.count["submitted again"] > 2:
            return
        self.count["submitted again"] += 1
        self.requests.append(told)
        self.at(self.now_ms + self.others_rng.randrange(120_000), self.people.ask, told)

    # --------------------------------------------------------------------------------------------------------- running

    def start(self) -> None:
        self.supervisor.replace()

    def run(self) -> None:
        """To the end, and once more from the log: nothing is left to do. Raises Violation."""
        with simulated(self.loop, self.seed, self.count), drawn(self.seed, self.kept, SWEEP_S):
            try:
                self.loop.run_until_complete(self._history())
                if self.violation is not None:
                    raise self.violation
            finally:
                self.count.update(self.faults.hits)
                self.count["commits purged"] += self.broker.first - 1
                self.supervisor.dispose()
                self.loop.close()

    async def _history(self) -> None:
        heal = self.loop.at(START_S + FAULTS_END_MS / 1_000, self.faults.lift)
        if await self._rests(lambda: self.is_over() and self._is_cleared()):
            self.supervisor.restart()
            await asyncio.wait({self.broken}, timeout=1.0)
            if await self._rests(lambda: self.is_over() and self._is_cleared()):
                self.safely(self._end)
        heal.cancel()

    async def _rests(self, rests: Callable[[], bool]) -> bool:
        """Waits for that; whether it came."""
        while self.now_ms < LONGEST_MS and not self.broken.done():
            if rests():
                return True
            await asyncio.wait({self.broken}, timeout=1.0)
        late = {account: [*strays] for account, strays in self.told.strays.items()}
        left = f"left {self.left()}, of {len(self.broker.bodies.names())} bodies {self._parts()}"
        self.fail(Violation(f"not at rest: to do {[*self.told.intents()]}, forgotten and late {late}, {left}"))
        return False

    def is_over(self) -> bool:
        if self.now_ms < FAULTS_END_MS + 20_000 or self.requests or self._under_way:
            return False
        serving = self.serving()
        if serving is None or serving.federator is None or serving.federator.decider.writer.last != len(self.log):
            return False
        state = self.told
        settled = all(job.phase == SETTLED for job in state.jobs.values())
        return settled and not [*forgotten.forgotten(state.over)] and not self.is_loose()

    def _is_cleared(self) -> bool:
        """Bodies go in two steps; and what one who was replaced kept lies there until somebody looks again."""
        kept = self.broker.bodies.names()
        return len(self._parts()) == 2 * len(kept) and kept == self.needed()

    def _parts(self) -> set[str]:
        """Of bodies: two of each that is whole."""
        return {put.subject for put in self.broker.bodies.messages.values()}

    def left(self) -> list[str]:
        """Where names are kept for ever nobody clears."""
        return []

    def _end(self) -> None:
        """Raises Violation."""
        self.audit.end()
        serving = self.serving()
        assert serving is not None
        assert serving.federator is not None
        same = _but_sequence(serving.federator.state) == _but_sequence(self.told)
        self.check(same, "the service's state is not what the log says")
        kept = self.broker.bodies.names()
        self.check(self.needed() == kept, f"bodies: {self.needed()} are needed, {kept} are there")


def _is_done(job: Job) -> bool:
    """Nothing of it is in a race, and what won it has ended."""
    return job.phase == SETTLED and all(place.phase == ENDED for place in job.places.values())


def _but_sequence(state: State) -> list[bytes]:
    """A service does not fold what says only that its subject is renewed."""
    return [*FORM.lines(state)][1:]


class HeldServed(HeldWorld, Served):
    identifying = 1.0
    """Kubernetes: whoever may deletes, and names are free again."""
    for_good = True
