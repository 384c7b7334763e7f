"""Durations as Go writes them (time.ParseDuration): ``1h30m``, ``300s``, ``1.5s``."""

from __future__ import annotations

import re

from services.ingest.rejection import LONGEST_VALUE, Rejection

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]{0,19})(?:\.([0-9]{0,19}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
LONGEST_MS = (2**31 - 1) * 1_000
"""As long as the seconds of a PodGroup may be."""


def milliseconds(value: str, field: str) -> int | Rejection:
    """The duration, rounded up: a short one is not none."""
    nanoseconds, place, text = 0, 0, value.removeprefix("+")
    while part := _PART.match(text, place):
        whole, fraction, unit = part[1], part[2] or "", part[3]
        if not (whole or fraction):
            break
        scale = _NANOSECONDS[unit]
        nanoseconds += int(whole or 0) * scale + int(fraction or 0) * scale // 10 ** len(fraction)
        place = part.end()
    found = -(-nanoseconds // 1_000_000)
    if not (place == len(text) > 0 or text == "0") or found > LONGEST_MS:
        return Rejection(field, value[:LONGEST_VALUE], "a duration as Go writes it, not negative, e.g. 300s or 1h30m")
    return found
