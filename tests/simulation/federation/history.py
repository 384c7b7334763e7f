"""One federated history: the members, the federator's processes and log, its users, and the end of it all."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import msgspec
import yaml

import events as ev
from events import lease
from events.connection import Connection
from events.envelope import Stored
from events.federation import Contender
from events.log import LogError, Unavailable
from events.object_store import Bucket
from services.federator.backends import Reach, leaf
from services.federator.bodies import Blobs, BucketBlobs
from services.federator.core import needs_body
from services.federator.records import account_of
from services.federator.state import State
from services.kubernetes.errors import ApiError
from services.writer import SteppedDown
from tests.federator.jobs import for_clusters, plugin
from tests.federator.served.process import FEDERATOR, RETENTION, VERIFY, Running, Supervisor
from tests.federator.served.stead import drawn
from tests.simulation import rest, strikes
from tests.simulation.broker import Broker
from tests.simulation.cramped import cramped
from tests.simulation.ending import Ending
from tests.simulation.faults import LATE, Fault, Faults, draw
from tests.simulation.federation import set_back
from tests.simulation.federation.member import Member
from tests.simulation.federation.operators import Operators
from tests.simulation.federation.ports import reach
from tests.simulation.federation.training import OF_FEDERATION, OF_OPERATORS
from tests.simulation.federation.witness import NAME, Witness
from tests.simulation.loop import START_S, Handle, VirtualLoop
from tests.simulation.plan import FAULTS, IN_TROUBLE, PACES, Outcome, Plan
from tests.simulation.planting import DENSE_FROM
from tests.simulation.processes import Process
from tests.simulation.stead import simulated
from tests.simulation.workload import Step
from tests.simulation.world import described

MEMBERS = ("a1", "b2")
SEEDS = 100_000_000
"""From here on are the seeds of members: with all that came later for other histories."""
SNAPSHOT_AFTER_BYTES = 3_000
SWEEP_S = 20.0
"""Instead of an hour, between two looks at clusters where no job is open; and of a minute, at bodies."""
PATIENCE_S = 60.0
"""Once faults have ended users wait so long for a job to settle, and then cancel it: it may fit nowhere."""
NAMES = 5
"""Of jobs: few, so that they are used again."""


class Federation(Ending):
    """As `World`, for whoever runs, replays and shortens histories."""

    faults_type, member_type = Faults, Member

    def __init__(self, plan: Plan) -> None:
        self.plan, self.seed = plan, plan.seed
        self.phases = plan.phases()
        self.outcome = Outcome(plan.seed)
        self.loop = VirtualLoop()
        super().__init__(self.loop)
        self.loop.set_exception_handler(self._unhandled)
        self.source = random.Random(f"{plan.seed}/federation")
        self.others_rng = random.Random(f"{plan.seed}/people")
        self.count: Counter[str] = Counter()
        self.faults = self.faults_type(self)  # type: ignore[arg-type]
        self.witness = Witness()
        self.broker = Broker(
            self.loop,
            NAME,
            self.faults,
            random.Random(f"{plan.seed}/log"),
            self._landed,
            replicas=self.source.choice([1, 3]),
        )
        self.process: Any = None
        self.supervisor = Supervisor(self, self.source.choice([0, SNAPSHOT_AFTER_BYTES]))
        self.people = Operators(self)
        self.requests: list[ev.JobFederated] = []
        """Whose users have no answer yet."""
        self.submitted: dict[str, ev.JobFederated] = {}
        """All that were ever asked for."""
        self._calm_s = 0.0
        """When faults ended; 0: they did not."""
        self._before = (0, 0)
        """Events and faults when this phase began."""
        self._patience: Handle | None = None
        """When users lose it."""
        self.members = [self.member_type(self, alias, part(plan, number)) for number, alias in enumerate(MEMBERS)]

    # --------------------------------------------------------------------------------------------------------- running

    def run(self) -> Outcome:
        """The whole history. Whatever ends it before its time is a violation."""
        outcome, seed = self.outcome, self.plan.seed
        kept = self.source.choice([0, 2, 8])
        leases = lease if self.has_leases else SimpleNamespace(holder_of=self.holder_of)
        with (
            ExitStack() as files,
            simulated(self.loop, seed, self.count),
            drawn(seed, kept, SWEEP_S, (leaf, "monotonic", self.loop.time), (leaf, "lease", leases)),
            cramped(SEEDS + seed) as meanwhile,
        ):
            for member in self.members:
                files.enter_context(member.files)
            try:
                self.conclude(self._main(), meanwhile, self._digest, outcome)
            finally:
                for one in (self, *self.members):
                    one.supervisor.dispose()
                self.loop.close()
        self._tell()
        return outcome

    def last_commits(self, count: int) -> list[str]:
        """The end of each log, for people."""
        of_members = [line for member in self.members for line in (f" {member.alias}:", *member.last_commits(count))]
        return [*of_members, " the federation:", *described(self.witness.commits[-count:])]

    def _tell(self) -> None:
        """What came of it, all together."""
        outcome, parts = self.outcome, []
        for member in self.members:
            member.tell(member.outcome)
            parts.append(member.outcome)
        outcome.events = self.witness.events + sum(one.events for one in parts)
        outcome.commits = len(self.witness.commits) + sum(one.commits for one in parts)
        outcome.virtual_s = self.loop.now_s - START_S
        own = Counter({f"federator's {name}": times for name, times in self.faults.hits.items()})
        outcome.faults = dict(sum((Counter(one.faults) for one in parts), own))
        outcome.seen = dict(sum((Counter(one.seen) for one in parts), Counter(self.witness.seen)))
        self.count["commits of the federation purged"] += self.broker.first - 1
        outcome.tried = dict(sum((Counter(one.tried) for one in parts), self.count))

    async def _main(self) -> None:
        for member in self.members:
            member.begin()
        self.supervisor.replace()
        moving = [task for member in self.members for task in member.movers()]
        end = asyncio.create_task(self._history())
        await asyncio.wait({*moving, end, self.broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in (*moving, end):
            if task.done():
                task.result()
            task.cancel()

    async def _history(self) -> None:
        for number, phase in enumerate(self.phases):
            for member in self.members:
                member.phase = member.phases[number]
            if number:
                self._begin_anew(number)
                await asyncio.sleep(self.plan.idle_s(number))
            await self._phase(phase)

    def _begin_anew(self, number: int) -> None:
        """As `World`."""
        if self._patience is not None:
            self._patience.cancel()
        self._calm_s, self._before = 0.0, self._count()
        for member in self.members:
            member.begin_anew(number)

    async def _phase(self, plan: Plan) -> None:
        pace, begun_s = PACES[plan.workload], self.loop.now_s
        for fault in plan.faults:
            if is_of_federation(fault):
                self.loop.at(begun_s + fault.at_s, self._strike, fault)
        for step in plan.steps:
            if step.what in (*OF_FEDERATION, *OF_OPERATORS) and step.at_s < pace.trouble_s:
                self.loop.at(begun_s + step.at_s, self.safely, self._take, step)
        await asyncio.gather(*(member.trouble() for member in self.members))
        self._calm_s = self.loop.now_s
        self.faults.lift()
        self.broker.unite(self.broker.parted)
        for member in self.members:
            member.calm_down()
        for process in self.supervisor.ever:
            self.supervisor.wake(process)
        self._patience = self.loop.after(PATIENCE_S, self.safely, self._lose_patience)
        await asyncio.gather(*(member.come_to_rest() for member in self.members))
        serving = self.supervisor.serving()
        assert serving is not None
        self.witness.check(self.members, serving)
        for member in self.members:
            await member.check_what_is_left()
        if (first := self.broker.first) > 1:
            rest.purged_verified(await self.supervisor.child(VERIFY), first, self.broker.bucket.denied)

    @property
    def is_calm(self) -> bool:
        return bool(self._calm_s)

    def wants_more(self) -> bool:
        (events, struck), (before, struck_before) = self._count(), self._before
        return events - before < IN_TROUBLE or struck - struck_before < FAULTS

    def _count(self) -> tuple[int, int]:
        """Events and faults so far."""
        events = self.witness.events + sum(member.witness.events for member in self.members)
        return events, self.faults.hits.total() + sum(member.faults.hits.total() for member in self.members)

    def restless(self) -> str:
        """What keeps the federation from being at rest; empty when nothing does."""
        told, serving = self.witness.told, self.supervisor.serving()
        if self.requests or self.people.unlisted:
            return f"users wait for an answer: {[one.name for one in self.requests]}, or for {self.people.unlisted}"
        if (
            serving is None
            or serving.federator is None
            or serving.federator.decider.writer.last != len(self.broker.stored)
            or not serving.has_found_its_log
        ):
            return "no federator has read everything"
        if left := self.witness.unsettled():
            return f"not settled: {left}"
        if told.intents() or any(told.strays.values()):
            return f"to do: {told.intents()}, {told.strays}"
        held = self.witness.not_let_go(self.members)
        left = self.broker.bodies.names() - {job.digest for job in told.jobs.values() if needs_body(job)}
        return f"held: {held}; bodies of no job: {sorted(left)}" if held or left else ""

    def _digest(self) -> str:
        told = hashlib.sha256(self.witness.verified().encode())
        for member in self.members:
            told.update(member.digest().encode())
        for stored in self.witness.commits:
            told.update(b"%d " % stored.sequence + stored.header + stored.payload)
        told.update(f"{self.loop.now_s!r} {sorted(self.faults.hits.items())}".encode())
        return told.hexdigest()

    # ---------------------------------------------------------------------------------------------------- what happens

    def _strike(self, fault: Fault) -> None:
        if self._calm_s:
            return
        if fault.on:
            self.faults.arm(fault)
        elif STRIKES.get(fault.kind, strikes.strike)(self, fault):  # type: ignore[arg-type]
            self.faults.hits[fault.name] += 1

    def _take(self, step: Step) -> None:
        source = random.Random(step.number)
        match step.what:
            case "submit":
                self.submit(self._request(source, step.number))
            case "cancel":
                if names := sorted(self.witness.names):
                    self.people.cancel(source.choice(names))
            case "look":
                self.people.look_around()
            case "retention":
                self.supervisor.start(RETENTION)
            case "impatient":
                self.submit(self._request(source, step.number))
                for member in self.members:
                    member.faults.arm(*draw(source, 1, 0.0, 0.0, LATE))
                self.loop.after(source.uniform(0.1, 3.0), self.safely, self.people.cancel, self.requests[-1].name)
            case "rush":
                self.people.rush()
            case "unlisted":
                self.people.unlist(source)

    def submit(self, request: ev.JobFederated) -> None:
        self.requests.append(request)
        self.submitted[request.job] = request
        self.people.ask(request)

    def _lose_patience(self) -> None:
        """Whatever is not settled is cancelled, and whoever asks for it afterwards waits as long."""
        for job in (*self.witness.unsettled(), *self.witness.held_again(self.members)):
            self.people.cancel(job.name)
        self._patience = self.loop.after(PATIENCE_S, self.safely, self._lose_patience)

    def kill(self, process: Process) -> None:
        process.starts.kill(process)

    def stop(self, process: Process, for_s: float) -> None:
        process.starts.stop(process, for_s)

    def _landed(self, stored: Stored, process: Process | None) -> None:
        self.safely(self.witness.landed, stored, process)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self.supervisor.over and not isinstance(error, SteppedDown | LogError | ApiError):
            self.fail(error)

    # ------------------------------------------------------------------------------------- what its processes know of it

    @property
    def has_leases(self) -> bool:
        """Whether its members' are as in earnest."""
        return self.seed >= DENSE_FROM

    def account(self, alias: str) -> str:
        return account_of("ann", alias)

    async def reaches(self, process: Running) -> dict[str, Reach]:
        listed = [one for one in self.members if one.account not in self.people.unlisted]
        return {member.account: await reach(member, process) for member in listed}

    def blobs(self, process: Running, bucket: Bucket) -> Blobs:
        return BucketBlobs(bucket)

    async def holder_of(self, connection: Connection, cluster: str, role: str, **_: Any) -> str:
        """Of a member's lease, as whoever has this connection hears of it."""
        link: Any = connection.client
        if not link.connected or link.silent_until_s > self.loop.now_s:
            raise Unavailable("no answer")
        member = next(one for one in self.members if one.broker is link.broker)
        holder = member.supervisor.leases.holders.get(role)
        return "" if holder is None else holder.name

    # ------------------------------------------------------------------------------------------ what its users know of it

    @property
    def now_ms(self) -> int:
        return int((self.loop.now_s - START_S) * 1_000)

    @property
    def names(self) -> set[str]:
        return self.witness.names

    @property
    def folded(self) -> State:
        return self.witness.told

    @property
    def rng(self) -> random.Random:
        return self.others_rng

    def at(self, time_ms: int, what: Callable[..., Any], *about: Any) -> None:
        self.loop.at(START_S + time_ms / 1_000, self.safely, what, *about)

    def serving(self) -> Running | None:
        return self.supervisor.serving()

    def name_of(self, uid: str) -> str:
        return uid

    def _request(self, source: random.Random, number: int) -> ev.JobFederated:
        guard_ms, scale_ms = source.choice((0, 600, 3_000)), source.choice((0, 60))
        priorities = [source.choice((0, 10, 50, 50, 100)) * 1_000 for _ in self.members]
        contenders = [
            Contender(cluster=member.alias, uri=member.alias, user="ann", gpu_type="", priority_milli=priority, name="")
            for member, priority in zip(self.members, priorities, strict=True)
        ]
        return ev.JobFederated(
            job=str(number),
            name=f"job-{source.randrange(NAMES)}",
            digest="",
            guard_ms=guard_ms,
            scale_ms=scale_ms,
            clusters=tuple(contenders),
        )

    def document(self, request: ev.JobFederated) -> str:
        """The job, as its user wrote it."""
        source, job = random.Random(request.job), for_clusters(request)
        main = job["taskRoles"]["main"]
        main["resourcePerInstance"] = {"cpu": 1, "memoryMB": 256, "gpu": "<% $mcc.gpuNum %>"}
        main["instances"] = source.randint(1, 4)
        if source.random() < 0.4:
            job["taskRoles"]["server"] = {**copy.deepcopy(main), "instances": source.randint(1, 2)}
        plugin(job)["params"]["gpuNum"] = {one.cluster: source.choice((0, 0, 1)) for one in request.clusters}
        return yaml.safe_dump(job, sort_keys=False)


def _cut(federation: Federation, fault: Fault) -> bool:
    """Who is there does not reach the members' own logs for a while."""
    links = [link for process in federation.supervisor.alive() for link in process.elsewhere]
    for link in links:
        link.break_until(federation.loop.now_s + fault.for_s)
    return bool(links)


STRIKES = {"leaf cut": _cut, "log set back": set_back.strike}
"""Faults of a federation alone."""


def is_of_federation(fault: Fault) -> bool:
    """Of its log and its processes; else of a member: also of what the federator asks there."""
    return fault.slot == FEDERATOR and fault.on in ("", "append", "read", "store") and fault.kind != "unwelcome"


def part(plan: Plan, member: int) -> Plan:
    """What of a history happens on one of its members."""
    of_members = [one for one in plan.steps if one.what not in (*OF_FEDERATION, *OF_OPERATORS)]
    steps = [one for one in of_members if one.number % len(MEMBERS) == member]
    others = [one for one in plan.faults if not is_of_federation(one)]
    faults = [one for one in others if round(one.at_s * 1_000) % len(MEMBERS) == member]
    return msgspec.structs.replace(plan, seed=SEEDS + len(MEMBERS) * plan.seed + member, steps=steps, faults=faults)
