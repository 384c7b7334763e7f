"""At rest the log says of each object what the object says, and not only where pods are (7.11).

Two readings are compared with the log's state. Ingest's own core, empty, reads the whole cluster once: so whatever an
object says now is in the log, however it came to say it. And what the pods, nodes and PodGroups of a history say of what
they ask for, offer and declare is read here again, plainly, so that ingest may not read it wrongly either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

import events as ev
from events import dialects
from services.ingest.decoding import KINDS
from services.ingest.differ import Ingest
from services.state.records import FINISHED
from tests.simulation.told import Object
from tests.simulation.upgrades import MINORS

if TYPE_CHECKING:
    from services.simulator.store import Collection
    from services.state.fold import State
    from tests.simulation.kube import ApiServer

UNITS = {"m": Fraction(1, 1000), "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
NAMES = {"cpu": ("cpu_milli", 1000), "memory": ("memory_bytes", 1), "ephemeral-storage": ("ephemeral_storage_bytes", 1)}
OF_PODS = ("cpu_milli", "memory_bytes")
"""What a pod as a whole asks for here."""
HARD, SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def is_ours(pod: Object, names: tuple[str, ...]) -> bool:
    """Whether the log has to have it: a candidate, or one that is on a node; not what is over or about to be."""
    if pod["status"]["phase"] in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]:
        return False
    return bool(pod["spec"].get("nodeName")) or pod["spec"]["schedulerName"] in names


def is_there(uid: str, among: Collection, names: tuple[str, ...]) -> bool:
    """Whether the log has to have it: any object but a pod that is nobody's, to an ingest of these names."""
    there = (entry.object for entry in among.entries.values() if entry.object["metadata"]["uid"] == uid)
    return any(among.resource.plural != "pods" or is_ours(one, names) for one in there)


def differs(state: State, kube: ApiServer, names: tuple[str, ...]) -> str:
    """What an object says that the log does not, to an ingest of these names; empty: the log says it all."""
    known = Ingest.of(state, names)
    anew = _read(kube, names)
    for uid, pod in anew.pods.items():
        if _unversioned(known.pods.get(uid)) != _unversioned(pod):
            return f"pod {pod.name} is {pod}, in the log {known.pods.get(uid)}"
    for entry in kube.api.pods.entries.values():  # and what is nobody's, and is not read anew
        pod, scheduler = known.pods.get(entry.object["metadata"]["uid"]), entry.object["spec"]["schedulerName"]
        if pod is not None and pod.candidate and pod.status not in FINISHED and scheduler not in names:
            return f"pod {pod.name} is of {scheduler}, in the log a candidate"
    for kind, facts in anew.named.items():
        if found := _other(known.named[kind], facts):
            return f"{kind} {found}"
    rejected = {key: one for key, one in known.rejected.items() if key in anew.rejected or key[0] != "Pod"}
    return _other(rejected, anew.rejected) or next(_misread(state, kube), "")


def _read(kube: ApiServer, names: tuple[str, ...]) -> Ingest:
    core = Ingest(names)
    core.count_by(kube.minor)
    read: set[str] = set()
    for kind in KINDS:
        if kind.name not in read and kube.serves(kind.resource.path):
            read.add(kind.name)
            for seen in kind.page(kube.whole_list(kind.resource.path))[1]:
                core.observe(seen, listed=True)
    return core


def _unversioned(fact: Any) -> Any:
    return None if fact is None else replace(fact, resource_version="")


def _other(known: dict[Any, Any], facts: dict[Any, Any]) -> str:
    for key in {**known, **facts}:
        if _unversioned(known.get(key)) != _unversioned(facts.get(key)):
            return f"{key} is {facts.get(key)}, in the log {known.get(key)}"
    return ""


# ------------------------------------------------------------------------------------------------------------- plainly


