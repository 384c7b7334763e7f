"""Manifests, from YAML to a placement: an answer, or an error that says where; in bounded time and memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from services.console import show
from services.console.simulate import simulate
from services.documents import DEEPEST, NotYaml, load_all
from services.simulator.manifests import ManifestError
from services.state.validate import validate_state
from tests.console.manifests import node, pod, pod_spec, workload
from tests.fuzz import examples
from tests.fuzz.generate import TEXTS, jsons, spoiled
from tests.fuzz.targets import scratch
from tests.manifests import load_yaml, pod_group

REQUIREMENT = {"key": "zone", "operator": "Gt", "values": ["3"]}
FULL = pod_spec(
    nodeSelector={"zone": "a"},
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [REQUIREMENT]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 3, "preference": {"matchExpressions": [REQUIREMENT]}}
            ],
        }
    },
    initContainers=[{"name": "i", "resources": {"requests": {"cpu": "2"}}, "restartPolicy": "Always"}],
    overhead={"cpu": "1m"},
    volumes=[{"name": "v", "ephemeral": {}}],
    topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}],
    priorityClassName="high",
    hostNetwork=True,
)
FULL["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
LABELLED = {"name": "full", "namespace": "default", "labels": {"scheduling.x-k8s.io/pod-group": "g"}}
JOB, STATEFUL = workload("Job", "j", 3), workload("StatefulSet", "s", 2)
JOB["spec"]["completionMode"] = "Indexed"
STATEFUL["spec"] |= {"ordinals": {"start": 1}, "serviceName": "svc"}
DEFINITION = {
    "group": "x",
    "names": {"kind": "Foo", "plural": "foos"},
    "scope": "Namespaced",
    "versions": [{"name": "v1", "served": True}],
}
DOCUMENTS: list[dict[str, Any]] = [
    *(node("n2"), pod("a"), JOB, STATEFUL, workload("Deployment", "d", 2), pod_group("g", 1)),
    {"apiVersion": "v1", "kind": "Pod", "metadata": LABELLED, "spec": FULL},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.x"},
        "spec": DEFINITION,
    },
    {"apiVersion": "v1", "kind": "List", "items": [pod("inner")]},
    {"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "foo"}, "spec": {}},
]


@examples(150)
@given(spoiled(DOCUMENTS, jsons, most=2))
def test_a_spoiled_manifest_is_placed_or_refused(odd: Any) -> None:
    try:
        text = json.dumps(odd)
    except ValueError:
        return  # an integer that Python does not write
    path = scratch() / "spoiled.yaml"
    path.write_text(f"{json.dumps(node('n1'))}\n---\n{text}\n---\n{json.dumps(pod('good'))}\n")
    try:
        simulation = simulate(load_yaml([path]))
    except ManifestError as error:
        assert len(str(error)) < 100_000
        return
    validate_state(simulation.state)
    found = simulation.answer()
    assert found["bound"].get("default/good") or "default/good" in found["waiting"]
    msgspec.json.encode(found)


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_what_a_manifest_says_is_printed_as_it_stands(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No label, quantity or name is taken for markup."""
    odd = pod("odd", cpu=text)
    show.answer(simulate([node("n1"), odd]).answer())
    assert "default/odd" in capsys.readouterr().out


def test_a_quantity_of_brackets_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    show.answer(simulate([node("n1"), pod("odd", cpu="[/]")]).answer())
    assert "'[/]'" in capsys.readouterr().out


