"""One history: a cluster, a log, the services as processes, a workload and faults, from one seed.

First things go wrong, for as long as the draw says; then faults end, everything that waits is let go, and the history
must come to rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

import events as ev
from events import envelope, subjects
from events.consumer import COMMIT
from events.envelope import Header, MalformedCommit, Stored
from events.jetstream import JetStreamLog
from events.log import LogError
from events.policy import DEFAULT_POLICY, Policy
from services import writer
from services.binder import service as binder
from services.console.settled import log_at_rest
from services.decider import Decider
from services.ingest import service as ingest
from services.ingest.decoding import KINDS
from services.kubernetes.errors import ApiError
from services.planner import service as planner
from services.simulator import errors
from services.state import fold, snapshot
from services.state.fold import UnknownCommit
from services.writer import SteppedDown
from tests.simulation import clock, rest, workload
from tests.simulation import faults as faulty
from tests.simulation.broker import Broker
from tests.simulation.faults import Fault, Faults
from tests.simulation.kube import ApiServer, SimulatedClient, Watch
from tests.simulation.leases import Eye, Leases
from tests.simulation.loop import PROCESS, START_S, STOPPED, VirtualLoop
from tests.simulation.processes import Process
from tests.simulation.witness import Violation, Witness
from tests.simulation.workload import Step, Workload

CLUSTER = "simulated"
SHARDS = ("a", "b")
SLOTS = ("ingest", *(f"planner.{shard}" for shard in SHARDS), "binder")
EVENTS, FAULTS = 300, 5
"""What a history has at least."""
TROUBLE_S = 40.0
"""How long trouble lasts; then, until a history has what it must have, in windows of `WINDOW_S`."""
WINDOW_S, WINDOWS = 4.0, 15
REST_WITHIN_S = 150.0
CONCURRENCY = 4
RENEW_AFTER_S = 25.0
"""Instead of hours: an idle writer renews its subject in nearly every history."""
STANDBY = 0.15
"""How many roles have a standby from the beginning."""
LEAVE_WITHIN_S = 3.0
"""After so long a planner that was told to stop is not waited for any more."""
PING_S = 3.0
"""After so long without an answer to its pings, nats-py gives up a connection."""


class Plan(msgspec.Struct, frozen=True):
    """What happens in a history, as drawn."""

    seed: int
    steps: list[Step]
    faults: list[Fault]
    exact: bool = False
    """All of this and no more, be it less than a history has at least: while a failure is being shortened."""


class Outcome(msgspec.Struct):
    """What came of a history."""

    seed: int
    events: int = 0
    commits: int = 0
    virtual_s: float = 0.0
    faults: dict[str, int] = {}
    seen: dict[str, int] = {}
    digest: str = ""
    """Of the history: every message of the log, and where every pod went."""
    violation: str = ""


def plan(seed: int) -> Plan:
    """What the seed says. Whether what is behind `TROUBLE_S` happens depends on what did before."""
    source = random.Random(seed)
    steps = workload.draw(source, source.randint(22, 34), 0.2, TROUBLE_S)
    faults = faulty.draw(source, source.randint(8, 16), 0.5, TROUBLE_S)
    for window in range(WINDOWS):
        begin_s = TROUBLE_S + window * WINDOW_S
        steps += workload.draw(source, 4, begin_s, begin_s + WINDOW_S)
        faults += faulty.draw(source, 1, begin_s, begin_s + WINDOW_S)
    return Plan(seed, steps, faults)


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcome = Outcome(plan.seed)
        self.source = random.Random(f"{plan.seed}/world")
        self.loop = VirtualLoop()
        self.loop.set_exception_handler(self._unhandled)
        self.witness = Witness()
        self.faults = Faults(self)
        self.broker = Broker(
            self.loop,
            CLUSTER,
            self.faults,
            random.Random(f"{plan.seed}/log"),
            self._landed,
            replicas=self.source.choice([1, 3]),
        )
        self.kube = ApiServer(self.loop, self.faults, random.Random(f"{plan.seed}/kube"), self)
        self.witness.api = self.kube.api
        self.workload = Workload(self.kube)
        self.processes: dict[str, list[Process]] = {slot: [] for slot in SLOTS}
        self.leases = Leases(self.loop, self.source, self._end)
        self.calm = self.over = False
        self._all: list[Process] = []
        self.violation: BaseException | None = None
        self._changed_s = START_S
        self._broken = self.loop.create_future()
        self._ran = Counter()

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> Outcome:
        """The whole history. Whatever ends it before its time is a violation."""
        plan, outcome = self.plan, self.outcome
        with clock.virtual(self.loop, random.Random(f"{plan.seed}/jitter")), _watched():
            try:
                self.loop.run_until_complete(self._main())
                if self.violation is not None:
                    raise self.violation
                outcome.digest = self._digest(rest.verified(self.witness))
            except Exception as error:
                self.violation = error
                outcome.violation = f"{type(error).__name__}: {error}"
            finally:
                self._dispose()
        outcome.events, outcome.commits = self.witness.events, len(self.witness.commits)
        outcome.virtual_s = self.loop.now_s - START_S
        outcome.faults, outcome.seen = dict(self.faults.hits), dict(self.witness.seen)
        return outcome

    def last_commits(self, count: int) -> list[str]:
        """The end of the log, for people."""
        lines = []
        for stored in self.witness.commits[-count:]:
            header = envelope.header_of(stored)
            if header is None:
                lines.append(f"  {stored.sequence} {stored.subject}: nobody's")
                continue
            lines.append(f"  {stored.sequence} {header.writer} at {header.basis}, {header.cause}")
            lines += [f"      {event}"[:240] for event in envelope.decode(stored).events]
        return lines

    def _dispose(self) -> None:
        """Every process ends, the dead ones too: what is left of them must not be found by the garbage collector."""
        self.over = True
        for process in self._all:
            process.link.is_closed = True
            self.loop.resume(process)
            if process.task is not None:
                process.task.cancel()
        tasks = [process.task for process in self._all if process.task is not None]
        self.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
        self.loop.close()

    async def _main(self) -> None:
        self._begin()
        moving = asyncio.create_task(self.kube.kubelet.run())
        end = asyncio.create_task(self._history())
        await asyncio.wait({moving, end, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        for task in (moving, end):
            if task.done():
                task.result()
            task.cancel()

    def _begin(self) -> None:
        api = self.kube.api
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        api.apply_new({**high, "value": 10})
        self.workload.begin(self.plan.seed)
        if self.source.random() < 0.9:
            self._set_policy(self._any_policy())
        standbys = [slot for slot in SLOTS if self.source.random() < STANDBY]
        for slot in (*SLOTS, *standbys):
            self.loop.after(self.source.uniform(0.0, 1.0), self.start, slot)

    def _any_policy(self) -> Policy:
        source = self.source
        profile = msgspec.structs.replace(
            DEFAULT_POLICY.profile, node_score=source.choice(["least-allocated", "binpack"])
        )
        return msgspec.structs.replace(
            DEFAULT_POLICY,
            profile=profile,
            nominate_after_refusals=source.choice([1, 3]),
            nomination_hold_ms=source.choice([1_000, 10_000]),
            reserve_after_refusals=source.choice([0, 1, 3]),
            reservation_hold_ms=source.choice([1_000, 10_000]),
            reservations=source.choice([1, 2]),
            lookahead_pods=source.choice([0, 1_024]),
            permit_waiting_ms=source.choice([1_000, 10_000]),
            replacement_policy=source.choice(["keep", "evict"]),
            replacement_hold_ms=source.choice([2_000, 15_000]),
            cycle_pods=source.choice([3, 4_096]),
        )

    def _set_policy(self, policy: Policy) -> None:
        payload = envelope.encode_events([ev.PolicyChanged(policy=policy)])
        header = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="admin")
        subject = subjects.subject(CLUSTER, "admin")
        headers = {COMMIT: envelope.encode_header(header).decode()}
        self.broker.inject(subject, headers, payload)

    async def _history(self) -> None:
        """Trouble, as long as the plan says; then rest."""
        plan = self.plan
        last_s = max((one.at_s for one in (*plan.steps, *plan.faults)), default=0.0)
        begin_s, end_s = 0.0, TROUBLE_S
        while begin_s <= last_s and (plan.exact or self._wants_more()):
            for step in plan.steps:
                if begin_s <= step.at_s < end_s:
                    self.loop.at(START_S + step.at_s, self._step, step)
            for fault in plan.faults:
                if begin_s <= fault.at_s < end_s:
                    self.loop.at(START_S + fault.at_s, self._strike, fault)
            await asyncio.sleep(START_S + end_s - self.loop.now_s)
            begin_s, end_s = end_s, end_s + WINDOW_S
        self._heal()
        if self.witness.state.policy == DEFAULT_POLICY:  # reserves room for ten minutes, which nobody waits for here
            self._set_policy(msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=0))
        await self._rest()

    def _wants_more(self) -> bool:
        return self.witness.events < EVENTS or self.faults.hits.total() < FAULTS

    async def _rest(self) -> None:
        until_s = self.loop.now_s + REST_WITHIN_S
        while self.loop.now_s < until_s:
            await asyncio.sleep(1.0)
            if self.loop.now_s - self._changed_s > 3.0 and self._at_rest():
                rest.check(self.witness, self.kube.api)
                self._live_states_agree()
                return
        raise Violation(f"not at rest {REST_WITHIN_S:g} s after faults ended: {self._restless()} (7.12)")

    def _at_rest(self) -> bool:
        return not self._restless()

    def _restless(self) -> str:
        """What keeps the history from being at rest."""
        state = self.witness.state
        for slot, processes in self.processes.items():
            holder = self.leases.holders.get(slot)
            if (slot in SLOTS) != (holder is not None) or not all(one.renews for one in processes):
                return f"{slot}: held by {holder} of {processes}"
        for process in self._deciders():
            if process.decider.state.sequence != state.sequence:
                return f"{process} has read {process.decider.state.sequence} of {state.sequence}"
        if not log_at_rest(state) or state.reservations or any(one.backing_off for one in state.cohorts.values()):
            return f"the log at {state.sequence}"
        reader = self.leases.holders["ingest"]
        followed = [one for one in self.kube.watches if one.process is reader and one.has_told_all]
        if len(followed) < sum(self.kube.serves(kind.resource.path) for kind in KINDS):
            return f"{reader} has not seen everything"
        for entry in self.kube.api.pods.entries.values():
            if self._about_to_end(entry.object):
                return f"pod {entry.key} is about to end"
        return ""

    def _about_to_end(self, pod: dict[str, Any]) -> bool:
        """A pod on a node that is gone starts only when it comes back; one that runs ends all the same."""
        if "deletionTimestamp" in pod["metadata"]:
            return True
        if "muster.dev/duration-ms" not in (pod["metadata"].get("annotations") or {}):
            return False
        phase, there = pod["status"]["phase"], ("", pod["spec"].get("nodeName")) in self.kube.api.nodes.entries
        return phase == "Running" or (phase == "Pending" and there)

    def _deciders(self) -> list[Process]:
        return [one for one in self._alive() if one.decider is not None]

    def _live_states_agree(self) -> None:
        digest = snapshot.digest(self.witness.state)
        for process in self._deciders():
            if snapshot.digest(process.decider.state) != digest:
                raise Violation(f"{process}'s live state is not the fold of its log (7.6)")

    def _digest(self, state: str) -> str:
        told = hashlib.sha256(state.encode())
        for stored in self.witness.commits:
            told.update(b"%d %s " % (stored.sequence, stored.subject.encode()) + stored.header + stored.payload)
        for uid, node in self.witness.bound.items():
            told.update(f"{uid} {node}\n".encode())
        told.update(f"{self.loop.now_s!r} {sorted(self.faults.hits.items())}".encode())
        return told.hexdigest()

    # ---------------------------------------------------------------------------------------------------- what happens

    def _step(self, step: Step) -> None:
        self._safely(self.workload.take, step)

    def _landed(self, stored: Any, process: Process | None) -> None:
        self._changed_s = self.loop.now_s
        self._safely(self.witness.landed, stored, process)

    def bound(self, uid: str, node: str, process: Process | None) -> None:
        self._safely(self.witness.binding, uid, node, process)

    def evicted(self, uid: str, process: Process) -> None:
        self._safely(self.witness.eviction, uid, process)

    def _safely(self, check: Any, *arguments: Any) -> None:
        """What a check finds ends the history, wherever it was called."""
        try:
            check(*arguments)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.violation = self.violation or error
        if not self._broken.done():
            self._broken.set_result(None)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not self.over and not isinstance(error, (SteppedDown, LogError, ApiError)):
            self._fail(error)

    # -------------------------------------------------------------------------------------------------------- processes

    def start(self, slot: str, *, lacks: str = "", seize: bool = False) -> Process:
        """Another process for the slot, which waits for its lease unless it may `seize` it."""
        self._ran[slot] += 1
        source = random.Random(f"{self.plan.seed}/{slot}/{self._ran[slot]}")
        skew_ns = source.choice([0, source.randint(-50, 50), source.randint(-10_000, 10_000)]) * 1_000_000
        process = Process(slot, self._ran[slot], source, skew_ns, lacks)
        process.link = self.broker.link(process, random.Random(f"{process.name}/{self.plan.seed}"))
        self.processes.setdefault(slot, []).append(process)
        self._all.append(process)
        if seize:
            self.leases.seize(process)
        process.start(self.loop, self._serve(process), lambda task: self._ended(process, task))
        return process

    async def _serve(self, process: Process) -> None:
        """As `services.console.launch` does, with leases of its own."""
        log = JetStreamLog(await process.link.open(), CLUSTER)
        role, _, shard = process.slot.partition(".")

        async def turn() -> None:
            if self.leases.holders.get(process.slot) is not process:
                await self.leases.acquire(process)

        client = SimulatedClient(self.kube, process)
        holder, stop = process.name, process.told_to_stop
        try:
            match role:
                case "planner":
                    await planner.run(log, shard=shard, holder=holder, turn=turn, stop=stop)
                case "ingest":
                    await turn()
                    await ingest.run(log, client, holder=holder)
                case _:
                    leases: Any = Eye(self.leases, process)
                    await binder.run(log, client, holder=holder, turn=turn, leases=leases, concurrency=CONCURRENCY)
        finally:
            await log.close()

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        """A process has ended by itself: somebody starts it again."""
        if self.over:
            return
        self._over(process)
        self.leases.give_back(process)
        if not task.cancelled():
            error = _first(task.exception())
            if error is None and not process.told_to_stop.is_set():
                self._fail(Violation(f"{process} ended without a word"))
            elif error is not None and not isinstance(error, self._expected(process)):
                self._fail(error)

    @staticmethod
    def _expected(process: Process) -> tuple[type[Exception], ...]:
        """How a process may end: replaced; log or cluster out of reach; of an older version, before what it lacks."""
        return (SteppedDown, LogError, ApiError, *((UnknownCommit,) if process.lacks else ()))

    def _over(self, process: Process) -> None:
        """It is dead or has ended; somebody starts another in its place."""
        process.over = True
        self.processes[process.slot].remove(process)
        if process.slot in SLOTS:
            self.loop.after(self.source.uniform(0.2, 3.0), self._replace, process.slot)

    def _replace(self, slot: str) -> None:
        """Another one, unless there is one."""
        if not any(one.running for one in self.processes[slot]):
            self.start(slot)

    def kill(self, process: Process) -> None:
        if process.over:
            return
        process.kill()
        process.link.is_closed = True
        self.broker.forget(process.link)
        self._over(process)
        self.leases.fall_silent(process)

    def stop(self, process: Process, for_s: float) -> None:
        """SIGSTOP; its lease may run out meanwhile, and another process be started."""
        if not process.running:
            return
        process.condition = STOPPED
        self.leases.fall_silent(process)
        if process.slot in SLOTS:
            self.loop.after(3.0 + self.source.random(), self._replace, process.slot)
        self.loop.after(for_s, self._wake, process)

    def _wake(self, process: Process) -> None:
        """SIGCONT."""
        if not process.over and process.condition is STOPPED:
            self.loop.resume(process)
            self.leases.speak_again(process)

    def _end(self, process: Process) -> None:
        """Its lease is lost, or it is told to end and has nothing more to say."""
        if process.running and process.task is not None:
            process.task.cancel()

    def _tell_to_stop(self, process: Process) -> None:
        """SIGTERM: a planner says that it leaves."""
        if process.slot.startswith("planner") and self.leases.holders.get(process.slot) is process:
            self.loop.call_soon(process.told_to_stop.set, context=process.context)
            self.loop.after(LEAVE_WITHIN_S, self._end, process)
        else:
            self._end(process)

    # ----------------------------------------------------------------------------------------------------------- faults

    def _strike(self, fault: Fault) -> None:
        """A fault is armed; what waits for no request happens now."""
        if self.calm:
            return
        if fault.on:
            self.faults.arm(fault)
            return
        self.faults.hits[fault.name] += 1
        if strike := STRUCK.get(fault.kind):
            strike(self, fault)
        elif fault.kind in WATCHED:
            for watch in list(self.kube.watches):
                self._strike_watch(fault, watch)
        else:
            for process in [one for one in self._alive() if one.slot == fault.slot]:
                self._strike_process(fault, process)

    def _log_down(self, fault: Fault) -> None:
        self.broker.stop(self.loop.now_s + fault.for_s)

    def _kill_all(self, fault: Fault) -> None:
        for process in self._alive():
            self.kill(process)

    def _power_loss(self, fault: Fault) -> None:
        self._log_down(fault)
        self._kill_all(fault)

    def _strike_watch(self, fault: Fault, watch: Watch) -> None:
        match fault.kind:
            case "watch cut":
                watch.end()
            case "watch expired":  # behind what it did not tell any more
                watch.lag_s = 2 * fault.for_s
                self.loop.after(fault.for_s, watch.end, errors.expired("too old resource version"))
            case "watch lag":
                watch.lag_s = fault.for_s
                self.loop.after(fault.for_s * 2, setattr, watch, "lag_s", 0.0)
            case _:
                watch.again = 3

    def _strike_process(self, fault: Fault, process: Process) -> None:
        link, until_s = process.link, self.loop.now_s + fault.for_s
        match fault.kind:
            case "crash":
                self.kill(process)
            case "stop":
                self.stop(process, fault.for_s)
            case "restart":
                self._tell_to_stop(process)
            case "clock jump":
                process.skew_ns += round(fault.for_s * 1e9)
            case "lag":
                link.lag_s = fault.for_s / 4
                self.loop.at(until_s, setattr, link, "lag_s", 0.0)
            case "disconnect":
                link.break_until(until_s)
            case "partition":
                link.silent_until_s = until_s
                if fault.for_s > PING_S:
                    self.loop.after(PING_S, link.break_until, until_s)
                process.cut_off = True
                self.leases.fall_silent(process)
                self.loop.at(until_s, self._reachable, process)
            case "consumer lost":
                self.broker.forget(link)
            case "older version":
                self.kill(process)
                self.loop.after(0.01, lambda: self.start(process.slot, lacks=fault.what))
            case _:
                raise NotImplementedError(fault)

    def _double(self, fault: Fault) -> None:
        """Two believe that they hold the lease; the first is told some time later, if it lives."""
        first = self.leases.holders.get(fault.slot)
        self.start(fault.slot, seize=True)
        if first is not None:
            self.loop.after(fault.for_s, self._end, first)

    def join(self, shard: str, for_s: float) -> None:
        """A shard joins, and leaves again."""
        process = self.start(f"planner.{shard}")
        self.loop.after(for_s, self._tell_to_stop, process)

    def _reachable(self, process: Process) -> None:
        process.cut_off = False
        if process.running:
            self.leases.speak_again(process)

    def _alive(self) -> list[Process]:
        return [one for processes in self.processes.values() for one in processes if one.running]

    def refuse_bindings(self, pod: str, for_s: float) -> None:
        self.kube.refused[pod] = self.loop.now_s + for_s

    def race(self, kind: str, pod: str) -> None:
        """A request about this pod is on its way, and something else is faster."""
        self._safely(self.workload.race, kind, pod)

    def _heal(self) -> None:
        """Faults end."""
        self.calm = True
        self.faults.lift()
        self.kube.refused.clear()
        for watch in self.kube.watches:
            watch.lag_s = 0.0
        for slot, processes in self.processes.items():
            for process in list(processes):
                self._wake(process)
                if slot not in SLOTS:
                    self._tell_to_stop(process)


STRUCK: dict[str, Callable[[World, Fault], None]] = {
    "crash of all": World._kill_all,
    "log down": World._log_down,
    "power loss": World._power_loss,
    "foreign message": lambda world, fault: world.broker.inject(subjects.subject(CLUSTER, fault.slot), {}, b"hello?"),
    "policy changed": lambda world, _: world._set_policy(world._any_policy()),
    "double": World._double,
    "join": lambda world, fault: world.join(fault.what, fault.for_s),
    "API server restart": lambda world, fault: world.kube.restart(fault.for_s),
    "history dropped": lambda world, _: world.kube.drop_history(),
}
"""Faults that wait for no request and are not one process's."""
WATCHED = frozenset({"watch cut", "watch expired", "watch lag", "stale and twice"})


def _first(error: BaseException | None) -> BaseException | None:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _decode_events(stored: Stored) -> list[ev.Event]:
    """As an older version of the code would, which does not know an event."""
    process = PROCESS.get()
    if process is not None and process.lacks and b'"type":"%b"' % process.lacks.encode() in stored.payload:
        raise MalformedCommit(f"commit {stored.sequence}: Invalid value {process.lacks!r}")
    return envelope.decode_events(stored)


class _Watched(Decider):
    """Known to its process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        PROCESS.get().decider = self


@contextmanager
def _watched() -> Iterator[None]:
    for module in (planner, binder):
        module.Decider = _Watched  # type: ignore[attr-defined]
    renew_after_s = writer.RENEW_AFTER_S
    assert fold.decode_events is envelope.decode_events, "the fold decodes otherwise"
    fold.decode_events = _decode_events
    writer.RENEW_AFTER_S = RENEW_AFTER_S
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for module in (planner, binder):
            module.Decider = Decider  # type: ignore[attr-defined]
        fold.decode_events = envelope.decode_events
        writer.RENEW_AFTER_S = renew_after_s


def run(plan: Plan) -> Outcome:
    return World(plan).run()
