"""What the objects of a workload say: names of labels and annotations, and what a pod says by them."""

from __future__ import annotations

from typing import Any

from services.simulator.traces import KOORDINATORS_LABEL

Object = dict[str, Any]
OURS = ("muster", "koord-scheduler")
"""Names of schedulers whose pods are Muster's here."""
ANOTHER_NAMESPACE = "another"
GANG, MINIMUM = "pod-group/name", "pod-group/min-available"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh"
NAMING = ("schedulingGroup", "workloadRef")
"""What of a spec names a gang: Kubernetes' own."""
GROUP_NAME = "scheduling.k8s.io/group-name"
MINIMUM_SAID = f"{KOORDINATOR}/min-available"


def uid_of(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def gang_of(pod: Object) -> str:
    """The gang that it names, in whichever dialect; empty: none."""
    labels = pod["metadata"].get("labels") or {}
    told = annotations(pod)
    named = (
        *(labels.get(POD_GROUP), labels.get(GANG), labels.get(KOORDINATORS_LABEL)),
        *(told.get(f"{KOORDINATOR}/name"), told.get(GROUP_NAME), _native(pod)),
    )
    return next((name for name in named if name), "")


def _native(pod: Object) -> str:
    """The PodGroup or the Workload that Kubernetes' own fields name."""
    spec = pod["spec"]
    return str(spec.get(NAMING[0], {}).get("podGroupName") or spec.get(NAMING[1], {}).get("name") or "")


def annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def pending(pod: Object) -> bool:
    """Whether it waits for a node of ours."""
    return (
        pod["spec"]["schedulerName"] in OURS
        and not pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    )
