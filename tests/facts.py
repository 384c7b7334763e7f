"""Facts as ingest writes them, with no more in them than a test asks for."""

from __future__ import annotations

from typing import Any

import events as ev
from events.objects import Declaration, HostPort, Membership, PreferredTerm, SelectorTerm, Taint, Toleration


def node(
    name: str,
    allocatable: dict[str, int],
    *,
    uid: str = "",
    version: str = "1",
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
) -> ev.NodeObserved:
    """Its UID is its name, unless another is given."""
    return ev.NodeObserved(
        name=name,
        uid=uid or name,
        resource_version=version,
        labels=labels or {},
        taints=taints,
        unschedulable=unschedulable,
        allocatable=allocatable,
    )


def pod(
    name: str,
    scheduling_class: str,
    *,
    uid: str = "",
    version: str = "1",
    namespace: str = "default",
    gang: Membership | None = None,
    priority: int = 0,
    created_ns: int = 0,
    candidate: bool = True,
    gated: bool = False,
    status: str = "",
    node: str = "",
) -> ev.PodObserved:
    """Its UID is its name, unless another is given; with a node it is bound."""
    return ev.PodObserved(
        uid=uid or name,
        namespace=namespace,
        name=name,
        resource_version=version,
        scheduling_class=scheduling_class,
        gang=gang,
        priority=priority,
        created_ns=created_ns,
        candidate=candidate,
        gated=gated,
        status=status or ("bound" if node else "pending"),
        node=node,
    )


def scheduling_class(
    digest: str,
    requests: dict[str, int],
    *,
    node_selector: dict[str, str] | None = None,
    required_affinity: tuple[SelectorTerm, ...] | None = None,
    preferred_affinity: tuple[PreferredTerm, ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    host_ports: tuple[HostPort, ...] = (),
    unsupported: tuple[str, ...] = (),
) -> ev.SchedulingClassObserved:
    """A class without constraints, but for those that are given."""
    return ev.SchedulingClassObserved(
        digest=digest,
        requests=requests,
        node_selector=node_selector or {},
        required_affinity=required_affinity,
        preferred_affinity=preferred_affinity,
        tolerations=tolerations,
        host_ports=host_ports,
        unsupported=unsupported,
    )


def pod_group(
    name: str,
    version: str,
    minimum: int,
    waiting_time_ms: int = 0,
    *,
    namespace: str = "default",
    dialect: str = "coscheduling/v1alpha1",
    created_ns: int = 0,
    **declared: Any,
) -> ev.PodGroupObserved:
    """The PodGroup ``default/name``; its UID is ``pg-name``. `declared` are further fields of its declaration."""
    return ev.PodGroupObserved(
        namespace=namespace,
        name=name,
        uid=f"pg-{name}",
        resource_version=version,
        dialect=dialect,
        created_ns=created_ns,
        declaration=Declaration(min_member=minimum, waiting_time_ms=waiting_time_ms, **declared),
    )
