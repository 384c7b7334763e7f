"""A state as people read it: how many of what, who waits and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import events as ev
from services.binder.group_status import phase
from services.console import again
from services.console.beyond import beyond
from services.console.counted import counted
from services.state import reasons
from services.state.fold import State
from services.state.membership import members
from services.state.records import BOUND, FAILED, HELD, PENDING, SUCCEEDED, Group, Pod, Reservation, RoomRequest
from services.state.refusals import rejected, said
from services.state.reservations import rooms

GATED = "gated"
LEFT_ROOM = "Groups of other shards that come before it were left their room."
TO_BE_TRIED = "to be tried"
"""What a group waits for that may be tried now, whether it was refused before or not."""


def summary(state: State) -> dict[str, Any]:
    """The state in numbers, ready for JSON."""
    return {
        "sequence": state.sequence,
        "synced": state.synced,
        "nodes": sum(node.fact is not None for node in state.nodes.values()),
        "pods": dict(sorted(Counter(pod.status for pod in state.pods.values()).items())),
        "waiting": sum(1 for _ in waiting_pods(state)),
        "gangs": {
            "declared": sum(gang.declaration is not None for gang in state.gangs.values()),
            "undeclared": sum(gang.declaration is None for gang in state.gangs.values()),
            "satisfied": sum(gang.satisfied for gang in state.gangs.values()),
        },
        "groups": dict(sorted(Counter(group.phase for group in state.groups.values()).items())),
        "refused": refusals(state),
        "claims": dict(sorted(Counter(claim.stage for claim in state.claims.values()).items())),
        "proposals": len(state.proposals),
        "nominations": len(state.nominations),
        "group_nominations": len(state.group_nominations),
        "reservations": reserved(state),
        "overdrawn": overdrawn(state),
        "evictions": len(state.evictions),
        "rejections": rejections(state),
        "policy": None if state.policy is None else state.policy.profile.name,
        "epoch": state.epoch,
        "shards": [f"planner.{shard}" for shard in sorted(set(state.owners) - {""})],
        "live_shards": [f"planner.{shard}" for shard in sorted(state.shards)],
        "holders": dict(sorted(state.holders.items())),
        "ignored": dict(sorted(state.ignored.items())),
        "set_aside": state.set_aside,
    }


def refusals(state: State) -> dict[str, int]:
    """Groups that wait, by the reason of their refusal."""
    groups: Counter[str] = Counter()
    for cohort in state.cohorts.values():
        groups[cohort.reason] += len(cohort.groups)
    return dict(sorted(groups.items()))


def tried_again_s(state: State) -> dict[str, float]:
    """By such a reason: in how many seconds the first of these groups is tried again, where that is known."""
    left = again.backoffs(state)
    found: dict[str, float] = {}
    for cohort in state.cohorts.values():
        seconds = again.tried_again_s(state, cohort, left)
        if seconds is not None:
            found[cohort.reason] = min(seconds, found.get(cohort.reason, seconds))
    return dict(sorted(found.items()))


def rejections(state: State) -> list[str]:
    """Objects that could not be taken as they are, each with its field and what was expected."""
    return [line for _, line in rejections_of(state)]


def rejections_of(state: State) -> list[tuple[str, str]]:
    """The same, each behind its object, as ``Pod default/a``."""
    named = [(f"{event.kind} {_named(event)}", rejected(event)) for event in state.rejections.values()]
    return [(about, f"{about}: {why}") for about, why in named]


def _named(event: ev.DeclarationRejected) -> str:
    return f"{event.namespace}/{event.name}" if event.namespace else event.name


def waiting_pods(state: State) -> list[Pod]:
    """Candidates that are not bound, in the log's order."""
    return [pod for pod in state.pods.values() if pod.group and pod.status == PENDING]


def bound_pods(state: State) -> list[Pod]:
    """Our pods that have, or had, a node."""
    return [pod for pod in state.pods.values() if pod.fact.candidate and pod.node]


def _why_alike(state: State, pods: list[Pod], left: again.Backoffs) -> str:
    """Why pods of one group that are at the same `_stage` are not bound, with what is missing, and when they are tried
    again if that is known."""
    stage = _stage(state, pods[0])
    if stage == GATED:
        return "its scheduling gates are not removed"
    if stage:
        nodes = dict.fromkeys(state.claims[pod.fact.uid].node for pod in pods)
        one = next(iter(nodes)) if len(nodes) == 1 else ""
        if stage == HELD:
            rest = "gang group" if len(state.groups[pods[0].group].gangs) > 1 else "gang"
            return f"waits on {f'node {one}' if one else f'{len(nodes)} nodes'} for the rest of its {rest}"
        return f"{stage}: {one or f'{len(nodes)} nodes'}"
    group = state.groups[pods[0].group]
    if not group.cohort:
        return _why_untried(state, group)
    _, message = said(state, group)
    more = " ".join(_more(state, group, left))
    return f"{message.removesuffix('.')}. {more}" if more else message


