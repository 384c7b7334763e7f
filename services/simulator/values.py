"""Values that the API server refuses, in fields by which a pod finds its node: otherwise a pod with a misspelt operator
or effect would look as if it fitted nowhere. Also names and labels, wherever they are
(`names`).

Types are `forms`'; quantities are not checked on purpose (`admission`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from services.simulator import names

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
PREEMPTING = ("PreemptLowerPriority", "Never")
HIGHEST_PRIORITY = 1_000_000_000
"""Of a class that is no system's."""


def of_node(spec: Object) -> Iterator[Cause]:
    for index, taint in enumerate(spec.get("taints") or ()):
        field = f"metadata.taints[{index}]"  # as it is told
        yield from one_of(EFFECTS, taint["effect"], f"{field}.effect")
        yield from spelt(names.key, taint["key"], f"{field}.key")
        yield from spelt(names.value, taint.get("value") or "", f"{field}.value")


def of_priority_class(obj: Object, systems: Iterable[str]) -> Iterator[Cause]:
    """`systems`: the names of those that only the system may have."""
    name = obj["metadata"]["name"]
    if name not in systems and (obj.get("value") or 0) > HIGHEST_PRIORITY:
        message = f"Forbidden: maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
        yield "value", "FieldValueForbidden", message
    if name not in systems and name.startswith("system-"):
        message = "Forbidden: priority class names with 'system-' prefix are reserved for system use only"
        yield "metadata.name", "FieldValueForbidden", message
    yield from one_of(PREEMPTING, obj.get("preemptionPolicy") or PREEMPTING[0], "preemptionPolicy")


def of_runtime_class(obj: Object) -> Iterator[Cause]:
    if not obj.get("handler"):
        yield "handler", "FieldValueRequired", "Required value"
    else:
        yield from spelt(names.label, obj["handler"], "handler")
    scheduling = obj.get("scheduling") or {}
    yield from _labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or ()
    for index, toleration in enumerate(tolerations):
        yield from _toleration(toleration, f"scheduling.tolerations[{index}]")
    yield from _once((f"scheduling.tolerations[{index}]", _key(one)) for index, one in enumerate(tolerations))


def _key(toleration: Object) -> str:
    """By which a list of tolerations is one of different ones."""
    return "/".join(toleration.get(part) or "" for part in ("key", "operator", "value", "effect"))


def of_metadata(metadata: Object, field: str) -> Iterator[Cause]:
    """Labels and annotations; `field`: where they stand."""
    yield from _labels(metadata.get("labels") or {}, f"{field}.labels")
    for key in metadata.get("annotations") or ():
        yield from spelt(names.key, key.lower(), f"{field}.annotations")


def of_pod(spec: Object, field: str) -> Iterator[Cause]:
    """`field`: where the spec stands."""
    yield from _labels(spec.get("nodeSelector") or {}, f"{field}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{field}.tolerations[{index}]")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container(container, f"{field}.{part}[{index}]", host_network=bool(spec.get("hostNetwork")))
    yield from _once(_names(spec, field))
    yield from _once(_host_ports(spec, field))
    for index, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(spread, f"{field}.topologySpreadConstraints[{index}]")
    yield from one_of(RESTARTING, spec.get("restartPolicy") or "Always", f"{field}.restartPolicy")
    gates = [(f"{field}.schedulingGates[{index}]", gate["name"]) for index, gate in enumerate(_gates(spec))]
    for place, gate in gates:
        yield from spelt(names.key, gate, place)
    yield from _once(gates)
    if spec.get("nodeName"):
        yield from spelt(names.subdomain, spec["nodeName"], f"{field}.nodeName")
        if gates:
            message = "Forbidden: cannot be set until all schedulingGates have been cleared"
            yield f"{field}.nodeName", "FieldValueForbidden", message
    affinity = spec.get("affinity") or {}
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{field}.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(kind) or {}, f"{field}.affinity.{kind}")


