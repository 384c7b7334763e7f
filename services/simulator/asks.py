"""Requests, limits and offers that the API server refuses, though each of them is a quantity.

The simulated API takes them, because bad ones must be able to reach Muster (`admission`); `muster simulate` says what is
wrong. What is no quantity, or no one's, ingest rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services.simulator import names
from services.simulator.causes import Cause, forbidden, invalid, spelt
from services.simulator.quantities import aggregated, milli, readable, told

Object = dict[str, Any]

DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
"""Of which a fraction may be asked for, and less than the limit."""
OF_A_POD = ("cpu", "memory")
"""What the pod level may name, beside huge pages."""
PAGES = "hugepages-"
"""Behind it stands their size."""


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
    yield from _asked(own, f"{field}.resources", _of_a_pod)
    yield from _within(spec, own, f"{field}.resources")


def _within(spec: Object, own: Object, field: str) -> Iterator[Cause]:
    """That what a pod says of itself has room for its containers. `own`: its resources."""
    together = aggregated(spec, "requests")
    for name, amount in _read(own.get("requests")).items():
        if amount < together.get(name, 0):
            why = f"must be greater than or equal to what its containers request together, {together[name]} thousandths"
            yield invalid(f"{field}.requests[{name}]", str(own["requests"][name]), why)
    limits, pages = _read(own.get("limits")), aggregated(spec, "limits")
    for name, amount in limits.items():
        if name.startswith(PAGES) and amount < pages.get(name, 0):
            why = f"must be greater than or equal to what its containers may have together, {pages[name]} thousandths"
            yield invalid(f"{field}.limits[{name}]", str(own["limits"][name]), why)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in _read((container.get("resources") or {}).get("limits")).items():
            if name in limits and amount > limits[name]:
                why = f"must be less than or equal to pod limits of {own['limits'][name]}"
                yield invalid(f"{field}.containers[{index}][{name}].limits", told(amount), why)


def without_limit(spec: Object, field: str) -> Iterator[str]:
    """The fields of requests for which the API server wants a limit. What is meant is plain."""
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            resources = container.get("resources") or {}
            for name in resources.get("requests") or {}:
                if not may_differ(name) and name not in (resources.get("limits") or {}):
                    yield f"{field}.{part}[{index}].resources.requests[{name}]"


def of_container(resources: Object, field: str) -> Iterator[Cause]:
    yield from _asked(resources, field, resource_name)


def _asked(resources: Object, field: str, rule: Callable[[str], str]) -> Iterator[Cause]:
    """`rule`: which resources there may be."""
    for part in ("limits", "requests"):
        asked = resources.get(part) or {}
        sound = readable(asked)
        for name, quantity in asked.items():
            yield from spelt(rule, name, f"{field}.{part}[{name}]")
            if name in sound:
                yield from _whole(name, quantity, f"{field}.{part}[{name}]")
            elif part == "limits":
                yield invalid(f"{field}.{part}[{name}]", str(quantity), "must be a quantity")
    yield from _compared(resources, field)
    named = {name for part in ("limits", "requests") for name in resources.get(part) or {}}
    if any(name.startswith(PAGES) for name in named) and not named & {"cpu", "memory"}:
        yield forbidden(field, "HugePages require cpu or memory")


def _whole(name: str, quantity: Any, field: str) -> Iterator[Cause]:
    """That it can be handed out: GPUs and pages are not divided."""
    if _is_extended(name) and milli(quantity) % 1000:
        yield invalid(field, str(quantity), "must be an integer")
    if name.startswith(PAGES):
        size = _read({name: name.removeprefix(PAGES)}).get(name, 0)
        if size <= 0 or size % 1000 or milli(quantity) % size:
            yield invalid(field, str(quantity), f"{quantity} is not positive integer multiple of {name}")


def _compared(resources: Object, field: str) -> Iterator[Cause]:
    limits, requests = _read(resources.get("limits")), _read(resources.get("requests"))
    for name in (name for name in requests if name in limits):  # a set would be told in another order each time
        asked = str(resources["requests"][name])
        if may_differ(name) and requests[name] > limits[name]:
            why = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            yield invalid(f"{field}.requests", asked, why)
        elif not may_differ(name) and requests[name] != limits[name]:
            yield invalid(f"{field}.requests", asked, f"must be equal to {name} limit of {resources['limits'][name]}")


def _read(quantities: Object | None) -> dict[str, int]:
    """Thousandths of those that can be read."""
    return {name: milli(quantity) for name, quantity in readable(quantities).items()}


def resource_name(name: str) -> str:
    """A rule as those of `names`: of what a container asks for."""
    if name in DIVISIBLE:
        return ""
    if "/" not in name and not name.startswith(PAGES):
        return "must be a standard resource type or fully qualified"
    return "doesn't follow extended resource name standard" if name.startswith("requests.") else names.key(name)


def _of_a_pod(name: str) -> str:
    """As `resource_name`, of what a pod as a whole asks for."""
    if name not in OF_A_POD and not name.startswith(PAGES):
        return "a pod as a whole may ask for cpu, memory and huge pages"
    return names.key(name)


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def may_differ(name: str) -> bool:
    """Whether less may be requested than the limit says."""
    return not _is_extended(name) and not name.startswith(PAGES)