def _more(state: State, group: Group, left: again.Backoffs) -> Iterator[str]:
    """What the pods of a refused group are not told in their conditions, in sentences."""
    cohort, kept = state.cohorts[group.cohort], state.reservations.get(group.key)
    if reasons.follows(cohort.reason).for_room and (never := beyond(state, group)):
        yield never
    else:
        if cohort.reason == "BehindOthers":
            yield LEFT_ROOM
        if kept is not None:
            yield f"Room for {extent(kept)} is kept for it as it becomes free."
    if soon := again.said(state, cohort, group.key, left):
        yield soon


def _why_untried(state: State, group: Group) -> str:
    """Why nobody has said anything yet of a group as it is now. It may have been refused before, as it was then."""
    if not state.synced:
        return f"{TO_BE_TRIED}, once ingest has read the cluster"
    if state.owner(group) not in state.shards:
        return f"{TO_BE_TRIED}, and no planner that lives owns its partition"
    return TO_BE_TRIED


def _stage(state: State, pod: Pod) -> str:
    """Whether a pod that waits has gates, or is on its way to a node, and how far; "" for neither."""
    claim = state.claims.get(pod.fact.uid)
    return GATED if pod.fact.gated else "" if claim is None else claim.stage


def why_each_waits(state: State) -> Iterator[tuple[Pod, str]]:
    """The pods that are not bound, in the log's order, and why. Those of a group that were refused share their reason."""
    refused: dict[str, str] = {}
    left = again.backoffs(state)
    for pod in waiting_pods(state):
        if _stage(state, pod):
            yield pod, _why_alike(state, [pod], left)
        else:
            if pod.group not in refused:
                refused[pod.group] = _why_alike(state, [pod], left)
            yield pod, refused[pod.group]


def reserved(state: State) -> dict[str, str]:
    """What is reserved for starving gangs: how many pods' room, on how many nodes."""
    return {key: extent(one) for key, one in state.reservations.items()}


def extent(one: Reservation | RoomRequest) -> str:
    """Of how many pods the room is, and on how many nodes."""
    pods = sum(pods for _, _, pods in rooms(one))
    nodes = len({node for _, node, _ in rooms(one)})
    return f"{counted(pods, 'pod')} on {counted(nodes, 'node')}"


def overdrawn(state: State) -> dict[str, str]:
    """Nodes whose claims exceed what they offer, and by what: no permit does that, but a node that shrank, or a pod that
    somebody else placed (design, section 7.2)."""
    table = state.table
    held, offered = table.held, table.allocatable
    found: dict[str, str] = {}
    for row in np.flatnonzero((held > offered).any(axis=1) & table.present).tolist():
        over = table.overdrawn(row).items()
        found[table.names[row]] = ", ".join(f"{taken} of {there} {name}" for name, (taken, there) in over)
    return dict(sorted(found.items()))


def waiting_groups(state: State) -> dict[str, tuple[int, str]]:
    """Groups with pods that are not bound: how many pods these are, and why they wait. Where they wait for different
    things, each is told with the number of its pods; what keeps pods from having a node is told first."""
    found: dict[str, tuple[int, str]] = {}
    left = again.backoffs(state)
    for key, group in state.groups.items():
        pods = (state.pods[uid] for uid in members(state, group))
        if waiting := [pod for pod in pods if pod.status == PENDING]:
            found[key] = (len(waiting), _why_each(state, waiting, left))
    return found


def why(state: State, waiting: Iterable[Pod]) -> str:
    """The same of some of these pods of one group."""
    return _why_each(state, waiting, again.backoffs(state))


def _why_each(state: State, waiting: Iterable[Pod], left: again.Backoffs) -> str:
    alike: dict[str, list[Pod]] = {}
    for pod in waiting:
        alike.setdefault(_stage(state, pod), []).append(pod)
    whys = [(len(pods), _why_alike(state, pods, left)) for _, pods in sorted(alike.items())]
    if len(whys) == 1:
        return whys[0][1]
    return "; ".join(f"{count} of them: {why.removesuffix('.')}" for count, why in whys)


def gangs(state: State) -> dict[str, dict[str, Any]]:
    """Each gang: how it was declared and how far it is."""
    found = {}
    for key, gang in sorted(state.gangs.items()):
        statuses = [state.pods[uid].status for uid in gang.members]
        found[key] = {
            "dialect": gang.dialect,
            "min_member": gang.declaration.min_member if gang.declaration is not None else None,
            "members": len(statuses),
            "bound": sum(status in (BOUND, SUCCEEDED, FAILED) for status in statuses),
            "waiting": statuses.count(PENDING),
            "phase": phase(state, gang),
        }
    return found
