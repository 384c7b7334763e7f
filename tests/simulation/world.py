"""One history: a cluster, a log, the services as processes, a workload and faults, from one seed.

First things go wrong, for as long as the draw says; then faults end, everything that waits is let go, and the history
must come to rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from contextlib import ExitStack
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

import events as ev
from events import envelope, subjects
from events.answers import MESSAGE_ID
from events.consumer import COMMIT
from events.envelope import Header, Stored
from events.log import LogError
from events.policy import DEFAULT_POLICY, Policy
from events.sqlite import SqliteLog
from services.binder.service.rounds import AGAIN_S
from services.kubernetes.errors import ApiError
from services.writer import SteppedDown
from tests.simulation import left, rest, strikes, turns, upgrades, versions, workload
from tests.simulation.broker import Broker
from tests.simulation.clock import Clock
from tests.simulation.cramped import cramped
from tests.simulation.ending import Ending
from tests.simulation.faults import EFFECTS, Fault, Faults
from tests.simulation.feeds import Feeds
from tests.simulation.kube import WATCH_LIFE_S, ApiServer
from tests.simulation.launch import CLUSTER, WHERE_PURGED, Launch
from tests.simulation.leases import Claims, Holding, Leases
from tests.simulation.loop import START_S, Handle, VirtualLoop
from tests.simulation.network import run_now
from tests.simulation.plan import EVENTS, FAULTS, IN_TROUBLE, PACES, PEACE_S, WORKLOADS, Outcome, Plan
from tests.simulation.planting import FURTHER_FROM, LATEST_FROM, LEASED_FROM, NEWEST_FROM, WIDER_FROM
from tests.simulation.processes import Process
from tests.simulation.stead import REFUSED_TIMES, simulated
from tests.simulation.supervisor import SLOTS, Supervisor
from tests.simulation.witness import Violation, Witness
from tests.simulation.workload import Step, Workload

S = TypeVar("S", Step, Fault)
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 10,
}
"""Which some pods name."""
QUIET_S = 3.0
"""For so long nothing may have landed, and everybody have reached the log, when a history is at rest."""
MORE = 2
"""How many times users do again what they did in a history that is none yet, at most."""
STANDBY = 0.15
"""How many roles have a standby from the beginning."""
ARCHIVED_FROM, ARCHIVED = 20_000, 0.5
"""From which seed on, and in how many of those histories, an archive keeps what goes."""
STILL = 4
"""One of so many histories from `FURTHER_FROM` on is looked at for a minute when it is at rest."""
RETAINED, RETAIN_EVERY_S = 0.5, (5.0, 11.0)
"""In how many histories somebody lets the retention purge the log, and how often."""


class World(Ending):
    server_type, faults_type = ApiServer, Faults
    rest_within_s, cycles = 150.0, 1_000
    """Once faults have ended a history comes to rest within so long, and within so many cycles of its planners: whoever
    fits has its place by then."""

    def __init__(self, plan: Plan, loop: VirtualLoop | None = None) -> None:
        """`loop`: of a history that this cluster is a part of (`federation`)."""
        self.plan, self.phases = plan, plan.phases()
        self.phase = self.phases[0]
        """What happens now."""
        self.outcome = Outcome(plan.seed)
        self.source = random.Random(f"{plan.seed}/world")
        self.loop = loop or VirtualLoop()
        super().__init__(self.loop)
        self.witness = Witness()
        self.faults = self.faults_type(self)
        self.broker = Broker(
            self.loop,
            CLUSTER,
            self.faults,
            random.Random(f"{plan.seed}/log"),
            self._landed,
            replicas=self.source.choice([1, 3]),
        )
        self.kube = self.server_type(self.loop, self.faults, random.Random(f"{plan.seed}/kube"), self)
        if plan.seed >= WIDER_FROM:
            self.kube.bookmarks = random.Random(f"{plan.seed}/bookmarks")
        if plan.seed >= NEWEST_FROM:
            self.kube.created = 201
        self.kube.turns_away = plan.seed >= LATEST_FROM
        if plan.seed >= upgrades.FROM:
            self.kube.servers = upgrades.Servers(random.Random(f"{plan.seed}/versions"))
        self.witness.api = self.kube.api
        self._policies = random.Random(f"{plan.seed}/policies")
        self.workload = self.users(plan.workload)
        self.supervisor = Supervisor(self.loop, plan.seed, self.source, self.broker.link, self._leases, self.fail)
        self.launch = self.supervisor.serve = Launch(self.kube, self.supervisor.leases, Clock(self.loop))
        self.tried: Counter[str] = Counter()
        self.feeds = Feeds(self)
        self.turns: list[Fault] = []
        """Policies that turn as soon as something depends on it."""
        self.calm, self._calm_s = False, START_S
        self._before = (0, 0)
        """Events and faults when this phase began."""
        self.files = ExitStack()
        self._purges: Handle | None = None
        """The next run of the retention."""
        self._changed_s = START_S
        self._told_since = self._not_yet = 0.0 if plan.seed >= FURTHER_FROM else inf
        """The place of the log behind which pods are told of each refusal: in earlier histories their last rest."""

    @property
    def has_leases(self) -> bool:
        return self.plan.seed >= LEASED_FROM

    def _leases(self, supervisor: Supervisor) -> Holding:
        """As in earnest, or a model."""
        if not self.has_leases:
            return Leases(self.loop, self.source, supervisor.end)
        self.broker.leases.violated = self.fail
        return Claims(self.broker.leases, CLUSTER, supervisor.ever, self.broker.replicas)

    def users(self, workload: str) -> Workload:
        """Who does what the plan's steps say."""
        return WORKLOADS[workload](self.kube)

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> Outcome:
        """The whole history. Whatever ends it before its time is a violation."""
        outcome = self.outcome
        seed = self.plan.seed
        self.loop.set_exception_handler(self.unhandled)
        with self.files, simulated(self.loop, seed, self.tried), cramped(seed) as meanwhile:
            try:
                self.conclude(self._main(), meanwhile, self.digest, outcome)
            finally:
                self.supervisor.dispose()
                self.feeds.dispose()
                self.loop.close()
        self.tell(outcome)
        return outcome

    def tell(self, outcome: Outcome) -> None:
        """What came of it."""
        outcome.events, outcome.commits = self.witness.events, len(self.witness.commits)
        outcome.virtual_s = self.loop.now_s - START_S
        outcome.faults, outcome.seen = dict(self.faults.hits), dict(self.witness.seen)
        self.tried["commits purged"] += self.broker.first - 1
        self.tried["versions switched"] += self.witness.state.rules_version == 2
        self.tried["switches without effect"] += self.witness.state.ignored.get("VersionsSwitched", 0)
        outcome.tried = dict(self.tried)

    def last_commits(self, count: int) -> list[str]:
        """The end of the log, for people."""
        return described(self.witness.commits[-count:])

    async def _main(self) -> None:
        self.begin()
        moving = asyncio.create_task(self.kube.kubelet.run())
        end = asyncio.create_task(self._history())
        await asyncio.wait({moving, end, self.broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in (moving, end):
            if task.done():
                task.result()
            task.cancel()

    def begin(self) -> None:
        """What is there at first, and the services."""
        self.kube.api.apply_new(HIGH)
        self.workload.begin(self.plan.seed)
        if self.source.random() < 0.9:
            self.set_policy(self.any_policy())
        standbys = [slot for slot in SLOTS if self.source.random() < STANDBY]
        for slot in (*SLOTS, *standbys):
            self.loop.after(self.source.uniform(0.0, 1.0), self.supervisor.start, slot)
        if self.source.random() < RETAINED:
            self.launch.snapshot_after_bytes = WHERE_PURGED
            if self.plan.seed >= ARCHIVED_FROM and self._policies.random() < ARCHIVED:
                self.launch.archive = self._archive()
            self._retain()
        self._versions(0)
        self.feeds.begin()

    def begin_anew(self, number: int) -> None:
        """Trouble, on what the phase before has left."""
        self.calm, self._told_since = False, self._not_yet
        self._before = self._count()
        if self.source.random() < 0.9:
            self.set_policy(self.any_policy())
        for slot in SLOTS:
            if self.source.random() < STANDBY and len(self.supervisor.slots[slot]) == 1:
                self.supervisor.start(slot)
        if self.launch.snapshot_after_bytes == WHERE_PURGED and self._purges is None:
            self._retain()
        self._versions(number)

    def _versions(self, number: int) -> None:
        """In one of the phases they may be switched."""
        if self.plan.seed % len(self.phases) == number:
            versions.begin(self)

    def _archive(self) -> SqliteLog:
        folder = self.files.enter_context(TemporaryDirectory(prefix="muster-archive-"))
        archive = SqliteLog(Path(folder) / "archive.db", CLUSTER, create=True)
        self.files.callback(lambda: run_now(archive.close()))
        return archive

    def _retain(self) -> None:
        """Now and then, and once more while the history comes to rest."""
        self.supervisor.start("retention")
        self._purges = None
        if not self.calm:
            self._purges = self.loop.after(self.source.uniform(*RETAIN_EVERY_S), self._retain)

    def any_policy(self) -> Policy:
        source = self.source
        profile = msgspec.structs.replace(
            DEFAULT_POLICY.profile,
            node_score=source.choice(["least-allocated", "binpack"]),
            queue_order=source.choice(["coscheduling", "koordinator", "kube-batch"]),
        )
        return msgspec.structs.replace(
            DEFAULT_POLICY,
            profile=profile,
            nominate_after_refusals=source.choice([1, 3]),
            nomination_hold_ms=source.choice([1_000, 4_000]),
            reserve_after_refusals=source.choice([0, 1, 3]),
            reservation_hold_ms=source.choice([1_000, 4_000]),
            reservations=source.choice([1, 2]),
            lookahead_pods=source.choice([0, 1_024]),
            backoff_initial_ms=source.choice([200, 500, 1_000]),
            backoff_max_ms=source.choice([1_000, 2_000, 4_000]),
            permit_waiting_ms=source.choice([1_000, 4_000]),
            replacement_policy=source.choice(["keep", "evict"]),
            replacement_hold_ms=source.choice([1_000, 5_000]),
            cycle_pods=source.choice([3, 4_096]),
            **(self._wider_policy() if self.plan.seed >= WIDER_FROM else {}),
        )

    def _wider_policy(self) -> dict[str, int]:
        """Seldom one with which only small gangs start."""
        source = self._policies
        return {"gang_pods": source.choice([3, *[10_000] * 7]), "retry_ms": source.choice([15_000, 300_000])}

    def set_policy(self, policy: Policy) -> None:
        self.admin(ev.PolicyChanged(policy=policy))

    def admin(self, event: ev.AdminEvents) -> None:
        """A commit of an admin. The first of a log is as old as can be: its feed, when that is new, leaves it out."""
        payload = envelope.encode_events([event])
        time_ns = Clock(self.loop).time_ns() if self.broker.stored else 0
        header = Header(writer="admin", epoch=0, basis=0, time_ns=time_ns, cause="admin")
        subject = subjects.subject(CLUSTER, "admin")
        message_id = envelope.message_id(subject, self.broker.last.get(subject, 0), payload)
        headers = {MESSAGE_ID: message_id, COMMIT: envelope.encode_header(header).decode()}
        self.broker.inject(subject, headers, payload)

    async def _history(self) -> None:
        for number, phase in enumerate(self.phases):
            self.phase = phase
            if number:
                self.begin_anew(number)
                await asyncio.sleep(self.plan.idle_s(number))
            await self._phase()
        if len(self.phases) > 1:
            await left.all_goes(self)

    async def _phase(self) -> None:
        """Trouble, as long as the plan says; then rest. Where that is not a history yet, users go on in peace, and do it
        all once more: what a backup took back was in vain."""
        plan, begin_s = self.phase, await self.trouble()
        self.calm_down()
        await self.come_to_rest()
        again = 0
        while self._count()[0] - self._before[0] < EVENTS and not plan.exact and again <= MORE:
            if begin_s > plan.last_s:
                begin_s, again = 0.0, again + 1
            await self._users_act(begin_s, begin_s + PEACE_S)
            await self.come_to_rest()
            begin_s += PEACE_S
        if self.plan.seed >= FURTHER_FROM and self.plan.seed % STILL == 0:
            await self._stays_at_rest()
        await self.check_what_is_left()

    async def _stays_at_rest(self) -> None:
        """Whatever failed is written once more, and then nobody writes anything, however long one waits. Raises
        Violation."""
        again_s = AGAIN_S * REFUSED_TIMES + QUIET_S
        await asyncio.sleep(again_s)
        before = self.kube.asked.copy()
        await asyncio.sleep(again_s)
        writes = {on: times for on, times in (self.kube.asked - before).items() if on in EFFECTS}
        if writes:
            raise Violation(f"at rest, and in {again_s:g} s there were {writes} (7.12)")

    async def trouble(self) -> float:
        """Up to where in the plan it went."""
        plan, pace, begun_s = self.phase, PACES[self.plan.workload], self.loop.now_s
        begin_s, end_s = 0.0, pace.trouble_s
        while begin_s <= plan.last_s and (plan.exact or self.wants_more()):
            for fault in within(plan.faults, begin_s, end_s):
                self.loop.at(begun_s + fault.at_s, self._strike, fault)
            await self._users_act(begin_s, end_s)
            begin_s, end_s = end_s, end_s + pace.window_s
        return begin_s

    def calm_down(self) -> None:
        """Faults end, and an admin sees to it that nothing is kept for minutes."""
        self._heal()
        policy = self.witness.state.policy
        if policy == DEFAULT_POLICY:  # keeps room for minutes, for which nobody waits here
            soon = {"reserve_after_refusals": 0, "replacement_hold_ms": 2_000, "backoff_max_ms": 2_000}
            self.set_policy(msgspec.structs.replace(policy, **soon))
        elif policy is not None and policy.retry_ms < DEFAULT_POLICY.retry_ms:  # always somebody, and no rest
            self.set_policy(msgspec.structs.replace(policy, retry_ms=DEFAULT_POLICY.retry_ms))

    async def check_what_is_left(self) -> None:
        """Of a log that was purged. Raises Violation."""
        if self.broker.first > 1:
            first = self.broker.first  # a purge that was asked for before may come meanwhile
            report = await self.supervisor.child("verify")
            rest.purged_verified(report, first, self.broker.bucket.denied)
        if self.launch.archive is not None:
            self.tried["commits archived"] += await rest.archived(self.launch.archive, self.broker)

    async def _users_act(self, begin_s: float, end_s: float) -> None:
        """What they do in this time of the plan begins now."""
        now_s = self.loop.now_s
        for step in within(self.phase.steps, begin_s, end_s):
            self.loop.at(now_s + step.at_s - begin_s, self.take, step)
        await asyncio.sleep(end_s - begin_s)

    def wants_more(self) -> bool:
        (events, struck), (before, struck_before) = self._count(), self._before
        return events - before < IN_TROUBLE or struck - struck_before < FAULTS

    def _count(self) -> tuple[int, int]:
        """Events and faults so far."""
        return self.witness.events, self.faults.hits.total()

    def _heal(self) -> None:
        """Faults end."""
        self.calm, self._calm_s = True, self.loop.now_s
        self.faults.lift()
        self.turns.clear()
        self.broker.unite(self.broker.parted)
        self.kube.silent_until_s = 0.0
        self.kube.refused.clear()
        self.kube.unwelcome.clear()
        self.kube.kept = dict.fromkeys(self.kube.kept, 0.0)
        for watch in self.kube.watches:
            watch.lag_s = 0.0
        self.supervisor.heal()
        self.feeds.heal()

    async def come_to_rest(self) -> None:
        """Waits for it, and checks what must hold then. Raises Violation."""
        within_s, cycles = self.rest_within_s + rest.kept_s(self.witness.state), self.witness.cycles
        if self.kube.servers is not None:
            within_s += WATCH_LIFE_S[1]  # before each that begins ingest asks what the server is
        until_s = self.loop.now_s + within_s
        revision = -1
        while self.loop.now_s < until_s and self.witness.cycles - cycles < self.cycles:
            await asyncio.sleep(1.0)
            if rest.cut_off(self) or self.kube.api.store.revision != revision:
                self._changed_s, revision = self.loop.now_s, self.kube.api.store.revision
            if self.loop.now_s - self._changed_s > QUIET_S and not self.restless():
                rest.check(self.witness, self.kube.api)
                rest.live_states_agree(self)
                rest.nothing_is_misread(self.witness, self.kube)
                if found := self._misled():
                    if self.loop.now_s - self._calm_s < AGAIN_S * REFUSED_TIMES + QUIET_S:
                        continue  # a write that failed at the end of trouble is written once more
                    raise Violation(found)
                if self.plan.seed < FURTHER_FROM:
                    self._told_since = self.witness.state.sequence
                return
        late = f"{self.witness.cycles - cycles} cycles and {self.loop.now_s - until_s + within_s:g} s"
        raise Violation(f"not at rest {late} after faults ended: {self.restless()} (7.12)")

    def _misled(self) -> str:
        """Who reads what is not so, of a PodGroup or a pod; empty: nobody."""
        state, binder = self.witness.state, self.supervisor.leases.holders["binder"]
        told = rest.misleading_pod_group(state, self.kube, binder)
        return told or rest.misled_pod(state, self.kube, self._told_since)

    def digest(self) -> str:
        """Of the whole history, whose log is verified. Raises Violation."""
        told = hashlib.sha256(rest.verified(self.witness).encode())
        for stored in self.witness.commits:
            told.update(b"%d %s " % (stored.sequence, stored.subject.encode()) + stored.header + stored.payload)
        for uid, node in self.witness.bound.items():
            told.update(f"{uid} {node}\n".encode())
        told.update(f"{self.loop.now_s!r} {sorted(self.faults.hits.items())}".encode())
        return told.hexdigest()

    def restless(self) -> str:
        """What keeps the history from being at rest; empty when nothing does."""
        return rest.restless(self) or self.feeds.restless()

    # ---------------------------------------------------------------------------------------------------- what happens

    def take(self, step: Step) -> None:
        self.safely(self.workload.take, step)

    def more_steps(self, source: random.Random, count: int, within_s: float) -> list[Step]:
        """Such as this history has."""
        kinds = Counter(step.what for step in self.phase.steps)
        return workload.draw(source, count, 0.0, within_s, kinds) if kinds else []

    def _strike(self, fault: Fault) -> None:
        """A fault is armed; what waits for no request happens now."""
        if self.calm:
            return
        if fault.on:
            self.faults.arm(fault)
        elif strikes.strike(self, fault):
            self.faults.hits[fault.name] += 1

    def _landed(self, stored: Stored, process: Process | None) -> None:
        self._changed_s = self.loop.now_s
        self.safely(self.witness.landed, stored, process)
        if self.turns:
            turns.landed(self)

    def bound(self, uid: str, node: str, process: Process | None) -> None:
        self.safely(self.witness.binding, uid, node, process)

    def evicted(self, uid: str, process: Process) -> None:
        self.safely(self.witness.eviction, uid, process)

    def kill(self, process: Process) -> None:
        process.starts.kill(process)

    def stop(self, process: Process, for_s: float) -> None:
        process.starts.stop(process, for_s)

    def join(self, shard: str, for_s: float) -> None:
        self.supervisor.join(shard, for_s)

    def refuse(self, on: str, pod: str, for_s: float) -> None:
        self.kube.refused[on, pod] = self.loop.now_s + for_s

    def keep(self, pod: str, for_s: float) -> None:
        self.kube.kept[pod] = self.loop.now_s + for_s

    def race(self, kind: str, pod: str) -> None:
        """A request about this pod is on its way, and something else is faster."""
        self.safely(self.workload.race, kind, pod)

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        over = self.supervisor.over
        if error is not None and not over and not isinstance(error, (SteppedDown, LogError, ApiError)):
            self.fail(error)


def described(commits: list[Stored]) -> list[str]:
    lines = []
    for stored in commits:
        header = envelope.header_of(stored)
        if header is None:
            lines.append(f"  {stored.sequence} {stored.subject}: nobody's")
            continue
        lines.append(f"  {stored.sequence} {header.writer} at {header.basis}, {header.cause}")
        lines += [f"      {event}"[:240] for event in envelope.decode(stored).events]
    return lines


def within(items: list[S], begin_s: float, end_s: float) -> list[S]:
    return [one for one in items if begin_s <= one.at_s < end_s]
