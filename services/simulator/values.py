"""Values that the API server refuses, in fields by which a pod finds its node: otherwise a pod with a misspelt operator
or effect would look as if it fitted nowhere. Also names and labels, wherever they are (`names`).

Types are `forms`'; affinity and spread are `affinity`'s; quantities are not checked on purpose (`admission`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from services.simulator import affinity, names
from services.simulator.causes import Cause, forbidden, invalid, labels, once, one_of, required, spelt

Object = dict[str, Any]

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATING = ("Equal", "Exists")
COMPARING = ("Lt", "Gt")
"""What a toleration may say, too, behind the gate `TaintTolerationComparisonOperators`."""
PROTOCOLS = ("SCTP", "TCP", "UDP")
RESTARTING = ("Always", "OnFailure", "Never")
COMPLETING = ("NonIndexed", "Indexed")
MANAGING = ("OrderedReady", "Parallel")
MOST_INDEXED = 100_000
"""Pods at once."""
MOST_ANNOTATED = 256 * 1024
"""Bytes of all annotations of an object, keys and values."""
LAST_PORT = 65_535
PREEMPTING = ("PreemptLowerPriority", "Never")
HIGHEST_PRIORITY = 1_000_000_000
"""Of a class that is no system's."""


def of_node(spec: Object) -> Iterator[Cause]:
    taints = spec.get("taints") or ()
    for index, taint in enumerate(taints):
        field = f"metadata.taints[{index}]"  # as it is told
        yield from one_of(EFFECTS, taint["effect"], f"{field}.effect")
        yield from spelt(names.key, taint["key"], f"{field}.key")
        yield from spelt(names.value, taint.get("value") or "", f"{field}.value")
    pairs = ((f"metadata.taints[{index}]", f"{one['key']}:{one['effect']}") for index, one in enumerate(taints))
    yield from once(pairs)


def of_priority_class(obj: Object, systems: Iterable[str]) -> Iterator[Cause]:
    """`systems`: the names of those that only the system may have."""
    name = obj["metadata"]["name"]
    if name not in systems and (obj.get("value") or 0) > HIGHEST_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}")
    if name not in systems and name.startswith("system-"):
        why = "priority class names with 'system-' prefix are reserved for system use only"
        yield forbidden("metadata.name", why)
    yield from one_of(PREEMPTING, obj.get("preemptionPolicy") or PREEMPTING[0], "preemptionPolicy")


def of_indexed(job: Object) -> Iterator[Cause]:
    """Of a Job whose pods have a number each, and are called by it."""
    completions, parallelism = job["spec"].get("completions"), job["spec"].get("parallelism") or 0
    if completions is None:
        yield required("spec.completions", "when completion mode is Indexed")
    if parallelism > MOST_INDEXED:
        why = f"must be less than or equal to {MOST_INDEXED} when completion mode is Indexed"
        yield invalid("spec.parallelism", parallelism, why)
    name = job["metadata"]["name"]
    if completions and names.label(last := f"{name}-{completions - 1}"):
        yield invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def of_runtime_class(obj: Object) -> Iterator[Cause]:
    if not obj.get("handler"):
        yield required("handler")
    else:
        yield from spelt(names.label, obj["handler"], "handler")
    scheduling = obj.get("scheduling") or {}
    yield from labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or ()
    for index, toleration in enumerate(tolerations):
        yield from _toleration(toleration, f"scheduling.tolerations[{index}]")
    yield from once((f"scheduling.tolerations[{index}]", _key(one)) for index, one in enumerate(tolerations))


def _key(toleration: Object) -> str:
    """By which a list of tolerations is one of different ones."""
    return "/".join(toleration.get(part) or "" for part in ("key", "operator", "value", "effect"))


def of_metadata(metadata: Object, field: str) -> Iterator[Cause]:
    """Labels and annotations; `field`: where they stand."""
    yield from labels(metadata.get("labels") or {}, f"{field}.labels")
    pairs = metadata.get("annotations") or {}
    for key in pairs:
        yield from spelt(names.key, key.lower(), f"{field}.annotations")
    if sum(len(key.encode()) + len(value.encode()) for key, value in pairs.items()) > MOST_ANNOTATED:
        yield f"{field}.annotations", "FieldValueTooLong", f"Too long: may not be more than {MOST_ANNOTATED} bytes"


