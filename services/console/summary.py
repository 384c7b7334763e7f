"""A state as people read it: how many of what, who waits and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import events as ev
from services.binder.group_status import phase
from services.state.fold import State
from services.state.membership import members
from services.state.records import BOUND, FAILED, PENDING, SUCCEEDED, Pod, Reservation
from services.state.refusals import rejected, said
from services.state.reservations import rooms


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
    counted: Counter[str] = Counter()
    for cohort in state.cohorts.values():
        counted[cohort.reason] += len(cohort.groups)
    return dict(sorted(counted.items()))


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


def why_waiting(state: State, pod: Pod) -> str:
    """Why a pod is not bound, with what is missing."""
    uid = pod.fact.uid
    claim = state.claims.get(uid)
    group = state.groups.get(pod.group)
    if pod.fact.gated:
        return "its scheduling gates are not removed"
    if claim is not None and claim.stage == "held":
        return f"waits on node {claim.node} for the rest of its gang"
    if claim is not None:
        return f"{claim.stage}: {claim.node}"
    if group is None or not group.cohort:
        return "not tried yet"
    _, message = said(state, group)
    kept = state.reservations.get(group.key)
    return message if kept is None else f"{message} Room for {_extent(kept)} is kept for it as it becomes free."


def reserved(state: State) -> dict[str, str]:
    """What is reserved for starving gangs: how many pods' room, on how many nodes."""
    return {key: _extent(one) for key, one in state.reservations.items()}


def _extent(one: Reservation) -> str:
    pods = sum(pods for _, _, pods in rooms(one))
    nodes = len({node for _, node, _ in rooms(one)})
    return f"{pods} pod{'s' * (pods != 1)} on {nodes} node{'s' * (nodes != 1)}"


def overdrawn(state: State) -> dict[str, str]:
    """Nodes whose claims exceed what they offer, and by what: no permit does that, but a node that shrank, or a pod that
    somebody else placed (design, section 7.2)."""
    table = state.table
    held, offered = table.held, table.allocatable
    found: dict[str, str] = {}
    for row in np.flatnonzero((held > offered).any(axis=1) & table.present).tolist():
        over = np.flatnonzero(held[row] > offered[row]).tolist()
        said = [f"{held[row, column]} of {offered[row, column]} {table.columns[column]}" for column in over]
        found[table.names[row]] = ", ".join(said)
    return dict(sorted(found.items()))


def waiting_groups(state: State) -> dict[str, tuple[int, str]]:
    """Groups with pods that are not bound: how many, and why (of the first)."""
    found: dict[str, tuple[int, str]] = {}
    for key, group in state.groups.items():
        pods = [state.pods[uid] for uid in members(state, group) if state.pods[uid].status == PENDING]
        if pods:
            found[key] = (len(pods), why_waiting(state, pods[0]))
    return found


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
