"""Virtual partitions: which of the 64 a group belongs to.

FNV-1a-32 of the group's key modulo 64, the function that NATS' own subject partitioning uses, so that any client can
compute it. A gang group's key is the smallest ``namespace/gang`` of its declared group.
"""

from __future__ import annotations

PARTITIONS = 64


def fnv1a_32(text: str) -> int:
    """FNV-1a, 32 bits, of the text's UTF-8 bytes."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def partition_of(group: str) -> int:
    """0 … 63."""
    return fnv1a_32(group) % PARTITIONS
