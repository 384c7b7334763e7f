"""What the API server would list for some manifests, without a server: for `muster simulate`.

Workloads are expanded to their pods, other projects' jobs to what their controllers make of them. Everything passes the
same admission as over HTTP, except pods that another server gave out: they passed it there, perhaps with other
PriorityClasses, and their status says what became of them since. What a server gave out is as old as it says, and what
is made of it as old as that. UIDs, names and resourceVersions follow from the order of the objects alone: no clock, no
chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from services.simulator.api import Api, whole
from services.simulator.errors import ApiError, about
from services.simulator.operators import admitted
from services.simulator.store import Store
from services.simulator.workloads import expand, flatten, is_workload

Object = dict[str, Any]

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
"""When everything was created that no server gave out."""


NAMED = ("Namespace", "CustomResourceDefinition", "PriorityClass", "RuntimeClass", "LimitRange", "Node")
"""Kinds that others name, or that say something of others; a LimitRange is in a namespace. A DaemonSet's pods are for
nodes."""


def named_first(obj: Object) -> int:
    """Sorts what others depend on before them."""
    kind = obj.get("kind")
    return NAMED.index(kind) if kind in NAMED else len(NAMED)


class Offered(NamedTuple):
    """What becomes of objects that are offered to an API server."""

    found: list[Object]
    """Those that it takes."""
    refused: list[ApiError]
    """What it says of the others."""
    makers: dict[str, str]
    """What made an object, taken or not: by ``Pod default/a-x7kqb``, say, ``Deployment default/a``."""


def served(objects: Iterable[Object], created: datetime = EPOCH) -> list[Object]:
    """The objects as a client would read them, in the order given: defaults, priority, UID and resourceVersion set.

    Raises ApiError for the first object that the API server would refuse.
    """
    found, refused, _ = offered(objects, created)
    if refused:
        raise refused[0]
    return found


def offered(objects: Iterable[Object], created: datetime = EPOCH) -> Offered:
    """The objects that the API server takes, and what it says of the others.

    Namespaces and unknown kinds that they name are defined on the way; what pods depend on (`NAMED`) is taken first, so
    that they may stand before it.
    """
    api = Api(Store(history=0), seed=0, clock=lambda: created, checks_asks=True)
    given, refused = _workloads_admitted(objects, created)
    operated, denied = admitted(given)
    made, unfit = _workloads_admitted(operated, created)
    refused += denied + unfit
    makers = {about(obj): owner for obj in operated if (owner := _controller(obj))}
    ages = {about(obj): age for obj in given if (age := _age(obj))}
    found = _systems_classes(api, made)

    def take(objects: Iterable[Object]) -> None:
        for obj in objects:
            try:
                taken = _kept(api, obj) if _given_out(obj) else api.apply_new(obj)
            except ApiError as error:
                refused.append(error.of(obj))
                continue
            if age := _age(obj) or ages.get(makers.get(about(obj), "")):
                taken["metadata"]["creationTimestamp"] = age
            found.append(taken)

    take(sorted((obj for obj in made if obj.get("kind") in NAMED), key=named_first))
    nodes = [obj for obj in found if is_node(obj)]
    take(_expanded((obj for obj in made if obj.get("kind") not in NAMED), nodes, makers))
    return Offered(found, refused, makers)


def _systems_classes(api: Api, objects: Sequence[Object]) -> list[Object]:
    """PriorityClasses that each cluster has from its beginning and that one of these PodGroups names."""
    named = [(obj.get("spec") or {}).get("priorityClassName") for obj in objects if obj.get("kind") == "PodGroup"]
    classes = api.collection("scheduling.k8s.io/v1", "PriorityClass")
    return [whole(classes, entry) for (_, name), entry in classes.entries.items() if name in named]


def is_node(obj: Object) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Node")


def _expanded(objects: Iterable[Object], nodes: Sequence[Object], makers: dict[str, str]) -> Iterator[Object]:
    """Workloads replaced by the pods that they make first. `makers` is told of each pod what made it: where the workload
    was made itself, what made that."""
    for obj in objects:
        maker = makers.get(about(obj)) or (about(obj) if is_workload(obj) else "")
        for one in expand([obj], nodes):
            if maker:
                makers[about(one)] = maker
            yield one


def _controller(obj: Object) -> str:
    """What made it, as it says itself; empty: nothing did. It may be an object that no server has checked."""
    metadata = obj.get("metadata") or {}
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller"):
            owner = {"name": reference.get("name"), "namespace": metadata.get("namespace")}
            return about({"kind": reference.get("kind"), "metadata": owner})
    return ""


def _given_out(obj: Object) -> bool:
    """Whether it is a pod that a server gave out: nobody else gives a UID."""
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Pod") and bool(obj["metadata"].get("uid"))


def _age(obj: Object) -> str:
    """When a server created it; empty: it gave it out to nobody, or does not say."""
    metadata = obj.get("metadata") or {}
    created = metadata.get("creationTimestamp") if metadata.get("uid") else None
    return created if isinstance(created, str) else ""


def _kept(api: Api, pod: Object) -> Object:
    """As it was given out, on its way out if it was."""
    found = api.apply_new(pod, admitted=True)
    if deleted := pod["metadata"].get("deletionTimestamp"):
        found["metadata"]["deletionTimestamp"] = deleted
    return found


def _workloads_admitted(objects: Iterable[Object], created: datetime) -> tuple[list[Object], list[ApiError]]:
    """The objects without the Deployments, Jobs, … that the API server would refuse, and what it says of those.

    By a server of their own: in the other one only what they are expanded to is there.
    """
    api = Api(Store(history=0), seed=0, clock=lambda: created, checks_asks=True)
    taken: list[Object] = []
    refused: list[ApiError] = []
    for obj in flatten(objects):
        try:
            if is_workload(obj):
                api.apply_new(obj)
            taken.append(obj)
        except ApiError as error:
            refused.append(error.of(obj))
    return taken, refused
