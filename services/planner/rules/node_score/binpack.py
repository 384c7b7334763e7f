"""Seed 004, Coscheduling, binpack:

if the policy is binpack, a node's resources are filled up first, then the next node is scheduled; the fragmentation
of resources [two nodes with one free GPU each, and a job that asks for two] can be solved.
"""

from __future__ import annotations

from services.state.nodes import Ints

FILLS = True
"""Each pod that a node takes makes it more attractive: it is filled before the next."""


def score(free_share: Ints) -> Ints:
    """`free_share`: what would be left free, 1024 for each resource that is all free. Higher is better."""
    return -free_share
