"""A cluster's log: planner and binder decide, and what the binder does has its intent in a decision before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping
from typing import Any

import events as ev
from events import Event
from services.binder import core as binder
from services.console.kinds import permits
from services.console.summary import summary, waiting_groups
from services.planner import core as planner
from services.state.fold import State
from services.state.validate import validate_state

BINDINGS = frozenset({ev.PodBound, ev.BindingFailed, ev.BindingRenewed})
EVICTIONS = frozenset({ev.PodEvicted, ev.EvictionFailed})
MARKS = frozenset({ev.TimeoutMarked, ev.TimeoutMarkRenewed, ev.TimeoutMarkFailed})
NAMING = BINDINGS | EVICTIONS | {ev.TimeoutMarkFailed}
"""Outcomes with a pod's name beside its UID."""
INPUTS: dict[str, frozenset[type]] = {
    "taken": frozenset({ev.PlannerTaken, ev.BinderTaken, ev.VersionsAnnounced}),
    "left": frozenset({ev.PlannerLeft}),
    "renew": frozenset({ev.Renewed}),
    "tick": frozenset({ev.Ticked}),
    "outcome": BINDINGS | EVICTIONS | MARKS | {ev.ConditionsReported, ev.ShardLost, ev.SnapshotTaken},
}


class Checks:
    """As `services.console.kinds.Checks`: which pods were permitted, to be evicted, to be marked."""

    rules: Mapping[str, Collection[int]] = {"planner": planner.RULES, "binder": binder.RULES}
    inputs: Mapping[str, frozenset[type]] = INPUTS

    def __init__(self, state: State) -> None:
        self.before = 0
        self.times = {writer: clock.time_ns for writer, clock in state.clocks.items()}
        self._state = state
        self._purged = state.sequence > 0
        """Whether the binder that writes knows of intents which were purged: what is left of the log stands on this
        state, and it took the subject before. One that took it later intends what the state has it intend."""
        self._permitted = {uid: state.claims[uid].node for uid in state.permitted}
        """UID → the node that its last permit named, while no outcome has said what became of that."""
        self._overtaken: set[tuple[str, str]] = set()
        """UID and node of permits without an answer, of pods that wait again since: etcd was restored."""
        self._evicting = Counter(state.evictions.keys())
        """UID → how many intents no outcome has settled: one that etcd took back may be intended again before that."""
        self._marking = Counter(uid for uid, mark in state.marks.items() if not mark.written)

    def decide(self, writer: str) -> Generator[None, None, list[Event]]:
        role, _, shard = writer.partition(".")
        if role == "planner":
            return [*(yield from planner.decide(self._state, shard))]
        return [*(yield from binder.decide(self._state))]

    def broken(self, decided: list[Event]) -> str:
        return permits.broken(self._state, decided)

    def taken(self, event: Event) -> None:
        if type(event) is ev.BinderTaken:
            self._purged = False

    def decided(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is ev.GangPermitted:
                for assignment in event.bindings:
                    for binding in assignment.pods:
                        self._permit(binding.uid, assignment.node)
            elif type(event) is ev.EvictionIntended:
                self._evicting[event.uid] += 1
            elif type(event) is ev.GangTimedOut:
                self._marking.update(uid for uid, _ in event.pods)

    def _permit(self, uid: str, node: str) -> None:
        if uid in self._permitted:
            self._overtaken.add((uid, self._permitted[uid]))
        self._permitted[uid] = node

    def unintended(self, event: Any) -> str | None:
        """For a binding the node that was intended instead; for a pod by another name than its own, that."""
        if type(event) in NAMING and (pod := self._state.pods.get(event.uid)) is not None:
            fact = pod.fact
            if (fact.namespace, fact.name) != (event.namespace, event.name):
                return f"{fact.namespace}/{fact.name}"
        if type(event) in BINDINGS:
            intended = self._permitted.get(event.uid, "")
            if intended == event.node:
                if type(event) is not ev.BindingRenewed:
                    self._permitted.pop(event.uid, None)
                return None
            fits = (event.uid, event.node) in self._overtaken
            return None if fits or (not intended and self._lies_before()) else intended
        settles = type(event) is not ev.TimeoutMarkRenewed
        if type(event) in EVICTIONS:
            return None if self._answers(self._evicting, event.uid) else ""
        if type(event) in MARKS:
            pods = [event.uid] if type(event) is ev.TimeoutMarkFailed else [uid for uid, _ in event.pods]
            return None if all(self._answers(self._marking, uid, settles=settles) for uid in pods) else ""
        return None

    def _answers(self, intents: Counter[str], uid: str, *, settles: bool = True) -> bool:
        if not intents[uid]:
            return self._lies_before()
        intents[uid] -= settles
        if not intents[uid]:
            del intents[uid]
        return True

    def _lies_before(self) -> bool:
        """Whether the intent may have been purged. Counted. The pod says nothing of it: it may be gone, and be there
        again, as where etcd was restored from a backup."""
        self.before += self._purged
        return self._purged

    def inert(self) -> str:
        """An outcome for a pod that is gone changes nothing, and is right."""
        return ""

    def validate(self) -> None:
        validate_state(self._state)


def waiting(state: State) -> tuple[str, dict[str, dict[str, Any]]]:
    """Groups with pods that are not bound."""
    found = waiting_groups(state)
    return "waiting_groups", {group: {"pods": pods, "why": why} for group, (pods, why) in found.items()}


__all__ = ["Checks", "summary", "waiting"]
