"""Answers of the API with objects that are nested deeper than the decoder goes.

One such object would make its whole page unreadable, and its watch end at it again and again. So whatever
is deeper than any field that matters is cut off.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")
DEEPEST = 64
"""Levels of an answer that are read; what matters of an object is within a dozen."""
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """Decoded, if need be without what is nested too deeply. Raises `events.wire.UNDECODABLE`."""
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(pruned(text))


def pruned(text: bytes) -> bytes:
    """The same JSON, with null in place of whatever is nested deeper than `DEEPEST` levels."""
    kept: list[bytes] = []
    depth = start = 0
    for found in _STRUCTURE.finditer(text):
        if found[0] in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept.append(text[start : found.start()] + b"null")
                start = len(text)
        elif found[0] in b"]}":
            if depth == DEEPEST + 1:
                start = found.end()
            depth -= 1
    return b"".join(kept) + text[start:]
