"""Features that a node declares and some pods need: Kubernetes' NodeDeclaredFeatures (KEP-5328, on from v1.36).

A kubelet lists in `status.declaredFeatures` what it can do. Which of that a pod needs follows from its spec; the table is
that of component-helpers/nodedeclaredfeatures, v1.37, of the features that count when a pod is scheduled. In facts a
feature is a label that no user can write, and a pod's need of it a node selector (`events.objects.DECLARED`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from events.objects import DECLARED
from services.kubernetes.objects import Container, PodSpec


def _restarts_all_containers(spec: PodSpec) -> bool:
    rules = (rule for each in _containers(spec) for rule in each.restart_policy_rules or ())
    return any(rule.action == "RestartAllContainers" for rule in rules)


def _has_users_on_the_hosts_network(spec: PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


def _mounts_with_options(spec: PodSpec) -> bool:
    return any(mount.bind_mount_options for each in _containers(spec) for mount in each.volume_mounts or ())


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.containers, *(spec.init_containers or ()))


NEEDED_BY: dict[str, Callable[[PodSpec], bool]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _has_users_on_the_hosts_network,
    "VolumeBindMountOptions": _mounts_with_options,
}


def declared(features: Iterable[str] | None) -> dict[str, str]:
    """As labels, those that a pod may need."""
    return {DECLARED + feature: "" for feature in features or () if feature in NEEDED_BY}


def needed(spec: PodSpec) -> dict[str, str]:
    """As a node selector."""
    return {DECLARED + feature: "" for feature, needs in NEEDED_BY.items() if needs(spec)}