def of_pod(spec: Object, field: str) -> Iterator[Cause]:
    """`field`: where the spec stands."""
    yield from labels(spec.get("nodeSelector") or {}, f"{field}.nodeSelector")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{field}.tolerations[{index}]")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container(container, f"{field}.{part}[{index}]")
    yield from once(_names(spec, field))
    yield from _of_host_ports(spec, field)
    constraints = spec.get("topologySpreadConstraints") or []
    yield from affinity.of_spread(constraints, f"{field}.topologySpreadConstraints")
    yield from one_of(RESTARTING, spec.get("restartPolicy") or "Always", f"{field}.restartPolicy")
    gates = [gate.get("name") or "" for gate in spec.get("schedulingGates") or ()]
    for index, gate in enumerate(gates):
        yield from spelt(names.key, gate, f"{field}.schedulingGates[{index}]")
    yield from once((f"{field}.schedulingGates[{index}]", gate) for index, gate in enumerate(gates))
    if spec.get("nodeName"):
        yield from spelt(names.subdomain, spec["nodeName"], f"{field}.nodeName")
        if gates:
            yield forbidden(f"{field}.nodeName", "cannot be set until all schedulingGates have been cleared")
    yield from _volumes(spec.get("volumes") or [], f"{field}.volumes")
    yield from _claims(spec.get("resourceClaims") or [], f"{field}.resourceClaims")
    yield from affinity.of_affinity(spec.get("affinity") or {}, f"{field}.affinity")


def _volumes(volumes: list[Object], field: str) -> Iterator[Cause]:
    """Their names, and what claim is meant: by that the pod waits for a node where it is."""
    yield from _named(volumes, field)
    for index, volume in enumerate(volumes):
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield required(f"{field}[{index}].persistentVolumeClaim.claimName")
        if volume.get("ephemeral") is not None and volume["ephemeral"].get("volumeClaimTemplate") is None:
            yield required(f"{field}[{index}].ephemeral.volumeClaimTemplate")


def _claims(claims: list[Object], field: str) -> Iterator[Cause]:
    """Of devices."""
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    yield from _named(claims, field)
    for index, claim in enumerate(claims):
        said = [source for source in sources if claim.get(source) is not None]
        if len(said) != 1:
            told = ", ".join(said) or "none"
            yield invalid(f"{field}[{index}]", told, f"must specify one of: {', '.join(sources)}")
        for source in said:
            yield from spelt(names.subdomain, claim[source], f"{field}[{index}].{source}")


def _named(parts: list[Object], field: str) -> Iterator[Cause]:
    """That each has a name of its own."""
    for index, part in enumerate(parts):
        if not part.get("name"):
            yield required(f"{field}[{index}].name")
        else:
            yield from spelt(names.label, part["name"], f"{field}[{index}].name")
    yield from once((f"{field}[{index}].name", part["name"]) for index, part in enumerate(parts) if part.get("name"))


def _names(spec: Object, field: str) -> Iterator[tuple[str, str]]:
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield f"{field}.{part}[{index}].name", container.get("name") or ""


def _of_host_ports(spec: Object, field: str) -> Iterator[Cause]:
    """Each once among all containers, and in each init container: those run one after the other."""
    own = bool(spec.get("hostNetwork"))
    containers = spec.get("containers") or ()
    places = [(f"{field}.containers[{index}]", container) for index, container in enumerate(containers)]
    for place, container in places if own else ():
        for number, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                why = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(f"{place}.ports[{number}].hostPort", port["hostPort"], why)
    yield from once(named for place, container in places for named in _host_ports(container, place, own=own))
    for index, container in enumerate(spec.get("initContainers") or ()):
        yield from once(_host_ports(container, f"{field}.initContainers[{index}]", own=own))


def _host_ports(container: Object, field: str, *, own: bool) -> Iterator[tuple[str, str]]:
    """As they are told of: ``TCP//80``. `own`: whether the host's network is the pod's."""
    for number, port in enumerate(container.get("ports") or ()):
        host = port.get("hostPort") or (port.get("containerPort") if own else 0)
        if host:
            told = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{host}"
            yield f"{field}.ports[{number}].hostPort", told


def _container(container: Object, field: str) -> Iterator[Cause]:
    yield from spelt(names.label, container.get("name") or "", f"{field}.name")
    if container.get("restartPolicy"):
        yield from one_of(RESTARTING, container["restartPolicy"], f"{field}.restartPolicy")
    for number, port in enumerate(container.get("ports") or ()):
        yield from _port(port, f"{field}.ports[{number}]")


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
        yield required(f"{field}.containerPort")
    for name in ("containerPort", "hostPort"):
        number = port.get(name) or 0
        if number and not 0 < number <= LAST_PORT:
            yield invalid(f"{field}.{name}", number, f"must be between 1 and {LAST_PORT}, inclusive")
    yield from one_of(PROTOCOLS, port.get("protocol") or "TCP", f"{field}.protocol")
