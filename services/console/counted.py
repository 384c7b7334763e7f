"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """``1 pod``, ``0 pods``, ``2 pods``."""
    return f"{number} {thing}{'s' * (number != 1)}"
