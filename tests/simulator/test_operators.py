"""What other projects' controllers make of their objects."""

from __future__ import annotations

from typing import Any

import pytest

from services.simulator.errors import ApiError
from services.simulator.offline import served
from services.simulator.operators.pod_groups import GROUP_NAME, MINIMUM, QUEUE_NAME
from tests.manifests import operated
from tests.simulator.objects import Object, template, workload
from tests.simulator.test_train_jobs import runtime, train_job


def volcano_job(*tasks: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulerName": "volcano", "tasks": list(tasks), **spec},
    }


def task(name: str, replicas: int, **more: Any) -> Object:
    return {"name": name, "replicas": replicas, "template": template(), **more}


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind]


def test_a_volcano_jobs_tasks_are_pods_of_one_pod_group() -> None:
    job = volcano_job(
        task("ps", 1), task("worker", 2, minAvailable=1), minAvailable=2, queue="q", priorityClassName="high"
    )
    made = operated([job])[1:]
    (group,), pods = of_kind(made, "PodGroup"), of_kind(made, "Pod")
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {
        "minMember": 2,
        "queue": "q",
        "minTaskMember": {"ps": 1, "worker": 1},
        "priorityClassName": "high",
    }
    assert [pod["metadata"]["name"] for pod in pods] == ["train-ps-0", "train-worker-0", "train-worker-1"]
    for pod in pods:
        assert pod["metadata"]["annotations"][GROUP_NAME] == group["metadata"]["name"]
        assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == ("volcano", "high")
    assert pods[2]["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"
    assert pods[2]["metadata"]["labels"]["volcano.sh/task-index"] == "1"


def test_without_a_minimum_all_replicas_are_it() -> None:
    (group,) = of_kind(operated([volcano_job(task("a", 2), task("b", 3))]), "PodGroup")
    assert group["spec"]["minMember"] == 5


@pytest.mark.parametrize("said", [{}, {"minAvailable": 0}])
def test_without_a_minimum_a_job_has_its_tasks_together(said: Object) -> None:
    job = volcano_job(task("ps", 1), task("worker", 4, minAvailable=2), **said)
    (group,) = of_kind(operated([job]), "PodGroup")
    assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (3, {"ps": 1, "worker": 2})


@pytest.mark.parametrize("hard", [{"mode": "hard", "highestTierAllowed": 1}, {}])
def test_a_jobs_topology_and_its_tasks_partitions_are_its_pod_groups(hard: dict[str, Any]) -> None:
    """So that what is refused in a cluster is refused in a simulation. Without a mode it is a hard one."""
    partitions = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1, "networkTopology": hard}
    job = volcano_job(task("ps", 1), task("worker", 4, partitionPolicy=partitions), networkTopology=hard)
    (group,) = of_kind(operated([job]), "PodGroup")
    assert group["spec"]["networkTopology"] == hard
    assert group["spec"]["subGroupPolicy"] == [
        {"name": "worker", "subGroupSize": 2, "minSubGroups": 1, "networkTopology": hard}
    ]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (volcano_job(task("a", 1), task("a", 1)), "spec.tasks[1].name: duplicated task name a"),
        (volcano_job(task("a", 2), minAvailable=3), "should not be greater than the total of 2 replicas"),
        (volcano_job(task("a", 2, minAvailable=3)), "spec.tasks[0].minAvailable: 3 is greater than its 2 replicas"),
        (volcano_job(), "no task specified"),
    ],
)
def test_what_volcanos_webhook_denies_is_refused_in_its_words(job: Object, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        operated([job])
    assert refused.value.code == 403
    assert "Job default/train" in refused.value.message
    assert said in refused.value.message


@pytest.mark.parametrize("replicas", [-1, "2", True, 1.5])
def test_a_count_that_is_none_is_refused_by_its_field(replicas: Any) -> None:
    with pytest.raises(ApiError, match=r"spec\.tasks\[0\]\.replicas"):
        operated([volcano_job(task("a", replicas))])


def test_null_in_a_template_is_nothing_in_its_pods() -> None:
    """As Helm writes a value that nobody set. The job's pods were told that a 'NoneType' has no attribute 'get'."""
    job = volcano_job(task("a", 1))
    pod_spec = job["spec"]["tasks"][0]["template"]["spec"]
    pod_spec |= {"hostNetwork": None, "tolerations": None, "nodeSelector": {"gpu": None}}
    pod_spec["containers"][0]["resources"] = None
    (made,) = of_kind(served([job]), "Pod")
    assert made["spec"]["containers"][0]["resources"] == {}
    assert made["spec"]["nodeSelector"] == {"gpu": ""}
    assert "hostNetwork" not in made["spec"]


def test_a_jobs_volumes_are_claims_of_all_its_pods() -> None:
    """As it was: they were placed, though pods with claims are not placed yet."""
    scratch = {"name": "scratch", "emptyDir": {}}
    volumes = [{"mountPath": "/data", "volumeClaimName": "data"}, {"mountPath": "/out", "volumeClaim": {}}]
    made = operated(
        [volcano_job(task("a", 1) | {"template": template(volumes=[scratch])}, task("b", 1), volumes=volumes)]
    )
    claimed = [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "claim-1", "persistentVolumeClaim": {"claimName": "train-1"}},
    ]
    assert [pod["spec"]["volumes"] for pod in of_kind(made, "Pod")] == [[scratch, *claimed], claimed]


