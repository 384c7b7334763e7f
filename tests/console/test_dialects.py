"""Every gang manifest that is published goes through `muster simulate` as it is, or is refused with the reason.

The manifests stand beside the repository (``../shared``); without them what follows is skipped, but for what is written
out here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.console.simulate import simulate
from services.console.verify import verify
from services.simulator.errors import ApiError
from services.simulator.manifests import ManifestError, load_yaml
from services.state.validate import validate_state

SHARED = Path(__file__).parents[3] / "shared" / "manifests"
published = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
Object = dict[str, Any]
K = "gang.scheduling.koordinator.sh/"


def nodes(count: int = 4) -> list[Object]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "64"}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "status": {"allocatable": room}}
        for i in range(count)
    ]


def placed(*objects: Object) -> Object:
    simulation = simulate([*nodes(), *objects])
    validate_state(simulation.state)
    return simulation.answer()


def pod(name: str, **of: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "x"}], **of.pop("spec", {})}
    metadata = {"name": name, "namespace": of.pop("namespace", "default"), **of}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def group(api_version: str, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


# ---------------------------------------------------------------------------------------------------------- as they are


@published
@pytest.mark.parametrize(
    ("files", "dialect", "minimum", "bound"),
    [
        (["coscheduling/nginx-podgroup-replicaset.yaml"], "coscheduling/v1alpha1", 3, 6),
        (["coscheduling/pg1-podgroup.yaml", "coscheduling/pause-deployment.yaml"], "coscheduling/v1alpha1", 3, 0),
        (["koordinator/podgroup-gang-a.yaml"], "coscheduling/v0.19", 5, 0),
        (["volcano/job.yaml"], "volcano/v1beta1", 3, 6),
        (["volcano/mpi-example.yaml"], "volcano/v1beta1", 3, 3),
        (["volcano/cronjob.yaml"], "volcano/v1beta1", 1, 1),
        (["volcano/deployment.yaml", "volcano/queue-capability.yaml"], "volcano/v1beta1", 1, 1),
        (["volcano/podgroup.yaml"], "volcano/v1beta1", 1, 0),
        (["native/podgroup-v1beta1.yaml"], "kubernetes/v1beta1", 100, 0),
        (["native/jobset-podgroup.yaml", "native/jobset-workload.yaml"], "kubernetes/v1beta1", 100, 0),
        (["kubeflow/tensorflow-simple.yaml"], "coscheduling/v1alpha1", 2, 2),
        (["kubeflow/pytorch-elastic-echo-echo.yaml"], "coscheduling/v1alpha1", 2, 2),
        (["kubeflow/paddlepaddle-simple-gpu.yaml"], "coscheduling/v1alpha1", 2, 2),
        (["kubeflow/xgboost-smoke-dist-xgboostjob_v1_rabit_test.yaml"], "coscheduling/v1alpha1", 3, 3),
        (["kubeflow/jax-cpu-demo-demo.yaml"], "coscheduling/v1alpha1", 2, 2),
    ],
)
def test_a_published_manifest_as_it_is(files: list[str], dialect: str, minimum: int, bound: int) -> None:
    found = placed(*load_yaml(SHARED / file for file in files))
    [gang] = found["gangs"].values()
    assert (gang["dialect"], gang["min_member"]) == (dialect, minimum)
    assert len(found["bound"]) == bound
    assert found["rejected"] == []


@published
def test_volcanos_queue_is_kept() -> None:
    state = simulate([*nodes(), *load_yaml([SHARED / "volcano" / "deployment.yaml"])]).state
    [gang] = state.gangs.values()
    assert gang.declaration is not None
    assert gang.declaration.queue == "test"


@published
def test_the_native_job_waits_for_its_pod_group_and_starts_with_it() -> None:
    [job] = load_yaml([SHARED / "native" / "job-schedulingGroup.yaml"])
    waiting = placed(job)
    assert (len(waiting["bound"]), len(waiting["waiting"])) == (0, 100)
    text = (SHARED / "native" / "podgroup-v1alpha2.gotemplate.yaml").read_text().replace("gang-{{.Index}}", "pg1")
    declared = placed(job, yaml.safe_load(text))
    assert len(declared["bound"]) == 100
    [gang] = declared["gangs"].values()
    assert (gang["dialect"], gang["min_member"]) == ("kubernetes/v1alpha2", 3)


@published
@pytest.mark.parametrize("file", ["kubeflow/trainer-01-multi-node.yaml", "native/workload-v1beta1.yaml"])
def test_manifests_that_declare_no_gang_by_themselves(file: str) -> None:
    assert placed(*load_yaml([SHARED / file]))["gangs"] == {}


@published
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("volcano/minAvailable-webhook-deny.yaml", "'minAvailable' 5 should not be greater than the total of 4"),
        ("volcano/duplicatedTaskName-webhook-deny.yaml", "duplicated task name task-1"),
    ],
)
def test_what_is_marked_as_invalid_is_refused_with_the_reason(file: str, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        simulate(load_yaml([SHARED / file]))


@published
@pytest.mark.parametrize(
    ("file", "key"),
    [("koordinator/podgroup-strict-groups.yaml", "total-number"), ("koordinator/gang-master-worker.yaml", "groups")],
)
def test_annotations_that_are_no_strings_are_named(file: str, key: str) -> None:
    """An API server would reject them, says the list of sources."""
    with pytest.raises(ManifestError, match=rf"annotations\[{K}{key}\]: expected a string"):
        load_yaml([SHARED / file])


@published
def test_koordinators_master_and_workers_with_strings_and_containers() -> None:
    """As published but for the annotations' quotes, and the containers that were left out of the document."""
    objects = list(yaml.safe_load_all((SHARED / "koordinator" / "gang-master-worker.yaml").read_text()))
    for obj in objects:
        for name, value in obj["metadata"].get("annotations", {}).items():
            obj["metadata"]["annotations"][name] = yaml.safe_dump(value, default_flow_style=True).strip()
        if obj["kind"] == "Pod":
            obj["spec"]["containers"] = [{"name": "main", "image": "x"}]
        else:
            groups = obj["metadata"]["annotations"][K + "groups"]
            obj["metadata"]["annotations"][K + "groups"] = str(yaml.safe_load(groups)).replace("'", '"')
    state = simulate([*nodes(), *objects]).state
    declared = {key: gang.declaration for key, gang in state.gangs.items()}
    for declaration in declared.values():
        assert declaration is not None
        assert declaration.groups == ("default/gang-master", "default/gang-worker")
        assert (declaration.waiting_time_ms, declaration.match_policy) == (100_000, "once-satisfied")
    assert {gang.dialect for gang in state.gangs.values()} == {"koordinator/v1alpha1"}


