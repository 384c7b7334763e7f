"""What an API server would refuse costs itself only, and is told once, with what it costs."""

import re

import pytest

from services.console.simulate import simulate
from tests.console.manifests import node, placed, pod, pod_spec, workload
from tests.manifests import pod_group


def test_what_a_server_would_refuse_costs_itself_only() -> None:
    refused = pod_group("g", 2)
    refused["spec"]["minMember"] = "abc"
    found = placed(node("n1"), refused, pod("a"), pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert [why.partition(":")[0] for why in found["rejected"]] == [
        'PodGroup.scheduling.x-k8s.io "g" is invalid',
        'pods "a" already exists (namespace default)',
    ]


def test_a_workload_that_a_server_would_refuse_is_refused_once_and_makes_no_pods() -> None:
    """They were placed, and said to be bound: of what `kubectl apply` would not have taken."""
    restarted, unselected = workload("Job", "j", 3), workload("Deployment", "d", 2)
    del restarted["spec"]["template"]["spec"]["restartPolicy"]
    del unselected["spec"]["selector"]
    mistyped = workload("Deployment", "m", 2)
    mistyped["spec"]["template"]["spec"]["tolerations"] = [{"key": "k", "operator": "Exist"}]
    found = placed(node("n1"), restarted, unselected, mistyped, workload("Job", "ok", 1))
    assert len(found["bound"]) == 1
    assert found["waiting"] == {}
    assert [why.split(": ")[:2] for why in found["rejected"]] == [
        ['Job.batch "j" is invalid', "spec.template.spec.restartPolicy"],
        ['Deployment.apps "d" is invalid', "spec.selector"],
        ['Deployment.apps "m" is invalid', "spec.template.spec.tolerations[0].operator"],
    ]


def test_a_template_that_makes_bad_pods_is_told_once_with_what_it_costs() -> None:
    """As it was: a line for each pod, so that one mistake of a large Job hid all others."""
    nameless = workload("Deployment", "d", 3)
    nameless["spec"]["template"]["spec"]["priorityClassName"] = "nobody"
    unreadable = workload("Job", "j", 2, cpu="abc")
    template = {"template": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec(cpu="abc")}}}}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, **template}]},
    }
    alone = pod("alone", runtimeClassName="nowhere")
    found = simulate([node("n"), nameless, unreadable, job_set, alone, pod("good")]).answer()
    assert [re.sub(r"-[a-z0-9]{5}\b", "-*", line) for line in found["rejected"]] == [
        'Deployment default/d, 3 pods: pods "d-7bf7dfddd4-*" is forbidden: no PriorityClass with name nobody was found '
        "(namespace default)",
        'pods "alone" is forbidden: pod rejected: RuntimeClass "nowhere" not found (namespace default)',
        "Job default/j, 2 pods: Pod default/j-*: spec.containers[0].resources.requests.cpu is 'abc'; expected a "
        "quantity such as 500m, 1.5, 2Gi or 1e3",
        "JobSet default/s, 4 pods: Pod default/s-w-0-0-*: spec.containers[0].resources.requests.cpu is 'abc'; expected "
        "a quantity such as 500m, 1.5, 2Gi or 1e3",
    ]
    assert found["bound"] == {"default/good": "n"}


def test_the_claims_of_a_stateful_set_are_not_overlooked() -> None:
    """Its pods were placed as if they had no volumes: the controller adds them."""
    database = workload("StatefulSet", "db", 1)
    database["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    found = placed(node("n1"), database)
    assert found["waiting"] == {"default/db-0": "not supported yet: persistentVolumeClaim"}


@pytest.mark.parametrize("template", [["x"], {"spec": 3}, {"metadata": {"labels": []}}, {"metadata": "x"}])
def test_a_training_jobs_template_that_is_none_costs_itself_only(template: object) -> None:
    """It ended the command with a traceback."""
    kubeflow, volcano = "kubeflow.org/v1", "batch.volcano.sh/v1alpha1"
    specs = {
        ("PyTorchJob", kubeflow): {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
        ("Job", volcano): {"tasks": [{"name": "t", "template": template}]},
    }
    jobs = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}
        for (kind, version), spec in specs.items()
    ]
    found = placed(node("n1"), *jobs, pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert all(".template" in why for why in found["rejected"])
    assert len(found["rejected"]) == 2


@pytest.mark.parametrize("count", [1 << 40, -1, "x"])
def test_a_count_that_no_cluster_bears_is_refused_for_every_kind_of_job(count: object) -> None:
    """Pods were made, one by one, until the memory was full."""
    template = {"spec": pod_spec()}
    specs = {
        ("PyTorchJob", "kubeflow.org/v1"): {"pytorchReplicaSpecs": {"W": {"replicas": count, "template": template}}},
        ("Job", "batch.volcano.sh/v1alpha1"): {"tasks": [{"replicas": count, "template": template}]},
        ("JobSet", "jobset.x-k8s.io/v1alpha2"): {
            "replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": count, "template": template}}}]
        },
    }
    jobs = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}
        for (kind, version), spec in specs.items()
    ]
    found = placed(node("n1"), *jobs, pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert len(found["rejected"]) == 3


def test_a_job_sets_pods_restart_on_failure_unless_it_says_more() -> None:
    """Their template need not say it, though that of a Job must."""
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": pod_spec()}}}}]}
    name = {"name": "x", "namespace": "default"}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": name, "spec": spec}
    assert len(placed(node("n1"), job_set)["bound"]) == 1
    spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    found = placed(node("n1"), job_set)
    assert found["bound"] == {}
    assert "restartPolicy" in found["rejected"][0]


def test_a_definition_that_is_none_is_named_with_its_field() -> None:
    """As it was: ``CustomResourceDefinition: Expected …``, of whichever it was."""
    about = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.x"},
    }
    spec = {"group": "x", "names": {"kind": "Foo", "plural": "foos"}, "versions": "v1"}
    assert placed({**about, "spec": spec}, {**about, "spec": {**spec, "names": {"kind": "Foo"}}})["rejected"] == [
        "CustomResourceDefinition foos.x: spec.versions: Expected array, got str",
        "CustomResourceDefinition foos.x: spec.names.plural: Expected a value",
    ]
