"""The room of failed members (design, section 4).

After a member of a running gang fails for good, its room is held for its replacement for a bounded time. Then the policy
applies: *keep* the rest as it is (seed 002, After Gang: "if some pods have been pulled up, then the subsequent Gang
behavior is meaningless"), or *evict* it. A gang that has no live member left has nothing to keep room for.

With *evict* a replacement that waits at permit, as where its gang lacks another, ends nothing: it has the room, but may
be given back, and then the rest goes when the time is over (`NominationEnded`, Held).

A rack that fails may take thousands of members with it. So one decision is about `Policy.cycle_pods` of them, or a few
more for the last gang that it evicts, and the next decision goes on. A gang whose evictions would fill more than half of
a commit is evicted pod by pod. Its room is kept until the last eviction is intended, so that each decision finds in the
state what is left.

Where tasks of a gang have minimums (Volcano's ``minTaskMember``), a member that its task needs is replaced in the same
way although the gang has its own minimum, and then only a pod of that task may take the room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import events as ev
from events.policy import Policy
from services.binder.bench import Bench
from services.state import commits, membership
from services.state.fold import State
from services.state.records import BOUND, Gang, Nomination

AboutRoom = ev.RoomNominated | ev.NominationEnded | ev.EvictionIntended


def keep_room(state: State, bench: Bench, policy: Policy) -> list[AboutRoom]:
    """For each member that was lost: its room is nominated, or there is nobody to keep it for. Where there is no room to
    keep, as its node is gone, too, a replacement has the same time to find another before the rest is evicted."""
    decided: list[AboutRoom] = []
    hold_ms, evict = policy.replacement_hold_ms, policy.replacement_policy == "evict"
    for lost in islice(state.lost.values(), policy.cycle_pods):
        info = state.table.classes[lost.scheduling_class]
        gang = state.gangs.get(lost.gang)
        wanted = lost.uid not in state.claims and gang is not None and membership.broken(state, gang, lost.task)
        node = lost.node if wanted and bench.take_one(lost.node, info) else ""
        if node or (wanted and evict):
            decided.append(ev.RoomNominated(gang=lost.gang, pod=lost.uid, node=node, waiting_ms=hold_ms))
        else:
            decided.append(ev.NominationEnded(gang=lost.gang, pod=lost.uid, reason="GangGone"))
    return decided


def end_nominations(state: State, policy: Policy, waits: Collection[str]) -> Iterator[list[AboutRoom]]:
    """Nominations that nobody needs any more or whose time is over; with *evict* the rest of the gang goes, too.

    Events of one list must stand in one commit. `waits`: groups that this decision permits, or with *evict* holds, or
    whose proposal a later one judges. Their nominations do not end before that is folded: the replacement may be there.
    """
    said = 0
    evicted: set[str] = set()
    for nomination in state.nominations.values():
        if said >= policy.cycle_pods and nomination.gang not in evicted:
            continue
        gang = state.gangs.get(nomination.gang)
        if gang is None or not membership.broken(state, gang, nomination.task):
            said += 1
            yield [ev.NominationEnded(gang=nomination.gang, pod=nomination.uid, reason="GangGone")]
        elif nomination.due and gang.group not in waits and not _may_wait(state, nomination, gang):
            ended: list[AboutRoom] = [ev.NominationEnded(gang=nomination.gang, pod=nomination.uid, reason="Expired")]
            evictions: list[AboutRoom] = []
            if policy.replacement_policy == "evict" and gang.key not in evicted:
                evicted.add(gang.key)
                evictions = _evictions(state, gang)
            said += 1 + len(evictions)
            if commits.size(evictions) <= commits.DECISION_BYTES // 2:
                yield ended + evictions
            else:
                for eviction in evictions:
                    yield [eviction]
                yield ended


def _may_wait(state: State, nomination: Nomination, gang: Gang) -> bool:
    """Whether the replacement may be there and wait at permit, for which no room is kept beside its own: for so long the
    gang is not half bound, and what it waits for has a time of its own."""
    return not nomination.node and gang.group in state.holding


def _evictions(state: State, gang: Gang) -> list[AboutRoom]:
    """Of all that run, or are to: who is being bound just now would stay behind, and nobody would look again."""
    reason = f"gang {gang.key} stayed below its minimum and its policy is evict"
    return [
        ev.EvictionIntended(
            uid=uid,
            namespace=pod.fact.namespace,
            name=pod.fact.name,
            resource_version=pod.resource_version,
            reason=reason,
        )
        for uid in gang.members
        if ((pod := state.pods[uid]).status == BOUND or uid in state.permitted) and uid not in state.evictions
    ]
