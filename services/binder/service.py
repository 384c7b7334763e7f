"""The binder as a process: its core over the log, and its effects on the cluster.

Bindings come first: `Effects` keeps a bounded number in flight, each from an intent that stands in the log, and repeats
what is in doubt until the answer is definite. Everything that users read is written by `WriteBehind`, while no binding
waits and at a bounded rate: conditions of waiting pods, Kubernetes events, the status of PodGroups. What it writes is
derived from the state when its turn comes, so a change that was overtaken costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import events as ev
from events import Event, dialects
from events.envelope import Commit
from events.lease import Watch
from events.log import EventLog
from services import telemetry
from services.binder import core
from services.binder.binding import Intent, Outcome, Seen, outcome, settled_by
from services.binder.group_status import group_status
from services.binder.report import Condition, KubernetesEvent, condition, failed_scheduling, rejected, scheduled
from services.decider import Decider, Decision, LogTime
from services.kubernetes.annotation import annotate
from services.kubernetes.client import Client, Regarding
from services.kubernetes.errors import ApiError, Conflict, NotFound
from services.kubernetes.group_status import GroupStatusWriter
from services.kubernetes.resources import Resource
from services.snapshots import SnapshotKeeper, Taking
from services.state import membership, timeouts
from services.state.fold import State
from services.state.records import PERMITTED, Pod
from services.writer import Writer

logger = logging.getLogger("muster.binder")
ROUND_S = 0.5
"""How often something is written behind."""
OVERDUE_S = 5.0
"""Under lasting load: how often all the same."""
LULL_S = 1.0
"""No binding for so long: the load is over."""
EVENTS_KEPT = 20_000
BURST_WRITES = 50.0
REFUSALS = frozenset({"Forbidden", "Rejected"})
"""Answers that say nothing of an earlier attempt: the pod is as it was."""
NO_ROOM_IN_BUDGET = 429
"""A disruption budget says: not now. Nothing was evicted."""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 5.0
WATCH_S = 0.25
"""How often the shards' leases are looked at."""


