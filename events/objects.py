"""Values that several events share: what a pod asks of a node, what a node offers, how a gang was declared.

Integers carry their unit in the name. The keys of `Resources` follow the same rule: ``cpu_milli``, ``memory_bytes``,
``ephemeral_storage_bytes``, ``pods``; every other key is Kubernetes' own name of an extended resource
(``nvidia.com/gpu``) and its value a count, or bytes for ``hugepages-*``.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

Resources = dict[str, int]
"""A quantity for each resource, in the unit that the key names. Never negative, at most `MAX_QUANTITY`."""

MAX_QUANTITY = 1 << 52
"""Quantities beyond this are rejected: sums of them must stay exact in 64-bit integers on every machine."""

DECLARED = "status.declaredFeatures/"
"""Before the name of a feature that a node declares: a label in `NodeObserved`, a selector in a scheduling class that
needs it. No label that a user writes begins like this, as Kubernetes' prefixes are in lower case."""


def version(resource_version: str) -> int:
    """A resourceVersion as the number by which newer ones are told; -1 where a server has other ideas.

    Kubernetes' are 64 bits wide; the bound keeps int() from refusing what somebody made up.
    """
    digits = resource_version.isdecimal() and resource_version.isascii() and len(resource_version) <= 40
    return int(resource_version) if digits else -1


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frozen part of an event. No default is ever omitted on the wire, so none can change under an old log.

    Events hold no cycles: the garbage collector need not walk them (`gc=False`), which is half of a large fold's time.
    """


class Taint(Value, frozen=True, gc=False):
    """A node's taint. Effects as Kubernetes writes them: NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str
    effect: str


class Toleration(Value, frozen=True, gc=False):
    """A pod's toleration. Empty `key` with operator Exists tolerates everything; empty `effect` matches each effect."""

    key: str
    operator: str
    value: str
    effect: str


class SelectorRequirement(Value, frozen=True):
    """One expression of a node selector: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...]


class SelectorTerm(Value, frozen=True):
    """Requirements that must all hold: on labels, and on fields (only ``metadata.name`` exists)."""

    match_expressions: tuple[SelectorRequirement, ...]
    match_fields: tuple[SelectorRequirement, ...]


class PreferredTerm(Value, frozen=True):
    """A term that adds `weight` (1 to 100) to the score of the nodes that match it."""

    weight: int
    term: SelectorTerm


class HostPort(Value, frozen=True, gc=False):
    """A port that the pod opens on its node. `host_ip` 0.0.0.0 collides with every address."""

    host_ip: str
    protocol: str
    port: int


class Declaration(Value, frozen=True):
    """What a dialect says of one gang, normalised. What it leaves open ingest fills in with the dialect's defaults.

    A field that came later has the value that older declarations meant.
    """

    min_member: int
    """Pods that must have a place before any of the gang is bound; at least 1."""
    waiting_time_ms: int
    """How long an assignment may wait at permit for the rest of its gang; 0: the policy's own."""
    total_member: int = 0
    """Pods that the gang will have (seed 002, total-number); 0: not said."""
    mode: str = "Strict"
    """Strict or NonStrict (seed 002)."""
    groups: tuple[str, ...] = ()
    """Keys of the gangs of its gang group, itself included, sorted; empty: it stands alone."""
    match_policy: str = "waiting-and-running"
    """Which members count for the minimum: only-waiting, waiting-and-running, once-satisfied (Koordinator)."""
    queue: str = ""
    """The queue's name (kube-batch, Volcano); kept, and not acted on yet."""
    priority: int | None = None
    """The group's own priority, by its priority class or as Kubernetes' PodGroup says it; None: its pods' highest."""
    task_minimums: dict[str, int] = {}
    """Volcano's minTaskMember: task → members of it that must have a place together."""
    said: tuple[str, ...] = ()
    """Of a pod's declaration that wins over its PodGroup's field by field (Koordinator's annotations): the fields that it
    says, sorted. Empty: the declaration is whole, and a PodGroup's wins over it."""


class Membership(Value, frozen=True):
    """How a pod says that it belongs to a gang."""

    gang: str
    """Key of the gang: ``namespace/name``, with the name space behind it where that has one (`events.dialects`)."""
    dialect: str
    """Who declared it and in which generation, e.g. ``coscheduling/v1alpha1``, ``coscheduling/2020``."""
    declared: Declaration | None
    """The declaration, where the dialect puts it on the pod itself; None where a PodGroup carries it."""
    task: str | UnsetType = UNSET
    """The pod's task (Volcano's task-spec)."""
    timed_out: bool | UnsetType = UNSET
    """True: the pod says that its gang ran out of waiting time and is not to be tried again (seed 002, timeout=true).

    Both are absent where the pod says nothing of them, which is nearly always: as defaults they cost each pod 28 bytes.
    """


class NodeAssignment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods (by UID) that go to one node. On the wire: ``["node-7", ["uid", …]]``."""

    node: str
    pods: tuple[str, ...]


class Binding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The intent to bind one pod, with its effect's preconditions. On the wire: ``["uid", "resourceVersion"]``."""

    uid: str
    resource_version: str


class NodeBindings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The intents to bind pods to one node. Wire: ``["node-7", [["uid", "rv"], …]]``."""

    node: str
    pods: tuple[Binding, ...]


class ClassRoom(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room for pods of one scheduling class: node → how many. Wire: ``["digest", {"node-7": 2, …}]``."""

    scheduling_class: str
    nodes: dict[str, int]


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """An event's place in a cluster's total order: (stream sequence, index in the commit)."""

    sequence: int
    index: int