# ---------------------------------------------------------------------------------------------------------- in a cluster


def test_one_name_in_three_dialects_is_three_gangs() -> None:
    native = "scheduling.k8s.io/v1alpha2"
    found = placed(
        group("scheduling.x-k8s.io/v1alpha1", "train", minMember=2),
        group("scheduling.volcano.sh/v1beta1", "train", minMember=3),
        group(native, "train", schedulingPolicy={"gang": {"minCount": 1}}),
        *(pod(f"x-{i}", labels={"scheduling.x-k8s.io/pod-group": "train"}) for i in range(2)),
        *(pod(f"v-{i}", annotations={"scheduling.k8s.io/group-name": "train"}) for i in range(2)),
        pod("n-0", spec={"schedulingGroup": {"podGroupName": "train"}}),
    )
    assert sorted(found["bound"]) == ["default/n-0", "default/x-0", "default/x-1"], "Volcano's lacks its third pod"
    assert sorted(found["gangs"]) == ["default/train", "default/train@batch", "default/train@kubernetes"]


def test_gangs_that_do_not_name_each_other_nobody_waits_for_being_named() -> None:
    """Each waits for those that it names itself."""

    def member(name: str, gang: str, groups: str) -> Object:
        return pod(name, annotations={K + "name": gang, K + "min-available": "1", K + "groups": groups})

    simulation = simulate([*nodes(), member("a", "a", '["default/a","default/b"]'), member("b", "b", "")])
    declared = {key: gang.declaration for key, gang in simulation.state.gangs.items()}
    assert {key: one.groups for key, one in declared.items() if one is not None} == {
        "default/a": ("default/a", "default/b"),
        "default/b": (),
    }
    assert "default/b" in simulation.answer()["bound"]


def test_a_workload_of_kubernetes_1_35() -> None:
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]},
    }

    def member(name: str, replica: str) -> Object:
        reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": replica}
        return pod(name, spec={"workloadRef": reference})

    found = placed(member("a-0", "0"), member("a-1", "0"), member("b-0", "1"), workload)
    assert sorted(found["bound"]) == ["default/a-0", "default/a-1"]
    assert found["gangs"]["default/train:workers:1@kubernetes"]["min_member"] == 2


async def test_what_was_decided_about_every_dialect_is_decided_again() -> None:
    simulation = simulate(
        [
            *nodes(),
            group("scheduling.sigs.k8s.io/v1alpha1", "k", {K + "mode": "Strict"}, minMember=2),
            *(pod(f"k-{i}", labels={"pod-group.scheduling.sigs.k8s.io": "k"}) for i in range(2)),
            *(pod(f"q-{i}", annotations={"scheduling.volcano.sh/queue-name": "q"}) for i in range(2)),
        ]
    )
    assert len(simulation.answer()["bound"]) == 4
    report = await verify(simulation.log)
    assert report.verified
