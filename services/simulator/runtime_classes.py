"""What the API server adds to a pod for its RuntimeClass: overhead, and where it may go. One that is not there is named
in vain, and overhead is nobody else's to say."""

from __future__ import annotations

from typing import Any

from services.simulator import errors
from services.simulator.quantities import amounts
from services.simulator.resources import Resource

Object = dict[str, Any]


def add(resource: Resource, pod: Object, known: Object | None) -> None:
    """To the pod, in place. `known`: the RuntimeClass that it names, if there is one. Raises ApiError 403, 500."""
    name = pod["spec"].get("runtimeClassName")
    if name == "":
        raise errors.internal(f'pods "{pod["metadata"]["name"]}": runtimeClassName: resource name may not be empty')
    if name is not None and known is None:
        raise _forbidden(resource, pod, f'pod rejected: RuntimeClass "{name}" not found')
    if known is not None:
        _add_where(resource, pod, known.get("scheduling") or {})
    _add_overhead(resource, pod, known or {})


def _add_overhead(resource: Resource, pod: Object, runtime_class: Object) -> None:
    spec, overhead = pod["spec"], (runtime_class.get("overhead") or {}).get("podFixed") or {}
    if spec.get("overhead") and not overhead:
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise _forbidden(resource, pod, why)
    if spec.get("overhead") and amounts(spec["overhead"]) != amounts(overhead):
        raise _forbidden(resource, pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = overhead


def _add_where(resource: Resource, pod: Object, scheduling: Object) -> None:
    spec = pod["spec"]
    selector, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key in sorted(selector.keys() & own.keys()):
        if selector[key] != own[key]:
            where = f"runtimeClass.scheduling.nodeSelector[{key}] = {selector[key]}"
            raise _forbidden(resource, pod, f"conflict: {where}; pod.spec.nodeSelector[{key}] = {own[key]}")
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    added = {"nodeSelector": {**own, **selector}, "tolerations": tolerations}
    spec.update({field: value for field, value in added.items() if value})


def _forbidden(resource: Resource, pod: Object, why: str) -> errors.ApiError:
    return errors.forbidden(resource, pod["metadata"]["name"], why)
