"""Webhooks in front of what the binder writes: each no is one, whatever code it has, and costs its own pods only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deploy.e2e.api import Api, Object
from deploy.e2e.workload import gang, nodes, pod, pod_group
from tests.e2e.cluster import Muster, until
from tests.e2e.test_refusals import nothing_is_evicted
from tests.e2e.webhooks import ASKED, no, patched, webhook

PODS, EVENTS = f"/api/v1/namespaces/{ASKED}/pods", f"/api/v1/namespaces/{ASKED}/events"


@pytest.fixture(autouse=True)
async def asked(api: Api) -> AsyncIterator[None]:
    """A namespace of whose objects webhooks are asked; what is in it goes with the test."""
    await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ASKED}})
    yield
    for path in (PODS, f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{ASKED}/podgroups", EVENTS):
        await api.delete(path)


BUSY = no(429, reason="TooManyRequests", details={"retryAfterSeconds": 30})


async def there(api: Api) -> dict[str, str]:
    """Pod → node in that namespace."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"] for one in await api.items(PODS) if "nodeName" in one["spec"]
    }


async def test_one_that_is_busy_holds_up_no_other_namespace(api: Api, muster: Muster) -> None:
    muster.start_all()
    asked = set[str]()

    def says(request: Object) -> Object:
        asked.add(request["name"])
        return BUSY

    async with webhook(api, says, "pods/binding"):
        await api.create_all([pod(f"busy-{number}", namespace=ASKED, gpus=0) for number in range(100)])
        await api.create_all(nodes(10))

        async def all_are() -> bool:
            return len(asked) >= 64

        await until(all_are, "they are asked for: more than the binder has workers")
        await api.create_all([pod(f"free-{number}", gpus=0) for number in range(20)])
        await muster.until_bound(20, timeout_s=20)
        assert not await there(api)


async def said_of(api: Api, name: str) -> list[str]:
    """What the events on a pod in that namespace say."""
    events = await api.items(EVENTS)
    return [one["message"] for one in events if one["involvedObject"]["name"] == name]


async def test_one_that_is_busy_keeps_no_other_pod_from_being_told_why_it_waits(api: Api, muster: Muster) -> None:
    muster.start_all()
    asked = set[str]()

    def says(request: Object) -> Object:
        asked.add(request["name"])
        return BUSY

    async with webhook(api, says, "pods/status"):
        await api.create_all(nodes(1))
        await api.create_all([pod(f"busy-{number}", namespace=ASKED, cpu="100") for number in range(5)])

        async def all_are() -> bool:
            return len(asked) == 5

        await until(all_are, "theirs is to be written")
        await api.create(pod("free", cpu="100"))

        async def told() -> bool:
            return bool(await muster.condition("free"))

        await until(told, "the other is told", timeout_s=20)


async def test_one_that_hangs_holds_up_no_other_namespace(api: Api, muster: Muster) -> None:
    """As it was: each of its statuses was tried seven times, for more than half a minute, before others were told."""
    muster.start_all()
    asked = set[str]()

    def says(request: Object) -> None:
        asked.add(request["name"])

    async with webhook(api, says, "pods/binding", "pods/status", takes_s=7.0):
        await api.create_all(nodes(10))
        await api.create_all([pod(f"waits-{number}", namespace=ASKED, cpu="1000") for number in range(100)])
        await api.create_all([pod(f"fits-{number}", namespace=ASKED, gpus=0) for number in range(100)])

        async def all_are() -> bool:
            return len(asked) >= 90

        await until(all_are, "theirs are asked for")
        await api.create_all([pod("free", gpus=0), pod("waits", cpu="1000")])

        async def told() -> bool:
            return bool(await muster.condition("waits"))

        await muster.until_bound(1, timeout_s=20)
        await until(told, "the other is told", timeout_s=20)