def _misread(state: State, kube: ApiServer) -> Iterator[str]:
    api = kube.api
    for entry in api.nodes.entries.values():
        node = state.nodes.get(entry.key[1])
        if node is not None and node.fact is not None:
            offered = _amounts(entry.object["status"]["allocatable"])
            if offered != node.fact.allocatable:
                yield f"node {node.name} offers {offered}, in the log {node.fact.allocatable}"
    for entry in api.pods.entries.values():
        pod = state.pods.get(entry.object["metadata"]["uid"])
        if pod is not None and pod.fact.candidate and pod.status not in FINISHED:
            found, said = _asks(entry.object, kube.minor), _said(state.classes[pod.fact.scheduling_class].fact)
            if found != said:
                yield f"pod {pod.fact.name} asks for {found}, in the log for {said}"
    for declared in state.pod_groups.values():
        yield from _misdeclared(declared, kube)


def _asks(pod: Object, minor: int) -> tuple[object, ...]:
    """What a pod asks of a node, by the few fields that users here write."""
    requested = _requests(pod) if minor < MINORS[-1] else _requests_by_sums(pod)
    spec, requests = pod["spec"], {"pods": 1, **requested}
    nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    hard, soft = nodes.get(HARD), nodes.get(SOFT, ())
    opened = [port for container in spec["containers"] for port in container.get("ports", ()) if "hostPort" in port]
    ports = {(one.get("hostIP", "0.0.0.0"), one.get("protocol", "TCP"), one["hostPort"]) for one in opened}
    return (
        {name: amount for name, amount in requests.items() if amount},
        spec.get("nodeSelector", {}),
        None if hard is None else [_term(one) for one in hard["nodeSelectorTerms"]],
        [(one["weight"], _term(one["preference"])) for one in soft],
        [
            (one.get("key", ""), one.get("operator", "Equal"), one.get("value", ""))
            for one in spec.get("tolerations", ())
        ],
        sorted(ports),
        any("persistentVolumeClaim" in volume for volume in spec.get("volumes", ())),
    )


def _requests(pod: Object) -> dict[str, int]:
    """What its containers ask for together while they run, or while one of those that come first does; what the pod says
    of itself as a whole goes before that."""
    spec, said = pod["spec"], _statuses(pod)
    never = any(one.get("reason") == "Infeasible" for one in _resizes(pod))
    summed = _summed(spec, lambda one, stays: _counts(one, said.get(one["name"], {}) if stays else {}, never))
    asked_as_a_whole = spec.get("resources", {}).get("requests", {})
    counted = _counts(spec, pod["status"], never)
    whole = {name: counted[name] for name in _amounts(asked_as_a_whole)}
    return Counter({**summed, **whole}) + Counter(_amounts(spec.get("overhead", {})))


def _counts(container: Object, status: Object, never: bool) -> Counter[str]:
    """The most of what it, or a pod as a whole, asks for, has been given and uses, while it is resized; not what it asks
    for in vain."""
    asked = Counter(_amounts(container.get("resources", {}).get("requests", {})))
    if "resources" not in status:
        return asked
    has, given = _amounts(status["resources"].get("requests", {})), _amounts(status.get("allocatedResources", {}))
    return (Counter() if never else asked) | Counter(has) | Counter(given)


def _requests_by_sums(pod: Object) -> dict[str, int]:
    """As since 1.37: what all its containers ask for together, what is allocated to them, and what they have; and where
    the kubelet says it of the pod, what is allocated to that, and what it has."""
    spec, status = pod["spec"], pod["status"]
    never = any(one.get("reason") == "Infeasible" for one in _resizes(pod))
    said = _statuses(pod)
    sums = [
        _summed(spec, lambda one, _, view=view: view(one, said.get(one["name"], {}), never))
        for view in (_asked, _allocated, _had)
    ]
    if "resources" in status and "allocatedResources" in status:
        sums[1:] = [Counter(_amounts(one)) for one in (status["allocatedResources"], status["resources"]["requests"])]
    found = sums[0] | sums[1] | sums[2]
    if "resources" in spec:
        for name, amount in _counts(spec, status, never).items():
            if name in OF_PODS:
                found[name] = amount
    return found + Counter(_amounts(spec.get("overhead", {})))


