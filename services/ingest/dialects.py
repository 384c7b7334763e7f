"""How a pod says that it belongs to a gang: one row for each dialect and generation of it.

The first row whose gang label stands on the pod is the one that counts. An empty label is none. Where the dialect puts
the minimum on the pod itself, its row names that label; otherwise a PodGroup of the same dialect declares the gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from events.objects import Declaration, Membership
from services.ingest.rejection import Rejection, integer

POD_GROUP = "coscheduling/v1alpha1"
"""The dialect of ``scheduling.x-k8s.io/v1alpha1`` PodGroups."""


class Dialect(NamedTuple):
    """Where one dialect writes what."""

    name: str
    gang_label: str
    minimum_label: str | None


DIALECTS = (
    Dialect(POD_GROUP, "scheduling.x-k8s.io/pod-group", None),
    Dialect("coscheduling/kep-2", "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"),
    Dialect(
        "coscheduling/v0.18",
        "pod-group.scheduling.sigs.k8s.io/name",
        "pod-group.scheduling.sigs.k8s.io/min-available",
    ),
    Dialect("coscheduling/2020", "pod-group/name", "pod-group/min-available"),
)


def membership(namespace: str, labels: Mapping[str, str]) -> Membership | Rejection | None:
    """The gang that the labels name, None for a regular pod, or what is wrong with the declaration."""
    for dialect in DIALECTS:
        if gang := labels.get(dialect.gang_label):
            declared = None
            if dialect.minimum_label is not None:
                minimum = integer(labels.get(dialect.minimum_label), f"metadata.labels[{dialect.minimum_label}]")
                if isinstance(minimum, Rejection):
                    return minimum
                declared = Declaration(min_member=minimum, waiting_time_ms=0)
            return Membership(gang=f"{namespace}/{gang}", dialect=dialect.name, declared=declared)
    return None
