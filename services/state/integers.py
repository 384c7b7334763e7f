"""The integers that Kubernetes finds in strings, to compare them (operators Gt and Lt)."""

from __future__ import annotations

import re

OF_LABELS = re.compile(r"[0-9]{1,253}", re.ASCII)
"""What a node selector compares: no label's value has a sign. Python's int() takes underscores and spaces, too."""
OF_TAINTS = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
"""What a toleration compares: a decimal integer (KEP-5471), not ``007``."""


def read(text: str, integer: re.Pattern[str]) -> int | None:
    """The integer of 64 bits that is written there."""
    number = int(text) if integer.fullmatch(text) else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None
