"""The three kinds of patch: JSON merge (RFC 7386), strategic merge, JSON patch (RFC 6902).

Each takes the old object and returns a new one; what a patch doesn't touch is shared, nothing changes in place.
"""

from __future__ import annotations

import re
from typing import Any

Json = Any

MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ports": "containerPort",
    "hostAliases": "ip",
    "replicatedJobs": "name",
    "podIPs": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge joins by a key of their items; lists of other names are replaced whole."""
MERGED_SETS = frozenset({"finalizers"})
"""Lists of plain values that a strategic merge unites."""


_INDEX = re.compile("[0-9]{1,9}")


class PatchError(ValueError):
    """The patch cannot be applied; says where."""


def merge(old: Json, patch: Json) -> Json:
    """JSON merge patch: null removes, objects merge, everything else (lists too) replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def strategic(old: Json, patch: Json) -> Json:
    """Strategic merge patch with the directives $patch (replace, delete) and $deleteFromPrimitiveList."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            if not isinstance(value, list) or not isinstance(merged.get(field) or [], list):
                raise PatchError(f"{name}: expected lists")
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif name.startswith("$"):
            continue  # $setElementOrder and $retainKeys order and prune what this keeps anyway
        elif value is None:
            merged.pop(name, None)
        elif isinstance(value, list):
            merged[name] = _strategic_list(merged.get(name) or [], value, name)
        elif isinstance(value, dict) and value.get("$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = strategic(merged.get(name), value)
    return merged


def _strategic_list(old: list[Json], patch: list[Json], name: str) -> list[Json]:
    if not isinstance(old, list):
        raise PatchError(f"{name}: expected a list")
    if name in MERGED_SETS:
        return old + [item for item in patch if item not in old]
    key = MERGE_KEYS.get(name)
    if key is None:
        return patch
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if not isinstance(item, dict) or item.get("$patch") != "replace"]
    for item in (*old, *patch):
        if not isinstance(item, dict) or isinstance(item.get(key), (dict, list)):
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
    merged = {item.get(key): item for item in old}
    for item in patch:
        if key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic(merged.get(item[key]), item)
    return list(merged.values())


def json_patch(old: Json, operations: Json) -> Json:
    """A list of add, replace, remove and test."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    for operation in operations:
        where = operation.get("path") if isinstance(operation, dict) else None
        if not isinstance(where, str) or operation.get("op") not in ("add", "replace", "remove", "test"):
            raise PatchError(f"unsupported operation {operation}")
        path = [step.replace("~1", "/").replace("~0", "~") for step in where.split("/")[1:]]
        if not path:
            raise PatchError(f"unsupported operation {operation}")
        old = _apply(old, path, operation)
    return old


def _apply(old: Json, path: list[str], operation: dict[str, Json]) -> Json:
    step, rest, op = path[0], path[1:], operation["op"]
    if isinstance(old, dict):
        if (rest or op not in ("add", "replace")) and step not in old:
            raise PatchError(f"{op} operation does not apply: doc is missing path: {operation['path']}")
        changed: Json = dict(old)
        place: Json = step
    elif isinstance(old, list):
        changed = list(old)
        place = len(old) if step == "-" else int(step) if _INDEX.fullmatch(step) else -1
        if not 0 <= place < len(old) + (op == "add" and not rest):
            raise PatchError(f"{op} operation does not apply: no such index: {operation['path']}")
    else:
        raise PatchError(f"{op} operation does not apply: doc is missing path: {operation['path']}")
    if rest:
        changed[place] = _apply(old[place], rest, operation)
    elif op == "test":
        if old[place] != operation.get("value"):
            raise PatchError(f"testing value {operation['path']} failed")
    elif op == "remove":
        del changed[place]
    elif op == "add" and isinstance(changed, list):
        changed.insert(place, operation.get("value"))
    else:
        changed[place] = operation.get("value")
    return changed
