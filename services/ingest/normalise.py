"""Kubernetes objects to facts: what a decision may depend on, in one form, and nothing else.

A pod's requests and constraints are its *scheduling class*, written once and named by a digest of what it says. Of pods
that are not candidates only what occupies a node counts, so that a DaemonSet's pods, each with an affinity to its own
node, are one class. Environment variables, commands, images and secrets are never read.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from events.dialects import pod_group_kind
from events.facts import (
    DeclarationRejected,
    NodeObserved,
    PodGroupObserved,
    PodObserved,
    PriorityClassObserved,
    SchedulingClassObserved,
)
from events.objects import (
    HostPort,
    Membership,
    PreferredTerm,
    Resources,
    SelectorRequirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from services.ingest import dialects
from services.ingest.features import declared, needed
from services.ingest.quantities import BadQuantity, counted, key, nano
from services.ingest.rejection import Rejection, shown
from services.ingest.requests import MINOR, pod_requests
from services.kubernetes.objects import (
    Affinity,
    Metadata,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
)

_encode = msgspec.json.Encoder().encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLASSES_KEPT, CLASSES_BYTES = 4_096, 1 << 24
"""Scheduling classes whose digests are remembered, some 2 kB each; beyond that they are computed again, in 3 µs. One
pod's may be half a megabyte in the log, and twice that in memory: of such, as many as are so long in all."""
LARGEST_CLASS = 1 << 19
"""Bytes of a scheduling class in the log, at most: it must go into a message with its pod, and NATS takes 1 MiB by
default. A term of an affinity that says nothing is two bytes of a pod for etcd, and 41 here."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that only shows a static one."""
PORTS_COUNTED = 4_096
"""Host ports that count of a pod whose class would be larger."""


class PodFacts(NamedTuple):
    """A pod, its class, and what was wrong with it if it cannot be taken as declared."""

    pod: PodObserved
    scheduling_class: SchedulingClassObserved
    rejected: DeclarationRejected | None


# --------------------------------------------------------------------------------------------------------------- nodes


def node(seen: Node) -> NodeObserved | DeclarationRejected:
    """A node and what it offers; rejected without a readable `status.allocatable`."""
    if not seen.status.allocatable:
        return rejected("Node", seen.metadata, Rejection("status.allocatable", "", "a quantity for each resource"))
    allocatable: Resources = {}
    for resource, quantity in sorted(seen.status.allocatable.items()):
        try:
            allocatable[key(resource)] = counted(nano(str(quantity)), resource)
        except BadQuantity as bad:
            field = f"status.allocatable.{resource}"
            return rejected("Node", seen.metadata, Rejection(field, shown(quantity), bad.expected))
    taints = (Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in seen.spec.taints or ())
    return NodeObserved(
        name=seen.metadata.name,
        uid=seen.metadata.uid,
        resource_version=seen.metadata.resource_version,
        labels=dict(sorted(((seen.metadata.labels or {}) | declared(seen.status.declared_features)).items())),
        taints=tuple(taints),
        unschedulable=seen.spec.unschedulable,
        allocatable=allocatable,
    )


# ---------------------------------------------------------------------------------------------------------------- pods


def status(seen: Pod) -> str:
    """pending, bound, terminating, succeeded or failed; a finished pod is finished even while it is being deleted."""
    if seen.status.phase == "Succeeded":
        return "succeeded"
    if seen.status.phase == "Failed":
        return "failed"
    if seen.metadata.deletion_timestamp is not None:
        return "terminating"
    return "bound" if seen.spec.node_name else "pending"


