"""What a pod asks of a node: Kubernetes' PodRequests (component-helpers/resource, with its default gates).

- Containers add up. An init container needs its own and whatever sidecars (restartable init containers) were started
  before it; sidecars stay and count with the containers. The larger of the two sums, for each resource.
- A pod that is being resized, or was, counts by the largest of what is asked for, allocated and actuated; only by the
  latter two when the kubelet called the resize infeasible. Until Kubernetes 1.36 that is so of each container and
  sidecar whose status tells its resources. Since 1.37 it is so of the three sums, init containers included; and where
  the kubelet tells those of the whole pod, they are taken.
- Requests of the pod itself replace the sum for cpu, memory and huge pages. Overhead comes on top: also, since 1.37, of
  what a kubelet tells of the whole pod, in which it is already.

Amounts are billionths until all is added; then they are rounded up to the unit of each resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import NamedTuple

from events.objects import MAX_QUANTITY, Resources
from services.ingest.quantities import NANO, BadQuantity, counted, key, nano
from services.ingest.rejection import Rejection, shown
from services.kubernetes.objects import Container, ContainerStatus, Pod, PodStatus, Quantity, ResourceRequirements

Amounts = dict[str, int]
"""Billionths of each resource, by Kubernetes' name of it."""
Listed = Mapping[str, Quantity] | None
Problems = list[Rejection]
MOST_RESOURCES = 64
"""That one pod may ask for, the pod itself not counted. Each is compared with all nodes where one offers it, and stands
in each refusal where none does."""
MINOR = 36
"""As Kubernetes 1.36 requests are counted where no API server says what it is."""
SUMS_SINCE = 37
"""From which 1.x on the sums are compared."""
SIDECAR = "Always"
"""The restartPolicy that makes one of an init container."""
_FIRST = ("cpu_milli", "memory_bytes", "ephemeral_storage_bytes")
"""What counts in any case."""


def pod_requests(pod: Pod, problems: Problems, minor: int = MINOR) -> Resources:
    """The requests of a pod, keyed in order, zeros left out, with ``pods: 1``, as Kubernetes 1.`minor` counts them.

    What cannot be counted with is added to `problems` and counts as more than any node has: if the pod occupies a node
    all the same, nothing that asks for that is placed there. More than `MOST_RESOURCES` are a problem, too, and the rest
    does not count.
    """
    if minor < SUMS_SINCE or _tells_nothing(pod.status):
        amounts = _by_container(pod, problems)
    else:
        amounts = _by_sums(pod, problems)
    _apply_pod_level(amounts, pod, problems, minor)
    if pod.spec.overhead:
        _add(amounts, _parsed(pod.spec.overhead, "spec.overhead", problems))
    requests = {key(resource): _counted(amount, resource, problems) for resource, amount in sorted(amounts.items())}
    requests = {resource: count for resource, count in requests.items() if count}
    if len(requests) > MOST_RESOURCES:
        problems.append(
            Rejection("sum of requests", f"{len(requests)} resources", f"at most {MOST_RESOURCES} resources")
        )
        kept = set(sorted(requests, key=lambda resource: (resource not in _FIRST, resource))[:MOST_RESOURCES])
        requests = {resource: count for resource, count in requests.items() if resource in kept}
    requests["pods"] = 1
    return requests


def _sum(containers: list[Amounts], starting: list[tuple[Amounts, bool]]) -> Amounts:
    """Of containers, and of init containers: those that are sidecars with True."""
    running: Amounts = {}
    for asked in containers:
        _add(running, asked)
    sidecars: Amounts = {}
    most: Amounts = {}
    for asked, sidecar in starting:
        if sidecar:
            _add(running, asked)
            _add(sidecars, asked)
        else:
            # Only what it asks for itself: of all else the sidecars' sum counts in any case, and a pod may have thousands
            # of these and of those.
            _raise_to(most, {resource: amount + sidecars.get(resource, 0) for resource, amount in asked.items()})
    _raise_to(running, most)
    return running


# ------------------------------------------------------------------------------------------------------ until 1.36


def _by_container(pod: Pod, problems: Problems) -> Amounts:
    statuses = {each.name: each for each in _statuses(pod.status)}
    infeasible = _resize_infeasible(pod.status)
    containers = [
        _effective(container, f"spec.containers[{index}]", statuses.get(container.name), infeasible, problems)
        for index, container in enumerate(pod.spec.containers)
    ]
    starting: list[tuple[Amounts, bool]] = []
    for index, container in enumerate(pod.spec.init_containers or ()):
        sidecar = container.restart_policy == SIDECAR
        status = statuses.get(container.name) if sidecar else None
        asked = _effective(container, f"spec.initContainers[{index}]", status, infeasible, problems)
        starting.append((asked, sidecar))
    return _sum(containers, starting)


def _effective(
    container: Container, field: str, status: ContainerStatus | None, infeasible: bool, problems: Problems
) -> Amounts:
    """What a container counts for while it may be resized."""
    if status is None or status.resources is None:
        return _requests(container.resources, field, problems)
    amounts = {} if infeasible else _requests(container.resources, field, problems)
    field = f"status.containerStatuses[{container.name}]"
    _raise_to(amounts, _requests(status.resources, field, problems))
    _raise_to(amounts, _parsed(status.allocated_resources, f"{field}.allocatedResources", problems))
    return amounts


