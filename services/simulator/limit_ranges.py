"""LimitRanges: what the API server adds to a pod for those of its namespace, and what it refuses for them.

Requests and limits that a container does not name are added at its creation; then every container, and the pod as a
whole, is held to the least, the most and the largest ratio of limit to request. Workloads are not looked at: their pods
are refused one by one, which their controller learns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from services.simulator import asks, errors, names
from services.simulator.causes import Cause, forbidden, invalid, once, one_of, required, spelt
from services.simulator.quantities import aggregated, milli, readable, told
from services.simulator.resources import Resource

Object = dict[str, Any]

CONTAINER, POD, CLAIM = "Container", "Pod", "PersistentVolumeClaim"
BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
OF_ONE = ("default", "defaultRequest")
"""What nobody can say of a pod as a whole."""
ORDERED = (
    ("min", "max", "min"),
    ("min", "default", "default"),
    ("min", "defaultRequest", "defaultRequest"),
    ("default", "max", "default"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
)
"""Of one resource the first may not be more than the second; and where that is told."""


# --------------------------------------------------------------------------------------------------------- LimitRanges


def complete(spec: Object) -> None:
    """What follows from its bounds, in place: the most is the limit, and the limit or the least is requested."""
    for item in spec.get("limits") or ():
        if item["type"] == CONTAINER:
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item.update({name: value for name, value in (("default", limits), ("defaultRequest", requests)) if value})


def of_limit_range(spec: Object) -> Iterator[Cause]:
    """What the API server refuses of one."""
    items = spec.get("limits") or ()
    yield from once((f"spec.limits[{index}].type", item["type"]) for index, item in enumerate(items))
    for index, item in enumerate(items):
        field, kind = f"spec.limits[{index}]", item["type"]
        yield from spelt(names.key, kind, f"{field}.type")
        if "/" not in kind:
            yield from one_of((CONTAINER, POD, CLAIM), kind, f"{field}.type")
        if kind == CLAIM and not any("storage" in (item.get(bound) or {}) for bound in ("min", "max")):
            yield required(f"{field}.limits", "either minimum or maximum storage value")
        yield from _bounds(item, field)


def _bounds(item: Object, field: str) -> Iterator[Cause]:
    kind = item["type"]
    for bound in OF_ONE:
        if kind == POD and item.get(bound):
            yield forbidden(f"{field}.{bound}", "may not be specified when `type` is 'Pod'")
    bounds = {bound: readable(item.get(bound)) for bound in BOUNDS}
    for bound in BOUNDS:
        for name, amount in (item.get(bound) or {}).items():
            rule = asks.resource_name if kind in (CONTAINER, POD) else names.key
            yield from spelt(rule, name, f"{field}.{bound}[{name}]")
            if name not in bounds[bound]:
                yield invalid(f"{field}.{bound}[{name}]", str(amount), "must be a quantity")
    for less, more, place in ORDERED:
        for name, amount in bounds[less].items():
            if name in bounds[more] and milli(amount) > milli(bounds[more][name]):
                why = f"{less} {amount} is greater than {more} {bounds[more][name]}"
                yield invalid(f"{field}.{place}[{name}]", bounds[place][name], why)
    yield from _ratios(bounds, field)
    for name, limit in bounds["default"].items():
        request = bounds["defaultRequest"].get(name, limit)
        if milli(request) < milli(limit) and not asks.may_differ(name):
            yield invalid(f"{field}.defaultRequest[{name}]", request, f"must be equal to default {limit}")


def _ratios(bounds: dict[str, dict[str, str]], field: str) -> Iterator[Cause]:
    for name, ratio in bounds["maxLimitRequestRatio"].items():
        place = f"{field}.maxLimitRequestRatio[{name}]"
        least, most = bounds["min"].get(name), bounds["max"].get(name)
        if milli(ratio) < 1000:
            yield invalid(place, ratio, f"ratio {ratio} is less than 1")
        if least is not None and most is not None and milli(ratio) * milli(least) > 1000 * milli(most):
            yield invalid(place, ratio, f"ratio {ratio} is greater than max/min, {most}/{least}")


# ---------------------------------------------------------------------------------------------------------------- pods


def add(spec: Object, limit_ranges: Iterable[Object]) -> None:
    """To the containers of a pod, in place, what they do not say themselves. The first LimitRange that says it wins."""
    for limit_range in limit_ranges:
        for item in _items(limit_range):
            if item["type"] == CONTAINER:
                for container in _containers(spec):
                    _default(container["resources"], "limits", item.get("default"))
                    _default(container["resources"], "requests", item.get("defaultRequest"))


def check(resource: Resource, pod: Object, limit_ranges: Iterable[Object]) -> None:
    """Raises ApiError 403 for the first LimitRange that the pod does not keep to, with all that it violates."""
    for limit_range in limit_ranges:
        # Several containers may have the same wrong; it is told once.
        found = dict.fromkeys(why for item in _items(limit_range) for why in _violated(item, pod["spec"]))
        if found:
            why = next(iter(found)) if len(found) == 1 else f"[{', '.join(found)}]"
            raise errors.forbidden(resource, pod["metadata"]["name"], why)


def _violated(item: Object, spec: Object) -> Iterator[str]:
    if item["type"] == CONTAINER:
        for container in _containers(spec):
            resources = container["resources"]
            yield from _outside(item, readable(resources.get("requests")), readable(resources.get("limits")))
    elif item["type"] == POD:
        yield from _outside(item, _together(spec, "requests"), _together(spec, "limits"))


def _outside(item: Object, requests: dict[str, str], limits: dict[str, str]) -> Iterator[str]:
    """Each bound that these requests and limits are outside of."""
    kind = item["type"]
    for name, least in (item.get("min") or {}).items():
        said = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif milli(requests[name]) < milli(least):
            yield f"{said}, but request is {requests[name]}"
        elif name in limits and milli(limits[name]) < milli(least):
            yield f"{said}, but limit is {limits[name]}"
    for name, most in (item.get("max") or {}).items():
        said = f"maximum {name} usage per {kind} is {most}"
        if name not in limits:
            yield f"{said}.  No limit is specified"
        elif milli(limits[name]) > milli(most):
            yield f"{said}, but limit is {limits[name]}"
        elif name in requests and milli(requests[name]) > milli(most):
            yield f"{said}, but request is {requests[name]}"
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        said = f"{name} max limit to request ratio per {kind} is {ratio}"
        request, limit = milli(requests.get(name, 0)), milli(limits.get(name, 0))
        if not request:
            yield f"{said}, but no request is specified or request is 0"
        elif not limit:
            yield f"{said}, but no limit is specified or limit is 0"
        elif limit * 1000 > milli(ratio) * request:
            yield f"{said}, but provided ratio is {limit / request:f}"


def _together(spec: Object, part: str) -> dict[str, str]:
    """What all containers have together; what the pod level names of cpu and memory replaces that."""
    own = readable((spec.get("resources") or {}).get(part))
    total = {name: told(amount, binary=name != "cpu") for name, amount in aggregated(spec, part).items()}
    return total | {name: own[name] for name in asks.OF_A_POD if name in own}


def _items(limit_range: Object) -> list[Object]:
    return (limit_range.get("spec") or {}).get("limits") or []


def _containers(spec: Object) -> list[Object]:
    return [*spec["containers"], *(spec.get("initContainers") or ())]


def _default(resources: Object, part: str, amounts: Object | None) -> None:
    if amounts:
        resources[part] = {**amounts, **(resources.get(part) or {})}
