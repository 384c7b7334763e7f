"""Kubernetes' own gangs: our cores against the kube-scheduler's. As many pods of each gang are bound, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.e2e.api import Api, Object
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import NativeGangs
from tests.e2e.native_gang_cases import Act, Verb, node_of, pod, pod_group
from tests.e2e.native_gangs import Both, compared, prepare

SEEDS = range(8)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory, native: NativeGangs) -> Iterator[ControlPlane]:
    """With Kubernetes' own gangs."""
    with ControlPlane(tmp_path_factory.mktemp("native-gangs"), native.apiserver_flags) as plane:
        yield plane


async def test_as_many_pods_of_each_gang_are_bound_as_by_the_kube_scheduler(
    control_plane: ControlPlane, api: Api
) -> None:
    await prepare(api)
    outcomes = [await compared(control_plane, api, seed) for seed in SEEDS]
    found = [line for outcome in outcomes for line in outcome.differences]
    assert not found, "\n".join(found)
    assert sum(outcome.steps for outcome in outcomes) >= 30
    assert sum(outcome.bound for outcome in outcomes) >= 15


def member(name: str, priority: int = 0) -> Object:
    return pod("default", name, "a", priority, "train")


def gang(minimum: int, *members: Object, slots: int) -> list[Act]:
    group = pod_group("default", "train", {"gang": {"minCount": minimum}})
    return [Act("create", obj) for obj in (node_of("a", "node-1", slots), group, *members)]


async def test_of_one_gangs_pods_those_of_a_higher_priority_are_bound(
    control_plane: ControlPlane, api: Api, native: NativeGangs
) -> None:
    if native.as_one:
        pytest.skip("this kube-scheduler refuses a gang whose pods have several")
    await prepare(api)
    both = Both(control_plane, api)
    try:
        acts = gang(2, member("m0"), member("m1", 10), member("m2"), member("m3", 20), slots=2)
        for bound in await both.step(acts):
            assert sorted(bound) == ["default/m1", "default/m3"]
    finally:
        await both.end()


@pytest.mark.parametrize(
    ("verb", "only"),
    [("succeed", "ours"), ("terminate", "theirs")],
    ids=["a member that succeeded counts for us alone", "a member that is going counts for them alone"],
)
async def test_what_is_known_to_differ(control_plane: ControlPlane, api: Api, verb: Verb, only: str) -> None:
    """docs/dialects.md, "Beside the kube-scheduler": of two one ends so, the other is deleted, a third comes."""
    await prepare(api)
    both = Both(control_plane, api)
    try:
        members = [member("m0"), member("m1")]
        for bound in await both.step(gang(2, *members, slots=3)):
            assert sorted(bound) == ["default/m0", "default/m1"]
        await both.step([Act(verb, members[0]), Act("delete", members[1])])
        their, our = await both.step([Act("create", member("m2"))])
        assert [who for who, bound in (("theirs", their), ("ours", our)) if "default/m2" in bound] == [only]
    finally:
        await both.end()