def of_selector(selector: Object, field: str) -> Iterator[Cause]:
    """Of a workload, or of pods near which a pod goes."""
    yield from _labels(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        place = f"{field}.matchExpressions[{index}]"
        if requirement["operator"] in ("Gt", "Lt"):
            yield invalid(f"{place}.operator", requirement["operator"], "not a valid selector operator")
        else:
            yield from _requirement(requirement, place, valued=True)


def _gates(spec: Object) -> Iterable[Object]:
    return [gate for gate in spec.get("schedulingGates") or () if isinstance(gate.get("name"), str)]


def _names(spec: Object, field: str) -> Iterator[tuple[str, str]]:
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield f"{field}.{part}[{index}].name", container.get("name") or ""


def _host_ports(spec: Object, field: str) -> Iterator[tuple[str, str]]:
    """As they are told of: ``TCP//80``."""
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports") or ()):
            host = port.get("containerPort") if spec.get("hostNetwork") else port.get("hostPort")
            if host:
                told = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{host}"
                yield f"{field}.containers[{index}].ports[{number}].hostPort", told


def _once(named: Iterable[tuple[str, str]]) -> Iterator[Cause]:
    """(field, what must stand once)."""
    seen = set()
    for field, name in named:
        if name in seen:
            yield field, "FieldValueDuplicate", f'Duplicate value: "{name}"'
        seen.add(name)


def spelt(rule: Callable[[str], str], text: str, field: str) -> Iterator[Cause]:
    """Nothing if it is as the rule of `names` says."""
    if why := rule(text):
        yield invalid(field, text, why)


def _labels(pairs: dict[str, str], field: str) -> Iterator[Cause]:
    for key, value in pairs.items():
        yield from spelt(names.key, key, field)
        yield from spelt(names.value, value, field)


def _container(container: Object, field: str, *, host_network: bool) -> Iterator[Cause]:
    yield from spelt(names.label, container.get("name") or "", f"{field}.name")
    if container.get("restartPolicy"):
        yield from one_of(RESTARTING, container["restartPolicy"], f"{field}.restartPolicy")
    for number, port in enumerate(container.get("ports") or ()):
        place = f"{field}.ports[{number}]"
        yield from _port(port, place)
        if host_network and port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
            yield invalid(
                f"{place}.hostPort", port["hostPort"], "must match `containerPort` when `hostNetwork` is true"
            )


def _spread(spread: Object, field: str) -> Iterator[Cause]:
    yield from one_of(SPREADING, spread.get("whenUnsatisfiable") or "", f"{field}.whenUnsatisfiable")
    if (skew := spread.get("maxSkew") or 0) <= 0:
        yield invalid(f"{field}.maxSkew", skew, "must be greater than zero")
    if not spread.get("topologyKey"):
        yield f"{field}.topologyKey", "FieldValueRequired", "Required value: can not be empty"
    yield from of_selector(spread.get("labelSelector") or {}, f"{field}.labelSelector")


def _pod_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(affinity.get(required) or ()):
        yield from _pod_term(term, f"{field}.{required}[{index}]")
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, wish in enumerate(affinity.get(preferred) or ()):
        yield from _weight(wish.get("weight") or 0, f"{field}.{preferred}[{index}].weight")
        yield from _pod_term(wish.get("podAffinityTerm") or {}, f"{field}.{preferred}[{index}].podAffinityTerm")


def _pod_term(term: Object, field: str) -> Iterator[Cause]:
    if not term.get("topologyKey"):
        yield f"{field}.topologyKey", "FieldValueRequired", "Required value: can not be empty"
    else:
        yield from spelt(names.key, term["topologyKey"], f"{field}.topologyKey")
    yield from of_selector(term.get("labelSelector") or {}, f"{field}.labelSelector")


def _weight(weight: int, field: str) -> Iterator[Cause]:
    if not 0 < weight <= 100:
        yield invalid(field, weight, "must be in the range 1-100")


def _toleration(toleration: Object, field: str) -> Iterator[Cause]:
    key, operator, value = (toleration.get(part) or "" for part in ("key", "operator", "value"))
    if toleration.get("effect"):
        yield from one_of(EFFECTS, toleration["effect"], f"{field}.effect")
    if operator and operator not in COMPARING:
        yield from one_of(TOLERATING, operator, f"{field}.operator")
    if key:
        yield from spelt(names.key, key, f"{field}.key")
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{field}.operator", operator, why)
    if operator == "Exists" and value:
        yield invalid(f"{field}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif operator not in COMPARING:
        yield from spelt(names.value, value, f"{field}.operator")  # as it is told
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{field}.effect", toleration.get("effect") or "", why)


def _port(port: Object, field: str) -> Iterator[Cause]:
    if not port.get("containerPort"):
        yield f"{field}.containerPort", "FieldValueRequired", "Required value"
    for name in ("containerPort", "hostPort"):
        number = port.get(name) or 0
        if number and not 0 < number <= LAST_PORT:
            yield invalid(f"{field}.{name}", number, f"must be between 1 and {LAST_PORT}, inclusive")
    yield from one_of(PROTOCOLS, port.get("protocol") or "TCP", f"{field}.protocol")


def _node_affinity(affinity: Object, field: str) -> Iterator[Cause]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if required in affinity and affinity[required] is not None:
        terms = affinity[required].get("nodeSelectorTerms") or ()
        if not terms:
            place = f"{field}.{required}.nodeSelectorTerms"
            yield place, "FieldValueRequired", "Required value: must have at least one node selector term"
        for index, term in enumerate(terms):
            yield from _term(term, f"{field}.{required}.nodeSelectorTerms[{index}]", valued=True)
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for index, wish in enumerate(affinity.get(preferred) or ()):
        yield from _weight(wish["weight"], f"{field}.{preferred}[{index}].weight")
        yield from _term(wish["preference"], f"{field}.{preferred}[{index}].preference")


def _term(term: Object, field: str, *, valued: bool = False) -> Iterator[Cause]:
    """`valued`: whether values must be those of labels, which the API server does not ask of what is preferred."""
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _requirement(requirement, f"{field}.matchExpressions[{index}]", valued=valued)
    for index, requirement in enumerate(term.get("matchFields") or ()):
        place = f"{field}.matchFields[{index}]"
        if requirement["operator"] not in ("In", "NotIn"):
            yield invalid(f"{place}.operator", requirement["operator"], "not a valid selector operator")
        elif len(requirement.get("values") or ()) != 1:
            message = (
                "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield f"{place}.values", "FieldValueRequired", message
        if requirement["key"] != "metadata.name":
            yield invalid(f"{place}.key", requirement["key"], "not a valid field selector key")


def _requirement(requirement: Object, field: str, *, valued: bool) -> Iterator[Cause]:
    operator, values = requirement["operator"], requirement.get("values") or ()
    yield from spelt(names.key, requirement["key"], f"{field}.key")
    for index, value in enumerate(values if valued else ()):
        yield from spelt(names.value, value, f"{field}.values[{index}]")
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
            yield invalid(f"{field}.operator", operator, "not a valid selector operator")


def one_of(supported: tuple[str, ...], value: str, field: str) -> Iterator[Cause]:
    """Nothing if it is."""
    if value not in supported:
        listed = ", ".join(f'"{one}"' for one in supported)
        yield field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}'


def invalid(field: str, value: str | int, why: str) -> Cause:
    """`value`: what stood there."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"
