"""Quantities and what a pod asks of its node, as the simulated kubelet counts them: in thousandths, exactly."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]?)")
LARGEST_EXPONENT = 99
"""More is as much: the API server keeps no more than an int64 either, and ten digits of exponent fill the memory."""
_SUFFIXES = {"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_SUFFIXES |= {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)}
_SUFFIXES |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}


def milli(quantity: object) -> int:
    """Thousandths of a quantity, rounded up. Raises ValueError, which names it."""
    return _milli(str(quantity).strip())  # as the API server does


@lru_cache(maxsize=10_000)  # there are few
def _milli(quantity: str) -> int:
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"quantity {quantity!r}: expected a number with a suffix of Kubernetes, e.g. 500m, 2, 1.5Gi")
    number, suffix = Decimal(found[1]), found[2]
    return int((number * _scale(suffix) * 1000).to_integral_value(ROUND_CEILING))


def _scale(suffix: str) -> Decimal:
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    exponent = float(suffix[1:])  # however long it is
    return Decimal(10) ** int(min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT))


def amounts(quantities: dict[str, Any] | None) -> dict[str, int]:
    """Thousandths of each resource; what can't be read counts as nothing."""
    counted: dict[str, int] = {}
    for name, quantity in (quantities or {}).items():
        try:
            counted[name] = milli(quantity)
        except ValueError:
            counted[name] = 0
    return counted


def readable(quantities: dict[str, Any] | None) -> dict[str, str]:
    """Those that can be read, as they stand there."""
    found = {}
    for name, quantity in (quantities or {}).items():
        try:
            milli(quantity)
        except ValueError:
            continue
        found[name] = str(quantity)
    return found


def told(amount: int, *, binary: bool = False) -> str:
    """Thousandths as a quantity: ``1500m``, ``2``; `binary`: ``2Gi`` where it comes out even."""
    whole, thousandths = divmod(amount, 1000)
    if thousandths:
        return f"{amount}m"
    suffixes = iter(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    suffix = next(suffixes)
    while binary and whole and whole % 1024 == 0:
        whole, suffix = whole // 1024, next(suffixes)
    return f"{whole}{suffix}"


def add(total: dict[str, int], more: dict[str, int], sign: int = 1) -> None:
    """Add to `total` in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + sign * amount


def pod_requests(spec: dict[str, Any]) -> dict[str, int]:
    """What a pod asks for, in thousandths, with one of ``pods``.

    The larger of its containers together and each init container on top of the sidecars before it, plus overhead; what
    the pod level names replaces that.
    """
    total = aggregated(spec, "requests") | amounts((spec.get("resources") or {}).get("requests"))
    add(total, amounts(spec.get("overhead")))
    return total | {"pods": 1000}


def aggregated(spec: dict[str, Any], part: str) -> dict[str, int]:
    """The requests or limits (`part`) of a pod's containers together, in thousandths: the larger of all that run at the
    same time and each init container on top of the sidecars before it."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        add(total, _named(container, part))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _named(container, part)
        if container.get("restartPolicy") == "Always":
            add(sidecars, own)
            own = {}
        together = dict(sidecars)
        add(together, own)
        peak = {name: max(peak.get(name, 0), together.get(name, 0)) for name in (*peak, *together)}
    add(total, sidecars)
    return {name: max(total.get(name, 0), peak.get(name, 0)) for name in (*total, *peak)}


def _named(container: dict[str, Any], part: str) -> dict[str, int]:
    return amounts((container.get("resources") or {}).get(part))
