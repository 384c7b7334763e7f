"""Etcd that was restored from a backup: by what a list shows that something that the log says never was.

A list is a consistent read, and what it is compared with was known before it began. So no resourceVersion in it is
smaller than one that is known, and no pod's life goes backwards: unless the history of the cluster was set back. What is
newer than a pod's last fact takes that life back by a watch, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from events import objects
from events.facts import PodObserved
from services.ingest import normalise
from services.kubernetes.objects import Pod
from services.state.records import FINISHED

if TYPE_CHECKING:
    from services.state.records import Pod as PodRecord


class Outcome(NamedTuple):
    """What the binder's own writes made of a pod, as the API server acknowledged them."""

    version: int
    node: str


NONE = Outcome(0, "")


def outcome(pod: PodRecord, observed: PodObserved) -> Outcome | None:
    """What the log knows of the binder's writes, if that is more than the facts say."""
    if (pod.resource_version, pod.node) == (observed.resource_version, observed.node):
        return None
    return Outcome(objects.version(pod.resource_version), pod.node)


def lives_again(known: PodObserved | None, bound_to: str, seen: Pod) -> bool:
    """Whether the pod was on another node, on its way out, over or over otherwise, which no later version takes back.
    `bound_to`: the node to which the binder bound it, if no fact said so yet."""
    if known is None:
        return False
    status = normalise.status(seen)
    return (
        (known.node or bound_to) not in ("", seen.spec.node_name)
        or (known.status in FINISHED and status != known.status)
        or (known.status == "terminating" and status in ("pending", "bound"))
    )
