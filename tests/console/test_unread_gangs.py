"""Warnings of what says something of a gang and has no effect. Of pods that are a gang all the same there is none."""

from __future__ import annotations

from typing import Any

import pytest

from services.console.simulate import simulate
from services.console.unread_gangs import unread_gangs
from tests.console.manifests import node
from tests.dialects import published

K = "gang.scheduling.koordinator.sh/"
ALONE = "its pods are placed one by one"


def job(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"metadata": {"labels": labels or {}, "annotations": annotations}, "spec": {"containers": []}}
    metadata = {"name": "j", "namespace": "ml"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ("labels", "pod-group/min-available"),
        ("labels", "pod-group.scheduling.sigs.k8s.io/min-available"),
        ("labels", "pod-group.scheduling.x-k8s.io/min-available"),
        ("annotations", f"{K}min-available"),
    ],
)
def test_a_minimum_without_a_name_is_told(place: str, key: str) -> None:
    """Seed 002, API: name and min-available "are indispensable". Seed 000: a pod without a name is a regular pod."""
    assert unread_gangs([job(**{place: {key: "2"}})]) == [
        f"Job ml/j: spec.template.metadata.{place}[{key}] is a minimum, and no gang is named beside it: {ALONE}"
    ]


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_an_empty_name_is_none(place: str) -> None:
    """As a template writes it whose variable is not set. As it was: nothing was said, and its pods were placed alone."""
    minimum, name = {
        "labels": ("pod-group/min-available", "pod-group/name"),
        "annotations": (f"{K}min-available", f"{K}name"),
    }[place]
    (said,) = unread_gangs([job(**{place: {name: "", minimum: "2"}})])
    assert said.startswith(f"Job ml/j: spec.template.metadata.{place}[{minimum}] is a minimum, and no gang is named")


def test_a_minimum_beside_a_name_of_whatever_dialect_is_none() -> None:
    """Koordinator takes the community's labels: the name may be a label, and the minimum an annotation."""
    assert not unread_gangs([job({"pod-group.scheduling.sigs.k8s.io": "g"}, {f"{K}min-available": "2"})])
    assert not unread_gangs([job({"pod-group.scheduling.sigs.k8s.io/min-available": "2"}, {f"{K}name": "g"})])


@pytest.mark.parametrize(
    ("place", "key", "whose"),
    [
        ("labels", "kueue.x-k8s.io/pod-group-name", "Kueue"),
        ("annotations", "kueue.x-k8s.io/pod-group-name", "Kueue"),
        ("annotations", "pod-group-name", "KAI"),
        ("annotations", "yunikorn.apache.org/task-group-name", "YuniKorn"),
        ("annotations", "armadaproject.io/gangId", "Armada"),
    ],
)
def test_a_gang_of_a_system_that_is_not_read_is_told(place: str, key: str, whose: str) -> None:
    said = f"Job ml/j: spec.template.metadata.{place}[{key}] names a gang of {whose}, which is not read: {ALONE}"
    assert unread_gangs([job(**{place: {key: "g"}})]) == [said]
    assert not unread_gangs([job({**({key: "g"} if place == "labels" else {}), "scheduling.x-k8s.io/pod-group": "g"})])


TEMPLATE = {
    "metadata": {"annotations": {"pod-group-name": "g"}},
    "spec": {"containers": [{"name": "pytorch", "image": "x"}], "restartPolicy": "Never"},
}
OWNERS: dict[str, dict[str, Any]] = {
    "a Job of Volcano": {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ml"},
        "spec": {"minAvailable": 2, "tasks": [{"name": "w", "replicas": 2, "template": TEMPLATE}]},
    },
    "a job of Kubeflow": {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ml"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}},
    },
    "a minimum on the owner": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ml", "annotations": {"scheduling.volcano.sh/group-min-member": "2"}},
        "spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE},
    },
}


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_of_pods_of_which_a_controller_makes_a_gang_nothing_is_told(owner: dict[str, Any]) -> None:
    """As it was: "its pods are placed one by one"."""
    found = simulate([node("n1", "64"), owner]).answer()
    assert [(gang["members"], gang["bound"]) for gang in found["gangs"].values()] == [(2, 2)]
    assert found["warnings"] == []


@pytest.mark.parametrize(
    "spec", [{"schedulingGroup": {"podGroupName": "g"}}, {"workloadRef": {"name": "w", "podGroup": "g"}}]
)
def test_nor_where_kubernetes_own_field_names_one(spec: dict[str, Any]) -> None:
    said = job(annotations={"pod-group-name": "g"})
    said["spec"]["template"]["spec"] |= spec
    assert not unread_gangs([said])


@pytest.mark.parametrize(
    "key",
    [
        "scheduling.volcano.sh/group-min-member",
        "scheduling.k8s.io/group-min-member",
        "scheduling.k8s.io/group-name",
    ],
)
def test_a_minimum_that_a_pod_says_of_its_owners_pods_is_a_gang(key: str) -> None:
    assert not unread_gangs([job(annotations={"pod-group-name": "g", key: "2"})])


def test_a_deployment_that_a_server_refuses_ends_nothing() -> None:
    """It has no selector, and is looked at before anybody says so."""
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "d", "namespace": "ml", "annotations": {"scheduling.volcano.sh/group-min-member": "2"}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}
    assert unread_gangs([deployment]) == []
    (refused,) = simulate([deployment]).answer()["rejected"]
    assert "spec.selector: Required value" in refused


def test_what_stands_on_no_pod_is_no_pods() -> None:
    owner = job(annotations={f"{K}name": "g", f"{K}min-available": "2"})
    owner["metadata"]["annotations"] = {f"{K}min-available": "2"}
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": owner["metadata"]}
    assert not unread_gangs([owner, group])


def test_of_a_pod_that_has_its_node_nothing_is_told() -> None:
    metadata = {"name": "a", "namespace": "ml", "labels": {"kueue.x-k8s.io/pod-group-name": "g"}}
    waits = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
    assert not unread_gangs([waits | {"spec": {"containers": [], "nodeName": "n1"}}])
    assert len(unread_gangs([waits])) == 1


@published.there
def test_a_task_topology_is_told() -> None:
    """Seed 003, API: an annotation, or the job's plugin of this name. Nothing reads them yet."""
    told = "task topology has no effect yet: tasks are placed as if they had none"
    of_annotations = published.task_topology_job()
    plugin = {"task-topology": ["--affinity", "[[ps-task, worker-task]]"]}
    of_plugin = {**of_annotations, "spec": {**of_annotations["spec"], "plugins": plugin}}
    of_plugin["metadata"] = of_annotations["metadata"] | {
        "name": "p",
        "annotations": {"volcano.sh/task-topology": "{}"},
    }
    found = simulate([node("n1", "64"), of_annotations, of_plugin]).answer()
    names = ("affinity", "anti-affinity", "task-order")
    assert found["warnings"] == [
        *(f"Job default/test-job: metadata.annotations[volcano.sh/task-topology-{name}]: {told}" for name in names),
        f"Job default/p: metadata.annotations[volcano.sh/task-topology]: {told}",
        f"Job default/p: spec.plugins.task-topology: {told}",
    ]


def test_the_task_topology_of_a_cron_job_is_told() -> None:
    spec: dict[str, Any] = {"jobTemplate": {"spec": {"plugins": {"task-topology": []}}}}
    of_volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}
    assert [said.partition(": task")[0] for said in unread_gangs([of_volcano])] == [
        "CronJob c: spec.jobTemplate.spec.plugins.task-topology"
    ]
