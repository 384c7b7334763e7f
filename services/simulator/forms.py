"""The built-in kinds as far as the simulated cluster reads them: what does not fit is refused, as an API server refuses
what it cannot decode.

Quantities may say anything: bad ones must be able to reach Muster.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services import misfits

Quantities = dict[str, Any]
Labels = dict[str, str]
Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class _Form(msgspec.Struct, rename="camel", gc=False):
    """Everything is optional: what must be there, admission says."""


class OwnerReference(_Form):
    uid: str
    kind: str
    name: str
    controller: bool | None = None


class Metadata(_Form):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(_Form):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(_Form):
    container_port: Int32 | None = None
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(_Form):
    name: str | None = None
    image: str | None = None
    restart_policy: str | None = None
    resources: Resources | None = None
    ports: list[Port] | None = None


class Toleration(_Form):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class Requirement(_Form):
    key: str
    operator: str
    values: list[str] | None = None


class NodeTerm(_Form):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeTerms(_Form):
    node_selector_terms: list[NodeTerm] | None = None


class Preferred(_Form):
    weight: Int32
    preference: NodeTerm | None = None


class NodeAffinity(_Form):
    required: NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Preferred] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Selector(_Form):
    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class PodTerm(_Form):
    topology_key: str | None = None
    label_selector: Selector | None = None
    namespaces: list[str] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(_Form):
    weight: Int32 | None = None
    pod_affinity_term: PodTerm | None = None


class PodAffinity(_Form):
    required: list[PodTerm] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredPods] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Form):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Claimed(_Form):
    claim_name: str | None = None


class Ephemeral(_Form):
    volume_claim_template: dict[str, Any] | None = None


class Volume(_Form):
    name: str | None = None
    persistent_volume_claim: Claimed | None = None
    ephemeral: Ephemeral | None = None


class Spread(_Form):
    when_unsatisfiable: str | None = None
    max_skew: Int32 | None = None
    topology_key: str | None = None
    label_selector: Selector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Gate(_Form):
    name: str | None = None


class ResourceClaim(_Form):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(_Form):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    node_name: str | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[Gate] | None = None
    resource_claims: list[ResourceClaim] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None
    restart_policy: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    service_account_name: str | None = None
    runtime_class_name: str | None = None


class Condition(_Form):
    type: str
    status: str | None = None
    reason: str | None = None


class ContainerStatus(_Form):
    name: str | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodStatus(_Form):
    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class Pod(_Form):
    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Taint(_Form):
    key: str
    effect: str
    value: str | None = None


class NodeSpec(_Form):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(_Form):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None


class Node(_Form):
    metadata: Metadata | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class PriorityClass(_Form):
    metadata: Metadata | None = None
    value: Int32 | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


class Limits(_Form):
    type: str
    max: Quantities | None = None
    min: Quantities | None = None
    default: Quantities | None = None
    default_request: Quantities | None = None
    max_limit_request_ratio: Quantities | None = None


class LimitRangeSpec(_Form):
    limits: list[Limits] | None = None


class LimitRange(_Form):
    metadata: Metadata | None = None
    spec: LimitRangeSpec | None = None


class Overhead(_Form):
    pod_fixed: Quantities | None = None


class Scheduling(_Form):
    node_selector: Labels | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(_Form):
    metadata: Metadata | None = None
    handler: str | None = None
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class Template(_Form):
    metadata: Metadata | None = None
    spec: PodSpec | None = None


class Ordinals(_Form):
    start: Count | None = None


class NamedMetadata(Metadata):
    name: str


class VolumeClaim(_Form):
    metadata: NamedMetadata


class WorkloadSpec(_Form):
    template: Template | None = None
    selector: Selector | None = None
    replicas: Count | None = None
    parallelism: Count | None = None
    completions: Count | None = None
    backoff_limit: Count | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    paused: bool | None = None
    service_name: str | None = None
    pod_management_policy: str | None = None
    ordinals: Ordinals | None = None
    volume_claim_templates: list[VolumeClaim] | None = None


class WorkloadStatus(_Form):
    conditions: list[Condition] | None = None


class Workload(_Form):
    metadata: Metadata | None = None
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class Preconditions(_Form):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(_Form):
    preconditions: Preconditions | None = None
    grace_period_seconds: Int64 | None = None


class Target(_Form):
    kind: str | None = None
    name: str | None = None


class Binding(_Form):
    metadata: Metadata | None = None
    target: Target | None = None


class Eviction(_Form):
    metadata: Metadata | None = None
    delete_options: DeleteOptions | None = None


class Other(_Form):
    """Of which only the metadata matter."""

    metadata: Metadata | None = None


FORMS: dict[tuple[str, str], type[_Form]] = {
    ("v1", "Pod"): Pod,
    ("v1", "Node"): Node,
    ("v1", "LimitRange"): LimitRange,
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    ("node.k8s.io/v1", "RuntimeClass"): RuntimeClass,
    ("apps/v1", "Deployment"): Workload,
    ("apps/v1", "ReplicaSet"): Workload,
    ("apps/v1", "StatefulSet"): Workload,
    ("apps/v1", "DaemonSet"): Workload,
    ("batch/v1", "Job"): Workload,
    ("v1", "DeleteOptions"): DeleteOptions,
    ("v1", "Binding"): Binding,
    ("policy/v1", "Eviction"): Eviction,
}
"""By apiVersion and kind."""


def misfit(api_version: str, kind: str, obj: dict[str, Any]) -> str:
    """Which field is of another type, and what was expected; empty when all fit: ``spec.replicas: Expected int, …``."""
    try:
        msgspec.convert(obj, FORMS.get((api_version, kind), Other))
    except msgspec.ValidationError as error:
        path, said = misfits.told(error)
        return f"{misfits.with_key(path, said, obj) or kind}: {said.replace(' | null', '')}"
    return ""
