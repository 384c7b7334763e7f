"""Gangs of several dialects beside each other, through `muster simulate`."""

from __future__ import annotations

from typing import Any

from services.console.simulate import simulate
from services.console.verify import verify
from services.state.validate import validate_state
from tests.dialects.published import nodes, pod

Object = dict[str, Any]
K = "gang.scheduling.koordinator.sh/"


def placed(*objects: Object) -> Object:
    simulation = simulate([*nodes(), *objects])
    validate_state(simulation.state)
    return simulation.answer()


def group(api_version: str, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


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
    assert sorted(simulation.answer()["bound"]) == ["default/a", "default/b"], "a as soon as b runs"


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
