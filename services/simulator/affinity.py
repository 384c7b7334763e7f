"""What the API server refuses of where a pod may go by what else there is: affinity to nodes and to pods, and spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.simulator import names
from services.simulator.causes import Cause, duplicate, forbidden, invalid, labels, one_of, required, spelt

Object = dict[str, Any]

SELECTING = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")
SPREADING = ("DoNotSchedule", "ScheduleAnyway")
COUNTING = ("Honor", "Ignore")
"""Whether nodes count to which the pod may not go."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def of_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{field}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(kind) or {}, f"{field}.{kind}")


def of_spread(constraints: list[Object], field: str) -> Iterator[Cause]:
    """All of one pod, of which each two differ."""
    pairs = [f"{{{one.get('topologyKey')}, {one.get('whenUnsatisfiable')}}}" for one in constraints]
    for index, spread in enumerate(constraints):
        yield from _spread(spread, f"{field}[{index}]")
        if pairs[index] in pairs[index + 1 :]:
            yield duplicate(f"{field}[{index}].{{topologyKey, whenUnsatisfiable}}", pairs[index])


def of_selector(selector: Object, field: str) -> Iterator[Cause]:
    """Of a workload, or of pods near which a pod goes."""
    yield from labels(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        place = f"{field}.matchExpressions[{index}]"
        if requirement["operator"] in ("Gt", "Lt"):
            yield invalid(f"{place}.operator", requirement["operator"], "not a valid selector operator")
        else:
            yield from _requirement(requirement, place, valued=True)


def _spread(spread: Object, field: str) -> Iterator[Cause]:
    unsatisfiable = spread.get("whenUnsatisfiable") or ""
    yield from one_of(SPREADING, unsatisfiable, f"{field}.whenUnsatisfiable")
    if (skew := spread.get("maxSkew") or 0) <= 0:
        yield invalid(f"{field}.maxSkew", skew, "must be greater than zero")
    if not spread.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    if (domains := spread.get("minDomains")) is not None:
        if domains <= 0:
            yield invalid(f"{field}.minDomains", domains, "must be greater than zero")
        if unsatisfiable != "DoNotSchedule":
            why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}"
            yield invalid(f"{field}.minDomains", domains, why)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if spread.get(policy) is not None:
            yield from one_of(COUNTING, spread[policy], f"{field}.{policy}")
    yield from _own_labels(spread, "matchLabelKeys", field)
    yield from of_selector(spread.get("labelSelector") or {}, f"{field}.labelSelector")


def _own_labels(term: Object, part: str, field: str) -> Iterator[Cause]:
    """Keys of which a pod's own value selects others, beside the selector."""
    keys = term.get(part) or ()
    if keys and term.get("labelSelector") is None:
        yield forbidden(f"{field}.{part}", "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        yield from spelt(names.key, key, f"{field}.{part}[{index}]")


def _pod_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    for index, term in enumerate(affinity.get(REQUIRED) or ()):
        yield from _pod_term(term, f"{field}.{REQUIRED}[{index}]")
    for index, wish in enumerate(affinity.get(PREFERRED) or ()):
        yield from _weight(wish.get("weight") or 0, f"{field}.{PREFERRED}[{index}].weight")
        yield from _pod_term(wish.get("podAffinityTerm") or {}, f"{field}.{PREFERRED}[{index}].podAffinityTerm")


def _pod_term(term: Object, field: str) -> Iterator[Cause]:
    if not term.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    else:
        yield from spelt(names.key, term["topologyKey"], f"{field}.topologyKey")
    for selector in ("labelSelector", "namespaceSelector"):
        yield from of_selector(term.get(selector) or {}, f"{field}.{selector}")
    for namespace in term.get("namespaces") or ():
        yield from spelt(names.label, namespace, f"{field}.namespace")  # as it is told
    for part in ("matchLabelKeys", "mismatchLabelKeys"):
        yield from _own_labels(term, part, field)
    for index, key in enumerate(term.get("matchLabelKeys") or ()):
        if key in (term.get("mismatchLabelKeys") or ()):
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{field}.matchLabelKeys[{index}]", key, why)


def _weight(weight: int, field: str) -> Iterator[Cause]:
    if not 0 < weight <= 100:
        yield invalid(field, weight, "must be in the range 1-100")


def _node_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    if affinity.get(REQUIRED) is not None:
        terms = affinity[REQUIRED].get("nodeSelectorTerms") or ()
        if not terms:
            place = f"{field}.{REQUIRED}.nodeSelectorTerms"
            yield required(place, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _term(term, f"{field}.{REQUIRED}.nodeSelectorTerms[{index}]", valued=True)
    for index, wish in enumerate(affinity.get(PREFERRED) or ()):
        yield from _weight(wish["weight"], f"{field}.{PREFERRED}[{index}].weight")
        yield from _term(wish.get("preference") or {}, f"{field}.{PREFERRED}[{index}].preference")


def _term(term: Object, field: str, *, valued: bool = False) -> Iterator[Cause]:
    """`valued`: whether values must be those of labels, which the API server does not ask of what is preferred."""
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(requirement, f"{field}.matchExpressions[{index}]", valued=valued)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        place = f"{field}.matchFields[{index}]"
        if requirement["operator"] not in ("In", "NotIn"):
            yield invalid(f"{place}.operator", requirement["operator"], "not a valid selector operator")
        elif len(requirement.get("values") or ()) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required(f"{place}.values", why)
        elif requirement["key"] == "metadata.name":
            yield from spelt(names.subdomain, requirement["values"][0], f"{place}.values[0]")
        if requirement["key"] != "metadata.name":
            yield invalid(f"{place}.key", requirement["key"], "not a valid field selector key")


def _requirement(requirement: Object, field: str, *, valued: bool) -> Iterator[Cause]:
    operator, values = requirement["operator"], requirement.get("values") or ()
    yield from spelt(names.key, requirement["key"], f"{field}.key")
    for index, value in enumerate(values if valued else ()):
        yield from spelt(names.value, value, f"{field}.values[{index}]")
    match operator:
        case "In" | "NotIn" if not values:
            yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist" if values:
            yield forbidden(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case "Gt" | "Lt" if len(values) != 1:
            yield required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _ if operator not in SELECTING:
            yield invalid(f"{field}.operator", operator, "not a valid selector operator")
