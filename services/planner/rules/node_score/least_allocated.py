"""The kube-scheduler's default (seed 004: LeastRequestedPriority):

the node of which the fewest resources are consumed is scheduled first, so that use is spread evenly over the nodes.
"""

from __future__ import annotations

from services.state.nodes import Ints

FILLS = False
"""Each pod that a node takes makes it less attractive: the next goes elsewhere."""


def score(free_share: Ints) -> Ints:
    """`free_share`: what would be left free, 1024 for each resource that is all free. Higher is better."""
    return free_share
