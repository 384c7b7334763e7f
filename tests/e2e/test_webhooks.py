"""Webhooks in front of what the binder writes: each no is one, whatever code it has, and costs its own pods only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deploy.e2e.api import Api, Object
from deploy.e2e.workload import nodes, pod
from tests.e2e.cluster import Muster, until
from tests.e2e.webhooks import no, webhook

ASKED = "asked"
PODS = f"/api/v1/namespaces/{ASKED}/pods"


@pytest.fixture(autouse=True)
async def asked(api: Api) -> AsyncIterator[None]:
    """A namespace of whose objects webhooks are asked; its pods go with the test."""
    metadata = {"name": ASKED, "labels": {"webhook": "asked"}}
    await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield
    await api.delete(PODS)


async def there(api: Api) -> dict[str, str]:
    """Pod → node in that namespace."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"] for one in await api.items(PODS) if "nodeName" in one["spec"]
    }


async def test_one_that_is_busy_holds_up_no_other_namespace(api: Api, muster: Muster) -> None:
    """It answers 429, and asks to be left alone for half a minute."""
    muster.start_all()
    busy, asked = no(429, reason="TooManyRequests", details={"retryAfterSeconds": 30}), set[str]()

    def says(request: Object) -> Object:
        asked.add(request["name"])
        return busy

    async with webhook(api, says, "pods/binding"):
        await api.create_all([pod(f"busy-{number}", namespace=ASKED, gpus=0) for number in range(100)])
        await api.create_all(nodes(10))

        async def all_are() -> bool:
            return len(asked) >= 64

        await until(all_are, "they are asked for: more than the binder has workers")
        await api.create_all([pod(f"free-{number}", gpus=0) for number in range(20)])
        await muster.until_bound(20, timeout_s=20)
        assert not await there(api)
