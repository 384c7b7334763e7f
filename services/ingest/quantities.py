"""Kubernetes quantities, exactly: the grammar of apimachinery's `resource.Quantity`, in integers.

    quantity = [sign] (digits | digits "." [digits] | "." digits) [suffix]
    suffix   = n u m k M G T P E | Ki Mi Gi Ti Pi Ei | (e | E) [sign] digits

As there, whatever is finer than a billionth is rounded away from zero, and sums are made before rounding to the unit in
which a resource is counted: thousandths for cpu, whole units for everything else, always up.
"""

from __future__ import annotations

import re
from functools import lru_cache

from events.objects import MAX_QUANTITY

NANO = 1_000_000_000
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LONGEST = 256
"""No honest quantity is longer; the bound keeps arithmetic small on dishonest ones."""
_HUGE = 10**100
"""Stands for every larger number: far beyond what is accepted."""


class BadQuantity(ValueError):
    """Not a quantity, or one that cannot be counted with. `expected` says what would do."""

    def __init__(self, value: object, expected: str) -> None:
        self.value, self.expected = str(value), expected
        super().__init__(f"{self.value!r}: expected {expected}")


@lru_cache(maxsize=8_192)
def nano(text: str) -> int:
    """The quantity in billionths, rounded away from zero. Raises BadQuantity."""
    found = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise BadQuantity(text[:_LONGEST], "a quantity such as 500m, 1.5, 2Gi or 1e3")
    part = found["part"] or found["only"] or ""
    digits = int((found["whole"] or "") + part)
    suffix = found["suffix"] or ""
    exponent = int(found["exponent"] or _DECIMAL.get(suffix, 0)) - len(part)
    amount = _scaled(digits << _BINARY.get(suffix, 0), exponent + 9)
    return -amount if found["sign"] == "-" else amount


def _scaled(digits: int, exponent: int) -> int:
    """``digits × 10^exponent`` rounded up, without computing numbers of a billion digits."""
    if digits == 0:
        return 0
    if exponent >= 0:
        return digits * 10**exponent if exponent <= 100 else _HUGE
    return -(-digits // 10**-exponent) if exponent >= -2 * _LONGEST else 1


def counted(amount_nano: int, resource: str) -> int:
    """An amount in billionths as a count of its resource's unit, rounded up. Raises BadQuantity.

    cpu is counted in thousandths, everything else in whole units: bytes, pods, devices.
    """
    unit = NANO // 1_000 if resource == "cpu" else NANO
    count = -(-amount_nano // unit)
    if amount_nano < 0 or count > MAX_QUANTITY:
        raise BadQuantity(count, f"from 0 to {MAX_QUANTITY}" + (" thousandths" if resource == "cpu" else ""))
    return count


_KEYS = {"cpu": "cpu_milli", "memory": "memory_bytes", "ephemeral-storage": "ephemeral_storage_bytes"}


def key(resource: str) -> str:
    """The name of a resource in `events.objects.Resources`."""
    return _KEYS.get(resource, resource)
