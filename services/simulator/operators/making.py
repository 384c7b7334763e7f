"""What the controllers of `services.simulator.operators` have in common: owned objects, counts, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from services.simulator.errors import ApiError
from services.simulator.workloads import MOST_PODS, namespace_of, reference_to

Object = dict[str, Any]
Make = Callable[[Object, Sequence[Object]], Iterator[Object]]
"""(the object, everything that was given beside it) → what its controller makes."""

SCHEDULER_PLUGINS_GROUP = "scheduling.x-k8s.io/v1alpha1"
SCHEDULER_PLUGINS_LABEL = "scheduling.x-k8s.io/pod-group"


def owned(owner: Object, api_version: str, kind: str, name: str, spec: Object) -> Object:
    """An object that the controller of `owner` makes in its namespace."""
    metadata = {"name": name, "namespace": namespace_of(owner), "ownerReferences": [reference_to(owner)]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def owned_pod(
    owner: Object, name: str, of: Object, path: str, labels: dict[str, str], annotations: dict[str, str], spec: Object
) -> Object:
    """A pod of the template in `of`, which stands at `path`, with labels, annotations and fields of its spec that the
    controller adds. Raises ApiError for what is no template.
    """
    template = mapping(owner, of, "template", f"{path}.template")
    asked = mapping(owner, template, "metadata", f"{path}.template.metadata")
    pod = owned(owner, "v1", "Pod", name, {**mapping(owner, template, "spec", f"{path}.template.spec"), **spec})
    pod["metadata"]["labels"] = {**mapping(owner, asked, "labels", f"{path}.template.metadata.labels"), **labels}
    told = mapping(owner, asked, "annotations", f"{path}.template.metadata.annotations")
    pod["metadata"]["annotations"] = {**told, **annotations}
    return pod


def counted(owner: Object, spec: Object, field: str, default: int, path: str) -> int:
    """A count in the object. Raises ApiError for what is no count."""
    value = spec.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid(owner, f"{path}: Invalid value: {value!r}: expected a count of at least 0")
    if value > MOST_PODS:
        raise invalid(owner, f"{path}: Invalid value: {value}: expected a count of at most {MOST_PODS}")
    return value


def listed(owner: Object, spec: Object, field: str, path: str) -> list[Object]:
    """A list of objects in the object. Raises ApiError for what is none."""
    value = spec.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise invalid(owner, f"{path}: expected a list of objects")
    return value


def mapping(owner: Object, spec: Object, field: str, path: str) -> Object:
    """An object in the object; an absent one is empty. Raises ApiError for what is none."""
    value = spec.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(owner, f"{path}: expected an object")
    return value


def flag(owner: Object, spec: Object, field: str, path: str) -> bool:
    """Whether the object says so. Raises ApiError for what is neither true nor false."""
    value = spec.get(field)
    if value is not None and not isinstance(value, bool):
        raise invalid(owner, f"{path}: Invalid value: {value!r}: expected true or false")
    return bool(value)


def invalid(obj: Object, message: str) -> ApiError:
    """What an API server answers for an object that does not fit its schema."""
    kind, name = f"{obj['kind']}.{obj['apiVersion'].partition('/')[0]}", obj["metadata"].get("name", "")
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {message}')


def denied(obj: Object, webhook: str, message: str) -> ApiError:
    """What an API server answers where an admission webhook said no."""
    what = f"{obj['kind']} {namespace_of(obj)}/{obj['metadata'].get('name', '')}"
    return ApiError(403, "Forbidden", f'{what}: admission webhook "{webhook}" denied the request: {message}')
