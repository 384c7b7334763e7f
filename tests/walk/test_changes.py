"""Random walks in which an admin changes the policy and switches versions, whatever is under way just then.

Shards join, leave and are lost in every walk; here the rules change as well, in the middle of proposals, holds, kept room
and refusals, and what pods were told has to be so at rest.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

import events as ev
from services.binder.report import condition
from services.state import refusals, snapshot
from tests.second import BOTH, second
from tests.walk.checks import check_rest, refold
from tests.walk.walk import Walk

CHANGES: dict[str, list[int | str]] = {
    "permit_waiting_ms": [0, 1_000, 10_000],
    "backoff_initial_ms": [1, 200, 1_000],
    "cycle_pods": [1, 3, 4_096],
    "gang_pods": [2, 3, 50_000, 50_000],
    "replacement_hold_ms": [0, 1_000, 15_000],
    "replacement_policy": ["keep", "evict"],
    "lookahead_pods": [0, 3, 1_024],
    "nominate_after_refusals": [0, 1, 2],
    "nomination_hold_ms": [0, 1_000, 10_000],
    "reserve_after_refusals": [0, 1, 2],
    "reservation_hold_ms": [0, 1_000, 10_000],
    "reservations": [0, 1, 3],
}
STEPS_BETWEEN = 8


class Told(NamedTuple):
    """What a pod was told, and of which gangs' group it was."""

    message: str
    gangs: tuple[str, ...]


class Changing(Walk):
    """A walk with an admin."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.admin = random.Random(f"{seed}/admin")
        self.told: dict[str, Told] = {}
        self.world.announced.append(BOTH)
        self.step_restart_ingest()
        self.world.append("binder", [ev.BinderTaken(holder="test"), BOTH], cause="taken")
        for shard in list(self.state.shards):
            self.join(shard)

    def walk(self, steps: int) -> None:
        for _ in range(steps // STEPS_BETWEEN):
            super().walk(STEPS_BETWEEN)
            self.change()

    def change(self) -> None:
        if self.admin.random() < 0.3:
            rules, state = self.admin.choice([1, 2]), self.admin.choice([1, 2])
            switched = ev.VersionsSwitched(rules=rules, state=max(state, self.state.state_version))
            self.world.append("admin", [switched], cause="admin")
        else:
            field = self.admin.choice(list(CHANGES))
            self.set_policy(**{field: self.admin.choice(CHANGES[field])})

    def set_policy(self, **changes: int | str) -> None:
        assert self.state.policy is not None
        changed = msgspec.structs.replace(self.state.policy, **changes)
        self.world.append("admin", [ev.PolicyChanged(policy=changed)], cause="admin")

    def step_restart_ingest(self) -> None:
        """It has both versions, too."""
        self.world.facts(ev.IngestTaken(holder="again"), *self.world.announced)
        self.deliver(len(self.cluster.inbox))
        self.world.facts(ev.ClusterSynced(nodes=len(self.cluster.nodes), pods=len(self.cluster.pods)))

    def step_report(self) -> None:
        """Whoever is to be told something else than before is told it."""
        if "binder" in self.in_flight:
            return
        for kept in [pod for pod in self.cluster.pods.values() if pod.status == "pending"]:
            due = condition(self.state, kept.uid)
            if due is not None:
                self.told[kept.uid] = Told(due.message, self._gangs(kept.uid))
                report = ev.ConditionsReported(reason=due.said, pods=((kept.uid, self.cluster.bump(kept)),))
                self.world.append("binder", [report], cause="outcome")

    def _gangs(self, uid: str) -> tuple[str, ...]:
        return self.state.groups[self.state.pods[uid].group].gangs

    def check_told(self) -> None:
        """What pods were told is so, but for what was counted. Who is of another group since is not looked at."""
        self.step_report()
        for uid, told in self.told.items():
            pod = self.state.pods.get(uid)
            group = self.state.groups.get(pod.group) if pod is not None and pod.status == "pending" else None
            if group is None or not group.cohort or pod.fact.gated or told.gangs != group.gangs:
                continue
            _, due = refusals.said(self.state, group)
            if self.state.cohorts[group.cohort].reason in ("InsufficientRoom", "BehindOthers", "GangTooLarge"):
                assert _words(told.message) == _words(due), f"{uid} is told what is not so any more"


def _words(message: str) -> list[str]:
    """What a message names, a limit too: its counts are those of when it was said, and its parts are in their order."""
    return sorted({part.strip() for part in re.split(r"[,.:]", re.sub(r"\d+ ", "", message))})


@pytest.fixture(autouse=True)
def code() -> Iterator[None]:
    with second():
        yield


@pytest.mark.parametrize("seed", range(20))
def test_whatever_an_admin_changes_the_invariants_hold(seed: int) -> None:
    """At last only small gangs may start, then pods alone, and then every gang."""
    walk = Changing(seed)
    walk.walk(400)
    middle = snapshot.encode(walk.state)
    for most in (2, 1, 50_000):
        walk.set_policy(gang_pods=most)
        walk.settle()
        check_rest(walk.state, walk.cluster)
        walk.check_told()
    digest = snapshot.digest(walk.state)
    assert snapshot.digest(refold(walk.world)) == digest
    assert snapshot.digest(refold(walk.world, snapshot.decode(middle))) == digest
