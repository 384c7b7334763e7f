"""What looks like a declaration of a gang and is none: told, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from events.dialects import POD_GROUPS
from services.cli.muster import app
from services.console.misspelt import ANNOTATIONS, LABELS, misspelt
from tests.manifests import load_yaml

MANIFESTS = Path(__file__).parents[3] / "shared" / "manifests"
OTHERS = (
    *("app.kubernetes.io/name", "app.kubernetes.io/part-of", "batch.kubernetes.io/job-name", "pod-template-hash"),
    *("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name", "jobset.sigs.k8s.io/jobset-name", "name", "app"),
    *("volcano.sh/job-name", "volcano.sh/queue-name", "volcano.sh/task-index", "volcano.sh/preemptable"),
    *("scheduling.volcano.sh/group-name", "training.kubeflow.org/job-name", "scheduling.koordinator.sh/priority"),
)
"""Keys that others have, and that are nobody's mistake."""


def pod_group(api_version: str = "scheduling.x-k8s.io/v1alpha1", **spec: object) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "ml"}, "spec": spec}


def job(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    template = {"metadata": {"labels": labels or {}, "annotations": annotations or {}}, "spec": {"containers": []}}
    metadata = {"name": "j", "namespace": "ml"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("minmember", "; did you mean minMember?"),
        ("minMembers", "; did you mean minMember?"),
        ("minimumMember", "; did you mean minMember?"),
        ("scheduleTimeoutSecond", "; did you mean scheduleTimeoutSeconds?"),
        ("quee", "; did you mean queue?"),
        ("colour", ""),
    ],
)
def test_a_field_that_no_pod_group_has_is_told(field: str, said: str) -> None:
    assert misspelt([pod_group(minMember=2, **{field: 3})]) == [
        f"PodGroup ml/g: spec.{field} is no field of a PodGroup{said}"
    ]


@pytest.mark.parametrize("api_version", POD_GROUPS.values())
def test_what_a_dialect_has_and_muster_ignores_is_no_mistake(api_version: str) -> None:
    ignored = {"minResources": {"cpu": "1"}, "disruptionMode": "pod", "resourceClaims": [], "podGroupTemplateRef": {}}
    ignored |= {"workloadRef": {}, "preemptionPolicy": "Never"}
    assert not misspelt([pod_group(api_version, minMember=1, **ignored)])


@pytest.mark.parametrize("spec", [None, [], "x"])
def test_a_pod_group_without_a_spec_has_no_field(spec: object) -> None:
    assert not misspelt([{**pod_group(), "spec": spec}])


def test_a_kind_of_the_same_name_in_another_group_is_not_looked_at() -> None:
    assert not misspelt([pod_group("example.org/v1", minmember=3)])


@pytest.mark.parametrize(
    ("place", "key", "meant"),
    [
        ("labels", "scheduling.x-k8s.io/podgroup", "scheduling.x-k8s.io/pod-group"),
        ("labels", "scheduling.x-k8s.io/Pod-Group", "scheduling.x-k8s.io/pod-group"),
        ("labels", "schedulng.x-k8s.io/pod-group", "scheduling.x-k8s.io/pod-group"),
        ("labels", "pod-group.scheduling.sig.k8s.io", "pod-group.scheduling.sigs.k8s.io"),
        (
            "labels",
            "pod-group.scheduling.sigs.k8s.io/minavailable",
            "pod-group.scheduling.sigs.k8s.io/min-available",
        ),
        ("annotations", "gang.scheduling.koordinator.sh/min-avilable", "gang.scheduling.koordinator.sh/min-available"),
        ("annotations", "gang.scheduling.koordinator.io/name", "gang.scheduling.koordinator.sh/name"),
        ("annotations", "scheduling.k8s.io/groupname", "scheduling.k8s.io/group-name"),
        ("annotations", "scheduling.volcano.sh/group-min-members", "scheduling.volcano.sh/group-min-member"),
    ],
)
def test_what_is_nearly_a_dialects_is_told_wherever_it_stands(place: str, key: str, meant: str) -> None:
    assert misspelt([job(**{place: {key: "x"}})]) == [
        f"Job ml/j: spec.template.metadata.{place}[{key}] is no declaration; did you mean {meant}?"
    ]


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ("labels", "volcano.sh/task-spec"),
        *(("annotations", f"scheduling.volcano.sh/{name}") for name in ("group-min-resources", "queue-name")),
        *(("annotations", f"scheduling.k8s.io/{name}") for name in ("group-name", "group-min-member")),
        ("annotations", "volcano.sh/task-spec"),
        ("annotations", "gang.scheduling.koordinator.sh/network-topology-spec"),
        ("annotations", "gang.scheduling.koordinator.sh/timeout"),
    ],
)
def test_what_has_no_effect_or_stands_in_either_place_is_no_mistake(place: str, key: str) -> None:
    assert not misspelt([job(**{place: {key: "x"}})])