class Effects:
    """Bindings and evictions: from the intents in the state to outcomes in the log."""

    def __init__(self, decider: Decider, client: Client, concurrency: int) -> None:
        self._decider = decider
        self._client = client
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._concurrency = concurrency
        self._evicting: set[str] = set()
        self._doubtful_evictions: set[str] = set()
        self._doubtful: set[str] = set()
        """Intents of which an attempt may still land: it had no answer, or was a process's before this one."""
        self.in_flight = 0
        self._last_s = float("-inf")

    @property
    def busy(self) -> bool:
        """Whether bindings are on their way, or were a moment ago and more may follow."""
        return bool(self.in_flight or self._queue.qsize()) or time.monotonic() - self._last_s < LULL_S

    def intend(self, commit: Commit) -> None:
        """Queue the intents of a commit that was just folded."""
        for event in commit.events:
            if isinstance(event, ev.GangPermitted):
                for assignment in event.bindings:
                    for binding in assignment.pods:
                        self._put(binding.uid)
            elif isinstance(event, ev.BindingRenewed):
                self._put(event.uid)
            elif isinstance(event, ev.EvictionIntended):
                self._evict_later(event.uid)

    def resume(self) -> None:
        """Queue everything that is intended and not settled: after a start nobody knows what became of it."""
        for uid in self._decider.state.permitted:
            self._doubtful.add(uid)
            self._put(uid)
        for uid in self._decider.state.evictions:
            self._doubtful_evictions.add(uid)
            self._evict_later(uid)

    def _put(self, uid: str) -> None:
        self._queue.put_nowait(uid)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._concurrency):
                workers.create_task(self._bind_forever())

    async def _bind_forever(self) -> None:
        while True:
            uid = await self._queue.get()
            self.in_flight += 1
            try:
                await self._bind(uid)
            finally:
                self.in_flight -= 1
                self._last_s = time.monotonic()

    def _intent(self, uid: str) -> Intent | None:
        state = self._decider.state
        claim, pod = state.claims.get(uid), state.pods.get(uid)
        if claim is None or pod is None or claim.stage != PERMITTED:
            return None
        return Intent(uid, pod.fact.namespace, pod.fact.name, claim.node, claim.resource_version)

    async def _bind(self, uid: str) -> None:
        """Try one intent until its answer is definite or the log has settled it otherwise."""
        pause_s, began_s = FIRST_RETRY_S, time.perf_counter()
        while (intent := self._intent(uid)) is not None:
            result = await self._client.bind(
                intent.namespace, intent.name, intent.uid, intent.resource_version, intent.node
            )
            found = outcome(intent, result.outcome, result.message, result.node)
            if found is None and result.outcome == "precondition":
                with suppress(ApiError):
                    found = settled_by(intent, await self._look(intent))
            if result.outcome == "in_doubt":
                self._doubtful.add(uid)
            elif uid in self._doubtful and isinstance(found, ev.BindingFailed) and found.reason in REFUSALS:
                found = await self._fence(intent, found)
            if found is not None:
                telemetry.BIND_S.record(time.perf_counter() - began_s, outcome=type(found).__name__)
                self._doubtful.discard(uid)
                self._say(found)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_S)

    async def _fence(self, intent: Intent, refused: ev.BindingFailed) -> Outcome | None:
        """A refusal answers this attempt; an older one may still land. A write of our own makes it fail (design, rule 5).

        The version in the message makes every such write change something: one that changes nothing raises no version.
        """
        message = f"binding to {intent.node} at version {intent.resource_version} was refused: {refused.message}"
        said = {"type": "PodScheduled", "status": "False", "reason": "BindingFailed", "message": message}
        names = (intent.namespace, intent.name, intent.uid)
        try:
            version = await self._client.patch_pod_status(*names, intent.resource_version, {"conditions": [said]})
        except (Conflict, NotFound):
            with suppress(ApiError):
                return settled_by(intent, await self._look(intent))
            return None
        except ApiError:
            return None
        self._say(ev.ConditionsReported(reason="BindingFailed", pods=((intent.uid, version),)))
        return refused

    async def _look(self, intent: Intent) -> Seen | None:
        pod = await self._client.get_pod(intent.namespace, intent.name)
        if pod is None:
            return None
        meta = pod.metadata
        return Seen(
            meta.uid,
            meta.resource_version,
            pod.spec.node_name or "",
            meta.deletion_timestamp is not None,
            bool(pod.spec.scheduling_gates),
        )

    def _evict_later(self, uid: str) -> None:
        if uid not in self._evicting:
            self._evicting.add(uid)
            task = asyncio.get_running_loop().create_task(self._evict(uid))
            task.add_done_callback(lambda _: self._evicting.discard(uid))

    async def _evict(self, uid: str) -> None:
        """Try one eviction until the answer is definite; a disruption budget may keep it waiting.

        A refusal answers this attempt. While an older one may still land it settles nothing: an eviction's precondition
        is the UID alone, so that no write of our own could make that one fail, and the same eviction is tried again
        (design, rule 5).
        """
        pause_s = FIRST_RETRY_S
        while (eviction := self._decider.state.evictions.get(uid)) is not None:
            names = {"uid": uid, "namespace": eviction.namespace, "name": eviction.name}
            found: Event = ev.PodEvicted(**names)
            try:
                await self._client.evict(eviction.namespace, eviction.name, uid)
            except (NotFound, Conflict):
                pass
            except ApiError as error:
                if error.retryable and error.code != NO_ROOM_IN_BUDGET:
                    self._doubtful_evictions.add(uid)
                if error.retryable or uid in self._doubtful_evictions:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, LONGEST_RETRY_S)
                    continue
                found = ev.EvictionFailed(**names, message=str(error))
            self._say(found)
            break
        self._doubtful_evictions.discard(uid)

    def _say(self, found: Event) -> None:
        self._decider.report(found)


class Rates(NamedTuple):
    """Bounds on what is written behind: PodScheduled conditions, Kubernetes events, status of PodGroups, annotations of
    timed-out pods."""

    conditions_per_s: float = 15.0
    events_per_s: float = 50.0
    groups_per_s: float = 20.0
    marks_per_s: float = 50.0


DEFAULT_RATES = Rates()


