"""PodRequests: Kubernetes' rules one by one. That these are all of them is tested in e2e, against Kubernetes' code."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.objects import MAX_QUANTITY
from services.ingest.requests import MOST_RESOURCES, pod_requests
from tests.ingest.objects import pod


def requests_of(minor: int = 36, **spec_and_status: Any) -> dict[str, int]:
    problems: list[Any] = []
    found = pod_requests(pod(**spec_and_status), problems, minor)
    assert not problems
    return found


def container(name: str = "c", always: bool = False, **requests: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    return {**made, "restartPolicy": "Always"} if always else made


def test_containers_add_up_and_zeros_are_nothing() -> None:
    containers = [container("a", cpu="100m", memory="1Ki"), container("b", cpu="200m", memory="0")]
    assert requests_of(containers=containers) == {"cpu_milli": 300, "memory_bytes": 1024, "pods": 1}
    assert requests_of(containers=[container(cpu="0")]) == {"pods": 1}


@given(st.lists(st.integers(0, 10**7), max_size=6))
def test_sums_are_made_before_rounding(micro_cpus: list[int]) -> None:
    containers = [container(f"c{index}", cpu=f"{amount}u") for index, amount in enumerate(micro_cpus)]
    expected = ceil(Fraction(sum(micro_cpus), 1000))
    assert requests_of(containers=containers).get("cpu_milli", 0) == expected


def test_an_init_container_counts_where_it_needs_more() -> None:
    assert requests_of(
        containers=[container(cpu="1", memory="1")],
        initContainers=[container("i", cpu="2"), container("j", memory="3")],
    ) == {"cpu_milli": 2000, "memory_bytes": 3, "pods": 1}


def test_sidecars_run_beside_what_starts_after_them() -> None:
    sidecar = container("s", always=True, cpu="1")
    starter = container("i", cpu="4")
    main = [container(cpu="2")]
    assert requests_of(containers=main, initContainers=[starter, sidecar])["cpu_milli"] == 4000
    assert requests_of(containers=main, initContainers=[sidecar, starter])["cpu_milli"] == 5000


@given(st.lists(st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))), max_size=8))
def test_of_a_start_the_largest_sum_counts_for_each_resource(started: list[tuple[bool, dict[str, int]]]) -> None:
    """Beside a naive version, which adds for each init container all that runs by then."""
    said = [
        container(f"i{n}", always, **{f"x/{r}": str(v) for r, v in each.items()})
        for n, (always, each) in enumerate(started)
    ]
    running, most = Counter[str](), Counter[str]()
    for always, each in started:
        now = running + Counter(each)
        running, most = (now if always else running), most | now
    found = requests_of(containers=[container("c", **{"x/a": "2"})], initContainers=said)
    expected = most | (running + Counter(a=2))
    assert found == {f"x/{r}": v for r, v in expected.items()} | {"pods": 1}


def test_a_pod_of_thousands_of_init_containers_and_resources_is_read_in_a_moment() -> None:
    """As it was, each of the one was added to each of the other, for minutes: 400 kB, and no ingest kept its lease."""
    many = {f"a.example/{at}": "1" for at in range(20_000)}
    waiting = [container(f"i{at}") for at in range(20_000)]
    problems: list[Any] = []
    found = pod_requests(
        pod(containers=[container(cpu="1")], initContainers=[container("s", True, **many), *waiting]), problems
    )
    assert (found["cpu_milli"], [one.value for one in problems]) == (1000, ["20001 resources"])


def test_overhead_comes_on_top_and_pod_level_requests_replace() -> None:
    assert requests_of(
        containers=[container(cpu="1", memory="5", **{"nvidia.com/gpu": "2"})],
        resources={"requests": {"cpu": "3", "nvidia.com/gpu": "9"}},
        overhead={"cpu": "250m"},
    ) == {"cpu_milli": 3250, "memory_bytes": 5, "nvidia.com/gpu": 2, "pods": 1}


@pytest.mark.parametrize(
    ("infeasible", "allocated", "actuated", "milli"),
    [(False, "1", "1", 2000), (False, "3", "1", 3000), (False, "1", "4", 4000), (True, "1", "1", 1000)],
)
def test_a_resize_counts_for_the_most_that_it_may_take(
    infeasible: bool, allocated: str, actuated: str, milli: int
) -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = requests_of(
        containers=[container(cpu="2")],
        status={
            "conditions": [condition] if infeasible else [],
            "containerStatuses": [
                {"name": "c", "resources": {"requests": {"cpu": actuated}}, "allocatedResources": {"cpu": allocated}}
            ],
        },
    )
    assert found["cpu_milli"] == milli


def test_a_resize_that_is_deferred_counts_as_it_was_asked_for() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    actual = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    found = requests_of(
        containers=[container(cpu="2")], status={"conditions": [condition], "containerStatuses": [actual]}
    )
    assert found["cpu_milli"] == 2000


def test_an_infeasible_resize_counts_as_asked_for_where_nothing_says_what_the_container_has() -> None:
    """Which a kubelet need not say."""
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = requests_of(
        containers=[container(cpu="2")], status={"conditions": [condition], "containerStatuses": [{"name": "c"}]}
    )
    assert found["cpu_milli"] == 2000


def test_an_infeasible_resize_of_the_pod_itself_counts_as_asked_for_where_nothing_says_what_it_has() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = requests_of(
        containers=[container(cpu="1")], resources={"requests": {"cpu": "2"}}, status={"conditions": [condition]}
    )
    assert found["cpu_milli"] == 2000


def test_whether_a_resize_is_feasible_stands_among_the_pods_other_conditions() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "reason": ""}
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    actual = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    found = requests_of(
        containers=[container(cpu="2")],
        status={"conditions": [scheduled, infeasible], "containerStatuses": [actual]},
    )
    assert found["cpu_milli"] == 1000


@pytest.mark.parametrize(("always", "milli"), [(True, 4000), (False, 1000)])
def test_of_init_containers_sidecars_alone_are_resized(always: bool, milli: int) -> None:
    actual = {"name": "i", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
    found = requests_of(
        containers=[container(cpu="1")],
        initContainers=[container("i", always=always, cpu="1")],
        status={"initContainerStatuses": [actual]},
    )
    assert found["cpu_milli"] == milli


@pytest.mark.parametrize(
    ("infeasible", "actuated", "milli"), [(False, "1", 2000), (False, "3", 3000), (True, "1", 1500), (True, "3", 3000)]
)
def test_requests_of_the_pod_itself_are_resized_alike(infeasible: bool, actuated: str, milli: int) -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = requests_of(
        containers=[container(cpu="1")],
        resources={"requests": {"cpu": "2"}},
        status={
            "conditions": [condition] if infeasible else [],
            "resources": {"requests": {"cpu": actuated}},
            "allocatedResources": {"cpu": "1500m"},
        },
    )
    assert found["cpu_milli"] == milli


def test_what_the_pod_itself_does_not_have_counts_as_none_where_its_resize_is_infeasible() -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = requests_of(
        containers=[container(cpu="1", memory="7")],
        resources={"requests": {"cpu": "2", "memory": "9"}},
        status={"conditions": [condition], "resources": {"requests": {"cpu": "1"}}},
    )
    assert found == {"cpu_milli": 1000, "pods": 1}


def test_a_quantity_may_be_written_as_a_number() -> None:
    asked = {"name": "c", "resources": {"requests": {"cpu": 1.5, "memory": 1024}}}
    assert requests_of(containers=[asked]) == {"cpu_milli": 1500, "memory_bytes": 1024, "pods": 1}


def test_of_the_pod_itself_huge_pages_count_and_other_resources_do_not() -> None:
    found = requests_of(
        containers=[container(**{"hugepages-2Mi": "2Mi"})],
        resources={"requests": {"hugepages-2Mi": "6Mi", "ephemeral-storage": "1Gi"}},
    )
    assert found == {"hugepages-2Mi": 6 << 20, "pods": 1}


@pytest.mark.parametrize("quantity", ["abc", "-1", "1Ei"])
def test_what_cannot_be_counted_is_named_and_counts_as_more_than_any_node_has(quantity: str) -> None:
    problems: list[Any] = []
    found = pod_requests(pod(requests={"cpu": "1", "memory": quantity}), problems)
    assert found == {"cpu_milli": 1000, "memory_bytes": MAX_QUANTITY, "pods": 1}
    [problem] = problems
    assert problem.field == "spec.containers[0].resources.requests.memory"
    assert problem.value == quantity
    assert problem.expected


def test_a_sum_that_cannot_be_counted_counts_as_more_than_any_node_has() -> None:
    problems: list[Any] = []
    half = str(MAX_QUANTITY)
    found = pod_requests(pod(containers=[container("a", memory=half), container("b", memory=half)]), problems)
    assert found == {"memory_bytes": MAX_QUANTITY, "pods": 1}
    assert [problem.field for problem in problems] == ["sum of requests: memory"]


def test_what_asks_for_too_many_resources_is_rejected_and_the_first_of_them_count() -> None:
    """A column of the table of nodes each: one pod of 8,000 kept the planner, and the binder, busy for minutes."""
    for extended, rejected in ((MOST_RESOURCES - 2, False), (MOST_RESOURCES, True)):
        problems: list[Any] = []
        asked = {f"a.example/{at:04}": "1" for at in range(extended)} | {"none.example/x": "0"}
        found = pod_requests(pod(requests=asked | {"cpu": "1", "memory": "5"}), problems)
        assert (len(found), found["cpu_milli"], found["memory_bytes"]) == (MOST_RESOURCES + 1, 1000, 5)
        assert [(one.field, one.value) for one in problems] == [("sum of requests", "66 resources")] * rejected


def test_memory_of_the_pod_itself_replaces_that_of_its_containers() -> None:
    found = requests_of(containers=[container(memory="5")], resources={"requests": {"memory": "3"}})
    assert found == {"memory_bytes": 3, "pods": 1}


BAD = {"requests": {"cpu": "x"}}


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.resources.requests.cpu", {"resources": BAD}),
        ("spec.overhead.cpu", {"overhead": {"cpu": "x"}}),
        ("spec.initContainers[0].resources.requests.cpu", {"initContainers": [container("i", cpu="x")]}),
        (
            "status.resources.requests.cpu",
            {"resources": {"requests": {"cpu": "1"}}, "status": {"resources": BAD}},
        ),
        (
            "status.allocatedResources.cpu",
            {"resources": {"requests": {"cpu": "1"}}, "status": {"resources": {}, "allocatedResources": {"cpu": "x"}}},
        ),
        (
            "status.containerStatuses[c].resources.requests.cpu",
            {"status": {"containerStatuses": [{"name": "c", "resources": BAD}]}},
        ),
        (
            "status.containerStatuses[c].allocatedResources.cpu",
            {"status": {"containerStatuses": [{"name": "c", "resources": {}, "allocatedResources": {"cpu": "x"}}]}},
        ),
    ],
)
def test_a_quantity_that_cannot_be_read_is_named_by_its_field(field: str, spec: dict[str, Any]) -> None:
    problems: list[Any] = []
    found = pod_requests(pod(containers=[container(cpu="1")], **spec), problems)
    assert ([one.field for one in problems], found["cpu_milli"]) == ([field], MAX_QUANTITY)


# ------------------------------------------------------------------------------------------------------ since 1.37


def told(name: str, actuated: str, allocated: str) -> dict[str, Any]:
    """A container's status."""
    return {"name": name, "resources": {"requests": {"cpu": actuated}}, "allocatedResources": {"cpu": allocated}}


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


