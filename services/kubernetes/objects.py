"""Kubernetes objects as far as Muster needs them: msgspec structs that skip every other field while decoding.

Quantities are left as they stand (`Quantity`); `services.ingest.quantities` reads them. Fields of custom resources are
`Any`: a cluster may lack the schema that would have refused a string where an integer belongs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec

Quantity = str | int | float
"""``"1500m"``; a server without Kubernetes' own normalisation may send a bare number."""
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""What Kubernetes' own types hold; the arithmetic of a decision is not made for more."""


class Object(msgspec.Struct, rename="camel", gc=False):
    """A part of an API object. What comes from JSON has no cycles, so the garbage collector need not look at it."""


class Present(Object):
    """An object of which only matters that it is there."""


class OwnerReference(Object):
    uid: str = ""
    controller: bool | None = None


class Metadata(Object):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None


# --------------------------------------------------------------------------------------------------------------- nodes


class NodeTaint(Object):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Object):
    taints: list[NodeTaint] | None = None
    unschedulable: bool = False


class NodeStatus(Object):
    allocatable: dict[str, Quantity] | None = None
    declared_features: list[str] | None = None


class Node(Object):
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


# ---------------------------------------------------------------------------------------------------------------- pods


class ResourceRequirements(Object):
    requests: dict[str, Quantity] | None = None


class ContainerPort(Object):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(Object):
    action: str = ""


class VolumeMount(Object):
    bind_mount_options: list[str] | None = None


class Container(Object):
    name: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


class Volume(Object):
    """The last four are disks by themselves, which pods on one node may not share."""

    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None
    gce_persistent_disk: Present | None = None
    aws_elastic_block_store: Present | None = None
    iscsi: Present | None = None
    rbd: Present | None = None


class NodeSelectorRequirement(Object):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(Object):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Object):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Object):
    weight: Int32
    preference: NodeSelectorTerm


class NodeAffinity(Object):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinity(Object):
    """Affinity or anti-affinity between pods: only whether there is a hard one."""

    required: list[Present] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Object):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodToleration(Object):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Object):
    when_unsatisfiable: str = "DoNotSchedule"


class SchedulingGroup(Object):
    """Kubernetes 1.36: the PodGroup that the pod belongs to."""

    pod_group_name: str | None = None


class WorkloadReference(Object):
    """Kubernetes 1.35: the group of a Workload that the pod belongs to, and of which of its replicas."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Object):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    scheduler_name: str = ""
    scheduling_gates: list[Present] | None = None
    resource_claims: list[Present] | None = None
    volumes: list[Volume] | None = None
    host_network: bool = False
    host_users: bool | None = None
    priority: Int32 | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class ContainerStatus(Object):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class PodCondition(Object):
    type: str
    reason: str = ""


class PodStatus(Object):
    phase: str = ""
    reason: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] | None = None


class Pod(Object):
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


# ------------------------------------------------------------------------------------------------ groups and priorities


class PodGroupSpec(Object):
    """What any dialect's PodGroup says, each in fields of its own."""

    min_member: Any = None
    schedule_timeout_seconds: Any = None
    min_task_member: Any = None
    queue: Any = None
    priority_class_name: Any = None
    network_topology: Any = None
    sub_group_policy: Any = None
    scheduling_policy: Any = None
    scheduling_constraints: Any = None
    parent_composite_pod_group_name: Any = None
    priority: Any = None


class PodGroup(Object):
    metadata: Metadata
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    api_version: str = "scheduling.x-k8s.io/v1alpha1"
    """Lists of built-in kinds do not say it of each object: ingest writes here what it asked for."""


class GroupStatus(Object):
    phase: Any = None
    conditions: list[dict[str, Any]] | None = None


class Group(Object):
    """A PodGroup, as who writes its status reads it."""

    metadata: Metadata
    status: GroupStatus = msgspec.field(default_factory=GroupStatus)


class Written(Object):
    """The answer to the patch of a PodGroup's status: what stands there now."""

    metadata: Metadata
    status: Any = None


class WorkloadSpec(Object):
    pod_groups: Any = None


class Workload(Object):
    """Kubernetes 1.35: the groups of a workload's pods, declared in one object."""

    metadata: Metadata
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class PriorityClass(Object):
    metadata: Metadata
    value: Int32 = 0
    preemption_policy: str = "PreemptLowerPriority"


# ----------------------------------------------------------------------------------------------- lists, watches, status

T = TypeVar("T")


class ListMetadata(Object):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Listed(Object, Generic[T]):
    """A page of a list."""

    metadata: ListMetadata
    items: list[T] | None = None


class Page(Object):
    """A page of a list without its items."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


class Watched(Object, Generic[T]):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: T


class StatusDetails(Object):
    retry_after_seconds: Int32 = 0


class Status(Object):
    """The API server's answer to what it did not do."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: Int32 = 0
    details: StatusDetails | None = None


class Identified(Object):
    """Any object of which only the metadata matters, such as the answer to a patch."""

    metadata: Metadata
