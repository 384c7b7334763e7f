"""Virtual partitions: which of the 64 a group belongs to.

FNV-1a-32 of the group's key modulo 64, the function that NATS' own subject partitioning uses, so that any client can
compute it. A gang group's key is the smallest ``namespace/gang`` of its declared group.
"""

from __future__ import annotations

from functools import lru_cache

PARTITIONS = 64
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_TAIL = 5
"""Generated names end in five random characters: what stands before them is hashed once for many."""


def fnv1a_32(data: bytes, value: int = _OFFSET) -> int:
    """FNV-1a, 32 bits, of `data`; `value` is the hash of what stands before it."""
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


@lru_cache(maxsize=4_096)
def _head(data: bytes) -> int:
    return fnv1a_32(data)


def partition_of(group: str) -> int:
    """0 … 63, of the UTF-8 bytes of the group's key."""
    data = group.encode()
    return fnv1a_32(data[-_TAIL:], _head(data[:-_TAIL])) % PARTITIONS
