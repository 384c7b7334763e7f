"""Muster's own client, watching: the lines, how a watch ends, and where the next one goes on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from services.ingest.decoding import POD, Kind, WatchEnded
from services.kubernetes import client as client_module
from services.kubernetes.client import Client as Own
from services.kubernetes.errors import Forbidden, NotFound
from services.kubernetes.objects import PodGroup
from services.kubernetes.resources import NODES, POD_GROUPS, PODS, Resource
from services.simulator.resources import pod_groups_crd
from tests.contract.client import PATIENCE_S, Client, eventually, podgroup

GROUP = Kind("PodGroup", POD_GROUPS, PodGroup)
PASSING = Resource.custom("scheduling.passing.example/v1", "podgroups")
"""A kind that comes and goes."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def watched(own: Own, kind: Kind[Any], version: str, count: int = 0) -> list[tuple[str, Any]]:
    """The first so many events of a watch; 0: all until the server ends it. Raises WatchEnded, ApiError."""
    found: list[tuple[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(own.watch(kind.resource, version)) as batches:
        async for lines in batches:
            found += [kind.line(line) for line in lines]
            if count and len(found) >= count:
                break
    return found


async def now(client: Client) -> str:
    version: str = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    return version


async def test_own_watches_tell_every_change_in_order(client: Client, own: Own) -> None:
    start = await now(client)
    made = await client.pod("a")
    (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
    (await client.bind("a", "node")).ok(201)
    await client.delete(f"{client.pods}/a", {"gracePeriodSeconds": 0})
    events = await watched(own, POD, start, 5)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {seen.metadata.uid for _, seen in events} == {made["metadata"]["uid"]}
    assert [seen.spec.node_name for _, seen in events] == ["", "", "node", "node", "node"]
    assert events[-1][1].metadata.deletion_timestamp is not None
    versions = [int(seen.metadata.resource_version) for _, seen in events]
    assert versions == sorted(set(versions))


async def test_own_watches_end_with_a_bookmark_from_which_the_next_goes_on(
    client: Client, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "WATCH_S", 4)
    start = await now(client)
    watching = own.watch(PODS, start)
    await client.pod("a")
    events = [POD.line(line) for line in await anext(watching)]
    made = await client.pod("b")  # a bookmark comes only where the version has moved
    events += [POD.line(line) async for lines in watching for line in lines]
    assert [(kind, seen.metadata.name) for kind, seen in events[:2]] == [("ADDED", "a"), ("ADDED", "b")]
    kind, bookmark = events[-1]
    assert kind == "BOOKMARK"
    last = bookmark.metadata.resource_version
    assert int(last) >= int(made["metadata"]["resourceVersion"])
    await client.pod("c")
    assert [(kind, seen.metadata.name) for kind, seen in await watched(own, POD, last, 1)] == [("ADDED", "c")]


async def test_own_watches_from_a_version_that_is_yet_to_come_say_nothing(
    client: Client, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a bookmark: by that ingest notices a server that was set back (D79)."""
    monkeypatch.setattr(client_module, "WATCH_S", 4)
    to_come = str(int(await now(client)) + 1_000_000)
    watching = asyncio.create_task(watched(own, POD, to_come))
    while not watching.done():
        await client.pod(f"p{await now(client)}")
        await asyncio.sleep(0.2)
    assert await watching == []


async def test_own_watches_from_too_long_ago_end_with_410(crd: Client, own: Own) -> None:
    with pytest.raises(WatchEnded) as ended:
        await watched(own, GROUP, "1")
    assert ended.value.expired
    assert (ended.value.status.code, ended.value.status.reason) == (410, "Expired")


async def test_own_watches_of_a_kind_that_goes_end_and_lists_of_it_are_not_found(client: Client, own: Own) -> None:
    definition = pod_groups_crd(PASSING.api_version, status=False)
    del definition["metadata"]["annotations"]
    path = f"/apis/{PASSING.api_version}/namespaces/{client.namespace}/podgroups"
    (await client.post(DEFINITIONS, definition)).ok(201)
    await eventually(lambda: client.get(path), lambda answer: answer.code == 200)
    made = (await client.post(path, podgroup("g") | {"apiVersion": PASSING.api_version})).ok(201)
    kind = Kind("PodGroup", PASSING, PodGroup)
    watching = asyncio.create_task(watched(own, kind, made["metadata"]["resourceVersion"]))
    assert kind.page(await anext(own.pages(PASSING)))[1]
    (await client.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")).ok()
    assert {happened for happened, _ in await watching} <= {"DELETED", "MODIFIED", "BOOKMARK"}
    await eventually(lambda: client.get(path), lambda answer: answer.code == 404)
    with pytest.raises(NotFound):
        await anext(own.pages(PASSING))
    with pytest.raises(NotFound):
        await watched(own, kind, made["metadata"]["resourceVersion"])


async def test_own_watches_that_are_not_granted_are_forbidden(unprivileged: Own) -> None:
    with pytest.raises(Forbidden) as error:
        await anext(unprivileged.watch(NODES, "0"))
    assert str(error.value).startswith("watch nodes: 403 Forbidden: ")
