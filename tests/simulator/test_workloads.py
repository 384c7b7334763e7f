"""The pods of workloads: as Kubernetes' controllers make them, and the same on every run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.workloads import (
    COMPLETION_INDEX,
    expand,
    fnv1a,
    job_pod,
    pods_of,
    replica,
    replica_set_of,
    uid_of,
)
from tests.simulator.objects import Object, template, workload

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)


def named(objects: list[Object]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def test_a_deployments_pods_are_its_replica_sets() -> None:
    deployment = workload("Deployment", "web", replicas=3)
    pods = list(pods_of(deployment))
    replica_set = replica_set_of(deployment)
    digest = replica_set["metadata"]["name"].removeprefix("web-")
    assert len(pods) == 3
    for pod in pods:
        assert re.fullmatch(rf"web-{digest}-[bcdfghjklmnpqrstvwxz2456789]{{5}}", pod["metadata"]["name"])
        assert pod["metadata"]["labels"] == {"app": "x", "pod-template-hash": digest}
        (owner,) = pod["metadata"]["ownerReferences"]
        said = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{digest}", "uid": uid_of(replica_set)}
        assert owner == said | {"controller": True, "blockOwnerDeletion": True}
        assert pod["metadata"]["namespace"] == "default"
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "x", "pod-template-hash": digest}
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == uid_of(deployment)


def test_a_replica_set_has_its_deployments_annotations_but_for_its_own() -> None:
    deployment = workload("Deployment", "web")
    assert "annotations" not in replica_set_of(deployment)["metadata"]
    own = ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
    deployment["metadata"]["annotations"] = {"a": "b", **dict.fromkeys(own, "7")}
    assert replica_set_of(deployment)["metadata"]["annotations"] == {"a": "b"}


def test_owners_of_one_name_are_others_in_another_namespace() -> None:
    """By an owner's UID it is known which pods are one gang."""
    here, there = workload("ReplicaSet", "r"), workload("ReplicaSet", "r")
    there["metadata"]["namespace"] = "there"
    assert uid_of(here) != uid_of(there) != uid_of(workload("Job", "r")) != uid_of(here)


def test_another_template_has_another_hash() -> None:
    first = replica_set_of(workload("Deployment", "web"))["metadata"]["name"]
    assert replica_set_of(workload("Deployment", "web", replicas=9))["metadata"]["name"] == first
    other = workload("Deployment", "web", template=template(nodeSelector={"a": "b"}))
    assert replica_set_of(other)["metadata"]["name"] != first


def test_a_stateful_sets_pods_are_numbered() -> None:
    pods = list(pods_of(workload("StatefulSet", "db", replicas=2, serviceName="svc", ordinals={"start": 3})))
    assert named(pods) == ["db-3", "db-4"]
    assert pods[0]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-3"
    assert pods[0]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "3"
    assert (pods[0]["spec"]["hostname"], pods[0]["spec"]["subdomain"]) == ("db-3", "svc")


def test_a_stateful_sets_claims_come_before_its_volumes_and_in_place_of_those_of_their_names() -> None:
    template_ = template(volumes=[{"name": name, "emptyDir": {}} for name in ("tmp", "data")])
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    (pod,) = pods_of(workload("StatefulSet", "db", template=template_, volumeClaimTemplates=claims))
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
    assert pod["spec"]["volumes"] == [claim, {"name": "tmp", "emptyDir": {}}]
    (bare,) = pods_of(workload("StatefulSet", "db"))
    assert "volumes" not in bare["spec"]


