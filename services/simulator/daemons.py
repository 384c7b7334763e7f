"""Which nodes a DaemonSet's pods are made for, and what ties each of them to its node.

As its controller does it: there is a pod for each node that the template's node selector and required node affinity
take, and of whose taints none keeps the pod away. Whether there is room does not matter: the pod is made, and waits. It
then has one requirement, the node's name, in place of all that the template's required node affinity said. What the
controller lets every pod tolerate, such as a node that is cordoned or not ready, it tolerates here.
"""

from __future__ import annotations

import re
from typing import Any

from services.simulator.affinity import REQUIRED
from services.simulator.selectors import holds

Object = dict[str, Any]

TAINTS = "node.kubernetes.io/"
TOLERATED = (
    *((f"{TAINTS}{name}", "NoExecute") for name in ("not-ready", "unreachable")),
    *((f"{TAINTS}{name}", "NoSchedule") for name in ("disk-pressure", "memory-pressure", "pid-pressure")),
    (f"{TAINTS}unschedulable", "NoSchedule"),
)
"""Key and effect of the taints that each pod tolerates."""
ON_THE_HOST = ((f"{TAINTS}network-unavailable", "NoSchedule"),)
"""What one in its node's network tolerates besides."""
NAME = "metadata.name"
_OF_LABELS = re.compile(r"[0-9]{1,253}", re.ASCII)
_OF_TAINTS = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
"""The integers that selectors and tolerations compare."""


def takes(daemon_set: Object, node: Object) -> bool:
    """Whether a pod is made for the node."""
    return keeps(daemon_set, node) and _tolerates_all(daemon_set, node, "NoSchedule")


def keeps(daemon_set: Object, node: Object) -> bool:
    """Whether a pod that is there already may stay."""
    spec, name = daemon_set["spec"]["template"]["spec"], node["metadata"]["name"]
    labels = node["metadata"].get("labels") or {}
    if (spec.get("nodeName") or name) != name or (spec.get("nodeSelector") or {}).items() - labels.items():
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    terms = (required or {}).get("nodeSelectorTerms") or ()
    if required is not None and not any(_matches(term, labels, name) for term in terms):
        return False
    return _tolerates_all(daemon_set, node, "NoExecute")


def aimed_at(spec: Object, node: str) -> Object:
    """The template's `spec` as the pod for this node has it."""
    affinity = spec.get("affinity") or {}
    named = {"matchFields": [{"key": NAME, "operator": "In", "values": [node]}]}
    on_nodes = (affinity.get("nodeAffinity") or {}) | {REQUIRED: {"nodeSelectorTerms": [named]}}
    return spec | {"affinity": affinity | {"nodeAffinity": on_nodes}, "tolerations": tolerations(spec)}


def target(pod: Object) -> str:
    """The node that a DaemonSet's pod was made for; empty: it says none."""
    spec = pod["spec"]
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    named = [one for term in required.get("nodeSelectorTerms") or () for one in term.get("matchFields") or ()]
    return str(spec.get("nodeName") or (named[0]["values"][0] if named else ""))


def tolerations(spec: Object) -> list[Object]:
    """The template's, and behind them those that each pod gets; one that says the same but for how long gives way."""
    tolerated = TOLERATED + (ON_THE_HOST if spec.get("hostNetwork") else ())
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in tolerated]
    return [one for one in spec.get("tolerations") or () if _but_seconds(one) not in added] + added


def _but_seconds(toleration: Object) -> Object:
    return {field: value for field, value in toleration.items() if value and field != "tolerationSeconds"}


def _matches(term: Object, labels: dict[str, str], name: str) -> bool:
    """A term that asks nothing matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return (
        bool(expressions or fields)
        and all(_holds(one, labels.get(one["key"])) for one in expressions)
        and all(_holds(one, name if one["key"] == NAME else None) for one in fields)
    )


def _holds(requirement: Object, value: str | None) -> bool:
    """Of one label or field; None: there is none. Nodes' labels are compared as numbers, too."""
    operator, values = requirement["operator"], requirement.get("values") or []
    if operator in ("Gt", "Lt"):
        return value is not None and len(values) == 1 and _compares(operator, value, values[0], _OF_LABELS)
    return holds(requirement, value)


def _tolerates_all(daemon_set: Object, node: Object, effect: str) -> bool:
    """Every taint of this effect."""
    taints = [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == effect]
    tolerated = tolerations(daemon_set["spec"]["template"]["spec"]) if taints else []
    return all(any(_tolerates(one, taint) for one in tolerated) for taint in taints)


def _tolerates(toleration: Object, taint: Object) -> bool:
    """An empty effect, and an empty key with Exists, stand for all."""
    value, wanted = taint.get("value") or "", toleration.get("value") or ""
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    match operator:
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.get("key")) and value == wanted
        case "Gt" | "Lt":
            return _compares(operator, value, wanted, _OF_TAINTS)
    return False


def _compares(operator: str, found: str, wanted: str, integer: re.Pattern[str]) -> bool:
    """Whether both are integers, of 64 bits, and compare like this."""
    if not (integer.fullmatch(found) and integer.fullmatch(wanted)):
        return False
    one, other = int(found), int(wanted)
    if not all(-(1 << 63) <= number < 1 << 63 for number in (one, other)):
        return False
    return one > other if operator == "Gt" else one < other
