"""Where an object does not fit its type: msgspec's words as the path of a field, and what was expected of it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_TYPES = {"array": list, "bool": bool, "float": float, "int": int, "null": type(None), "object": dict, "str": str}
"""By msgspec's names."""
_STEP = re.compile(r"(\w+)|\[(\d+)\]")
"""Of a path: a field, or an index."""
_MISSING = "Object missing required field "


def told(error: msgspec.ValidationError) -> tuple[str, str]:
    """(path, expectation), of ``Expected `int`, got `str` - at `$.spec.priority```: the path is empty for the object."""
    said, _, path = str(error).replace("`", "").partition(" - at $")
    path = path.lstrip(".")
    if said.startswith(_MISSING):
        return f"{path}.{said.removeprefix(_MISSING)}".lstrip("."), "Expected a value"
    return path, said


def with_key(path: str, said: str, obj: Any) -> str:
    """``spec.nodeSelector[gpu]``: of a map msgspec says ``spec.nodeSelector[...]``, and of what type it found a value."""
    where, in_a_map, _ = path.partition("[...]")
    if not in_a_map:
        return path
    got = _TYPES.get(said.rpartition(", got ")[2])
    try:
        for name, index in _STEP.findall(where):
            obj = obj[name or int(index)]
        return next(f"{where}[{key}]" for key, value in obj.items() if type(value) is got)
    except (LookupError, TypeError, AttributeError, StopIteration):  # of bytes in which a key stands twice
        return path
