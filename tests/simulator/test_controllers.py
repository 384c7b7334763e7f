"""Workloads get their pods, and keep them."""

from __future__ import annotations

import pytest

from services.simulator.cluster import SimulatedCluster
from services.simulator.kubelet import DURATION, EXIT_CODE
from tests.simulator.objects import Object, node, template, workload
from tests.simulator.objects import pod as lone
from tests.waiting import until


@pytest.fixture
def cluster(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.create(node("n", cpu="1000", pods="1000"))
    return cluster


def pods(cluster: SimulatedCluster, owner: str) -> list[Object]:
    return [
        pod
        for pod in cluster.list("Pod")
        if any(reference["name"].startswith(owner) for reference in pod["metadata"].get("ownerReferences", ()))
    ]


def bind_all(cluster: SimulatedCluster) -> bool:
    """As a scheduler would; True, so that it can stand in a condition."""
    for pod in cluster.list("Pod"):
        if not pod["spec"].get("nodeName"):
            cluster.bind(pod["metadata"]["name"], "n")
    return True


def running(cluster: SimulatedCluster, owner: str) -> int:
    bind_all(cluster)
    return sum(pod["status"]["phase"] == "Running" for pod in pods(cluster, owner))


def conditions(cluster: SimulatedCluster, kind: str, name: str) -> list[str]:
    bind_all(cluster)
    status = cluster.get(kind, name).get("status") or {}
    return [condition["type"] for condition in status.get("conditions", ())]


async def test_a_deployment_gets_a_replica_set_and_its_pods(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Deployment", "d", replicas=3))
    await until(lambda: running(cluster, "d") == 3)
    (replica_set,) = cluster.list("ReplicaSet")
    digest = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"d-{digest}"
    assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in pods(cluster, "d")} == {digest}
    told = {"replicas": 3, "readyReplicas": 3}
    await until(lambda: cluster.get("ReplicaSet", f"d-{digest}")["status"] == told)
    await until(lambda: cluster.get("Deployment", "d")["status"] == {"observedGeneration": 1, **told})


async def test_a_deployment_is_scaled_and_rolled(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Deployment", "d", replicas=3))
    await until(lambda: running(cluster, "d") == 3)
    cluster.patch("Deployment", "d", {"spec": {"replicas": 1}})
    await until(lambda: len(pods(cluster, "d")) == 1)
    (old,) = pods(cluster, "d")
    cluster.patch("Deployment", "d", {"spec": {"template": template(nodeSelector={"new": "yes"})}})
    await until(lambda: [pod["spec"].get("nodeSelector") for pod in pods(cluster, "d")] == [{"new": "yes"}])
    assert not cluster.exists("Pod", old["metadata"]["name"])
    assert len(list(cluster.list("ReplicaSet"))) == 2


async def test_a_paused_deployment_rolls_nothing_out(cluster: SimulatedCluster) -> None:
    """Neither at first nor later, before it is resumed; it is scaled all the same."""

    def seen(generation: int) -> bool:
        return (cluster.get("Deployment", "d").get("status") or {}).get("observedGeneration") == generation

    cluster.create(workload("Deployment", "d", replicas=1, paused=True))
    await until(lambda: seen(1))
    assert list(cluster.list("ReplicaSet")) == []
    cluster.patch("Deployment", "d", {"spec": {"paused": False}})
    await until(lambda: running(cluster, "d") == 1)
    cluster.patch("Deployment", "d", {"spec": {"paused": True, "replicas": 2}})
    await until(lambda: running(cluster, "d") == 2)
    cluster.patch("Deployment", "d", {"spec": {"template": template(nodeSelector={"new": "yes"})}})
    await until(lambda: seen(4))
    assert len(list(cluster.list("ReplicaSet"))) == 1
    assert running(cluster, "d") == 2


async def test_a_replica_set_replaces_what_fails_or_goes(cluster: SimulatedCluster) -> None:
    cluster.create(workload("ReplicaSet", "r", replicas=2))
    await until(lambda: running(cluster, "r") == 2)
    first, second = (pod["metadata"]["name"] for pod in pods(cluster, "r"))
    cluster.delete("Pod", first)
    cluster.patch("Pod", second, {"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: running(cluster, "r") == 2)
    names = {pod["metadata"]["name"] for pod in pods(cluster, "r")}
    assert len(names) == 3
    assert first not in names
    assert second in names


@pytest.mark.parametrize("bound", [0, 1, 2])
async def test_who_is_too_many_goes_unbound_first_and_then_the_youngest(cluster: SimulatedCluster, bound: int) -> None:
    """As it was: who was changed last, which took the eldest where somebody labelled it."""
    cluster.create(workload("ReplicaSet", "r"))
    await until(lambda: pods(cluster, "r"))
    (eldest,) = (pod["metadata"]["name"] for pod in pods(cluster, "r"))
    cluster.patch("ReplicaSet", "r", {"spec": {"replicas": 2}})
    await until(lambda: len(pods(cluster, "r")) == 2)
    (youngest,) = {pod["metadata"]["name"] for pod in pods(cluster, "r")} - {eldest}
    for name in (youngest, eldest)[:bound]:
        cluster.bind(name, "n")
    cluster.patch("Pod", eldest, {"metadata": {"labels": {"seen": "yes"}}})
    cluster.patch("ReplicaSet", "r", {"spec": {"replicas": 1}})
    await until(lambda: len(pods(cluster, "r")) == 1)
    assert [pod["metadata"]["name"] for pod in pods(cluster, "r")] == [youngest if bound == 1 else eldest]


async def test_a_stateful_set_starts_its_pods_in_order(cluster: SimulatedCluster) -> None:
    cluster.create(workload("StatefulSet", "s", replicas=3, serviceName="x"))
    await until(lambda: pods(cluster, "s"))
    assert [pod["metadata"]["name"] for pod in pods(cluster, "s")] == ["s-0"]
    await until(lambda: running(cluster, "s") == 3)
    made = [pod["metadata"]["creationTimestamp"] for pod in pods(cluster, "s")]
    assert made == sorted(made)
    gone = cluster.get("Pod", "s-1")["metadata"]["uid"]
    cluster.delete("Pod", "s-1")
    await until(lambda: gone not in {pod["metadata"]["uid"] for pod in pods(cluster, "s")})
    await until(lambda: running(cluster, "s") == 3)
    cluster.patch("StatefulSet", "s", {"spec": {"replicas": 1}})
    await until(lambda: [pod["metadata"]["name"] for pod in pods(cluster, "s")] == ["s-0"])


async def test_who_is_there_and_not_ready_holds_up_a_stateful_set(cluster: SimulatedCluster) -> None:
    cluster.create(workload("StatefulSet", "s", replicas=3, serviceName="x"))
    await until(lambda: pods(cluster, "s"))
    cluster.bind("s-0", "of-which-nobody-knows")
    await until(lambda: cluster.get("StatefulSet", "s").get("status") == {"replicas": 1, "readyReplicas": 0})
    cluster.create(workload("Job", "other"))
    await until(lambda: pods(cluster, "other"))
    assert [pod["metadata"]["name"] for pod in pods(cluster, "s")] == ["s-0"]
    cluster.create(node("of-which-nobody-knows", cpu="1000"))
    await until(lambda: running(cluster, "s") == 3)
    await until(lambda: cluster.get("StatefulSet", "s")["status"] == {"replicas": 3, "readyReplicas": 3})


async def test_a_parallel_stateful_set_starts_all_at_once_from_its_first_ordinal_on(cluster: SimulatedCluster) -> None:
    start = {"ordinals": {"start": 5}}
    cluster.create(workload("StatefulSet", "s", replicas=3, podManagementPolicy="Parallel", **start))
    await until(lambda: [pod["metadata"]["name"] for pod in pods(cluster, "s")] == ["s-5", "s-6", "s-7"])


async def test_a_job_runs_to_its_completions(cluster: SimulatedCluster) -> None:
    work = template(restartPolicy="Never", annotations={DURATION: "5"})
    cluster.create(workload("Job", "j", parallelism=2, completions=5, template=work))
    await until(lambda: conditions(cluster, "Job", "j") == ["Complete"])
    assert len(pods(cluster, "j")) == 5
    status = cluster.get("Job", "j")["status"]
    assert (status["succeeded"], status["active"], status["failed"]) == (5, 0, 0)
    assert status["completionTime"]


@pytest.mark.parametrize("completions", [None, 9])
async def test_a_job_that_may_have_fewer_pods_at_once_loses_the_others(
    cluster: SimulatedCluster, completions: int | None
) -> None:
    """As it was: they stayed, also where somebody paused it by a parallelism of 0. Unbound ones go first."""
    cluster.create(workload("Job", "j", parallelism=2, completions=completions))
    await until(lambda: running(cluster, "j") == 2)
    known = {pod["metadata"]["name"] for pod in pods(cluster, "j")}
    cluster.patch("Job", "j", {"spec": {"parallelism": 4}})
    await until(lambda: len(pods(cluster, "j")) == 4)
    cluster.patch("Job", "j", {"spec": {"parallelism": 2}})
    await until(lambda: {pod["metadata"]["name"] for pod in pods(cluster, "j")} == known)
    await until(lambda: cluster.get("Job", "j")["status"]["active"] == 2)
    cluster.patch("Job", "j", {"spec": {"parallelism": 0}})
    await until(lambda: pods(cluster, "j") == [])
    await until(lambda: cluster.get("Job", "j")["status"]["active"] == 0)
    assert conditions(cluster, "Job", "j") == []


async def test_a_job_without_completions_ends_when_its_last_pod_has(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", parallelism=2))
    await until(lambda: running(cluster, "j") == 2)
    for number, pod in enumerate(pods(cluster, "j"), 1):
        assert conditions(cluster, "Job", "j") == []
        cluster.patch("Pod", pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}, subresource="status")
        await until(lambda number=number: cluster.get("Job", "j")["status"]["succeeded"] == number)
    await until(lambda: conditions(cluster, "Job", "j") == ["Complete"])
    assert len(pods(cluster, "j")) == 2


async def test_a_stateful_set_replaces_what_failed_under_its_name(cluster: SimulatedCluster) -> None:
    cluster.create(workload("StatefulSet", "s", replicas=1))
    await until(lambda: running(cluster, "s") == 1)
    failed = cluster.get("Pod", "s-0")["metadata"]["uid"]
    cluster.patch("Pod", "s-0", {"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: [pod["metadata"]["uid"] for pod in pods(cluster, "s")] not in ([failed], []))
    await until(lambda: running(cluster, "s") == 1)


async def test_an_indexed_job_completes_each_index(cluster: SimulatedCluster) -> None:
    work = template(restartPolicy="Never", annotations={DURATION: "5"})
    cluster.create(workload("Job", "j", parallelism=2, completions=4, completionMode="Indexed", template=work))
    await until(lambda: conditions(cluster, "Job", "j") == ["Complete"])
    indices = [pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods(cluster, "j")]
    assert sorted(indices) == ["0", "1", "2", "3"]


async def test_an_indexed_job_goes_on_with_the_first_index_that_nobody_has(cluster: SimulatedCluster) -> None:
    def indices() -> list[str]:
        bind_all(cluster)
        return sorted(
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods(cluster, "j")
        )

    cluster.create(workload("Job", "j", parallelism=2, completions=5, completionMode="Indexed"))
    await until(lambda: indices() == ["0", "1"])
    (last,) = (pod["metadata"]["name"] for pod in pods(cluster, "j") if pod["metadata"]["name"].startswith("j-1"))
    cluster.patch("Pod", last, {"status": {"phase": "Succeeded"}}, subresource="status")
    await until(lambda: len(indices()) > 2)
    await until(lambda: cluster.get("Job", "j")["status"]["active"] == 2)
    assert indices() == ["0", "1", "2"]


async def test_a_job_that_fails_takes_those_that_run_with_it(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", parallelism=2, completions=2, backoffLimit=0))
    await until(lambda: running(cluster, "j") == 2)
    failed, _ = (pod["metadata"]["name"] for pod in pods(cluster, "j"))
    cluster.patch("Pod", failed, {"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: conditions(cluster, "Job", "j") == ["Failed"])
    await until(lambda: [pod["metadata"]["name"] for pod in pods(cluster, "j")] == [failed])
    status = cluster.get("Job", "j")["status"]
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("True", "BackoffLimitExceeded")
    assert "completionTime" not in status


async def test_a_job_fails_behind_its_backoff_limit(cluster: SimulatedCluster) -> None:
    work = template(restartPolicy="Never", annotations={DURATION: "0", EXIT_CODE: "1"})
    cluster.create(workload("Job", "j", backoffLimit=2, template=work))
    await until(lambda: conditions(cluster, "Job", "j") == ["Failed"])
    assert [pod["status"]["phase"] for pod in pods(cluster, "j")] == ["Failed"] * 3


@pytest.mark.parametrize(("code", "ended"), [("0", "Complete"), ("1", "Failed")])
async def test_a_job_that_has_ended_makes_no_more_pods(cluster: SimulatedCluster, code: str, ended: str) -> None:
    """Also when those of which it was said are gone."""
    work = template(restartPolicy="Never", annotations={DURATION: "0", EXIT_CODE: code})
    cluster.create(workload("Job", "j", backoffLimit=0, template=work))
    await until(lambda: conditions(cluster, "Job", "j") == [ended])
    for pod in pods(cluster, "j"):
        cluster.delete("Pod", pod["metadata"]["name"])
    await until(lambda: not pods(cluster, "j"))
    cluster.patch("Job", "j", {"metadata": {"labels": {"looked": "at"}}})
    cluster.create(workload("Job", "other"))
    await until(lambda: pods(cluster, "other"))
    assert pods(cluster, "j") == []
    assert conditions(cluster, "Job", "j") == [ended]


async def test_a_suspended_job_waits(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", suspend=True))
    cluster.create(workload("Job", "other"))
    await until(lambda: pods(cluster, "other"))
    assert pods(cluster, "j") == []
    cluster.patch("Job", "j", {"spec": {"suspend": False}})
    await until(lambda: pods(cluster, "j"))


async def test_a_job_that_is_suspended_loses_its_pods_and_stays(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", parallelism=2, completions=2))
    await until(lambda: running(cluster, "j") == 2)
    cluster.patch("Job", "j", {"spec": {"suspend": True}})
    await until(lambda: not pods(cluster, "j") and conditions(cluster, "Job", "j") == ["Suspended"])
    cluster.patch("Job", "j", {"spec": {"suspend": False}})
    await until(lambda: running(cluster, "j") == 2 and conditions(cluster, "Job", "j") == [])


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job"])
async def test_what_an_owner_owned_goes_with_it(cluster: SimulatedCluster, kind: str) -> None:
    cluster.create(workload(kind, "w"))
    await until(lambda: running(cluster, "w") == 1)
    cluster.delete(kind, "w")
    await until(lambda: not pods(cluster, "w") and not list(cluster.list("ReplicaSet")))


def owned_group(cluster: SimulatedCluster, job: str, name: str) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": cluster.get("Job", job)["metadata"]["uid"]}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
        "spec": {"minMember": 1},
    }


def groups(cluster: SimulatedCluster) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.list("PodGroup")]


async def test_a_pod_group_goes_with_its_owner_also_one_that_comes_later(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j"))
    cluster.create(owned_group(cluster, "j", "first"))
    late, other = owned_group(cluster, "j", "late"), owned_group(cluster, "j", "other")
    other["metadata"]["ownerReferences"][0]["uid"] = "of-somebody-who-was-never-there"
    await until(lambda: running(cluster, "j") == 1)
    cluster.delete("Job", "j")
    await until(lambda: not groups(cluster) and not pods(cluster, "j"))
    cluster.create(late)
    cluster.create(other)
    await until(lambda: groups(cluster) == ["other"])


async def test_what_an_object_of_any_kind_owned_goes_with_it(cluster: SimulatedCluster) -> None:
    """As it was: only what a workload owned, so that the pods of somebody's own kind stayed for good."""
    cluster.create(workload("Job", "j"))
    (uid,) = {cluster.create(owned_group(cluster, "j", "g"))["metadata"]["uid"]}
    owner = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "name": "g", "uid": uid}
    first = lone("first")
    first["metadata"]["ownerReferences"] = [owner]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": cluster.create(first)["metadata"]["uid"]}
    second = lone("second")
    second["metadata"]["ownerReferences"] = [owner]
    cluster.create(second)
    await until(lambda: running(cluster, "g") == running(cluster, "first") == 1)
    cluster.delete("PodGroup", "g")
    await until(lambda: not pods(cluster, "g") and not pods(cluster, "first"))
    assert running(cluster, "j") == 1


async def test_what_has_another_owner_stays_and_names_that_one_alone(cluster: SimulatedCluster) -> None:
    """As Kubernetes' garbage collector keeps it. As it was: it went with the first of its owners."""
    for job in ("j", "k"):
        cluster.create(workload("Job", job))
    both, other = owned_group(cluster, "j", "both"), owned_group(cluster, "k", "other")
    both["metadata"]["ownerReferences"] += other["metadata"]["ownerReferences"]
    cluster.create(both)
    await until(lambda: running(cluster, "j") == running(cluster, "k") == 1)
    cluster.delete("Job", "j")
    await until(
        lambda: (
            cluster.get("PodGroup", "both")["metadata"]["ownerReferences"] == other["metadata"]["ownerReferences"]
            and not pods(cluster, "j")
        )
    )
    cluster.delete("Job", "k")
    await until(lambda: not groups(cluster))


async def test_what_was_taken_from_its_owner_stays(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", completions=2, parallelism=2))
    await until(lambda: running(cluster, "j") == 2)
    kept, other = sorted(pod["metadata"]["name"] for pod in pods(cluster, "j"))
    cluster.patch("Pod", kept, {"metadata": {"ownerReferences": None}})
    cluster.delete("Job", "j")
    await until(lambda: not pods(cluster, "j"))
    cluster.create(workload("Job", "next"))
    await until(lambda: pods(cluster, "next"), "the controllers to have looked at all that came before")
    assert cluster.get("Pod", kept)["metadata"]["name"] == kept
    assert other not in {pod["metadata"]["name"] for pod in cluster.list("Pod")}


async def test_pods_that_cannot_be_made_are_told_on_the_owner(cluster: SimulatedCluster) -> None:
    cluster.create(workload("Job", "j", template=template(restartPolicy="Never", priorityClassName="nobody")))
    await until(lambda: list(cluster.list("Event")))
    (event,) = cluster.list("Event")
    uid = cluster.get("Job", "j")["metadata"]["uid"]
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "j", "uid": uid}
    assert (event["reason"], event["type"], event["involvedObject"]) == ("FailedCreate", "Warning", about)
    assert "no PriorityClass with name nobody was found" in event["message"]
    cluster.create(workload("Job", "other"))
    await until(lambda: pods(cluster, "other"))