@pytest.mark.parametrize(("minor", "milli"), [(36, 1250), (37, 1500), (38, 1500)])
def test_overhead_comes_on_top_of_what_the_kubelet_tells_of_the_pod_where_it_is_already(minor: int, milli: int) -> None:
    """As every running pod's kubelet does since 1.36. So counts a kubelet of 1.37, which refuses what goes beyond."""
    whole = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1250m"}}
    found = requests_of(minor, containers=[container(cpu="1")], overhead={"cpu": "250m"}, status=whole)
    assert found["cpu_milli"] == milli


@pytest.mark.parametrize(("minor", "milli"), [(36, 1000), (37, 3000)])
def test_what_is_allocated_to_an_init_container_counts(minor: int, milli: int) -> None:
    status = {"initContainerStatuses": [told("i", "3", "2")]}
    starting = [container("i", cpu="1")]
    found = requests_of(minor, containers=[container(cpu="1")], initContainers=starting, status=status)
    assert found["cpu_milli"] == milli


@pytest.mark.parametrize(("minor", "milli"), [(36, 5000), (37, 4000)])
def test_the_largest_sum_counts_instead_of_the_sum_of_the_largest(minor: int, milli: int) -> None:
    status = {"containerStatuses": [told("a", "1", "3"), told("b", "2", "1")]}
    found = requests_of(minor, containers=[container("a", cpu="2"), container("b", cpu="1")], status=status)
    assert found["cpu_milli"] == milli