def test_a_tasks_own_scheduler_goes_before_the_jobs() -> None:
    """So that Muster gets the pods that say that they are its, whoever else schedules the job."""
    own = task("a", 1) | {"template": template(schedulerName="muster")}
    pods = of_kind(operated([volcano_job(own, task("b", 1), schedulerName="other")]), "Pod")
    assert [pod["spec"]["schedulerName"] for pod in pods] == ["muster", "other"]


def test_a_cron_job_runs_once_and_a_suspended_one_not() -> None:
    cron = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": volcano_job(task("a", 2))["spec"]}},
    }
    made = operated([cron])
    assert [pod["metadata"]["name"] for pod in of_kind(made, "Pod")] == ["nightly-26297280-a-0", "nightly-26297280-a-1"]
    assert operated([{**cron, "spec": {**cron["spec"], "suspend": True}}])[1:] == []


def training_job(kind: str, field: str, **replicas: int) -> Object:
    specs = {
        name: {"replicas": count, "template": template(), "restartPolicy": "ExitCode"}
        for name, count in replicas.items()
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "fit"}, "spec": {field: specs}}


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs"),
        ("TFJob", "tfReplicaSpecs"),
        ("MPIJob", "mpiReplicaSpecs"),
        ("XGBoostJob", "xgbReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
    ],
)
def test_a_training_jobs_replicas_are_one_gang(kind: str, field: str) -> None:
    made = operated([training_job(kind, field, Master=1, Worker=2)])[1:]
    (group,), pods = of_kind(made, "PodGroup"), of_kind(made, "Pod")
    assert (group["metadata"]["name"], group["spec"]["minMember"]) == ("fit", 3)
    assert [pod["metadata"]["name"] for pod in pods] == ["fit-master-0", "fit-worker-0", "fit-worker-1"]
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"fit"}
    assert {pod["spec"]["restartPolicy"] for pod in pods} == {"Never"}
    assert pods[0]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"


def test_a_training_jobs_policy_says_its_minimum() -> None:
    job = training_job("TFJob", "tfReplicaSpecs", Worker=4)
    job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2, "scheduleTimeoutSeconds": 30}}
    (group,) = of_kind(operated([job]), "PodGroup")
    assert group["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 30}


def test_jobs_of_a_job_set_are_indexed_unless_it_says_otherwise() -> None:
    """As its webhook has it: pods are named after their index, and labelled with it."""
    named: dict[str, dict[str, str]] = {"a": {}, "b": {"completionMode": "NonIndexed"}}
    jobs = [
        {"name": name, "template": {"spec": {"parallelism": 2, "completions": 2, "template": template()} | mode}}
        for name, mode in named.items()
    ]
    about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}}
    found = served([about | {"spec": {"replicatedJobs": jobs}}])
    pods = [obj["metadata"]["generateName"] for obj in found if obj["kind"] == "Pod"]
    assert pods == ["j-a-0-0-", "j-a-0-1-", "j-b-0-", "j-b-0-"]


def job_set(metadata: Object | None = None, pods: Object | None = None, **spec: Any) -> Object:
    """Of one Job with one pod; `metadata`: the Job's, `pods`: what is said of its pods, besides."""
    job = {"template": pods or template(), "suspend": True}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"metadata": metadata or {}, "spec": job}}], **spec},
    }


def test_a_job_has_the_labels_and_annotations_of_its_template() -> None:
    """As it was: Volcano's minimum on it was not heard, and its pods were placed one by one."""
    told = {"labels": {"team": "a"}, "annotations": {MINIMUM: "1"}}
    made = operated([job_set(told)])
    (group,), (job,) = of_kind(made, "PodGroup"), of_kind(made, "Job")
    assert (group["spec"]["minMember"], job["metadata"]["labels"]["team"]) == (1, "a")


@pytest.mark.parametrize("annotations", [-1, ["x"], {MINIMUM: 2.5}])
def test_of_a_template_what_is_no_annotation_is_refused(annotations: Any) -> None:
    with pytest.raises(ApiError, match=r"metadata\.annotations"):
        served([job_set({"annotations": annotations})])


@pytest.mark.parametrize("annotations", ["-5", ["x"]])
def test_so_it_is_of_the_pods_of_its_template(annotations: Any) -> None:
    pods = {**template(), "metadata": {"annotations": annotations}}
    with pytest.raises(ApiError, match=r"template\.metadata\.annotations"):
        served([job_set({"annotations": {MINIMUM: "1"}}, pods)])


def test_a_job_set_alone_says_whether_its_jobs_are_suspended() -> None:
    """Its controller writes that over what a template says of it."""
    told = [of_kind(operated([job_set(**said)]), "Job") for said in ({}, {"suspend": False}, {"suspend": True})]
    assert [job["spec"]["suspend"] for (job,) in told] == [False, False, True]


