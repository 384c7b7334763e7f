"""A pod's life on its node."""

from __future__ import annotations

import pytest

from services.simulator.cluster import SimulatedCluster
from services.simulator.kubelet import DURATION, EXIT_CODE
from tests.simulator.objects import node, pod
from tests.waiting import until


def phase(cluster: SimulatedCluster, name: str) -> str:
    return str(cluster.get("Pod", name)["status"]["phase"])


async def test_a_bound_pod_runs_and_is_ready(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    cluster.create(pod("a"))
    cluster.bind("a", "n")
    await until(lambda: phase(cluster, "a") == "Running")
    status = cluster.get("Pod", "a")["status"]
    told = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert told == {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "True", "Ready": "True"}
    assert status["startTime"].endswith("Z")
    assert status["containerStatuses"][0]["ready"] is True


async def test_a_pod_succeeds_after_its_duration(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    cluster.create(pod("a", annotations={DURATION: "10"}))
    cluster.create(pod("forever"))
    for name in ("a", "forever"):
        cluster.bind(name, "n")
    await until(lambda: phase(cluster, "a") == "Succeeded")
    status = cluster.get("Pod", "a")["status"]
    (container,) = status["containerStatuses"]
    terminated = container["state"].pop("terminated")
    assert container == {"name": "main", "ready": False, "restartCount": 0, "state": {}}
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert terminated["startedAt"] == status["startTime"] <= terminated["finishedAt"]
    ended = {one["type"]: one.get("reason") for one in status["conditions"] if one["status"] == "False"}
    assert ended == {"ContainersReady": "PodCompleted", "Ready": "PodCompleted"}
    assert phase(cluster, "forever") == "Running"


async def test_a_pod_fails_with_its_exit_code(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    cluster.create(pod("a", annotations={DURATION: "0", EXIT_CODE: "3"}))
    cluster.bind("a", "n")
    await until(lambda: phase(cluster, "a") == "Failed")
    assert cluster.get("Pod", "a")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_what_is_no_number_costs_nobody_his_kubelet(cluster: SimulatedCluster) -> None:
    """As it was: with a duration of hundreds of digits no pod of the cluster came to life any more."""
    cluster.create(node("n"))
    for name, said in {"endless": "9" * 400, "odd": "1e3", "arabic": "\u0663", "last": "0"}.items():
        cluster.create(pod(name, annotations={DURATION: said, EXIT_CODE: "9" * 400}))
        cluster.bind(name, "n")
    await until(lambda: phase(cluster, "last") == "Failed")
    assert cluster.get("Pod", "last")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    assert [phase(cluster, name) for name in ("endless", "odd", "arabic")] == ["Running"] * 3


@pytest.mark.parametrize("resource", ["", "pods", "nodes"])
async def test_what_happened_before_the_history_was_dropped_is_found_by_looking(
    cluster: SimulatedCluster, resource: str
) -> None:
    """A soak found it: from there on the kubelets saw nothing any more."""
    for name in ("gone", "a", "waits", "runs"):
        cluster.create(pod(name))
    cluster.create(node("n"))
    for name in ("gone", "runs"):
        cluster.bind(name, "n")
        await until(lambda name=name: phase(cluster, name) == "Running")
    before = cluster.get("Pod", "runs")
    cluster.bind("waits", "later")
    cluster.bind("a", "n")
    cluster.delete("Pod", "gone", gracePeriodSeconds=0)
    cluster.create(node("later"))
    cluster.drop_history(resource)
    await until(lambda: phase(cluster, "a") == phase(cluster, "waits") == "Running")
    assert cluster.kubelet is not None
    assert len(cluster.kubelet._admitted) == 3
    assert cluster.get("Pod", "runs") == before, "it was not started anew"


async def test_a_pod_that_somebody_else_ended_stays_ended(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    for name in ("ended", "other"):
        cluster.create(pod(name, annotations={DURATION: "300"}))
        cluster.bind(name, "n")
    await until(lambda: phase(cluster, "ended") == "Running")
    cluster.patch("Pod", "ended", {"status": {"phase": "Failed"}}, subresource="status")
    await until(lambda: phase(cluster, "other") == "Succeeded")
    assert phase(cluster, "ended") == "Failed"


async def test_a_pod_that_exceeds_the_node_is_rejected(cluster: SimulatedCluster) -> None:
    cluster.create(node("n", example_gpu="1"))
    cluster.create(pod("first", cpu="3"))
    cluster.bind("first", "n")
    await until(lambda: phase(cluster, "first") == "Running")
    gpus = pod("gpu", cpu="0")
    gpus["spec"]["containers"][0]["resources"]["limits"] = {"example/gpu": "2"}
    memory = pod("memory", cpu="0")
    memory["spec"]["containers"][0]["resources"]["requests"]["memory"] = "9Gi"
    for obj, resource in ((pod("cpu", cpu="1500m"), "cpu"), (memory, "memory"), (gpus, "example/gpu")):
        name = cluster.create(obj)["metadata"]["name"]
        cluster.bind(name, "n")
        await until(lambda name=name: phase(cluster, name) == "Failed")
        assert cluster.get("Pod", name)["status"]["reason"] == f"OutOf{resource}"
    message = cluster.get("Pod", "cpu")["status"]["message"]
    assert "resource: cpu, requested: 1500, used: 3000, capacity: 4000" in message
    message = cluster.get("Pod", "memory")["status"]["message"]
    assert f"resource: memory, requested: {9 * 2**30}, used: 0, capacity: {8 * 2**30}" in message


async def test_a_pod_more_than_the_node_takes_is_told_so_before_all_else(cluster: SimulatedCluster) -> None:
    cluster.create(node("n", pods="1"))
    for name, then in (("a", "Running"), ("b", "Failed")):
        cluster.create(pod(name, cpu="4"))
        cluster.bind(name, "n")
        await until(lambda name=name, then=then: phase(cluster, name) == then)
    assert cluster.get("Pod", "b")["status"]["reason"] == "OutOfpods"


async def test_a_pod_that_is_deleted_before_it_started_goes() -> None:
    async with SimulatedCluster(startup_ms=3_600_000) as slow:
        slow.create(node("n"))
        slow.create(pod("a"))
        slow.bind("a", "n")
        slow.delete("Pod", "a")
        assert "deletionTimestamp" in slow.get("Pod", "a")["metadata"]
        await until(lambda: not slow.exists("Pod", "a"))


async def test_a_pod_that_has_succeeded_stays_so_though_it_is_deleted(cluster: SimulatedCluster) -> None:
    """While a finalizer keeps its object, as a Job's does until the pod is counted."""
    cluster.create(node("n"))
    kept = pod("a", annotations={DURATION: "0"})
    kept["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    cluster.create(kept)
    cluster.bind("a", "n")
    await until(lambda: phase(cluster, "a") == "Succeeded")
    cluster.delete("Pod", "a")
    cluster.create(pod("b"))
    cluster.bind("b", "n")
    await until(lambda: phase(cluster, "b") == "Running")
    assert phase(cluster, "a") == "Succeeded"


async def test_room_is_free_again_after_the_end(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    for name, told in (("a", {DURATION: "0"}), ("b", {})):
        cluster.create(pod(name, cpu="4", annotations=told))
        cluster.bind(name, "n")
        await until(lambda name=name: phase(cluster, name) in ("Succeeded", "Running"))
    await until(lambda: phase(cluster, "a") == "Succeeded")
    assert phase(cluster, "b") == "Running"
    cluster.delete("Pod", "b")
    await until(lambda: not cluster.exists("Pod", "b"))
    cluster.create(pod("c", cpu="4"))
    cluster.bind("c", "n")
    await until(lambda: phase(cluster, "c") == "Running")


async def test_graceful_deletion_is_finished_and_holds_the_room() -> None:
    async with SimulatedCluster(termination_ms=300) as slow:
        slow.create(node("n"))
        slow.create(pod("a", cpu="4"))
        slow.bind("a", "n")
        await until(lambda: phase(slow, "a") == "Running")
        slow.delete("Pod", "a")
        assert "deletionTimestamp" in slow.get("Pod", "a")["metadata"]
        slow.create(pod("b", cpu="4"))
        slow.bind("b", "n")
        await until(lambda: phase(slow, "b") == "Failed")
        assert slow.get("Pod", "b")["status"]["reason"] == "OutOfcpu"
        await until(lambda: not slow.exists("Pod", "a"))


async def test_who_has_ended_holds_no_room_though_a_finalizer_keeps_its_object(cluster: SimulatedCluster) -> None:
    """As a kubelet counts (`filterOutInactivePods`). As it was: what came in its place was OutOfcpu until somebody took
    the finalizer away."""
    cluster.create(node("n"))
    kept = pod("a", cpu="4")
    kept["metadata"]["finalizers"] = ["example.com/kept"]
    cluster.create(kept)
    cluster.bind("a", "n")
    await until(lambda: phase(cluster, "a") == "Running")
    cluster.delete("Pod", "a")
    await until(lambda: phase(cluster, "a") == "Failed")
    for name, then in (("b", "Running"), ("c", "Failed")):
        cluster.create(pod(name, cpu="4"))
        cluster.bind(name, "n")
        await until(lambda name=name, then=then: phase(cluster, name) == then)
    assert cluster.exists("Pod", "a")
    cluster.patch("Pod", "a", {"metadata": {"finalizers": None}})
    await until(lambda: not cluster.exists("Pod", "a"))
    cluster.create(pod("d", cpu="1"))
    cluster.bind("d", "n")
    await until(lambda: phase(cluster, "d") == "Failed", "room that was given back twice to be none")


async def test_a_pod_on_a_node_that_does_not_exist_waits_for_it(cluster: SimulatedCluster) -> None:
    cluster.create(pod("a"))
    cluster.bind("a", "later")
    cluster.create(node("n"))
    cluster.create(pod("b"))
    cluster.bind("b", "n")
    await until(lambda: phase(cluster, "b") == "Running")
    assert phase(cluster, "a") == "Pending"
    cluster.create(node("later"))
    await until(lambda: phase(cluster, "a") == "Running")


async def test_a_recreated_pod_is_another_pod(cluster: SimulatedCluster) -> None:
    cluster.create(node("n"))
    for _ in range(3):
        cluster.create(pod("a", cpu="4"))
        cluster.bind("a", "n")
        await until(lambda: phase(cluster, "a") == "Running")
        cluster.delete("Pod", "a", gracePeriodSeconds=0)
        assert not cluster.exists("Pod", "a")


async def test_pods_bound_before_the_start_come_to_life() -> None:
    cluster = SimulatedCluster()
    cluster.create(node("n"))
    cluster.create(pod("a"))
    cluster.bind("a", "n")
    async with cluster:
        await until(lambda: phase(cluster, "a") == "Running")


async def test_without_kubelets_nothing_moves() -> None:
    async with SimulatedCluster(kubelet=False) as cluster:
        cluster.create(node("n"))
        cluster.create(pod("a"))
        cluster.bind("a", "n")
        before = cluster.api.store.revision
        cluster.create(node("other"))
        assert cluster.api.store.revision == before + 1
        assert phase(cluster, "a") == "Pending"
