"""R20, R21: runs that their clusters do not have any more, or of which nothing will ever be heard again.

The text mentions neither. What ended is seen in a list; what was deleted is in none, and neither is what has not landed
yet. An identity tells them apart: it never comes back, and another attempt would have another. So a run is gone when it
was accepted, its cluster has nothing of its identity, and no other attempt can still land under its name and run
(`Place.sole`). Of the rest only a person can know.
"""

from __future__ import annotations

from services.federator.records import ENDED, Cluster, Place, is_seen


def may_be_gone(place: Place) -> bool:
    """R20: whether it has ended, should its cluster have nothing of it any more."""
    return place.is_there and bool(place.uid) and place.sole


def kept_up(place: Place, cluster: Cluster) -> str:
    """R21: why it cannot be given up; empty where it can."""
    if place.phase == ENDED:
        return "it has ended already"
    if is_seen(place, cluster):
        return f"the cluster answers and shows it: {place.run}"
    if place.is_there and cluster.seen_ns < 0 and not cluster.silent:
        return "nobody knows yet whether the cluster answers and shows it"
    return ""
