"""Bindings and evictions, a bounded number of each in flight: each from an intent in the log. What is in doubt, or was
not executed, is repeated until the answer is definite, beside first attempts and by workers of its own: a webhook that
fails for one namespace's pods, or says that it is busy, must not hold up everybody's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import NamedTuple

import events as ev
from events import Event
from events.envelope import Commit
from services import telemetry
from services.binder.binding import BY_THE_POD, REFUSALS, Intent, Outcome, Seen, bound, failed, outcome, settled_by
from services.binder.report import BINDING_FAILED
from services.binder.service.rounds import SLICE_NOTED, namespace_of
from services.binder.service.turns import Turns
from services.decider import Decider
from services.kubernetes.binding import result_of
from services.kubernetes.client import Client, second_time
from services.kubernetes.errors import ApiError, Conflict, NotFound
from services.kubernetes.transport import REPEATED_WITHIN_S
from services.state import membership
from services.state.records import BOUND_CLAIM, FINISHED, PERMITTED, TERMINATING, Eviction
from services.telemetry.repeated import Repeated

logger = logging.getLogger("muster.binder")
LOAD, LULL_S = 50, 1.0
"""So many bindings within so long are a load. Fewer leave time for what is written behind, be it for weeks."""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 5.0
TOLD_AFTER_S = 5.0
"""When the pod is told what keeps its binding waiting: a webhook that fails may do so for days."""
REPEATED_PER_S = 200
"""One namespace's bindings, and all evictions, that are repeated: of more than a thousand each waits for longer. A gang
may have 50,000 pods, and a webhook or a disruption budget may refuse them for ever."""


class Due(NamedTuple):
    """What is to be asked for."""

    uid: str
    namespace: str
    pause_s: float
    """How long to wait before it is asked for again."""
    began_s: float = 0.0
    """When it was asked for first; 0: never yet."""

    def later(self, waiting: int) -> Due:
        """As it is after the pause, of so many that wait."""
        return self._replace(pause_s=min(self.pause_s * 2, max(LONGEST_RETRY_S, waiting / REPEATED_PER_S)))


def _turns(workers: int) -> Turns[Due]:
    return Turns(lambda due: due.namespace, workers)


class Effects:
    """Bindings and evictions: from the intents in the state to outcomes in the log."""

    def __init__(
        self,
        decider: Decider,
        client: Client,
        concurrency: int,
        *,
        overwrites: Callable[[str], None] = lambda _: None,
        tells: Callable[[ev.BindingFailed], None] = lambda _: None,
    ) -> None:
        """`concurrency`: so many bindings, and so many evictions, are asked for at a time, and beside them a quarter as
        many bindings that are repeated. `overwrites` hears of each pod whose condition is written from here, `tells` of
        what keeps a binding waiting, once of each."""
        self._decider = decider
        self._overwrites, self._tells = overwrites, tells
        self._told: set[str] = set()
        """UIDs of bindings that wait, and of which it is told already."""
        self._client = client
        self._first, self._again = _turns(concurrency), _turns(concurrency // 4)
        """Bindings that were not asked for yet; and that are due to be repeated."""
        self._repeated: Counter[str] = Counter()
        """Namespace → bindings that wait to be asked for again."""
        self._evictions = _turns(concurrency)
        self._evicting: set[str] = set()
        """UIDs of evictions that are due, or wait until they are."""
        self._doubtful_evictions: set[str] = set()
        self._doubtful: dict[str, str] = {}
        """UID → node of intents with an attempt that may still land: it had no answer, or was an earlier process's."""
        self._ended_s: deque[float] = deque(maxlen=LOAD)
        """When the last bindings ended."""
        self._failed_bindings = Repeated(logger, "bindings that came to nothing: %d, the last of %s: %s")
        self._failed_evictions = Repeated(logger, "evictions that came to nothing: %d, the last of %s: %s")

    @staticmethod
    def workers(concurrency: int) -> int:
        """In all: each asks one thing at a time."""
        return sum(_turns(workers).workers for workers in (concurrency, concurrency // 4, concurrency))

    @property
    def busy(self) -> bool:
        """Whether bindings are on their way, or many were a moment ago and more may follow. Not those that are repeated:
        a few behind a webhook that hangs are on their way all the time, for as long as it does."""
        if self._first:
            return True
        return len(self._ended_s) == LOAD and time.monotonic() - self._ended_s[0] < LULL_S

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

    def resume(self) -> Generator[None, None, None]:
        """Queue everything that is intended and not settled: after a start nobody knows what became of it. In slices."""
        state = self._decider.state
        for number, uid in enumerate(state.permitted, 1):
            if number % SLICE_NOTED == 0:
                yield
            self._doubtful[uid] = state.claims[uid].node
            self._put(uid)
        for uid in state.evictions:
            self._doubtful_evictions.add(uid)
            self._evict_later(uid)

    def _put(self, uid: str) -> None:
        self._first.put(self._due(uid))

    def _due(self, uid: str) -> Due:
        return Due(uid, namespace_of(self._decider.state, uid), FIRST_RETRY_S)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for turns in (self._first, self._again):
                for _ in range(turns.workers):
                    tasks.create_task(self._bind_forever(turns, tasks))
            for _ in range(self._evictions.workers):
                tasks.create_task(self._evict_forever(tasks))

    async def _bind_forever(self, turns: Turns[Due], tasks: asyncio.TaskGroup) -> None:
        while True:
            due = await turns.take()
            began_s = due.began_s or time.perf_counter()
            after_s = await self._bind(due.uid, began_s)
            turns.done(due)
            if due.began_s:
                self._repeated[due.namespace] -= 1
                if not self._repeated[due.namespace]:
                    del self._repeated[due.namespace]
            if after_s is not None:
                self._repeated[due.namespace] += 1
                tasks.create_task(self._bind_again(due._replace(began_s=began_s), after_s))

    async def _bind_again(self, due: Due, after_s: float) -> None:
        """Once it is due: after its pause, or when the server asks to, if that is later."""
        await asyncio.sleep(max(due.pause_s, min(after_s, REPEATED_WITHIN_S)))
        self._again.put(due.later(self._repeated[due.namespace]))

    def _intent(self, uid: str) -> Intent | None:
        state = self._decider.state
        claim, pod = state.claims.get(uid), state.pods.get(uid)
        if claim is None or pod is None or claim.stage != PERMITTED:
            return None
        return Intent(uid, pod.fact.namespace, pod.fact.name, claim.node, claim.resource_version)

    async def _bind(self, uid: str, began_s: float) -> float | None:
        """One attempt; how long the server asks to be left alone before the next, None: it was the last one needed."""
        after_s = await self._attempt(uid, began_s)
        if after_s is None:
            self._ended_s.append(time.monotonic())
        return after_s

    async def _attempt(self, uid: str, began_s: float) -> float | None:
        """As `_bind`: None if the answer is definite, or the log has settled the intent otherwise."""
        intent = self._intent(uid)
        if intent is not None:
            result = await self._client.bind(
                intent.namespace, intent.name, intent.uid, intent.resource_version, intent.node
            )
            found = outcome(intent, result.outcome, result.message, result.node)
            if result.outcome in BY_THE_POD:
                with suppress(ApiError):
                    found = settled_by(intent, await self._look(intent), result.message)
            refused = found if isinstance(found, ev.BindingFailed) and found.reason in REFUSALS else None
            if refused or found is None:
                self._failed_bindings.warn(f"{intent.namespace}/{intent.name} to {intent.node}", result.message)
            if result.outcome == "in_doubt":
                self._doubtful[uid] = intent.node
            elif uid in self._doubtful and refused and not result.final:
                found = await self._fence(intent, refused)
            if found is None:
                if result.answered and uid not in self._told and time.perf_counter() - began_s > TOLD_AFTER_S:
                    self._told.add(uid)
                    self._tells(failed(intent, "Waiting", result.message))
                return result.retry_after_s
            telemetry.BIND_S.record(time.perf_counter() - began_s, outcome=type(found).__name__)
            self._report(found)
        elif uid in self._doubtful:
            self._report_if_seen(uid, self._doubtful[uid])
        self._doubtful.pop(uid, None)
        self._told.discard(uid)
        return None

    def _report_if_seen(self, uid: str, node: str) -> None:
        """Ingest saw the pod on its node before an answer said so. The state needs no more; users and traces need the
        outcome."""
        state = self._decider.state
        claim, pod = state.claims.get(uid), state.pods.get(uid)
        if claim is not None and pod is not None and claim.stage == BOUND_CLAIM and claim.node == node:
            self._report(bound(Intent(uid, pod.fact.namespace, pod.fact.name, node, claim.resource_version)))

    async def _fence(self, intent: Intent, refused: ev.BindingFailed) -> Outcome | None:
        """A refusal answers this attempt; an older one may still land. A write of our own makes it fail (design, rule 5).

        The version in the message makes every such write change something: one that changes nothing raises no version.
        """
        pod = self._decider.state.pods.get(intent.uid)
        if pod is None:
            return None  # gone meanwhile: the next attempt finds no intent
        message = f"binding to {intent.node} at version {intent.resource_version} was refused: {refused.message}"
        said = {"type": "PodScheduled", "status": "False", "reason": BINDING_FAILED, "message": message}
        self._overwrites(intent.uid)
        if not pod.reported:
            said["lastTransitionTime"] = second_time(time.time_ns())
        names = (intent.namespace, intent.name, intent.uid)
        try:
            version = await self._client.patch_pod_status(*names, intent.resource_version, {"conditions": [said]})
        except (Conflict, NotFound):
            with suppress(ApiError):
                seen = await self._look(intent)
                if seen is None or seen.resource_version != intent.resource_version:
                    return settled_by(intent, seen, refused.message)
            return None
        except ApiError:
            return None
        if version == intent.resource_version:
            return None  # a webhook that keeps the condition as it was: nothing makes an older attempt fail
        self._report(ev.ConditionsReported(reason=BINDING_FAILED, pods=((intent.uid, version),)))
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
            pod.status.phase in ("Succeeded", "Failed"),
        )

    def _evict_later(self, uid: str) -> None:
        if uid not in self._evicting:
            self._evicting.add(uid)
            self._evictions.put(self._due(uid))

    async def _evict_forever(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            due = await self._evictions.take()
            after_s = await self._evict(due.uid)
            self._evictions.done(due)
            if after_s is None:
                self._doubtful_evictions.discard(due.uid)
                self._evicting.discard(due.uid)
            else:
                tasks.create_task(self._evict_again(due, after_s))

    async def _evict_again(self, due: Due, after_s: float) -> None:
        await asyncio.sleep(max(due.pause_s, min(after_s, REPEATED_WITHIN_S)))
        self._evictions.put(due.later(len(self._evicting)))

    async def _evict(self, uid: str) -> float | None:
        """Try an eviction once. None: it is not needed any more (`_needless`), or the pod is gone or going; else how long
        the server asks to be left alone.

        No refusal settles it: a disruption budget, a webhook or a missing right may let it through later, and until then
        the gang stays half bound. Nor could a refusal while an older attempt may still land: an eviction's precondition
        is the UID alone, so that no write of our own could make that one fail. For the same reason none is called off
        that may still land (design, rule 5).
        """
        if (eviction := self._decider.state.evictions.get(uid)) is None:
            return None
        found = self._needless(eviction) or await self._evict_once(uid, eviction.namespace, eviction.name)
        if isinstance(found, float):
            return found
        self._report(found)
        return None

    def _needless(self, eviction: Eviction) -> ev.PodEvicted | ev.EvictionFailed | None:
        """While it was kept waiting it may have become needless: the pod goes by itself, or has ended; the gang has its
        minimum again, or the policy is to keep the rest by now, and it is not torn down."""
        state, uid = self._decider.state, eviction.uid
        pod = state.pods[uid]
        about = {"uid": uid, "namespace": eviction.namespace, "name": eviction.name}
        if pod.status == TERMINATING:
            return ev.PodEvicted(**about)
        if uid in self._doubtful_evictions:
            return None
        if pod.status in FINISHED:
            return ev.EvictionFailed(**about, message="the pod has ended")
        if state.policy is not None and state.policy.replacement_policy == "keep":
            return ev.EvictionFailed(**about, message="the policy is keep by now")
        gang = state.gangs.get(pod.gang)
        if gang is None or not membership.has_minimum(state, gang):
            return None
        return ev.EvictionFailed(**about, message=f"gang {gang.key} has its minimum again")

    async def _evict_once(self, uid: str, namespace: str, name: str) -> ev.PodEvicted | float:
        """What became of one attempt; nothing yet: after how many seconds at the earliest the server wants it again.

        A conflict says that the UID is another's, or that somebody else wrote the pod just then, or a webhook says it, as
        it may say 404: the pod tells.
        """
        about = {"uid": uid, "namespace": namespace, "name": name}
        try:
            await self._client.evict(namespace, name, uid)
        except (Conflict, NotFound) as refusal:
            try:
                seen = await self._client.get_pod(namespace, name)
            except ApiError as error:
                self._failed_evictions.warn(f"{namespace}/{name}", str(error))
                return 0.0
            if seen is not None and seen.metadata.uid == uid and seen.metadata.deletion_timestamp is None:
                self._failed_evictions.warn(f"{namespace}/{name}", str(refusal))
                return refusal.retry_after_s or 0.0
        except ApiError as error:
            self._failed_evictions.warn(f"{namespace}/{name}", str(error))
            if result_of(error).outcome == "in_doubt":
                self._doubtful_evictions.add(uid)
            return error.retry_after_s or 0.0
        return ev.PodEvicted(**about)

    def _report(self, found: Event) -> None:
        self._decider.report(found)