def test_a_job_starts_its_parallelism() -> None:
    assert len(list(pods_of(workload("Job", "j")))) == 1
    assert len(list(pods_of(workload("Job", "j", parallelism=3)))) == 3
    assert len(list(pods_of(workload("Job", "j", parallelism=3, completions=2)))) == 2
    assert len(list(pods_of(workload("Job", "j", parallelism=0, completions=2)))) == 0
    assert len(list(pods_of(workload("Job", "j", parallelism=3, suspend=True)))) == 0
    (pod,) = pods_of(workload("Job", "j"))
    labels, uid = pod["metadata"]["labels"], pod["metadata"]["ownerReferences"][0]["uid"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == uid


def on_its_way(status: Any, **spec: Any) -> list[Object]:
    return list(pods_of({**workload("Job", "j", **spec), "status": status}))


def test_a_job_on_its_way_makes_only_the_pods_that_are_left() -> None:
    """As it was: as many as of a fresh one, so that `muster simulate` over a cluster's Jobs took room that is free."""
    assert len(on_its_way({"succeeded": 8, "active": 2}, parallelism=5, completions=10)) == 2
    assert len(on_its_way({"succeeded": 3, "failed": 4}, parallelism=5, completions=10)) == 5
    assert len(on_its_way({"succeeded": 11}, parallelism=5, completions=10)) == 0
    assert len(on_its_way({"active": 5}, parallelism=5)) == 5
    assert len(on_its_way({"succeeded": 1, "active": 2}, parallelism=5)) == 2, "none is started after the first success"


def test_an_indexed_job_on_its_way_leaves_out_what_has_ended() -> None:
    job = {"completionMode": "Indexed", "parallelism": 3, "completions": 10}

    def indices(**status: Any) -> list[str]:
        return [pod["metadata"]["labels"][COMPLETION_INDEX] for pod in on_its_way(status, **job)]

    assert indices(succeeded=4, completedIndexes="0,2-4") == ["1", "5", "6"]
    assert indices(succeeded=4, completedIndexes="2-4,9", failedIndexes="0,5") == ["1", "6", "7"]
    assert indices(succeeded=8, completedIndexes="0-7") == ["8", "9"]
    assert indices(succeeded=9, completedIndexes="1-9999999999") == ["0"]


@pytest.mark.parametrize(
    "odd", [None, [], {"succeeded": "8"}, {"succeeded": -3}, {"completedIndexes": ["x"]}, {"a": 1}]
)
def test_a_job_with_an_odd_status_is_a_fresh_one(odd: Any) -> None:
    for mode in ("Indexed", "NonIndexed"):
        assert len(on_its_way(odd, parallelism=10, completions=10, completionMode=mode)) == 10


def test_an_indexed_jobs_pods_know_their_index() -> None:
    pods = list(pods_of(workload("Job", "j", parallelism=2, completions=2, completionMode="Indexed")))
    for index, pod in enumerate(pods):
        assert re.fullmatch(rf"j-{index}-[a-z0-9]{{5}}", pod["metadata"]["name"])
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        assert pod["metadata"]["labels"]["job-name"] == "j"
        assert pod["spec"]["hostname"] == f"j-{index}"
    retried = job_pod(workload("Job", "j", completionMode="Indexed"), 7, 0)
    assert retried["metadata"]["name"] not in named(pods)


def test_of_a_long_name_the_index_is_kept() -> None:
    """As Kubernetes' controller cuts it: at 58 characters, which is what a generated name may begin with."""
    job = workload("Job", "j" * 61, parallelism=12, completions=12, completionMode="Indexed")
    *_, last = pods_of(job)
    assert re.fullmatch(r"j{54}-11-[a-z0-9]{5}", last["metadata"]["name"])
    assert len(last["metadata"]["name"]) == 63


def test_null_counts_are_the_default() -> None:
    assert len(list(pods_of(workload("ReplicaSet", "r", replicas=None)))) == 1


def test_lists_are_flattened_and_everything_else_is_kept() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "q"}}
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": {}}
    inner = {"apiVersion": "v1", "kind": "List", "items": [queue, volcano]}
    objects = [{"apiVersion": "v1", "kind": "List", "items": [node, inner]}, workload("ReplicaSet", "r", replicas=2)]
    expanded = list(expand(objects))
    assert expanded[:3] == [node, queue, volcano]
    assert [obj["kind"] for obj in expanded[3:]] == ["Pod", "Pod"]


def test_expanding_changes_nothing_that_was_given() -> None:
    objects = [workload(kind, "w", replicas=3, parallelism=3) for kind in ("Deployment", "StatefulSet", "Job")]
    before = json.dumps(objects)
    pods = list(expand(objects))
    pods[0]["spec"]["containers"][0]["name"] = "changed"
    assert json.dumps(objects) == before
    assert pods[1]["spec"]["containers"][0]["name"] == "main"


@given(names, st.integers(0, 10_000_000), st.integers(1, 2_000))
def test_pods_of_one_owner_never_share_a_name(name: str, first: int, count: int) -> None:
    owner = {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {}}},
    }
    made = {replica(owner, number)["metadata"]["name"] for number in range(first, first + min(count, 50))}
    assert len(made) == min(count, 50)
    assert all(len(name) <= 63 for name in made)
    assert replica(owner, first + count)["metadata"]["name"] not in made


def test_fnv1a_is_the_published_one() -> None:
    assert [fnv1a(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
