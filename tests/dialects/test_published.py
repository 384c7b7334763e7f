"""Every gang manifest that is published goes through `muster simulate` as it is, or is refused with the reason."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from services.console.simulate import simulate
from services.simulator.manifests import ManifestError
from services.state.validate import validate_state
from tests.dialects import published
from tests.dialects.published import ACCEPTED, FRAGMENTS, NO_OBJECTS, REFUSED, Object, Published, loaded, nodes, pod

pytestmark = published.there
GROUP = "default/gang-master", "default/gang-worker"


def placed(*objects: Object) -> Object:
    simulation = simulate([*nodes(), *objects])
    validate_state(simulation.state)
    return simulation.answer()


def test_every_published_file_is_tried() -> None:
    told = Counter([*(file for one in ACCEPTED for file in one.files), *REFUSED, *FRAGMENTS, *NO_OBJECTS])
    assert sorted(told) == published.files()
    assert set(told.values()) == {1}


@pytest.mark.parametrize("given", ACCEPTED, ids=lambda one: one.files[0])
def test_a_published_manifest_as_it_is(given: Published) -> None:
    found = placed(*loaded(given.files))
    gangs = sorted((gang["dialect"], gang["min_member"]) for gang in found["gangs"].values())
    assert gangs == sorted(given.gangs)
    assert (len(found["bound"]), len(found["waiting"])) == (given.bound, given.waiting)
    assert found["rejected"] == []


@pytest.mark.parametrize("file", REFUSED)
def test_what_is_marked_as_invalid_is_refused_with_the_reason(file: str) -> None:
    try:
        told = simulate(loaded([file])).answer()["rejected"]
    except ManifestError as error:
        told = [str(error)]
    assert any(re.search(REFUSED[file], why) for why in told), told


@pytest.mark.parametrize(
    "file", [*FRAGMENTS, "kube-batch/kube-batch-conf.yaml", "kube-batch/kube-batch-conf-default.yaml"]
)
def test_what_is_no_object_is_told_so(file: str) -> None:
    with pytest.raises(ManifestError, match="apiVersion: expected a name, found nothing"):
        loaded([file])


def test_the_configuration_of_a_scheduler_is_passed_over_and_told() -> None:
    found = placed(*loaded(["coscheduling/scheduler-config-manifest.yaml"]))
    assert (found["rejected"], [*found["unread"]]) == (
        [],
        ["KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1"],
    )


def test_pods_with_the_legacy_labels_are_one_gang() -> None:
    assert placed(*published.legacy_pods(1))["bound"] == {}
    found = placed(*published.legacy_pods(2))
    assert len(found["bound"]) == 2
    [gang] = found["gangs"].values()
    assert (gang["dialect"], gang["min_member"]) == ("coscheduling/kep-2", 2)


def test_a_runtime_with_the_published_policy_makes_a_gang_of_the_published_train_job() -> None:
    runtime = published.runtime_with_a_gang("torch-distributed")
    found = placed(runtime, *loaded(["kubeflow/trainer-01-multi-node.yaml"]))
    assert len(found["bound"]) == 3
    [gang] = found["gangs"].values()
    assert (gang["dialect"], gang["min_member"]) == ("coscheduling/v1alpha1", 3)


def test_a_task_topology_costs_its_job_nothing() -> None:
    assert len(placed(published.task_topology_job())["bound"]) == 6


def test_the_native_job_starts_with_its_pod_group() -> None:
    found = placed(*loaded(["native/job-schedulingGroup.yaml"]), published.native_group("pg1"))
    assert len(found["bound"]) == 100
    [gang] = found["gangs"].values()
    assert (gang["dialect"], gang["min_member"]) == ("kubernetes/v1alpha2", 3)


def test_volcanos_queue_is_kept() -> None:
    state = simulate([*nodes(), *loaded(["volcano/deployment.yaml"])]).state
    [gang] = state.gangs.values()
    assert gang.declaration is not None
    assert gang.declaration.queue == "test"


def test_the_priority_class_is_the_pods() -> None:
    files = ["kube-batch/pod-ns01-r01.yaml", "kube-batch/high-priority-class.yaml"]
    [found] = simulate([*nodes(), *loaded(files)]).state.pods.values()
    assert found.fact.priority == 1000


def test_koordinators_master_and_workers_with_quotes_and_containers() -> None:
    objects = [*published.master_and_workers()]
    assert len(placed(*objects)["bound"]) == 3
    assert placed(*objects[:-1])["bound"] == {}, "the master waits for both workers"
    state = simulate([*nodes(), *objects]).state
    assert {gang.dialect for gang in state.gangs.values()} == {"koordinator/v1alpha1"}
    for gang in state.gangs.values():
        assert gang.declaration is not None
        assert gang.declaration.groups == GROUP
        assert (gang.declaration.waiting_time_ms, gang.declaration.match_policy) == (100_000, "once-satisfied")


def test_koordinators_strict_group_with_quotes() -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io": "gang-a"}
    member = pod("a-0", namespace="namespacea", labels=labels, spec={"schedulerName": "koord-scheduler"})
    [gang] = simulate([*nodes(), published.strict_group(), member]).state.gangs.values()
    assert gang.declaration is not None
    assert gang.declaration.groups == ("namespacea/gang-a", "namespaceb/gang-b")
    declared = gang.declaration
    assert (declared.min_member, declared.total_member, declared.waiting_time_ms) == (5, 5, 600_000)
    assert (declared.mode, declared.match_policy) == ("Strict", "only-waiting")
