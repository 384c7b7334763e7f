"""The names by which the log tells dialects apart: where each declares its gangs, and which share names.

A pod's dialect stands in its `Membership`, a PodGroup's in `PodGroupObserved`. A gang's key is ``namespace/name``.
Names are unique only within what one project reads. So the key ends in the *name space*, except in that of coscheduling
and Koordinator, which know each other's gangs: ``ml/train@batch`` is Volcano's, ``ml/train`` is not.
"""

from __future__ import annotations

POD_GROUPS: dict[str, str] = {
    "coscheduling/v1alpha1": "scheduling.x-k8s.io/v1alpha1",
    "coscheduling/v0.19": "scheduling.sigs.k8s.io/v1alpha1",
    "koordinator/v1alpha1": "scheduling.sigs.k8s.io/v1alpha1",
    "kube-batch/v1alpha1": "scheduling.incubator.k8s.io/v1alpha1",
    "kube-batch/v1alpha2": "scheduling.sigs.dev/v1alpha2",
    "volcano/v1beta1": "scheduling.volcano.sh/v1beta1",
    "kubernetes/v1alpha2": "scheduling.k8s.io/v1alpha2",
    "kubernetes/v1beta1": "scheduling.k8s.io/v1beta1",
}
"""Dialect of a PodGroup → its apiVersion."""

_BATCH = ("scheduling.volcano.sh", "scheduling.sigs.dev", "scheduling.incubator.k8s.io")
_DECLARED_IN: dict[str, tuple[str, ...]] = {
    "coscheduling/v1alpha1": ("scheduling.x-k8s.io",),
    "coscheduling/v0.19": ("scheduling.sigs.k8s.io",),
    "coscheduling/kep-2": ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"),
    "coscheduling/v0.18": ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"),
    "coscheduling/2020": ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"),
    "koordinator/v1alpha1": ("scheduling.sigs.k8s.io",),
    "kube-batch/v1alpha1": _BATCH,
    "volcano/v1beta1": _BATCH,
    "kubernetes/v1alpha1": (),
    "kubernetes/v1alpha2": ("scheduling.k8s.io",),
}
"""Dialect of a pod → the API groups whose PodGroups declare its gang, the first that is there. ``kubernetes/v1alpha1``
(Kubernetes 1.35) has none: a Workload does, and ingest writes what it says to the pod."""

_NAME_SPACES: dict[str, tuple[str, ...]] = {
    "": ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"),
    "batch": _BATCH,
    "kubernetes": ("scheduling.k8s.io",),
}
_NAME_SPACE = {"kube-batch": "batch", "volcano": "batch", "kubernetes": "kubernetes"}

WORKLOAD = "Workload.scheduling.k8s.io"
"""The kind of a Workload as rejections name it."""

ONCE_SATISFIED, WAITING_AND_RUNNING, ONLY_WAITING = "once-satisfied", "waiting-and-running", "only-waiting"

TIMEOUT_ANNOTATION = "gang.scheduling.koordinator.sh/timeout"
"""``true`` on a pod: its gang ran out of waiting time, and is not to be tried again before its user acted (seed 002)."""


def family(dialect: str) -> str:
    """Whose it is: coscheduling, koordinator, kube-batch, volcano, kubernetes."""
    return dialect.partition("/")[0]


def gang_key(dialect: str, namespace: str, name: str) -> str:
    """The key of the gang that a pod or a PodGroup of this dialect names."""
    return _key_in(_NAME_SPACE.get(family(dialect), ""), namespace, name)


def api_group(dialect: str) -> str:
    """The API group of the dialect's PodGroups; empty for a dialect without."""
    return POD_GROUPS.get(dialect, "").partition("/")[0]


def declared_in(key: str, dialect: str) -> tuple[str, ...]:
    """API groups in which the gang of this key may be declared, best first.

    `dialect` is that of the member that speaks for it; while it has no members, every group of its name space counts.
    """
    return _DECLARED_IN.get(dialect, ()) if dialect else _NAME_SPACES.get(key.partition("@")[2], ())


def declared_by(dialect: str) -> str:
    """The kind of object that declares a gang whose pods do not: PodGroup, or Workload (Kubernetes 1.35)."""
    return "Workload" if _DECLARED_IN.get(dialect) == () else "PodGroup"


def name_of(key: str) -> tuple[str, str]:
    """(namespace, name) of the gang's PodGroup, if it has one."""
    namespace, _, name = key.partition("@")[0].partition("/")
    return namespace, name


def pod_group_kind(dialect: str) -> str:
    """The kind as rejections name it: ``PodGroup.scheduling.volcano.sh``; coscheduling's is plain ``PodGroup``."""
    return _kind_in(api_group(dialect))


def declaring(key: str, dialect: str) -> list[tuple[str, str, str]]:
    """What may declare the gang beside its pods, best first: (kind as rejections name it, namespace, name)."""
    namespace, name = name_of(key)
    if declared_by(dialect) == "Workload":
        return [(WORKLOAD, namespace, name.partition(":")[0])]
    return [(_kind_in(group), namespace, name) for group in declared_in(key, dialect)]


def gang_declared_by(kind: str, namespace: str, name: str) -> str:
    """The key of the gang that a PodGroup of this kind declares; empty for other kinds."""
    for space, groups in _NAME_SPACES.items():
        if any(kind == _kind_in(group) for group in groups):
            return _key_in(space, namespace, name)
    return ""


def _key_in(space: str, namespace: str, name: str) -> str:
    return f"{namespace}/{name}@{space}" if space else f"{namespace}/{name}"


def _kind_in(group: str) -> str:
    return f"PodGroup.{group}" if group not in ("", "scheduling.x-k8s.io") else "PodGroup"