# ------------------------------------------------------------------------------------------------------ since 1.37


class _Views(NamedTuple):
    """What a container asks for, if that may come to be; what is allocated to it, and what it has."""

    asked: Amounts
    allocated: Amounts
    actuated: Amounts


def _by_sums(pod: Pod, problems: Problems) -> Amounts:
    status = pod.status
    told = status.resources.requests if status.resources is not None else None
    whole = told is not None and status.allocated_resources is not None
    statuses = {} if whole else {each.name: each for each in reversed(_statuses(status))}
    infeasible = _resize_infeasible(status)
    containers = [
        _views(container, f"spec.containers[{index}]", statuses.get(container.name), infeasible, problems)
        for index, container in enumerate(pod.spec.containers)
    ]
    starting: list[tuple[_Views, bool]] = []
    for index, container in enumerate(pod.spec.init_containers or ()):
        views = _views(container, f"spec.initContainers[{index}]", statuses.get(container.name), infeasible, problems)
        starting.append((views, container.restart_policy == SIDECAR))

    def summed(view: Callable[[_Views], Amounts]) -> Amounts:
        return _sum([view(each) for each in containers], [(view(each), sidecar) for each, sidecar in starting])

    asked = summed(attrgetter("asked"))
    if not whole:
        return _largest(asked, summed(attrgetter("allocated")), summed(attrgetter("actuated")))
    allocated = _parsed(status.allocated_resources, "status.allocatedResources", problems)
    return _largest(asked, allocated, _parsed(told, "status.resources.requests", problems))


def _views(
    container: Container, field: str, status: ContainerStatus | None, infeasible: bool, problems: Problems
) -> _Views:
    asked = allocated = {} if infeasible else _requests(container.resources, field, problems)
    if status is None:
        return _Views(asked, asked, asked)
    field = f"status.containerStatuses[{container.name}]"
    if status.allocated_resources is not None:
        allocated = _parsed(status.allocated_resources, f"{field}.allocatedResources", problems)
    actuated = allocated
    if status.resources is not None and status.resources.requests is not None:
        actuated = _requests(status.resources, field, problems)
    return _Views(asked, allocated, actuated)


def _largest(*views: Amounts) -> Amounts:
    """Of each resource that one of them names; also where all say 0."""
    found: Amounts = {}
    for amounts in views:
        for resource, amount in amounts.items():
            found[resource] = max(amount, found.get(resource, 0))
    return found


# ------------------------------------------------------------------------------------------------------------ both


def _tells_nothing(status: PodStatus) -> bool:
    """Of a resize, or of what is allocated: all count the same, and the first way is the quicker one."""
    told = status.container_statuses or status.init_container_statuses or status.resources
    return not told and not _resize_infeasible(status)


def _apply_pod_level(amounts: Amounts, pod: Pod, problems: Problems, minor: int) -> None:
    """Replaces what the pod itself asks for; since 1.37 also what its status tells of beside that."""
    asked = _requests(pod.spec.resources, "spec", problems)
    if not any(_for_pods(resource) for resource in asked):
        return
    effective = asked
    if pod.status.resources is not None:
        told = _requests(pod.status.resources, "status", problems)
        allocated = _parsed(pod.status.allocated_resources, "status.allocatedResources", problems)
        effective = _largest({} if _resize_infeasible(pod.status) else asked, told, allocated)
    for resource in asked if minor < SUMS_SINCE else effective:
        if _for_pods(resource):
            amounts[resource] = effective.get(resource, 0)


def _for_pods(resource: str) -> bool:
    """Whether a pod as a whole may ask for it."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _statuses(status: PodStatus) -> list[ContainerStatus]:
    """Of containers, then of init containers. In case of doubt the last of a name counts, since 1.37 the first."""
    return (status.container_statuses or []) + (status.init_container_statuses or [])


def _resize_infeasible(status: PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _requests(resources: ResourceRequirements | None, field: str, problems: Problems) -> Amounts:
    if resources is None or not resources.requests:
        return {}
    return _parsed(resources.requests, f"{field}.resources.requests", problems)


def _parsed(listed: Listed, field: str, problems: Problems) -> Amounts:
    amounts: Amounts = {}
    for resource, quantity in (listed or {}).items():
        try:
            amount = nano(quantity if type(quantity) is str else str(quantity))
            counted(amount, resource)
        except BadQuantity as bad:
            problems.append(Rejection(f"{field}.{resource}", shown(quantity), bad.expected))
            amount = MAX_QUANTITY * NANO
        amounts[resource] = amount
    return amounts


def _counted(amount: int, resource: str, problems: Problems) -> int:
    try:
        return counted(amount, resource)
    except BadQuantity as bad:
        if not problems:
            problems.append(Rejection(f"sum of requests: {resource}", bad.value, bad.expected))
        return MAX_QUANTITY


def _add(amounts: Amounts, more: Amounts) -> None:
    for resource, amount in more.items():
        amounts[resource] = amounts.get(resource, 0) + amount


def _raise_to(amounts: Amounts, least: Amounts) -> None:
    """Each resource to at least that much."""
    for resource, amount in least.items():
        if amount > amounts.get(resource, 0):
            amounts[resource] = amount