class PodNormaliser:
    """Pods to facts. Remembers the digests of the classes that it has met: pods of a gang share one."""

    def __init__(self, scheduler_names: frozenset[str]) -> None:
        """Pods with one of these `spec.schedulerName`s are candidates."""
        self.scheduler_names = scheduler_names
        self.minor = MINOR
        """Requests are counted as Kubernetes 1.`minor` does."""
        self._classes: dict[bytes, SchedulingClassObserved] = {}
        """By what they say in the log."""
        self._bytes = 0
        """How long that is, of all."""

    def __call__(self, seen: Pod) -> PodFacts:
        """A pod that cannot be taken as declared is no candidate; if it is bound, it occupies its node all the same. Nor
        is the mirror of a static pod: its node's kubelet runs that, whatever its schedulerName is."""
        candidate = seen.spec.scheduler_name in self.scheduler_names and MIRROR not in (seen.metadata.annotations or ())
        problems: list[Rejection] = []
        requests = pod_requests(seen, problems, self.minor)
        gang: Membership | None = None
        if candidate:
            member = dialects.membership(seen)
            if isinstance(member, Rejection):
                problems.append(member)
            else:
                gang = member
        ports = _host_ports(seen.spec)
        asked = _constraints(seen.spec, requests, ports) if candidate and not problems else _occupation(requests, ports)
        encoded = _encode(asked)
        if len(encoded) > LARGEST_CLASS:
            expected = f"at most {LARGEST_CLASS} bytes of requests, selectors, affinity, tolerations and host ports"
            problems.append(Rejection("spec", f"{len(encoded)} bytes", expected))
            asked = _occupation(requests, ports[:PORTS_COUNTED])
            encoded = _encode(asked)
        if problems:
            candidate, gang = False, None
        scheduling_class = self._digested(asked, encoded)
        metadata = seen.metadata
        observed = PodObserved(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            resource_version=metadata.resource_version,
            scheduling_class=scheduling_class.digest,
            gang=gang,
            priority=seen.spec.priority or 0,
            created_ns=_nanoseconds(metadata.creation_timestamp),
            candidate=candidate,
            gated=bool(seen.spec.scheduling_gates),
            status=status(seen),
            node=seen.spec.node_name,
        )
        return PodFacts(observed, scheduling_class, rejected("Pod", metadata, problems[0]) if problems else None)

    def _digested(self, undigested: SchedulingClassObserved, encoded: bytes) -> SchedulingClassObserved:
        known = self._classes.get(encoded)
        if known is None:
            self._bytes += len(encoded)
            if len(self._classes) >= CLASSES_KEPT or self._bytes > CLASSES_BYTES:
                self._classes.clear()
                self._bytes = len(encoded)
            digest = hashlib.blake2b(encoded, digest_size=12).hexdigest()
            known = self._classes[encoded] = msgspec.structs.replace(undigested, digest=digest)
        return known


def _constraints(spec: PodSpec, requests: Resources, ports: tuple[HostPort, ...]) -> SchedulingClassObserved:
    """All that a candidate asks for. The digest is still to be computed from the rest."""
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity
    required = nodes.required if nodes is not None else None
    preferred = (nodes.preferred if nodes is not None else None) or ()
    tolerations = (
        Toleration(key=each.key, operator=each.operator or "Equal", value=each.value, effect=each.effect)
        for each in spec.tolerations or ()
    )
    return SchedulingClassObserved(
        digest="",
        requests=requests,
        node_selector=dict(sorted(((spec.node_selector or {}) | needed(spec)).items())),
        required_affinity=None if required is None else tuple(map(_term, required.node_selector_terms or ())),
        preferred_affinity=tuple(PreferredTerm(weight=each.weight, term=_term(each.preference)) for each in preferred),
        tolerations=tuple(tolerations),
        host_ports=ports,
        unsupported=_unsupported(spec, affinity),
    )


def _occupation(requests: Resources, ports: tuple[HostPort, ...]) -> SchedulingClassObserved:
    """What a pod takes of its node, whoever placed it."""
    return SchedulingClassObserved(
        digest="",
        requests=requests,
        node_selector={},
        required_affinity=None,
        preferred_affinity=(),
        tolerations=(),
        host_ports=ports,
        unsupported=(),
    )


