"""What Kubeflow Trainer makes of its TrainJobs (its code of 21 August 2026), and JobSet of what it makes."""

from __future__ import annotations

from typing import Any

from services.console.simulate import simulate
from services.simulator.offline import served
from tests.manifests import node, operated
from tests.simulator.objects import Object

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind]


def train_job(**spec: Any) -> Object:
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune", "namespace": "default"},
        "spec": {"runtimeRef": runtime, "trainer": {"numNodes": 3}, **spec},
    }


def job(name: str, *, step: str = "", **spec: Any) -> Object:
    """A replicated job of a runtime; `step`: what it is in a TrainJob; `spec`: of its pods."""
    labels = {"metadata": {"labels": {STEP: step}}} if step else {}
    pods = {"spec": {"containers": [{"name": "node", "image": "x"}], "restartPolicy": "Never", **spec}}
    return {"name": name, "template": {**labels, "spec": {"template": pods}}}


def runtime(*jobs: Object, metadata: Object | None = None, **spec: Any) -> Object:
    template = {"spec": {"replicatedJobs": list(jobs) or [job("node", step="trainer")]}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {"template": template | ({"metadata": metadata} if metadata else {}), **spec},
    }


def patch(*jobs: Object, metadata: Object | None = None) -> Object:
    """One of a TrainJob's `runtimePatches`."""
    template = {"spec": {"replicatedJobs": list(jobs)}} | ({"metadata": metadata} if metadata else {})
    return {"manager": "trainer.kubeflow.org/sdk", "trainingRuntimeSpec": {"template": template}}


def sizes(objects: list[Object]) -> dict[str, int]:
    """How many pods each Job has."""
    return {one["metadata"]["name"]: one["spec"]["parallelism"] for one in of_kind(objects, "Job")}


def test_a_train_job_is_a_job_set_is_an_indexed_job() -> None:
    asked = {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "2"}}}
    pods = of_kind(served([train_job(trainer=asked)]), "Pod")
    assert [pod["metadata"]["generateName"] for pod in pods] == [f"tune-node-0-{index}-" for index in range(3)]
    assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for pod in pods} == {"tune"}
    assert pods[0]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_a_suspended_train_job_has_no_pods() -> None:
    assert of_kind(served([train_job(suspend=True)]), "Pod") == []


def test_the_job_that_trains_is_told_by_its_label() -> None:
    """Whatever it is called. Of a runtime without labels it is the one called `node`."""
    others = job("dataset", step="dataset-initializer"), job("fit", step="trainer")
    assert sizes(operated([runtime(*others), train_job()])) == {"tune-dataset-0": 1, "tune-fit-0": 3}
    assert sizes(operated([runtime(job("dataset"), job("node")), train_job()])) == {
        "tune-dataset-0": 1,
        "tune-node-0": 3,
    }


def test_without_a_number_of_nodes_a_train_job_has_its_runtimes() -> None:
    said = runtime(mlPolicy={"numNodes": 2, "torch": {}})
    assert sizes(operated([said, train_job(trainer={})])) == {"tune-node-0": 2}
    assert sizes(operated([said, train_job()])) == {"tune-node-0": 3}


def test_of_mpi_the_launcher_is_one_of_the_nodes() -> None:
    """As in Trainer's own runtime for DeepSpeed; where it is none, all nodes are beside it."""
    jobs, asked = (
        (job("node"), job("launcher", step="trainer")),
        {"numNodes": 3, "resourcesPerNode": {"limits": {"cpu": 2}}},
    )
    mpi = runtime(*jobs, mlPolicy={"numNodes": 1, "mpi": {"runLauncherAsNode": True}})
    made = operated([mpi, train_job(trainer=asked)])
    assert sizes(made) == {"tune-node-0": 2, "tune-launcher-0": 1}
    asking = [one["spec"]["template"]["spec"]["containers"][0].get("resources") for one in of_kind(made, "Job")]
    assert asking == [{"limits": {"cpu": 2}}] * 2
    beside = runtime(*jobs, mlPolicy={"numNodes": 1, "mpi": {}})
    assert sizes(operated([beside, train_job(trainer=asked)])) == {"tune-node-0": 3, "tune-launcher-0": 1}


def test_resources_per_node_are_added_to_the_runtimes() -> None:
    """Resource by resource, as Trainer merges them: the runtime's GPU is not lost for a TrainJob's memory."""
    containers = [{"name": "node", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "8Gi"}}}]
    said = runtime(job("node", step="trainer", containers=containers))
    asked = {"numNodes": 1, "resourcesPerNode": {"limits": {"memory": "4Gi"}, "requests": {"cpu": 1}}}
    (found,) = of_kind(operated([said, train_job(trainer=asked)]), "Job")
    resources = found["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}, "requests": {"cpu": 1}}


def test_a_train_jobs_patches_say_where_its_pods_go() -> None:
    """A later one counts, and jobs that it does not name are left alone."""
    anywhere = {"operator": "Exists"}
    first = job("node", step="trainer", nodeSelector={"pool": "a", "zone": "z"})
    patches = [
        patch({"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": "b"}}}}}}),
        patch({"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": [anywhere]}}}}}),
        {"manager": "example.com/none"},
    ]
    made = operated([runtime(job("dataset"), first), train_job(runtimePatches=patches)])
    dataset, fit = (one["spec"]["template"]["spec"] for one in of_kind(made, "Job"))
    assert (fit["nodeSelector"], fit["tolerations"]) == ({"pool": "b", "zone": "z"}, [anywhere])
    assert fit["containers"] == [{"name": "node", "image": "x"}]
    assert "nodeSelector" not in dataset


def test_a_runtimes_pod_group_policy_makes_one_gang_of_all_pods() -> None:
    policy = {"coscheduling": {"scheduleTimeoutSeconds": 30}}
    objects = served([runtime(podGroupPolicy=policy), train_job()])
    (group,), pods = of_kind(objects, "PodGroup"), of_kind(objects, "Pod")
    assert group["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 30}
    assert len(pods) == 3
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"tune"}


def test_with_volcanos_policy_they_are_one_of_volcanos() -> None:
    """As it was: they were placed one by one, without a word."""
    queued = {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}
    said = runtime(
        job("node", step="trainer", priorityClassName="high"),
        podGroupPolicy={"volcano": {"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}},
        metadata=queued,
    )
    made = operated([said, train_job(runtimePatches=[patch(metadata={"annotations": {"x": "y"}})])])
    (group,), (job_set,) = of_kind(made, "PodGroup"), of_kind(made, "JobSet")
    assert (group["apiVersion"], group["metadata"]["name"]) == ("scheduling.volcano.sh/v1beta1", "tune")
    assert group["spec"] == {
        "minMember": 3,
        "queue": "q",
        "priorityClassName": "high",
        "networkTopology": {"mode": "soft", "highestTierAllowed": 1},
    }
    assert job_set["metadata"]["annotations"] == queued["annotations"] | {"x": "y"}
    gang = {**runtime(podGroupPolicy={"volcano": {}})}
    placed = simulate([node("n1", pods="2"), gang, train_job()]).answer()
    assert (len(placed["waiting"]), placed["bound"]) == (3, {})
    assert list(placed["gangs"]) == ["default/tune@batch"]