@pytest.mark.parametrize(("minor", "milli"), [(36, 1000), (37, 2000)])
def test_what_is_allocated_counts_where_nothing_says_what_is_actuated(minor: int, milli: int) -> None:
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}
    assert requests_of(minor, containers=[container(cpu="1")], status=status)["cpu_milli"] == milli


@pytest.mark.parametrize(("minor", "found"), [(36, {"cpu_milli": 2000, "pods": 1}), (37, {"pods": 1})])
def test_an_infeasible_resize_counts_for_nothing_where_nothing_says_what_the_pod_has(
    minor: int, found: dict[str, int]
) -> None:
    assert requests_of(minor, containers=[container(cpu="2")], status={"conditions": [INFEASIBLE]}) == found


@pytest.mark.parametrize(("minor", "memory"), [(36, 5), (37, 9)])
def test_what_the_pod_itself_does_not_ask_for_is_replaced_where_its_status_tells(minor: int, memory: int) -> None:
    found = requests_of(
        minor,
        containers=[container(cpu="1", memory="5")],
        resources={"requests": {"cpu": "2"}},
        status={"resources": {"requests": {"cpu": "2", "memory": "9"}}},
    )
    assert found == {"cpu_milli": 2000, "memory_bytes": memory, "pods": 1}


@pytest.mark.parametrize("minor", [36, 37])
def test_of_who_is_told_nothing_all_versions_count_the_same(minor: int) -> None:
    found = requests_of(
        minor,
        containers=[container(cpu="1")],
        initContainers=[container("i", cpu="3")],
        resources={"requests": {"memory": "7"}},
        overhead={"cpu": "250m"},
    )
    assert found == {"cpu_milli": 3250, "memory_bytes": 7, "pods": 1}


@pytest.mark.parametrize("minor", [36, 37])
def test_what_an_infeasible_resize_asks_for_is_not_read(minor: int) -> None:
    """Not even where it is beyond all that can be counted with: the pod runs."""
    status = {"conditions": [INFEASIBLE], "containerStatuses": [told("c", "1", "1")]}
    found = requests_of(minor, containers=[container(cpu="1", memory="9Ei")], status=status)
    assert found == {"cpu_milli": 1000, "pods": 1}