def _term(seen: NodeSelectorTerm) -> SelectorTerm:
    def requirements(listed: list[NodeSelectorRequirement] | None) -> tuple[SelectorRequirement, ...]:
        return tuple(
            SelectorRequirement(key=each.key, operator=each.operator, values=tuple(each.values or ()))
            for each in listed or ()
        )

    return SelectorTerm(
        match_expressions=requirements(seen.match_expressions), match_fields=requirements(seen.match_fields)
    )


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Ports that are taken for the pod's whole life: its containers' and sidecars', sorted, each once.

    On the host's network every container port is a host port; the API server writes that down, manifests do not.
    """
    ports = set()
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    for container in (*sidecars, *spec.containers):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                ports.add((port.host_ip or "0.0.0.0", port.protocol or "TCP", number))
    return tuple(HostPort(host_ip=ip, protocol=protocol, port=number) for ip, protocol, number in sorted(ports))


_DISKS = {
    "gcePersistentDisk": "gce_persistent_disk",
    "awsElasticBlockStore": "aws_elastic_block_store",
    "iscsi": "iscsi",
    "rbd": "rbd",
}
"""Volumes that are disks by themselves: two pods on one node may not share one (VolumeRestrictions)."""


def _unsupported(spec: PodSpec, affinity: Affinity) -> tuple[str, ...]:
    """The hard constraints that this version does not honour."""
    volumes = spec.volumes or ()
    spreads = spec.topology_spread_constraints or ()
    found = {
        "persistentVolumeClaim": any(volume.persistent_volume_claim is not None for volume in volumes),
        "ephemeral volume": any(volume.ephemeral is not None for volume in volumes),
        "required podAffinity": affinity.pod_affinity is not None and bool(affinity.pod_affinity.required),
        "required podAntiAffinity": affinity.pod_anti_affinity is not None
        and bool(affinity.pod_anti_affinity.required),
        "topologySpreadConstraints DoNotSchedule": any(
            spread.when_unsatisfiable == "DoNotSchedule" for spread in spreads
        ),
        "resourceClaims": bool(spec.resource_claims),
    }
    disks = [name for name, field in _DISKS.items() for volume in volumes if getattr(volume, field) is not None]
    return *(name for name, present in found.items() if present), *dict.fromkeys(disks)


# ------------------------------------------------------------------------------------------------ groups and priorities


def pod_group(seen: PodGroup, priority: int | None = None) -> PodGroupObserved | DeclarationRejected:
    """A PodGroup of any dialect. `priority`: that of the PriorityClass that it names; None while there is none."""
    metadata = seen.metadata
    dialect = dialects.of_pod_group(seen)
    named = dialects.priority_class_of(seen)
    declaration = named if isinstance(named, Rejection) else dialects.ON_POD_GROUPS[dialect](seen, priority)
    if isinstance(declaration, Rejection):
        return rejected(pod_group_kind(dialect), metadata, declaration)
    return PodGroupObserved(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        dialect=dialect,
        created_ns=_nanoseconds(metadata.creation_timestamp),
        declaration=declaration,
    )


def priority_class(seen: PriorityClass) -> PriorityClassObserved:
    return PriorityClassObserved(
        name=seen.metadata.name,
        uid=seen.metadata.uid,
        resource_version=seen.metadata.resource_version,
        value=seen.value,
        preempts=seen.preemption_policy != "Never",
    )


def rejected(kind: str, metadata: Metadata, rejection: Rejection) -> DeclarationRejected:
    """The fact that an object cannot be taken as it is."""
    return DeclarationRejected(
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        field=rejection.field,
        value=rejection.value,
        expected=rejection.expected,
    )


def _nanoseconds(moment: datetime | None) -> int:
    """Since 1970. In integers: a float would lose microseconds, and round before 1970 to the wrong side."""
    return 0 if moment is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1_000
