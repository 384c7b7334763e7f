"""What a pod asks of a node: Kubernetes' PodRequests (component-helpers/resource, v1.36, with its default gates).

- Containers add up. An init container needs its own and whatever sidecars (restartable init containers) were started
  before it; sidecars stay and count with the containers. The larger of the two sums, for each resource.
- A container or sidecar whose status tells its resources is being resized, or was: the largest of what is asked for,
  allocated and actuated counts; only the latter two when the kubelet called the resize infeasible.
- Requests of the pod itself replace the sum for cpu, memory and huge pages. Overhead comes on top.

Amounts are billionths until all is added; then they are rounded up to the unit of each resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
_FIRST = ("cpu_milli", "memory_bytes", "ephemeral_storage_bytes")
"""What counts in any case."""


def pod_requests(pod: Pod, problems: Problems) -> Resources:
    """The requests of a pod, keyed in order, zeros left out, with ``pods: 1``.

    What cannot be counted with is added to `problems` and counts as more than any node has: if the pod occupies a node
    all the same, nothing that asks for that is placed there. More than `MOST_RESOURCES` are a problem, too, and the rest
    does not count.
    """
    amounts = _containers(pod, problems)
    _apply_pod_level(amounts, pod, problems)
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


def _containers(pod: Pod, problems: Problems) -> Amounts:
    statuses = _statuses(pod.status)
    infeasible = _resize_infeasible(pod.status)
    running: Amounts = {}
    for index, container in enumerate(pod.spec.containers):
        _add(running, _effective(container, f"spec.containers[{index}]", statuses, infeasible, problems))
    if not pod.spec.init_containers:
        return running

    sidecars: Amounts = {}
    starting: Amounts = {}
    for index, container in enumerate(pod.spec.init_containers):
        field = f"spec.initContainers[{index}]"
        if container.restart_policy == "Always":
            asked = _effective(container, field, statuses, infeasible, problems)
            _add(running, asked)
            _add(sidecars, asked)
        else:
            asked = _requests(container.resources, field, problems)
            # Only what it asks for itself: of all else the sidecars' sum counts in any case, and a pod may have thousands
            # of these and of those.
            _raise_to(starting, {resource: amount + sidecars.get(resource, 0) for resource, amount in asked.items()})
    _raise_to(running, starting)
    return running


def _effective(
    container: Container, field: str, statuses: Mapping[str, ContainerStatus], infeasible: bool, problems: Problems
) -> Amounts:
    """What a container counts for while it may be resized."""
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return _requests(container.resources, field, problems)
    amounts = {} if infeasible else _requests(container.resources, field, problems)
    field = f"status.containerStatuses[{container.name}]"
    _raise_to(amounts, _requests(status.resources, field, problems))
    _raise_to(amounts, _parsed(status.allocated_resources, f"{field}.allocatedResources", problems))
    return amounts


def _apply_pod_level(amounts: Amounts, pod: Pod, problems: Problems) -> None:
    asked = _requests(pod.spec.resources, "spec", problems)
    supported = [resource for resource in asked if resource in ("cpu", "memory") or resource.startswith("hugepages-")]
    if not supported:
        return
    effective = asked
    if pod.status.resources is not None:
        effective = {} if _resize_infeasible(pod.status) else dict(asked)
        _raise_to(effective, _requests(pod.status.resources, "status", problems))
        _raise_to(effective, _parsed(pod.status.allocated_resources, "status.allocatedResources", problems))
    for resource in supported:
        amounts[resource] = effective.get(resource, 0)


def _statuses(status: PodStatus) -> dict[str, ContainerStatus]:
    """Statuses by container; in case of doubt an init container's."""
    listed: Iterable[ContainerStatus] = (status.container_statuses or []) + (status.init_container_statuses or [])
    return {each.name: each for each in listed}


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
