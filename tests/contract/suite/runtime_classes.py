"""RuntimeClasses: what they add to a pod, and what is refused for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.contract.client import Answer, Client, Object, pod

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
TOLERATED = {"key": "kata", "operator": "Exists"}
Making = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def make(client: Client) -> AsyncIterator[Making]:
    """Makes a RuntimeClass of this test's own."""
    name = client.unique("kata")

    async def made(**says: Any) -> Answer:
        return await client.post(CLASSES, {"metadata": {"name": name}, "handler": "kata", **says})

    yield made
    await client.delete(f"{CLASSES}/{name}")


async def test_a_runtime_class_adds_overhead_and_where_its_pods_may_go(client: Client, make: Making) -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [TOLERATED]}
    name = (await make(overhead={"podFixed": {"cpu": "500m"}}, scheduling=scheduling)).ok(201)["metadata"]["name"]
    spec = (await client.pod("a", runtimeClassName=name, nodeSelector={"zone": "a"}))["spec"]
    assert spec["overhead"] == {"cpu": "500m"}
    assert spec["nodeSelector"] == {"kata": "yes", "zone": "a"}
    assert TOLERATED in spec["tolerations"]
    assert (await client.pod("b", runtimeClassName=name, overhead={"cpu": "0.5"}))["spec"]["overhead"] == {
        "cpu": "500m"
    }
    for own in ({"overhead": {"cpu": "1"}}, {"nodeSelector": {"kata": "no"}}):
        (await client.post(client.pods, pod("c", runtimeClassName=name, **own))).refused(403, "Forbidden")


async def test_a_runtime_class_that_is_not_there_is_named_in_vain(client: Client) -> None:
    told = (await client.post(client.pods, pod("a", runtimeClassName="nowhere"))).refused(403, "Forbidden")["message"]
    assert told == 'pods "a" is forbidden: pod rejected: RuntimeClass "nowhere" not found'


async def test_a_name_without_a_letter_is_no_runtime_classs(client: Client) -> None:
    """Unlike other names that a chart leaves empty."""
    answer = await client.post(client.pods, pod("a", runtimeClassName=""))
    assert (answer.code, "resource name may not be empty" in answer.body["message"]) == (500, True)
    await client.pod("b", runtimeClassName=None, priorityClassName="")


async def test_overhead_is_a_runtime_classs_to_say(client: Client, make: Making) -> None:
    name = (await make()).ok(201)["metadata"]["name"]
    for more in ({}, {"runtimeClassName": name}):
        answer = await client.post(client.pods, pod("a", overhead={"cpu": "1"}, **more))
        told = answer.refused(403, "Forbidden")["message"]
        assert told.endswith("Pod Overhead set without corresponding RuntimeClass defined Overhead")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"handler": ""}, "handler"),
        ({"handler": "Kata_x"}, "handler"),
        ({"scheduling": {"nodeSelector": {"a b": "c"}}}, "scheduling.nodeSelector"),
        ({"scheduling": {"tolerations": [{"key": "k", "operator": "Exist"}]}}, "scheduling.tolerations[0].operator"),
        ({"scheduling": {"tolerations": [TOLERATED, TOLERATED]}}, "scheduling.tolerations[1]"),
    ],
)
async def test_a_runtime_class_that_cannot_be_is_refused(make: Making, said: Object, field: str) -> None:
    (cause,) = (await make(**said)).refused(422, "Invalid")["details"]["causes"]
    assert cause["field"] == field