def test_templates_that_stand_in_a_list_are_looked_at() -> None:
    template = {"metadata": {"labels": {"volcano.sh/task-sepc": "a"}}, "spec": {"containers": []}}
    metadata, spec = {"generateName": "v-", "namespace": "ml"}, {"tasks": [{}, {"template": template}]}
    volcanos = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
    (told,) = misspelt([volcanos])
    assert told.startswith("Job ml/v-: spec.tasks[1].template.metadata.labels[volcano.sh/task-sepc] is no declaration")


def test_a_label_among_annotations_is_told_and_an_annotation_among_labels() -> None:
    found = misspelt(
        [job({"gang.scheduling.koordinator.sh/name": "g"}, annotations={"scheduling.x-k8s.io/pod-group": "g"})]
    )
    assert found == [
        "Job ml/j: spec.template.metadata.labels[gang.scheduling.koordinator.sh/name] is read among annotations alone",
        "Job ml/j: spec.template.metadata.annotations[scheduling.x-k8s.io/pod-group] is read among labels alone",
    ]


def test_of_what_is_right_and_of_what_is_others_nothing_is_said() -> None:
    ours = job(dict.fromkeys(LABELS, "x"), dict.fromkeys(ANNOTATIONS, "x"))
    others = job(dict.fromkeys(OTHERS, "x"), dict.fromkeys(OTHERS, "x"))
    index = job(annotations={"gang.scheduling.koordinator.sh/network-topology-index": "3"})
    assert not misspelt([ours, others, index])


@pytest.mark.skipif(not MANIFESTS.is_dir(), reason="needs ../shared")
def test_of_published_manifests_nothing_is_said() -> None:
    files = [file for file in sorted(MANIFESTS.rglob("*.yaml")) if ".fragment." not in file.name]
    assert not [said for file in files for said in misspelt(_readable(file))]


def _readable(file: Path) -> list[dict[str, Any]]:
    try:
        return load_yaml([file])
    except ValueError:  # published as it is, and refused
        return []


def test_simulate_warns(tmp_path: Path) -> None:
    """As it was: taken in silence, with a minimum that nobody had written."""
    file = tmp_path / "group.json"
    file.write_text(json.dumps(pod_group(minmember=3)))
    said = CliRunner().invoke(app, ["simulate", "-f", str(file)], env={"COLUMNS": "300"})
    assert said.exit_code == 0
    assert "spec.minmember is no field of a PodGroup; did you mean minMember?" in said.stdout
    found = json.loads(CliRunner().invoke(app, ["simulate", "-f", str(file), "--json"]).stdout)
    assert len(found["warnings"]) == 1


MISSPELT = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, label: {a: b}}
spec:
  paralelism: 5
  template:
    spec:
      restartPolicy: Never
      nodeselector: {a: b}
      serviceAccount: older
      dnsPolicy: Default
      containers:
      - {name: a, image: x, resource: {requests: {cpu: 1}}, env: [], volumeMounts: []}
      - {name: b, image: x, resources: {request: {cpu: 1}, limits: {cpu: 1}}}
---
apiVersion: v1
kind: Node
metadata: {name: 'n'}
spec: {podCIDR: 10.0.0.0/24, taint: [{key: a, effect: NoSchedule}]}
status: {capacity: {cpu: 1}, nodeInfo: {}, images: [], alocatable: {cpu: 1}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c}]}
status: {condition: []}
"""


def test_a_field_that_is_nearly_one_is_told(tmp_path: Path) -> None:
    """`kubectl` refuses it. As it was: the Job had one pod, which asked for nothing and went anywhere."""
    (tmp_path / "a.yaml").write_text(MISSPELT)
    containers = "spec.template.spec.containers"
    assert misspelt(load_yaml([tmp_path / "a.yaml"])) == [
        "Job default/j: metadata.label is no field; did you mean labels?",
        "Job default/j: spec.paralelism is no field; did you mean parallelism?",
        "Job default/j: spec.template.spec.nodeselector is no field; did you mean nodeSelector?",
        f"Job default/j: {containers}[0].resource is no field; did you mean resources?",
        f"Job default/j: {containers}[1].resources.request is no field; did you mean requests?",
        "Node n: spec.taint is no field; did you mean taints?",
        "Node n: status.alocatable is no field; did you mean allocatable?",
    ]
