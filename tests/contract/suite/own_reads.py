"""Muster's own client, reading: single objects, lists in pages, discovery, and what it raises."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from services.ingest.decoding import POD, WatchEnded
from services.kubernetes.client import Client as Own
from services.kubernetes.errors import Expired, Forbidden, NotFound
from services.kubernetes.resources import NODES, POD_GROUPS, PODS, PRIORITY_CLASSES, Resource
from tests.contract.client import Client, Forget, pod, podgroup
from tests.contract.suite.own_watches import watched

NOWHERE = Resource.custom("scheduling.nobody.example/v1", "podgroups")
"""A kind that no server has."""


async def listed(pages: AsyncGenerator[bytes, None]) -> tuple[set[str], dict[tuple[str, str], Any]]:
    """The resourceVersions of all pages, and the pods by namespace and name."""
    versions, found = set(), {}
    async with aclosing(pages) as each:
        async for page in each:
            version, objects = POD.page(page)
            versions.add(version)
            found |= {(seen.metadata.namespace, seen.metadata.name): seen for seen in objects}
    return versions, found


async def test_own_reads_a_pod_or_finds_none(client: Client, own: Own) -> None:
    made = await client.pod("a")
    found = await own.get_pod(client.namespace, "a")
    assert found is not None
    assert (found.metadata.uid, found.spec.node_name) == (made["metadata"]["uid"], "")
    assert found.metadata.resource_version == made["metadata"]["resourceVersion"]
    assert await own.get_pod(client.namespace, "b") is None
    assert await own.get_pod("no-such-namespace", "a") is None
    (await client.delete(f"{client.pods}/a")).ok()
    assert await own.get_pod(client.namespace, "a") is None


async def test_own_reads_a_podgroup_or_finds_none(crd: Client, own: Own) -> None:
    made = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    found = await own.get_pod_group(POD_GROUPS, crd.namespace, "g")
    assert found is not None
    assert found.metadata.uid == made["metadata"]["uid"]
    assert await own.get_pod_group(POD_GROUPS, crd.namespace, "other") is None
    assert await own.get_pod_group(POD_GROUPS, "no-such-namespace", "g") is None
    with pytest.raises(NotFound):  # a gateway that lost its way has the same words
        await own.get_pod_group(NOWHERE, crd.namespace, "g")


async def test_own_discovery_tells_kinds_and_their_subresources(crd: Client, own: Own) -> None:
    served = await own.discover()
    assert served.has(POD_GROUPS)
    assert served.has(POD_GROUPS, "status")
    assert served.has(PRIORITY_CLASSES)
    assert not served.has(PRIORITY_CLASSES, "status")
    assert not served.has(NOWHERE)


async def test_own_pages_are_one_list_while_objects_change(client: Client, own: Own) -> None:
    """What is made, changed and deleted between two pages is as it was at the first."""
    for name in "abcdef":
        await client.pod(name)
    pages = own.pages(PODS, limit=2)
    first = await anext(pages)
    await client.pod("aa")
    await client.pod("g")
    (await client.delete(f"{client.pods}/f")).ok()
    (await client.patch(f"{client.pods}/e", {"metadata": {"labels": {"x": "1"}}})).ok()
    versions, rest = await listed(pages)
    version, objects = POD.page(first)
    found = rest | {(seen.metadata.namespace, seen.metadata.name): seen for seen in objects}
    assert versions <= {version}
    assert sorted(name for namespace, name in found if namespace == client.namespace) == list("abcdef")
    assert found[client.namespace, "e"].metadata.labels is None
    _, again = await listed(own.pages(PODS, limit=2))
    now = ["a", "aa", "b", "c", "d", "e", "g"]
    assert sorted(name for namespace, name in again if namespace == client.namespace) == now


async def test_own_lists_of_what_is_not_served_are_not_found(own: Own) -> None:
    with pytest.raises(NotFound) as error:
        await anext(own.pages(NOWHERE))
    assert str(error.value).startswith("list podgroups.scheduling.nobody.example: 404")


async def test_own_reads_that_are_not_granted_are_forbidden(crd: Client, unprivileged: Own) -> None:
    with pytest.raises(Forbidden) as error:
        await anext(unprivileged.pages(NODES))
    assert str(error.value).startswith("list nodes: 403 Forbidden: ")
    with pytest.raises(Forbidden):
        await unprivileged.get_pod(crd.namespace, "a")
    with pytest.raises(Forbidden):
        await unprivileged.get_pod_group(POD_GROUPS, crd.namespace, "a")


async def test_own_lists_and_watches_from_a_lost_history_are_expired(client: Client, own: Own, forget: Forget) -> None:
    """The next list and watch are complete again."""
    for name in "abc":
        await client.pod(name)
    pages = own.pages(PODS, limit=1)
    version, _ = POD.page(await anext(pages))
    await client.pod("d")
    await forget()
    with pytest.raises(Expired) as error:
        await listed(pages)
    assert str(error.value).startswith("list pods: 410 Expired: ")
    with pytest.raises(WatchEnded) as ended:
        await watched(own, POD, version, 1)
    assert ended.value.expired
    (again,), found = await listed(own.pages(PODS, limit=2))
    assert sorted(name for namespace, name in found if namespace == client.namespace) == list("abcd")
    (await client.post(client.pods, pod("e"))).ok(201)
    assert [(kind, seen.metadata.name) for kind, seen in await watched(own, POD, again, 1)] == [("ADDED", "e")]