def _summed(spec: Object, counts: Callable[[Object, bool], Counter[str]]) -> Counter[str]:
    """What runs together, or is needed before. `counts`: of a container, and whether it stays."""
    running, sidecars, most = Counter[str](), Counter[str](), Counter[str]()
    for container in spec["containers"]:
        running.update(counts(container, True))
    for first in spec.get("initContainers", ()):
        stays = first.get("restartPolicy") == "Always"
        needs = counts(first, stays)
        if stays:
            sidecars, running, needs = sidecars + needs, running + needs, Counter()
        most |= sidecars + needs
    return running | most


def _statuses(pod: Object) -> dict[str, Object]:
    """Of containers, by name."""
    fields = ("initContainerStatuses", "containerStatuses")
    return {one["name"]: one for field in fields for one in pod["status"].get(field) or ()}


def _asked(container: Object, _: Object, never: bool) -> Counter[str]:
    return Counter({} if never else _amounts(container.get("resources", {}).get("requests", {})))


def _allocated(container: Object, status: Object, never: bool) -> Counter[str]:
    told = status.get("allocatedResources")
    return _asked(container, status, never) if told is None else Counter(_amounts(told))


def _had(container: Object, status: Object, never: bool) -> Counter[str]:
    told = status.get("resources")
    return _allocated(container, status, never) if told is None else Counter(_amounts(told["requests"]))


def _resizes(pod: Object) -> list[Object]:
    return [one for one in pod["status"].get("conditions") or () if one["type"] == "PodResizePending"]


def _term(term: Object) -> list[tuple[str, str, tuple[str, ...]]]:
    asked = (*term.get("matchExpressions", ()), *term.get("matchFields", ()))
    return [(one["key"], one["operator"], tuple(one.get("values", ()))) for one in asked]


def _said(fact: ev.SchedulingClassObserved) -> tuple[object, ...]:
    """The same of a scheduling class."""

    def term(of: Any) -> list[tuple[str, str, tuple[str, ...]]]:
        return [(one.key, one.operator, one.values) for one in (*of.match_expressions, *of.match_fields)]

    return (
        fact.requests,
        fact.node_selector,
        None if fact.required_affinity is None else list(map(term, fact.required_affinity)),
        [(one.weight, term(one.term)) for one in fact.preferred_affinity],
        [(one.key, one.operator or "Equal", one.value) for one in fact.tolerations],
        [(port.host_ip, port.protocol, port.port) for port in fact.host_ports],
        bool(fact.unsupported),
    )


def _amounts(listed: Object) -> dict[str, int]:
    """In the units in which the log has them, rounded up."""
    amounts = {}
    for resource, text in listed.items():
        name, per_unit = NAMES.get(resource, (resource, 1))
        digits = text.rstrip("".join(UNITS))
        amounts[name] = math.ceil(Fraction(digits) * UNITS.get(text[len(digits) :], 1) * per_unit)
    return amounts


def _misdeclared(declared: ev.PodGroupObserved, kube: ApiServer) -> Iterator[str]:
    """A PodGroup's minimum, of whichever project."""
    group, version = dialects.POD_GROUPS[declared.dialect].split("/")
    entry = kube.api.by_path[group, version, "podgroups"].entries[declared.namespace, declared.name]
    spec, minimum = entry.object["spec"], declared.declaration.min_member
    policy = spec.get("schedulingPolicy", {})
    found = spec.get("minMember") or policy.get("gang", {}).get("minCount", 1)
    if found != minimum:
        yield f"PodGroup {declared.name} ({declared.dialect}) has the minimum {found}, in the log {minimum}"