def test_claims_of_a_job_set_are_volumes_of_the_pods_that_mount_them() -> None:
    """As it was: such pods were placed, though pods with claims are not placed yet."""
    policies = [{"templates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "cache"}}]}]
    mounts = [{"name": "main", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
    (job,) = of_kind(operated([job_set(pods={"spec": {"containers": mounts}}, volumeClaimPolicies=policies)]), "Job")
    claimed = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-j"}}]
    assert job["spec"]["template"]["spec"]["volumes"] == claimed
    assert (
        "volumes"
        not in of_kind(operated([job_set(volumeClaimPolicies=policies)]), "Job")[0]["spec"]["template"]["spec"]
    )


def test_a_pod_group_that_is_listed_with_its_job_is_not_made_again() -> None:
    """Of what a cluster has: a job that waits has a PodGroup and no pods. As it was, the cluster's own was refused."""
    job = volcano_job(task("a", 2))
    made = operated([job])
    listed = {**of_kind(made, "PodGroup")[0], "spec": {"minMember": 1, "queue": "q"}}
    of_others = listed | {"apiVersion": "scheduling.x-k8s.io/v1alpha1"}
    fleet = owner("ReplicaSet", "2", replicas=2)
    of_fleet = {**of_kind(operated([fleet]), "PodGroup")[0], "spec": {"minMember": 1}}
    found = operated([job, fleet, listed, of_fleet])
    assert of_kind(found, "PodGroup") == [listed, of_fleet]
    assert len(of_kind(found, "Pod")) == 2
    assert len(of_kind(operated([job, of_others]), "PodGroup")) == 2


def test_nothing_that_was_given_is_changed() -> None:
    objects = [runtime(podGroupPolicy={"coscheduling": {}}), train_job(), volcano_job(task("a", 2))]
    before = repr(objects)
    operated(objects)
    assert repr(objects) == before


# ------------------------------------------------------------------------------------------ Volcano's PodGroup controller


def owner(kind: str, minimum: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A workload that says on itself how many of its pods start together; `annotations` are its pods'."""
    if kind == "Job":
        spec |= {"template": template(annotations=annotations, restartPolicy="Never")}
    else:
        spec |= {"template": template(annotations=annotations)}
    made = workload(kind, "fleet", **spec)
    made["metadata"]["annotations"] = {MINIMUM: minimum, "volcano.sh/task-topology": "x", "team": "ml"}
    return made


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("ReplicaSet", {"replicas": 3}),
        ("StatefulSet", {"replicas": 3}),
        ("Job", {"parallelism": 3}),
        ("Deployment", {"replicas": 3}),
    ],
)
def test_an_owner_that_says_a_minimum_gets_a_pod_group_that_its_pods_name(kind: str, size: dict[str, int]) -> None:
    objects = served([owner(kind, "2", annotations={QUEUE_NAME: "q"}, **size)])
    (group,), pods = of_kind(objects, "PodGroup"), of_kind(objects, "Pod")
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {"minMember": 2, "queue": "q"}
    assert group["metadata"]["annotations"] == {"volcano.sh/task-topology": "x"}
    assert len(pods) == 3
    for pod in pods:
        assert pod["metadata"]["annotations"][GROUP_NAME] == group["metadata"]["name"]
        assert group["metadata"]["name"] == f"podgroup-{pod['metadata']['ownerReferences'][0]['uid']}"


@pytest.mark.parametrize(
    ("said", "minimum"), [("4", 4), ("+4", 4), ("0", 0), ("-1", 1), ("two", 1), ("", 1), ("9" * 11, 1)]
)
def test_what_is_no_count_leaves_the_minimum_at_one(said: str, minimum: int) -> None:
    (group,) = of_kind(operated([owner("ReplicaSet", said)]), "PodGroup")
    assert group["spec"]["minMember"] == minimum


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ({"volcano.sh/network-topology-mode": "Soft"}, "soft"),
        ({"volcano.sh/network-topology-mode": "none"}, "hard"),
        ({"volcano.sh/network-topology-highest-tier": "2"}, "hard"),
    ],
)
def test_the_topology_that_pods_name_is_their_pod_groups(said: dict[str, str], mode: str) -> None:
    """As it was: a hard one was dropped, and the pods placed as if it were not there."""
    (group,) = of_kind(operated([owner("ReplicaSet", "2", annotations=said, replicas=2)]), "PodGroup")
    assert group["spec"]["networkTopology"] == {"mode": mode}


def test_pods_that_name_a_group_and_owners_that_say_nothing_are_left_alone() -> None:
    named = owner("ReplicaSet", "2", annotations={GROUP_NAME: "own"})
    plain = workload("ReplicaSet", "plain", replicas=2)
    assert operated([named, plain]) == [named, plain]


def test_a_deployments_pods_have_the_names_that_they_have_without_the_annotation() -> None:
    deployment = owner("Deployment", "2", replicas=2)
    plain = workload("Deployment", "fleet", replicas=2)
    named = [pod["metadata"]["name"] for pod in of_kind(served([deployment]), "Pod")]
    assert named == [pod["metadata"]["name"] for pod in of_kind(served([plain]), "Pod")]