@pytest.mark.parametrize("code", [400, 404, 409])
async def test_whom_it_refuses_is_told_in_its_words_and_follows_when_it_may(
    api: Api, muster: Muster, code: int
) -> None:
    muster.start_all()
    said: dict[str, Object] = {"train-000": no(code, "never on a Friday")}
    async with webhook(api, lambda request: said.get(request["name"]), "pods/binding"):
        await api.create_all(nodes(1))
        await api.create(pod_group("train", 3, namespace=ASKED))
        await api.create_all(gang("train", 3, namespace=ASKED))

        async def told() -> bool:
            return any("never on a Friday" in message for message in await said_of(api, "train-000"))

        await until(told, "the pod has an event with its words")
        assert sorted(await there(api)) == ["train-001", "train-002"]
        said.clear()

        async def all_there() -> bool:
            return len(await there(api)) == 3

        await until(all_there, "the third follows")
    await muster.check()


@pytest.mark.parametrize("code", [500, 504])
async def test_one_that_fails_delays_its_pods(api: Api, muster: Muster, code: int) -> None:
    muster.start_all()
    said = [no(code)] * 20
    async with webhook(api, lambda request: said.pop() if said else None, "pods/binding"):
        await api.create_all(nodes(1))
        await api.create_all(gang("train", 8, namespace=ASKED))
        await api.create(pod_group("train", 8, namespace=ASKED))

        async def all_there() -> bool:
            return len(await there(api)) == 8

        await until(all_there, "they are bound when it answers again")
        assert not said
    await muster.check()


async def test_of_one_that_goes_on_failing_its_pods_are_told(api: Api, muster: Muster) -> None:
    muster.start_all()
    async with webhook(api, lambda request: no(500, "out of order"), "pods/binding"):
        await api.create_all(nodes(1))
        await api.create(pod("waits", namespace=ASKED))

        async def told() -> bool:
            return any("out of order" in message for message in await said_of(api, "waits"))

        await until(told, "the pod has an event with its words", timeout_s=30)
        assert not await there(api)

    async def bound() -> bool:
        return bool(await there(api))

    await until(bound, "it is bound when nobody is asked any more")
    await muster.check()


async def test_one_that_sends_a_pod_to_another_node(api: Api, muster: Muster) -> None:
    """The binding's answer says nothing of it; what the pod says counts, and the room that was meant is free again."""
    muster.start_all()
    elsewhere = patched({"op": "replace", "path": "/target/name", "value": "node-00001"})
    async with webhook(api, lambda request: elsewhere, "pods/binding", mutating=True):
        await api.create_all(nodes(2))
        await api.create_all([pod(f"moved-{number}", namespace=ASKED) for number in range(4)])

        async def all_there() -> bool:
            return list((await there(api)).values()) == ["node-00001"] * 4

        await until(all_there, "all are on that node")
        await muster.check_agreement()
        await api.create_all(gang("rest", 12))
        await api.create(pod_group("rest", 12))
        bound = await muster.until_bound(12)
        assert sorted(bound.values()).count("node-00000") == 8
    await muster.check()


@pytest.mark.parametrize("code", [403, 404])
async def test_evictions_that_it_refuses_are_asked_for_until_it_does_not(api: Api, muster: Muster, code: int) -> None:
    """The gang lacks a member, and nobody comes: what the policy says of it holds until it is so."""
    muster.start_all()
    await api.create_all(nodes(1))
    await api.create(pod_group("train", 3, namespace=ASKED))
    await api.create_all(gang("train", 3, namespace=ASKED))

    async def all_there() -> bool:
        return len(await there(api)) == 3

    await until(all_there, "the gang is bound")
    await muster.set_policy("--replacement-policy", "evict", "--replacement-hold-ms", "100")
    refused = set[str]()

    def says(request: Object) -> Object:
        refused.add(request["name"])
        return no(code)

    async with webhook(api, says, "pods/eviction"):
        await api.delete(f"{PODS}/train-000")

        async def both_refused() -> bool:
            return refused == {"train-001", "train-002"}

        await until(both_refused, "it refuses both evictions")

    async def going() -> bool:
        return all("deletionTimestamp" in one["metadata"] for one in await api.items(PODS))

    await until(going, "the rest of the gang is evicted", timeout_s=30)
    await muster.until_folded(nothing_is_evicted, "evictions are settled")
    await muster.check()
