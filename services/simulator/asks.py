"""Requests, limits and offers that the API server refuses, though each of them is a quantity.

The simulated API takes them, because bad ones must be able to reach Muster (`admission`); `muster simulate` says what is
wrong. What is no quantity, or no one's, ingest rejects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.simulator import names
from services.simulator.quantities import aggregated, milli, readable
from services.simulator.values import Cause, invalid, spelt

Object = dict[str, Any]

DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
"""Of which a fraction may be asked for, and less than the limit."""
OF_A_POD = ("cpu", "memory")
"""What the pod level may name, beside huge pages."""


def of_node(status: Object) -> Iterator[Cause]:
    for part in ("capacity", "allocatable"):
        for name, amount in _read(status.get(part)).items():
            if (name == "pods" or _is_extended(name)) and amount % 1000:
                yield invalid(f"status.{part}[{name}]", str(status[part][name]), "must be an integer")


def of_pod(spec: Object, field: str) -> Iterator[Cause]:
    """`field`: where the spec stands. Requests that follow from limits are there already."""
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from of_container(container.get("resources") or {}, f"{field}.{part}[{index}].resources")
    own = spec.get("resources") or {}
    for part in ("limits", "requests"):
        for name in own.get(part) or {}:
            if name not in OF_A_POD and not name.startswith("hugepages-"):
                why = "a pod as a whole may ask for cpu, memory and huge pages"
                yield invalid(f"{field}.resources.{part}[{name}]", name, why)
    yield from _compared(own, f"{field}.resources")
    together = aggregated(spec, "requests")
    for name, amount in _read(own.get("requests")).items():
        if amount < together.get(name, 0):
            why = f"must be greater than or equal to what its containers request together, {together[name]} thousandths"
            yield invalid(f"{field}.resources.requests[{name}]", str(own["requests"][name]), why)


def without_limit(spec: Object, field: str) -> Iterator[str]:
    """The fields of requests for which the API server wants a limit. What is meant is plain."""
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            resources = container.get("resources") or {}
            for name in resources.get("requests") or {}:
                if not may_differ(name) and name not in (resources.get("limits") or {}):
                    yield f"{field}.{part}[{index}].resources.requests[{name}]"


def of_container(resources: Object, field: str) -> Iterator[Cause]:
    for part in ("limits", "requests"):
        for name, amount in _read(resources.get(part)).items():
            yield from spelt(resource_name, name, f"{field}.{part}[{name}]")
            if _is_extended(name) and amount % 1000:
                yield invalid(f"{field}.{part}[{name}]", str(resources[part][name]), "must be an integer")
    yield from _compared(resources, field)


def _compared(resources: Object, field: str) -> Iterator[Cause]:
    limits, requests = _read(resources.get("limits")), _read(resources.get("requests"))
    for name in (name for name in requests if name in limits):  # a set would be told in another order each time
        told = str(resources["requests"][name])
        if may_differ(name) and requests[name] > limits[name]:
            why = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            yield invalid(f"{field}.requests", told, why)
        elif not may_differ(name) and requests[name] != limits[name]:
            yield invalid(f"{field}.requests", told, f"must be equal to {name} limit of {resources['limits'][name]}")


def _read(quantities: Object | None) -> dict[str, int]:
    """Thousandths of those that can be read."""
    return {name: milli(quantity) for name, quantity in readable(quantities).items()}


def resource_name(name: str) -> str:
    """A rule as those of `names`: of what a container asks for."""
    if name in DIVISIBLE:
        return ""
    if "/" not in name and not name.startswith("hugepages-"):
        return "must be a standard resource type or fully qualified"
    return "doesn't follow extended resource name standard" if name.startswith("requests.") else names.key(name)


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def may_differ(name: str) -> bool:
    """Whether less may be requested than the limit says."""
    return not _is_extended(name) and not name.startswith("hugepages-")
