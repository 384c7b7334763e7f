"""What the API server adds to a pod for its RuntimeClass: overhead, and where it may go."""

from __future__ import annotations

from typing import Any

from services.simulator import errors
from services.simulator.resources import Resource

Object = dict[str, Any]


def add(resource: Resource, pod: Object, runtime_class: Object) -> None:
    """To the pod, in place. Raises ApiError 403 where it says otherwise itself."""
    spec, scheduling = pod["spec"], runtime_class.get("scheduling") or {}
    selector, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key in sorted(selector.keys() & own.keys()):
        if selector[key] != own[key]:
            where = f"runtimeClass.scheduling.nodeSelector[{key}] = {selector[key]}"
            raise _forbidden(resource, pod, f"conflict: {where}; pod.spec.nodeSelector[{key}] = {own[key]}")
    overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    if spec.get("overhead") and spec["overhead"] != overhead:
        raise _forbidden(resource, pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    added = {"overhead": overhead, "nodeSelector": {**own, **selector}, "tolerations": tolerations}
    spec.update({field: value for field, value in added.items() if value})


def _forbidden(resource: Resource, pod: Object, why: str) -> errors.ApiError:
    return errors.forbidden(resource, pod["metadata"]["name"], why)
