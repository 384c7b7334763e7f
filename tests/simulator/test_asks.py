"""Requests and limits that an API server refuses. `tests/e2e/test_asks.py` asks a real one about the same pods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from services.console.simulate import simulate
from services.simulator import asks
from services.simulator.cluster import SimulatedCluster
from tests.simulator.objects import node, pod, workload

Object = dict[str, Any]

GPU, MANY = "nvidia.com/gpu", "hugepages-2Mi"


def asking(requests: Object | None = None, limits: Object | None = None, of_pod: Object | None = None) -> Object:
    """A pod that does."""
    found = pod("a", **({"resources": of_pod} if of_pod else {}))
    found["spec"]["containers"][0]["resources"] = {"requests": requests or {}, "limits": limits or {}}
    return found


def test_what_is_wrong_is_told_in_the_order_of_the_requests() -> None:
    """As it was: in that of a set, another one for each PYTHONHASHSEED."""
    names = ["memory", *(f"example.com/{letter}" for letter in "hgfedcba"), "cpu"]
    found = asking(dict.fromkeys(names, "2"), dict.fromkeys(names, "1"))
    told = [message for _, _, message in asks.of_pod(found["spec"], "spec")]
    assert [name for message in told for name in names if f" {name} limit" in message] == names


REFUSED = [
    (asking({"cpu": "2"}, {"cpu": "1500m"}), "containers[0].resources.requests"),
    (asking({"memory": "2Gi"}, {"memory": "1Gi", "cpu": "1"}), "containers[0].resources.requests"),
    (asking({GPU: "1"}, {GPU: "2"}), "containers[0].resources.requests"),
    (asking({MANY: "2Mi", "cpu": "1"}, {MANY: "4Mi"}), "containers[0].resources.requests"),
    (asking({}, {GPU: "0.5"}), f"containers[0].resources.limits[{GPU}]"),
    (asking({}, {GPU: "1500m"}), f"containers[0].resources.requests[{GPU}]"),
    (asking({}, {"gpu": "1"}), "containers[0].resources.limits[gpu]"),
    (asking({}, {"requests.example.com/gpu": "1"}), "containers[0].resources.limits[requests.example.com/gpu]"),
    (asking({}, {"Example.com/gpu": "1"}), "containers[0].resources.limits[Example.com/gpu]"),
    (asking({"cpu": "1"}, of_pod={"requests": {"cpu": "500m"}}), "spec.resources.requests[cpu]"),
    (asking({"cpu": "1"}, of_pod={"limits": {"cpu": "500m"}}), "spec.resources.requests"),
    (asking({"cpu": "1"}, of_pod={"limits": {GPU: "1"}}), f"spec.resources.limits[{GPU}]"),
    (asking({}, {MANY: "3Mi", "cpu": "1"}), f"containers[0].resources.limits[{MANY}]"),
    (asking({}, {"hugepages-big": "2Mi", "cpu": "1"}), "containers[0].resources.limits[hugepages-big]"),
    (asking({}, {MANY: "2Mi"}), "containers[0].resources"),
    (asking({}, {"cpu": "3"}, of_pod={"limits": {"cpu": "2"}}), "spec.resources.containers[0][cpu].limits"),
    (
        asking({}, {MANY: "4Mi", "cpu": "1"}, of_pod={"limits": {MANY: "2Mi", "cpu": "1"}}),
        f"spec.resources.limits[{MANY}]",
    ),
]
TAKEN = [
    asking({"cpu": "0.5", "memory": "0.5"}, {"cpu": 1}),
    asking({}, {GPU: 1, "memory": "1Gi"}),
    asking({GPU: "1"}, {GPU: "1000m"}),
    asking({}, {"kubernetes.io/odd": "1.5"}),
    asking({"cpu": "1"}, {MANY: "0", "cpu": " 1"}),
    asking({MANY: "2Mi", "cpu": "1"}, {MANY: "2Mi"}),
    asking({"cpu": "1"}, of_pod={"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
]


@pytest.mark.parametrize(("asked", "field"), REFUSED)
def test_what_contradicts_itself_is_refused_and_costs_itself_only(asked: Object, field: str) -> None:
    """As it was: half a GPU was counted as one, and a request above its limit was placed."""
    found = simulate([node("n", nvidia_com_gpu="4"), asked, pod("b")]).answer()
    (why,) = found["rejected"]
    assert why.startswith('Pod "a" is invalid: ')
    assert re.search(rf"{re.escape(field)}: (Invalid value|Forbidden): ", why)
    assert found["bound"] == {"default/b": "n"}


@pytest.mark.parametrize("asked", TAKEN)
def test_what_is_odd_and_right_is_taken(asked: Object) -> None:
    assert simulate([asked]).answer()["rejected"] == []


def test_a_limit_that_is_no_quantity_is_refused() -> None:
    """As it was: nobody read it, so that the pod was placed."""
    (why,) = simulate([node("n"), asking({"cpu": "1"}, {"cpu": "two"})]).answer()["rejected"]
    assert (
        why == 'Pod "a" is invalid: spec.containers[0].resources.limits[cpu]: Invalid value: "two": must be a quantity'
    )


def test_a_workload_is_refused_once() -> None:
    job = workload("Job", "j", parallelism=3, completions=3)
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    (why,) = simulate([job]).answer()["rejected"]
    assert 'Job.batch "j" is invalid: spec.template.spec.containers[0].resources.requests: ' in why


def test_a_node_offers_whole_gpus() -> None:
    (why,) = simulate([node("n") | {"status": {"allocatable": {"cpu": "1", GPU: "1.5"}}}]).answer()["rejected"]
    assert why == f'Node "n" is invalid: status.allocatable[{GPU}]: Invalid value: "1.5": must be an integer'


def test_what_lacks_a_limit_is_placed_and_told() -> None:
    """An API server refuses it; what is meant is plain, and many write it so for a plan."""
    job = workload("Job", "j")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {GPU: "1"}}
    gpus = node("n")
    gpus["status"]["capacity"][GPU] = "4"
    found = simulate([gpus, asking({GPU: "1"}), job]).answer()
    assert (len(found["bound"]), found["rejected"]) == (2, [])
    assert found["warnings"] == [
        f"Pod a: spec.containers[0].resources.requests[{GPU}]: an API server refuses it without a limit that is equal",
        f"Job default/j: spec.template.spec.containers[0].resources.requests[{GPU}]: "
        "an API server refuses it without a limit that is equal",
    ]


def test_the_simulated_api_takes_them() -> None:
    """They must be able to reach Muster."""
    SimulatedCluster().create(asking({GPU: "0.5"}, {GPU: "1"}))


def test_what_can_be_read_of_many_resources_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of 8,000 resources took `muster simulate` half a minute."""
    read: list[object] = []
    readable = asks.readable
    monkeypatch.setattr(asks, "readable", lambda quantities: read.append(quantities) or readable(quantities))
    many = {f"example.com/r{number}": "1" for number in range(20)}
    assert not list(asks.of_container({"requests": many, "limits": many}, "resources"))
    assert len(read) == 4
