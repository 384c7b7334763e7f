"""What fits where, one node and one pod at a time, from the facts alone: the yardstick for the table's arithmetic."""

from __future__ import annotations

import events as ev
from events.objects import DECLARED, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.state.fold import State
from services.state.records import PROPOSED

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
WORDS = {
    "cpu_milli": "Insufficient cpu",
    "memory_bytes": "Insufficient memory",
    "ephemeral_storage_bytes": "Insufficient ephemeral-storage",
    "pods": "Too many pods",
}


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    for toleration in tolerations:
        same_effect = toleration.effect in ("", taint.effect)
        same_key = toleration.key in ("", taint.key)
        if same_effect and same_key and _compares(toleration, taint):
            return True
    return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    match toleration.operator:
        case "Exists":
            return True
        case "Gt":
            return taint.value.isdecimal() and int(taint.value) > int(toleration.value)
        case "Lt":
            return taint.value.isdecimal() and int(taint.value) < int(toleration.value)
    return toleration.key != "" and toleration.value == taint.value


def matches(requirement: SelectorRequirement, found: dict[str, str]) -> bool:
    value, values = found.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdecimal() and int(value) > int(values[0])
    return value is not None and value.isdecimal() and int(value) < int(values[0])


def selected(node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> bool:
    def term_matches(term: SelectorTerm) -> bool:
        return bool(term.match_expressions or term.match_fields) and (
            all(matches(requirement, node.labels) for requirement in term.match_expressions)
            and all(matches(requirement, {"metadata.name": node.name}) for requirement in term.match_fields)
        )

    labels = {key: value for key, value in asked.node_selector.items() if not key.startswith(DECLARED)}
    if any(node.labels.get(key) != value for key, value in labels.items()):
        return False
    return asked.required_affinity is None or any(term_matches(term) for term in asked.required_affinity)


def featured(node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> bool:
    needed = {key: value for key, value in asked.node_selector.items() if key.startswith(DECLARED)}
    return needed.items() <= node.labels.items()


def named(asked: ev.SchedulingClassObserved) -> set[str] | None:
    """The nodes that the class names; None: a term of its required affinity names none."""
    found: set[str] = set()
    for term in asked.required_affinity or ():
        wanted = [set(field.values) for field in term.match_fields if field.operator == "In"]
        if not wanted:
            return None
        found |= set.intersection(*wanted)
    return found if asked.required_affinity else None


def taints(node: ev.NodeObserved) -> list[Taint]:
    return [*node.taints, *([UNSCHEDULABLE] if node.unschedulable else [])]


def untolerated(node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> Taint | None:
    hard = [taint for taint in taints(node) if taint.effect in ("NoSchedule", "NoExecute")]
    return next((taint for taint in hard if not tolerated(taint, asked.tolerations)), None)


def free(state: State, node: ev.NodeObserved, *, proposed: bool = True) -> dict[str, int]:
    """What the node has left of each resource."""
    left = dict(node.allocatable)
    for uid in state.nodes[node.name].claims:
        claim = state.claims[uid]
        if claim.stage != PROPOSED or proposed:
            for name, amount in state.classes[claim.scheduling_class].fact.requests.items():
                if amount:
                    left[name] = left.get(name, 0) - amount
    return left


def ports_free(state: State, node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> bool:
    for uid in state.nodes[node.name].claims:
        claim = state.claims[uid]
        if claim.stage == PROPOSED:
            continue
        if collide(state.classes[claim.scheduling_class].fact, asked):
            return False
    return True


def collide(one: ev.SchedulingClassObserved, other: ev.SchedulingClassObserved) -> bool:
    """Whether a pod of each would open the same port."""
    for port in one.host_ports:
        for its in other.host_ports:
            same = (port.protocol, port.port) == (its.protocol, its.port)
            if same and (port.host_ip == its.host_ip or "0.0.0.0" in (port.host_ip, its.host_ip)):
                return True
    return False


def lacking(state: State, node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> list[str]:
    left = free(state, node)
    return [name for name, amount in asked.requests.items() if amount > 0 and amount > left.get(name, 0)]


def reasons(state: State, node: ev.NodeObserved, asked: ev.SchedulingClassObserved) -> list[str]:
    """Why the kube-scheduler would turn the node down: its first filter that does; each resource that lacks."""
    taint, names = untolerated(node, asked), named(asked)
    if names is not None and node.name not in names:
        return ["node(s) didn't satisfy plugin(s) [NodeAffinity]" if names else "pod affinity terms conflict"]
    if node.unschedulable and not tolerated(UNSCHEDULABLE, asked.tolerations):
        return ["node(s) were unschedulable"]
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not selected(node, asked):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if not ports_free(state, node, asked):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = [WORDS.get(name, f"Insufficient {name}") for name in lacking(state, node, asked)]
    return short or ([] if featured(node, asked) else ["node(s) didn't match Pod's required features"])