class Rate:
    """A bounded rate with a burst: what was saved up while nothing was written may be spent at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._saved = BURST_WRITES
        self._since_s = time.monotonic()

    def allowance(self) -> int:
        """Writes that may be made now."""
        now_s = time.monotonic()
        self._saved = min(BURST_WRITES, self._saved + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        return max(0, int(self._saved))

    def spend(self, writes: int) -> None:
        """Count writes that were made; more than were allowed are saved up again first."""
        self._saved -= writes


Write = Callable[[], Coroutine[None, None, int]]
"""Of one object, to be made when its turn comes: a round that is cancelled before leaves nothing unawaited. Returns how
many requests it took."""


class WriteBehind:
    """What users read. Four queues without duplicates, the oldest first, one write at a time in each: pods whose
    condition may have changed, PodGroups whose status may have, pods that are to say that their gang timed out, and
    Kubernetes events, of which a burst may lose the oldest."""

    def __init__(
        self,
        decider: Decider,
        client: Client,
        *,
        holder: str,
        busy: Callable[[], bool],
        rates: Rates,
    ) -> None:
        self._decider = decider
        self._client = client
        self._holder = holder
        self._busy = busy
        self._waiting_rate = Rate(rates.conditions_per_s)
        self._event_rate = Rate(rates.events_per_s)
        self._gang_rate = Rate(rates.groups_per_s)
        self._mark_rate = Rate(rates.marks_per_s)
        self._pods: dict[str, None] = {}
        self._gangs: dict[str, None] = {}
        self._marks: dict[str, None] = {}
        self._doubtful: set[str] = set()
        """Marks of which an attempt may still land: it had no answer, or was a process's before this one."""
        self._marked: dict[str, str] = {}
        self._renewed: dict[str, str] = {}
        """UID → resourceVersion: what became of marks since the last report."""
        self._events: deque[KubernetesEvent] = deque(maxlen=EVENTS_KEPT)
        self._told: set[tuple[str, str]] = set()
        self._reported: dict[str, dict[str, str]] = {}
        self._written: dict[str, tuple[str, dict[str, object]]] = {}
        """Gang → UID of the PodGroup, and what was written to it last."""
        self._statuses = GroupStatusWriter(client)

    # ---------------------------------------------------------------------------------------------------------- notice

    def notice(self, commit: Commit) -> None:
        """Note what a folded commit may have changed for users."""
        state = self._decider.state
        time_ns = commit.header.time_ns
        for event in commit.events:
            if isinstance(event, ev.GroupsRefused):
                for key in event.groups:
                    group = state.groups.get(key)
                    if group is not None:
                        self._pods.update(dict.fromkeys(membership.members(state, group)))
                        self._gangs.update(dict.fromkeys(group.gangs))
            elif isinstance(event, ev.PodBound):
                self._events.append(scheduled(event, time_ns))
                self._note_gang(event.uid)
            elif isinstance(event, ev.GangTimedOut | ev.TimeoutMarkRenewed):
                self._marks.update(dict.fromkeys(uid for uid, _ in event.pods))
            elif isinstance(event, ev.DeclarationRejected):
                self._events.append(rejected(event, time_ns))
            elif isinstance(event, ev.PodObserved | ev.PodFinished | ev.PodAssigned | ev.PodTerminating):
                self._note_gang(event.uid)
            elif isinstance(event, ev.PodGroupObserved):
                self._gangs[dialects.gang_key(event.dialect, event.namespace, event.name)] = None

    def resume(self) -> None:
        """After a start: whatever users may not have been told yet."""
        state = self._decider.state
        for cohort in state.cohorts.values():
            for key in cohort.groups:
                self._pods.update(dict.fromkeys(membership.members(state, state.groups[key])))
        self._gangs.update(dict.fromkeys(state.gangs))
        self._marks.update(dict.fromkeys(state.marks))
        self._doubtful.update(state.marks)
        self._events.extend(rejected(event, 0) for event in state.rejections.values())

    def _note_gang(self, uid: str) -> None:
        pod = self._decider.state.pods.get(uid)
        if pod is not None and pod.gang:
            self._gangs[pod.gang] = None

    # ----------------------------------------------------------------------------------------------------------- write

    async def run(self) -> None:
        """A round now and then, while no binding waits (under lasting load more seldom): each queue writes what its rate
        allows, all at once.

        Many writes in one round cost much less than the same writes one by one: the process wakes up once for them.
        """
        written_s = time.monotonic()
        while True:
            await asyncio.sleep(ROUND_S)
            overdue = time.monotonic() - written_s > OVERDUE_S
            if self._decider.active and (overdue or not self._busy()):
                written_s = time.monotonic()
                await asyncio.gather(
                    self._round(self._gang_rate, self._due_gangs),
                    self._round(self._mark_rate, self._due_marks),
                    self._round(self._event_rate, self._due_events),
                    self._round(self._waiting_rate, self._due_conditions),
                )
                self._report()

    async def _round(self, rate: Rate, due: Callable[[int], Iterator[Write]]) -> None:
        rate.spend(sum(await asyncio.gather(*map(self._write, due(rate.allowance())))))

    def _due_gangs(self, most: int) -> Iterator[Write]:
        """Statuses that differ from what was written last."""
        state = self._decider.state
        while self._gangs and most > 0:
            key = _first(self._gangs)
            gang = state.gangs.get(key)
            if gang is None or not gang.pod_group:
                self._written.pop(key, None)
                continue
            status = group_status(state, gang)
            if status and self._written.get(key) != (gang.source, status):
                most -= 1
                yield partial(self._write_gang, key, state.pod_groups[gang.pod_group], status)

    def _due_marks(self, most: int) -> Iterator[Write]:
        """Intents that are not settled."""
        state = self._decider.state
        while self._marks and most > 0:
            uid = _first(self._marks)
            mark, pod = state.marks.get(uid), state.pods.get(uid)
            if mark is not None and pod is not None and not mark.written:
                most -= 1
                yield partial(self._write_mark, uid, pod, mark.resource_version)

    def _due_events(self, most: int) -> Iterator[Write]:
        for _ in range(min(most, len(self._events))):
            yield partial(self._write_event, self._events.popleft())

    def _due_conditions(self, most: int) -> Iterator[Write]:
        """Conditions that the log does not know as written yet."""
        while self._pods and most > 0:
            uid = _first(self._pods)
            due = condition(self._decider.state, uid)
            if due is not None:
                most -= 1
                yield partial(self._write_condition, uid, due)

    def _report(self) -> None:
        """What was written goes into the log together: of conditions, one event for a reason."""
        for reason, pods in self._reported.items():
            self._decider.report(ev.ConditionsReported(reason=reason, pods=tuple(pods.items())))
        self._reported.clear()
        if self._marked:
            self._decider.report(ev.TimeoutMarked(pods=tuple(self._marked.items())))
        if self._renewed:
            self._decider.report(ev.TimeoutMarkRenewed(pods=tuple(self._renewed.items())))
        self._marked, self._renewed = {}, {}

    async def _write(self, write: Write) -> int:
        """How many requests it took. Its failure costs only itself."""
        try:
            return await write()
        except NotFound:
            return 1
        except ApiError as error:
            logger.warning("written behind, and refused: %s", error)
            return 1

    async def _write_condition(self, uid: str, due: Condition) -> int:
        """The condition, and FailedScheduling for the first pod of a group and reason."""
        state = self._decider.state
        pod = state.pods.get(uid)
        if pod is None or condition(state, uid) != due:
            return 0  # a commit was folded since this was chosen
        fact, version = pod.fact, pod.resource_version
        said = {"type": "PodScheduled", "status": "False", "reason": due.reason, "message": due.message}
        status = {"conditions": [said]}
        try:
            version = await self._client.patch_pod_status(fact.namespace, fact.name, uid, version, status)
        except Conflict:
            seen = await self._client.get_pod(fact.namespace, fact.name)
            if seen is None or seen.metadata.uid != uid or seen.spec.node_name or condition(state, uid) != due:
                return 2
            version = seen.metadata.resource_version
            version = await self._client.patch_pod_status(fact.namespace, fact.name, uid, version, status)
        self._reported.setdefault(due.said, {})[uid] = version
        if (pod.group, due.said) in self._told:
            return 1
        if len(self._told) > EVENTS_KEPT:
            self._told.clear()
        self._told.add((pod.group, due.said))
        return 1 + await self._write_event(failed_scheduling(fact, due.message))

    async def _write_gang(self, key: str, fact: ev.PodGroupObserved, status: dict[str, object]) -> int:
        resource = Resource.custom(dialects.POD_GROUPS[fact.dialect], "podgroups")
        about = (fact.namespace, fact.name, fact.uid, fact.resource_version)
        requests = await self._statuses.write(resource, *about, status)
        self._written[key] = (fact.uid, status)
        return requests

    async def _write_mark(self, uid: str, pod: Pod, resource_version: str) -> int:
        """The annotation that the pod's gang timed out. What is in doubt is tried again in the next round, unchanged."""
        namespace, name = pod.fact.namespace, pod.fact.name
        if self._may_be_tried(pod) and uid not in self._doubtful:
            self._give_up(uid, pod, "its gang may be tried again")
            return 0
        said = (dialects.TIMEOUT_ANNOTATION, "true")
        found = await annotate(self._client, namespace, name, uid, resource_version, said)
        if found.outcome == "in_doubt":
            self._doubtful.add(uid)
            self._marks[uid] = None
            return 1
        self._doubtful.discard(uid)
        if found.outcome == "written":
            self._marked[uid] = found.resource_version
        elif found.outcome == "changed" and not self._may_be_tried(pod):
            self._renewed[uid] = found.resource_version
        elif found.outcome != "gone":
            self._give_up(uid, pod, found.message or "its gang may be tried again")
        return 1

    def _may_be_tried(self, pod: Pod) -> bool:
        gang = self._decider.state.gangs.get(pod.gang)
        return gang is None or not timeouts.gang_stands(self._decider.state, gang)

    def _give_up(self, uid: str, pod: Pod, message: str) -> None:
        named = {"uid": uid, "namespace": pod.fact.namespace, "name": pod.fact.name}
        self._decider.report(ev.TimeoutMarkFailed(**named, message=message))

    async def _write_event(self, event: KubernetesEvent) -> int:
        await self._client.create_event(
            event.name,
            Regarding(*event.regarding),
            reason=event.reason,
            action=event.action,
            note=event.note,
            warning=event.warning,
            time_ns=event.time_ns or time.time_ns(),
            instance=self._holder,
        )
        return 1