def lines(first: str, of_next: str, count: int) -> str:
    """Anchors a0, a1, …; each says nine times what the one before it says."""
    many = (f"a{n}: &a{n} {of_next.format(','.join([f'*a{n - 1}'] * 9))}" for n in range(1, count))
    return "\n".join([f"a0: &a0 {first}", *many])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 200_000, "nested deeper than 100 levels"),
        ("- " * 200_000 + "a", "nested deeper than 100 levels"),
        ("{a: " * 200_000, "nested deeper than 100 levels"),
        ("[" * 101 + "]" * 101, "nested deeper than 100 levels"),
        ("\n".join(["- &a0 [x]"] + [f"- &a{n} [*a{n - 1}]" for n in range(1, 3_000)]), "nested deeper than 100 levels"),
        ("&a [*a]", "nested deeper than 100 levels"),
        ("a: &a {b: *a}", "nested deeper than 100 levels"),
        ("&a {<<: *a, b: 1}", "RecursionError"),
        (lines("[x,x,x]", "[{}]", 12), "anchors that repeat too much"),
        (lines("{x: 1, y: 2}", "{{<<: [{}]}}", 12), "merges of merges that are too large"),
        ("a: " + "9" * 5_000, "expected integers of 64 bits, found one of 5000 characters"),
        ("a: " + "9" * 30, "expected integers of 64 bits, found one of 100"),
        ("a: 0b_", "invalid literal"),
        ("!!bool x", "KeyError"),
        ("a: !!set {b, c}", "expected what JSON can say, found set"),
        ("a: !!timestamp 2026-01-02", "expected what JSON can say, found date"),
        ("~: a", "expected a string as a key, found NoneType"),
        ("? [a]\n: b", "unhashable key"),
        ("a: \0", "characters are not allowed"),
        ('1: a\n"1": b', "'1' appears twice in one mapping, again at line 2, column 1"),
        ("a: {x: 1, 0x1: a, 1: b}", "'1' appears twice in one mapping, again at line 1, column 19"),
        ("on: a\nyes: b", "'true' appears twice"),
    ],
    ids=range(22),
)
def test_yaml_that_would_end_the_process_or_fill_the_memory_is_refused(text: str, told: str) -> None:
    with pytest.raises(NotYaml) as error:
        load_all(text)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_yaml_is_what_kubernetes_reads() -> None:
    merged = {"a": {"x": 1}, "b": {"x": 1, "y": "2026-01-02"}}
    assert load_all("a: &a {x: 1}\nb: {<<: *a, y: 2026-01-02}") == [merged]
    assert load_all("1: a\n2.5: b\nfalse: c") == [{"1": "a", "2.5": "b", "false": "c"}]
    assert load_all('a: &a {1: x}\nb: {<<: *a, "1": y}') == [{"a": {"1": "x"}, "b": {"1": "y"}}]
    assert load_all("[" * DEEPEST + "]" * DEEPEST)
    assert load_all("a: b\n---\nc: d\n---\n") == [{"a": "b"}, {"c": "d"}, None]
    assert load_all("") == []


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("replicas", 2_000_000, "spec.replicas: expected a count of at most 1000000"),
        ("selector", "x", "spec.selector: Expected object, got str"),
        ("ordinals", {"start": "1"}, "spec.ordinals.start: Expected int, got str"),
    ],
)
def test_a_workload_that_no_server_would_decode_is_named(tmp_path: Path, field: str, value: Any, told: str) -> None:
    odd = workload("StatefulSet", "s", 1)
    odd["spec"][field] = value
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(odd))
    with pytest.raises(ManifestError) as error:
        load_yaml([path])
    assert f"{path}, document 1, StatefulSet s" in str(error.value)
    assert told in str(error.value)


def test_null_is_nothing_in_a_built_in_kind(tmp_path: Path) -> None:
    odd = pod("p")
    odd["spec"] |= {"hostNetwork": None, "schedulerName": None, "tolerations": None}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(odd))
    assert simulate([node("n1"), *load_yaml([path])]).answer()["bound"] == {"default/p": "n1"}


def test_a_pod_group_of_another_group_is_none_of_these() -> None:
    """`muster simulate` took every kind that is called Pod or PodGroup for its own."""
    foreign = {"apiVersion": "example.com/v9", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    assert simulate([node("n1"), foreign, pod("a")]).answer()["bound"] == {"default/a": "n1"}
