"""What is said of manifests beside where their pods go: what is not read, and what is probably not meant."""

import pytest

from services.console import show
from services.console.simulate import simulate
from tests.console.manifests import node, placed, pod, workload
from tests.manifests import pod_group


def test_what_is_not_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As it was: a DaemonSet, or a kind that was mistyped, was dropped in silence."""
    others = [("v1", "ConfigMap"), ("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "Pood"), ("v2", "Pod")]
    objects = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": f"x{n}"}} for n, (version, kind) in enumerate(others)
    ]
    found = placed(node("n1"), workload("Job", "j", 1), pod_group("g", 1), *objects)
    assert found["unread"] == {"ConfigMap v1": 2, "CronJob batch/v1": 1, "Pod v2": 1, "Pood v1": 1}
    show.answer(found)
    assert "without effect: 2 ConfigMap v1, 1 CronJob batch/v1, 1 Pod v2, 1 Pood v1\n" in capsys.readouterr().out


def test_a_suspended_workload_is_told() -> None:
    """Of it no pods are made: without a word the answer would be empty."""
    job = workload("Job", "later", 2)
    job["spec"]["suspend"] = True
    training = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 2}}},
    }
    of_another_group = {"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job["spec"]}
    found = simulate([node("n1"), job, training, of_another_group, workload("Job", "now", 1)]).answer()
    assert found["warnings"] == [
        "Job default/later: it is suspended: no pods are made of it before it is resumed",
        "PyTorchJob team/train: it is suspended: no pods are made of it before it is resumed",
    ]
    assert len(found["bound"]) == 1


def test_bound_pods_that_keep_others_away_are_told_once() -> None:
    """As it was: others were placed beside them, and nothing was said (ARCHITECTURE.md, known limits)."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    keeping = [pod(name, affinity=affinity, nodeName="n") for name in ("a", "b")]
    found = simulate([node("n"), *keeping, pod("c"), pod("d", affinity=affinity)]).answer()
    assert found["warnings"] == [
        "Pod default/a and 1 more: the required podAntiAffinity of a bound pod keeps no other pod away here"
    ]
    assert found["bound"]["default/c"] == "n"
    assert found["waiting"] == {"default/d": "not supported yet: required podAntiAffinity"}
