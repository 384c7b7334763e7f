"""Reading what a cluster, or a proxy before it, says. A header that makes no sense counts as absent; of a message the
beginning is kept."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

MOST_SAID = 500
"""Characters that are repeated: the log keeps them."""


def cut(text: str) -> str:
    """The beginning, in one line, and without what a terminal would obey. Of what is megabytes nothing else is looked at:
    every word would become an object."""
    line = " ".join(text[: 100 * MOST_SAID].split())[:MOST_SAID]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def clock_ms(date: str) -> int:
    """Date, in whole seconds of the server's clock, as epoch milliseconds; 0 where it is none. Without a zone: UTC's."""
    try:
        said = parsedate_to_datetime(date)
        return int((said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp()) * 1000
    except (ValueError, TypeError, OverflowError):
        return 0


def number(said: str) -> int:
    """0 for what is no number, or one that nobody means."""
    return int(said) if said.isdecimal() and len(said) <= 12 else 0
