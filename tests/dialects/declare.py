"""How each dialect writes down one gang: the rows of the matrix.

A `Dialect` turns a gang (`Asked`) into the objects that its user would apply. What a dialect has no word for is left out:
the scenario then sees what happens without.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.manifests import Object


class Asked(NamedTuple):
    """A gang as its user thinks of it."""

    name: str
    minimum: int = 3
    timeout_s: int = 0
    """How long an assignment waits at permit; 0: not said."""
    groups: tuple[str, ...] = ()
    """Names of the gangs that wait for each other, its own among them."""


class Dialect(NamedTuple):
    name: str
    """As the table has it."""
    queue_order: str
    """Of its own project's profile; Kubernetes has none of its own, and gets the default."""
    on_pods: Callable[[Asked], Object]
    """Labels, annotations, fields of the spec and an owner that the gang's pods get."""
    declared_by: Callable[[Asked], Object | None] = lambda asked: None
    """The object beside the pods that declares the gang, if it takes one."""


def _group(api_version: str, asked: Asked, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": asked.name, "namespace": "default", "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


# --------------------------------------------------------------------------------------------------------- coscheduling


def _labels(name: str, minimum: str = "") -> Callable[[Asked], Object]:
    def on_pods(asked: Asked) -> Object:
        labels = {name: asked.name}
        return {"labels": labels | {minimum: str(asked.minimum)} if minimum else labels}

    return on_pods


def _coscheduling(api_version: str) -> Callable[[Asked], Object]:
    def declared_by(asked: Asked) -> Object:
        timeout = {"scheduleTimeoutSeconds": asked.timeout_s} if asked.timeout_s else {}
        return _group(api_version, asked, minMember=asked.minimum, **timeout)

    return declared_by


# ---------------------------------------------------------------------------------------------------------- Koordinator

K = "gang.scheduling.koordinator.sh/"
KOORDINATORS = {"schedulerName": "koord-scheduler"}


def _koordinators_groups(asked: Asked) -> dict[str, str]:
    return {K + "groups": json.dumps([f"default/{name}" for name in asked.groups])} if asked.groups else {}


def _koordinators_pod_group(asked: Asked) -> Object:
    group = _coscheduling("scheduling.sigs.k8s.io/v1alpha1")(asked)
    group["metadata"]["annotations"] = _koordinators_groups(asked)
    return group


def _koordinators_annotations(asked: Asked) -> Object:
    said = {K + "name": asked.name, K + "min-available": str(asked.minimum), **_koordinators_groups(asked)}
    return {"annotations": said | ({K + "waiting-time": f"{asked.timeout_s}s"} if asked.timeout_s else {})}


def _non_strict(asked: Asked) -> Object:
    annotations = _koordinators_annotations(asked)["annotations"]
    return {"annotations": {**annotations, K + "mode": "NonStrict"}}


# -------------------------------------------------------------------------------------------------- kube-batch, Volcano

GROUP_NAME = "scheduling.k8s.io/group-name"


def _named(asked: Asked) -> Object:
    return {"annotations": {GROUP_NAME: asked.name}}


def _of_one_owner(annotation: str) -> Callable[[Asked], Object]:
    return lambda asked: {"annotations": {annotation: str(asked.minimum)}, "owner": asked.name}


def _batch(api_version: str) -> Callable[[Asked], Object]:
    return lambda asked: _group(api_version, asked, minMember=asked.minimum)


# ----------------------------------------------------------------------------------------------------------- Kubernetes


def _native(version: str) -> Callable[[Asked], Object]:
    def declared_by(asked: Asked) -> Object:
        policy = {"gang": {"minCount": asked.minimum}}
        return _group(f"scheduling.k8s.io/{version}", asked, schedulingPolicy=policy)

    return declared_by


def _workload(asked: Asked) -> Object:
    groups = [{"name": "workers", "policy": {"gang": {"minCount": asked.minimum}}}]
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": asked.name, "namespace": "default"},
        "spec": {"podGroups": groups},
    }


DIALECTS = (
    Dialect("coscheduling, 2020", "coscheduling", _labels("pod-group/name", "pod-group/min-available")),
    Dialect(
        "coscheduling, v0.18",
        "coscheduling",
        _labels("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
    ),
    Dialect(
        "coscheduling, KEP-2",
        "coscheduling",
        _labels("pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"),
    ),
    Dialect(
        "coscheduling, v0.19",
        "coscheduling",
        _labels("pod-group.scheduling.sigs.k8s.io"),
        _coscheduling("scheduling.sigs.k8s.io/v1alpha1"),
    ),
    Dialect(
        "coscheduling, v1alpha1",
        "coscheduling",
        _labels("scheduling.x-k8s.io/pod-group"),
        _coscheduling("scheduling.x-k8s.io/v1alpha1"),
    ),
    Dialect(
        "Koordinator, CRD",
        "koordinator",
        lambda asked: {"labels": {"pod-group.scheduling.sigs.k8s.io": asked.name}, "spec": KOORDINATORS},
        _koordinators_pod_group,
    ),
    Dialect("Koordinator, annotations", "koordinator", _koordinators_annotations),
    Dialect("Koordinator, NonStrict", "koordinator", _non_strict),
    Dialect("kube-batch, v1alpha1", "kube-batch", _named, _batch("scheduling.incubator.k8s.io/v1alpha1")),
    Dialect("kube-batch, v1alpha2", "kube-batch", _named, _batch("scheduling.sigs.dev/v1alpha2")),
    Dialect("kube-batch, group-min-member", "kube-batch", _of_one_owner("scheduling.k8s.io/group-min-member")),
    Dialect("Volcano, v1beta1", "kube-batch", _named, _batch("scheduling.volcano.sh/v1beta1")),
    Dialect("Volcano, group-min-member", "kube-batch", _of_one_owner("scheduling.volcano.sh/group-min-member")),
    Dialect(
        "Kubernetes, v1alpha1",
        "coscheduling",
        lambda asked: {"spec": {"workloadRef": {"name": asked.name, "podGroup": "workers"}}},
        _workload,
    ),
    Dialect(
        "Kubernetes, v1alpha2",
        "coscheduling",
        lambda asked: {"spec": {"schedulingGroup": {"podGroupName": asked.name}}},
        _native("v1alpha2"),
    ),
    Dialect(
        "Kubernetes, v1beta1",
        "coscheduling",
        lambda asked: {"spec": {"schedulingGroup": {"podGroupName": asked.name}}},
        _native("v1beta1"),
    ),
)
