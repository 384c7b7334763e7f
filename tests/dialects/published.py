"""Every gang manifest that is published, by the names of its files, and what has to come of it.

The files stand beside the repository (``../shared/manifests``); nothing of them is repeated here. A file is in exactly
one of four tables: `ACCEPTED` as it is, alone or with the files that belong to it; `REFUSED` with a reason; `FRAGMENTS`
of objects, which the functions below complete; `NO_OBJECTS`, the configuration of a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from tests import shared
from tests.manifests import load_yaml

Object = dict[str, Any]

SHARED = shared.SHARED / "manifests"
DIRECTORIES = ("coscheduling", "koordinator", "kube-batch", "kubeflow", "native", "volcano")
there = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
K = "gang.scheduling.koordinator.sh/"


class Published(NamedTuple):
    """Files that belong together, and what comes of them on `nodes`."""

    files: tuple[str, ...]
    gangs: tuple[tuple[str, int | None], ...] = ()
    """(dialect, minimum), sorted; None: nobody declares it."""
    bound: int = 0
    waiting: int = 0


ACCEPTED = (
    Published(("coscheduling/nginx-podgroup-replicaset.yaml",), (("coscheduling/v1alpha1", 3),), bound=6),
    Published(
        ("coscheduling/pg1-podgroup.yaml", "coscheduling/pause-deployment.yaml"),
        (("coscheduling/v1alpha1", 3),),
        waiting=2,
    ),
    Published(("coscheduling/elasticquota-example.yaml",)),
    Published(("koordinator/podgroup-gang-a.yaml",), (("coscheduling/v0.19", 5),)),
    Published(
        (
            "kube-batch/scheduling_v1alpha1_podgroup.yaml",
            "kube-batch/scheduling_v1alpha1_queue.yaml",
            "kube-batch/queue-default.yaml",
            "kube-batch/high-priority-class.yaml",
            "kube-batch/pod-ns01-r01.yaml",
        ),
        bound=1,
    ),
    Published(("kubeflow/tensorflow-simple.yaml",), (("coscheduling/v1alpha1", 2),), bound=2),
    Published(("kubeflow/pytorch-elastic-echo-echo.yaml",), (("coscheduling/v1alpha1", 2),), bound=2),
    Published(("kubeflow/paddlepaddle-simple-gpu.yaml",), (("coscheduling/v1alpha1", 2),), bound=2),
    Published(("kubeflow/xgboost-smoke-dist-xgboostjob_v1_rabit_test.yaml",), (("coscheduling/v1alpha1", 3),), bound=3),
    Published(("kubeflow/jax-cpu-demo-demo.yaml",), (("coscheduling/v1alpha1", 2),), bound=2),
    Published(("kubeflow/trainer-01-multi-node.yaml",), bound=3),
    Published(("kubeflow/trainer-03-kueue-integration.yaml",)),
    Published(("native/job-schedulingGroup.yaml",), (("kubernetes/v1alpha2", None),), waiting=100),
    Published(("native/podgroup-v1beta1.yaml", "native/workload-v1beta1.yaml"), (("kubernetes/v1beta1", 100),)),
    Published(("native/jobset-podgroup.yaml", "native/jobset-workload.yaml"), (("kubernetes/v1beta1", 100),)),
    Published(("volcano/job.yaml",), (("volcano/v1beta1", 3),), bound=6),
    Published(("volcano/mpi-example.yaml",), (("volcano/v1beta1", 3),), bound=3),
    Published(("volcano/cronjob.yaml",), (("volcano/v1beta1", 1),), bound=1),
    Published(("volcano/deployment.yaml", "volcano/queue-capability.yaml"), (("volcano/v1beta1", 1),), bound=1),
    Published(("volcano/podgroup.yaml",), (("volcano/v1beta1", 1),)),
    Published(("volcano/JobFlow.yaml",)),
    Published(("volcano/scheduler-configmap.yaml",)),
    Published(("volcano/scheduler-configmap-task-topology.yaml",)),
)
REFUSED = {
    "koordinator/podgroup-strict-groups.yaml": rf"annotations\[{K}total-number\]: expected a string",
    "koordinator/gang-master-worker.yaml": rf"annotations\[{K}groups\]: expected a string",
    "native/podgroup-v1alpha2.gotemplate.yaml": r'metadata.name: Invalid value: "gang-{{.Index}}"',
    "volcano/minAvailable-webhook-deny.yaml": "'minAvailable' 5 should not be greater than the total of 4",
    "volcano/duplicatedTaskName-webhook-deny.yaml": "duplicated task name task-1",
}
"""As published; the list of sources says of the first two that an API server would reject them."""
FRAGMENTS = (
    "coscheduling/legacy-pod-labels.fragment.yaml",
    "coscheduling/trainer-podGroupPolicy.fragment.yaml",
    "volcano/task-topology-annotations.fragment.yaml",
)
NO_OBJECTS = (
    "coscheduling/scheduler-config-manifest.yaml",
    "kube-batch/kube-batch-conf-default.yaml",
    "kube-batch/kube-batch-conf.yaml",
)


def files() -> list[str]:
    """Every manifest of a gang dialect that is there."""
    return sorted(f"{name}/{file.name}" for name in DIRECTORIES for file in (SHARED / name).glob("*.yaml"))


def loaded(names: Iterable[str]) -> list[Object]:
    return load_yaml(SHARED / name for name in names)


def text(name: str) -> str:
    return (SHARED / name).read_text()


def pod(name: str, **of: Any) -> Object:
    """A pod with labels, annotations and fields of its spec."""
    spec = {"containers": [{"name": "main", "image": "x"}], **of.pop("spec", {})}
    metadata = {"name": name, "namespace": of.pop("namespace", "default"), **of}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def nodes(count: int = 4) -> list[Object]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "64"}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": room}}
        for i in range(count)
    ]


# ------------------------------------------------------------------------------------------------------------ completed


def master_and_workers() -> Iterator[Object]:
    """Koordinator's master and workers, with the annotations' quotes and the containers that the document leaves out."""
    for obj in yaml.safe_load_all(text("koordinator/gang-master-worker.yaml")):
        annotations = obj["metadata"].get("annotations", {})
        for key, value in annotations.items():
            annotations[key] = str(value).replace("'", '"')
        if obj["kind"] == "Pod":
            obj["spec"]["containers"] = [{"name": "main", "image": "x"}]
        yield obj


def strict_group() -> Object:
    """Koordinator's Strict gang of a group, with the annotations' quotes, in a namespace that is written small."""
    written = re.sub("namespace[AB]", lambda name: name[0].lower(), text("koordinator/podgroup-strict-groups.yaml"))
    [obj] = yaml.safe_load_all(written)
    annotations = obj["metadata"]["annotations"]
    annotations |= {key: str(value).replace("'", '"') for key, value in annotations.items()}
    return {**obj, "apiVersion": "scheduling.sigs.k8s.io/v1alpha1"}


def native_group(name: str) -> Object:
    """The PodGroup of the Go template, with a name."""
    made: Object = yaml.safe_load(text("native/podgroup-v1alpha2.gotemplate.yaml").replace("gang-{{.Index}}", name))
    return made


def legacy_pods(count: int) -> list[Object]:
    """Pods with the legacy labels."""
    labels = yaml.safe_load(text("coscheduling/legacy-pod-labels.fragment.yaml"))["labels"]
    return [pod(f"legacy-{number}", labels=labels) for number in range(count)]


def runtime_with_a_gang(name: str) -> Object:
    """A ClusterTrainingRuntime with the published podGroupPolicy."""
    policy = yaml.safe_load(text("coscheduling/trainer-podGroupPolicy.fragment.yaml"))
    containers = {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never"}
    job = {"name": "node", "template": {"spec": {"template": {"spec": containers}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {**policy, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def task_topology_job() -> Object:
    """The published Volcano Job with the published task topology, which its PodGroup inherits."""
    [job] = loaded(["volcano/job.yaml"])
    annotations = yaml.safe_load(text("volcano/task-topology-annotations.fragment.yaml"))
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}
