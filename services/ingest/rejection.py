"""Why an object cannot be taken as it is."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_VALUE = 100
"""Characters of the offending value that are repeated in the log."""
MOST = 2**31 - 1
"""As in an `int32` of Kubernetes' objects."""


def shown(value: object) -> str:
    """What stood there, as far as it is repeated. What was nested just not too deeply for its decoder may be for this."""
    try:
        return str(value)[:LONGEST_VALUE]
    except RecursionError:
        return "nested too deeply"


class Rejection(NamedTuple):
    """Which field, what stood there, what was expected."""

    field: str
    value: str
    expected: str


def integer(value: object, field: str, *, least: int = 1) -> int | Rejection:
    """The integer that `value` is or spells; digits with an optional sign, as Go's Atoi reads them."""
    if isinstance(value, str):
        digits = value.removeprefix("+").removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) <= 20 and not value.startswith("+-"):
            value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
        return value
    said = "" if value is None else shown(value)
    return Rejection(field, said, f"an integer from {least} to {MOST}")