def _first(queue: dict[str, None]) -> str:
    key = next(iter(queue))
    del queue[key]
    return key


async def watch_shards(decider: Decider, leases: Watch) -> None:
    """The binder's eye on the planners: a shard whose lease is free is lost, said once of each process that took it."""
    said: set[int] = set()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await leases.given_back.wait()
        leases.given_back.clear()
        for shard, taken in list(decider.state.shards.items()) if decider.active else ():
            if taken not in said and await leases.is_free(f"planner.{shard}"):
                said.add(taken)
                decider.report(ev.ShardLost(shard=shard, taken=taken))


async def run(
    log: EventLog,
    client: Client,
    *,
    holder: str,
    turn: Callable[[], Awaitable[None]] | None = None,
    leases: Watch | None = None,
    concurrency: int = 64,
    rates: Rates = DEFAULT_RATES,
    snapshots: Taking | None = None,
    clock_offset_ms: int = 0,
) -> None:
    """Judge and bind, once it is this process's `turn`, until another takes over (SteppedDown) or this task is cancelled.

    `leases` are the planners': without them no shard is ever found lost. Without `snapshots` none are taken.
    """

    def decide(state: State) -> Decision:
        yield from ()  # one slice: verdicts are bounded by `Policy.cycle_pods`
        decided: Sequence[Event] = core.decide(state)
        return decided

    def applied(commit: Commit) -> None:
        effects.intend(commit)
        behind.notice(commit)

    def started() -> None:
        effects.resume()
        behind.resume()

    decider = Decider(
        log,
        Writer(log, "binder"),
        decide,
        clock=LogTime(clock_offset_ms),
        applied=applied,
        started=started,
    )
    effects = Effects(decider, client, concurrency)
    behind = WriteBehind(
        decider,
        client,
        holder=holder,
        busy=lambda: effects.busy,
        rates=rates,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(decider.run(ev.BinderTaken(holder=holder), turn))
        if leases is not None:
            tasks.create_task(watch_shards(decider, leases))
        if snapshots is not None:
            tasks.create_task(SnapshotKeeper(decider, lambda: effects.busy, snapshots).run())
        tasks.create_task(effects.run())
        tasks.create_task(behind.run())
