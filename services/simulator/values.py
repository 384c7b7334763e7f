"""Values that the API server refuses, in fields by which a pod finds its node: otherwise a pod with a misspelt operator
or effect would look as if it fitted nowhere.

Types are `forms`'; quantities are not checked on purpose (`admission`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""(field, reason such as FieldValueInvalid, message), as `errors.invalid` takes it."""

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATING = ("Equal", "Exists")
COMPARING = ("Lt", "Gt")
"""What a toleration may say, too, behind the gate `TaintTolerationComparisonOperators`."""
SELECTING = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")
PROTOCOLS = ("SCTP", "TCP", "UDP")
SPREADING = ("DoNotSchedule", "ScheduleAnyway")
RESTARTING = ("Always", "OnFailure", "Never")
COMPLETING = ("NonIndexed", "Indexed")
LAST_PORT = 65_535


def of_node(spec: Object) -> Iterator[Cause]:
    for index, taint in enumerate(spec.get("taints") or ()):
        yield from one_of(EFFECTS, taint["effect"], f"metadata.taints[{index}].effect")  # as it is told


def of_pod(spec: Object, field: str) -> Iterator[Cause]:
    """`field`: where the spec stands."""
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{field}.tolerations[{index}]")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            for number, port in enumerate(container.get("ports") or ()):
                yield from _port(port, f"{field}.{part}[{index}].ports[{number}]")
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        place = f"{field}.topologySpreadConstraints[{index}].whenUnsatisfiable"
        yield from one_of(SPREADING, spread.get("whenUnsatisfiable") or "", place)
    yield from one_of(RESTARTING, spec.get("restartPolicy") or "Always", f"{field}.restartPolicy")
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    yield from _node_affinity(nodes, f"{field}.affinity.nodeAffinity")


def _toleration(toleration: Object, field: str) -> Iterator[Cause]:
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if toleration.get("effect"):
        yield from one_of(EFFECTS, toleration["effect"], f"{field}.effect")
    if operator and operator not in COMPARING:
        yield from one_of(TOLERATING, operator, f"{field}.operator")
    if not toleration.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield _invalid(f"{field}.operator", operator, why)
    if operator == "Exists" and value:
        yield _invalid(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'")


def _port(port: Object, field: str) -> Iterator[Cause]:
    if not port.get("containerPort"):
        yield f"{field}.containerPort", "FieldValueRequired", "Required value"
    for name in ("containerPort", "hostPort"):
        number = port.get(name) or 0
        if number and not 0 < number <= LAST_PORT:
            yield _invalid(f"{field}.{name}", number, f"must be between 1 and {LAST_PORT}, inclusive")
    yield from one_of(PROTOCOLS, port.get("protocol") or "TCP", f"{field}.protocol")


def _node_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if required in affinity and affinity[required] is not None:
        terms = affinity[required].get("nodeSelectorTerms") or ()
        if not terms:
            place = f"{field}.{required}.nodeSelectorTerms"
            yield place, "FieldValueRequired", "Required value: must have at least one node selector term"
        for index, term in enumerate(terms):
            yield from _term(term, f"{field}.{required}.nodeSelectorTerms[{index}]")
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, wish in enumerate(affinity.get(preferred) or ()):
        if not 0 < wish["weight"] <= 100:
            yield _invalid(f"{field}.{preferred}[{index}].weight", wish["weight"], "must be in the range 1-100")
        yield from _term(wish["preference"], f"{field}.{preferred}[{index}].preference")


def _term(term: Object, field: str) -> Iterator[Cause]:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(requirement, f"{field}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.get("matchFields") or ()):
        place = f"{field}.matchFields[{index}]"
        if requirement["operator"] not in ("In", "NotIn"):
            yield _invalid(f"{place}.operator", requirement["operator"], "not a valid selector operator")
        elif len(requirement.get("values") or ()) != 1:
            message = (
                "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield f"{place}.values", "FieldValueRequired", message
        if requirement["key"] != "metadata.name":
            yield _invalid(f"{place}.key", requirement["key"], "not a valid field selector key")


def _requirement(requirement: Object, field: str) -> Iterator[Cause]:
    operator, values = requirement["operator"], requirement.get("values") or ()
    match operator:
        case "In" | "NotIn" if not values:
            message = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            yield f"{field}.values", "FieldValueRequired", message
        case "Exists" | "DoesNotExist" if values:
            message = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield f"{field}.values", "FieldValueForbidden", message
        case "Gt" | "Lt" if len(values) != 1:
            message = "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield f"{field}.values", "FieldValueRequired", message
        case _ if operator not in SELECTING:
            yield _invalid(f"{field}.operator", operator, "not a valid selector operator")


def one_of(supported: tuple[str, ...], value: str, field: str) -> Iterator[Cause]:
    """Nothing if it is."""
    if value not in supported:
        listed = ", ".join(f'"{one}"' for one in supported)
        yield field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}'


def _invalid(field: str, value: str | int, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"
