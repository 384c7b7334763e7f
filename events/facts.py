"""Facts: what ingest saw in the cluster, normalised. One event for each object; written only when it changed.

A pod's life is at most four facts: `PodObserved`, `PodAssigned`, then `PodTerminating` or `PodFinished`, `PodDeleted`.
What many pods share is said once, in `SchedulingClassObserved`, and referred to by its digest.
"""

from __future__ import annotations

from events.objects import (
    Declaration,
    HostPort,
    Membership,
    PreferredTerm,
    Resources,
    SelectorTerm,
    Taint,
    Toleration,
    Value,
)


class Fact(Value, frozen=True, tag_field="type", tag=True):
    """Written by ingest."""


class IngestTaken(Fact, frozen=True):
    """An ingest became the writer of facts. Until its `ClusterSynced` nobody decides: the picture may be partial."""

    holder: str


class ClusterSynced(Fact, frozen=True):
    """Every list was read after the last `IngestTaken`, and what differed from the log stands before this event."""

    nodes: int
    pods: int


class NodeObserved(Fact, frozen=True):
    """A node as it is now. `allocatable` is what the kubelet offers to pods; `pods` is one of its resources. `labels` has
    the features that it declares, too, as far as pods may need them (``status.declaredFeatures/…``)."""

    name: str
    uid: str
    resource_version: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Resources


class NodeDeleted(Fact, frozen=True):
    """The node is gone. Claims on it stay until their pods go."""

    name: str
    uid: str


class SchedulingClassObserved(Fact, frozen=True):
    """What pods of one scheduling class ask for; `digest` names it in `PodObserved`.

    It stands before the first pod of the class, and again before the next one after the last was gone; in one commit with
    it (in older logs perhaps in the one before).
    `requests` are Kubernetes' PodRequests (init containers, sidecars, overhead, pod level), rounded up, with ``pods: 1``.
    `unsupported` names hard constraints that this version does not honour; such pods are refused, never placed as if
    the constraint were not there.
    """

    digest: str
    requests: Resources
    node_selector: dict[str, str]
    required_affinity: tuple[SelectorTerm, ...] | None
    """Terms of which one must match; None: no constraint. An empty tuple matches no node, as in Kubernetes."""
    preferred_affinity: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    unsupported: tuple[str, ...]


class PodObserved(Fact, frozen=True):
    """A pod that matters here: a candidate of ours, or anyone's that occupies a node."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    scheduling_class: str
    gang: Membership | None
    priority: int
    created_ns: int
    candidate: bool
    """Whether its schedulerName is one of ours."""
    gated: bool
    """Whether scheduling gates keep it from being scheduled."""
    status: str
    """pending, bound, terminating, succeeded, failed."""
    node: str
    """spec.nodeName; empty while there is none."""


class PodAssigned(Fact, frozen=True):
    """spec.nodeName appeared: by our binding or by somebody else's."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    node: str


class PodTerminating(Fact, frozen=True):
    """The pod is being deleted; it holds its room until `PodDeleted`."""

    uid: str
    namespace: str
    name: str
    resource_version: str


class PodFinished(Fact, frozen=True):
    """The pod succeeded or failed; its room is free. `reason` is the kubelet's, e.g. OutOfcpu."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    succeeded: bool
    reason: str


class PodDeleted(Fact, frozen=True):
    """The object is gone, or was being deleted when it finished: whatever finalizers keep it, nothing of it counts."""

    uid: str
    namespace: str
    name: str


class PodGroupObserved(Fact, frozen=True):
    """A PodGroup object of some dialect, as the declaration of the gang ``namespace/name``."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    dialect: str
    created_ns: int
    declaration: Declaration


class PodGroupDeleted(Fact, frozen=True):
    """The PodGroup is gone; its pods wait for a new declaration."""

    namespace: str
    name: str
    uid: str
    dialect: str


class PriorityClassObserved(Fact, frozen=True):
    """A PriorityClass, kept for dialects that name one on the group."""

    name: str
    uid: str
    resource_version: str
    value: int
    preempts: bool


class PriorityClassDeleted(Fact, frozen=True):
    """The PriorityClass is gone."""

    name: str
    uid: str


class DeclarationRejected(Fact, frozen=True):
    """An object that cannot be taken as it is: which one, which field, what stood there and what was expected.

    It costs that object only; the binder tells its owner by a Kubernetes event.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    field: str
    value: str
    expected: str


class RejectionEnded(Fact, frozen=True):
    """The rejected object is gone, or was mended in a way that leaves no other fact."""

    kind: str
    namespace: str
    name: str
    uid: str
