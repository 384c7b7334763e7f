"""What null means in an object of a built-in kind: the same as nothing, but in a map, where it is the type's zero."""

from __future__ import annotations

from typing import Any

ZEROS = {
    **dict.fromkeys(("labels", "annotations", "matchLabels", "nodeSelector"), ""),
    **dict.fromkeys(("requests", "limits", "overhead", "podFixed", "capacity", "allocatable"), "0"),
    **dict.fromkeys(("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"), "0"),
}
"""What a null in one of these maps means: of ``nodeSelector: {gpu: }`` a node must have the label, with nothing in it."""


def without_nulls(value: Any, zero: str | None = None) -> Any:
    """The same with nothing where it says null; `zero`: what stands for it in a map of such a field."""
    if isinstance(value, dict):
        found = {name: zero if part is None else without_nulls(part, ZEROS.get(name)) for name, part in value.items()}
        return {name: part for name, part in found.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value
