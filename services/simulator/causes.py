"""What is wrong with an object, as the API server tells it: field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from services.simulator import names

Cause = tuple[str, str, str]
"""(field, reason such as FieldValueInvalid, message), as `errors.invalid` takes it."""


def invalid(field: str, value: str | int, why: str) -> Cause:
    """`value`: what stood there."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"


def required(field: str, why: str = "") -> Cause:
    return field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


def forbidden(field: str, why: str) -> Cause:
    return field, "FieldValueForbidden", f"Forbidden: {why}"


def duplicate(field: str, value: str) -> Cause:
    return field, "FieldValueDuplicate", f'Duplicate value: "{value}"'


def one_of(supported: tuple[str, ...], value: str, field: str) -> Iterator[Cause]:
    """Nothing if it is."""
    if value not in supported:
        listed = ", ".join(f'"{one}"' for one in supported)
        yield field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}'


def spelt(rule: Callable[[str], str], text: str, field: str) -> Iterator[Cause]:
    """Nothing if it is as the rule of `names` says."""
    if why := rule(text):
        yield invalid(field, text, why)


def once(named: Iterable[tuple[str, str]]) -> Iterator[Cause]:
    """(field, what must stand once)."""
    seen = set()
    for field, name in named:
        if name in seen:
            yield duplicate(field, name)
        seen.add(name)


def labels(pairs: dict[str, str], field: str) -> Iterator[Cause]:
    for key, value in pairs.items():
        yield from spelt(names.key, key, field)
        yield from spelt(names.value, value, field)
