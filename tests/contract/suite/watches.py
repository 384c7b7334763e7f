"""Watches: what they tell, where they begin and resume, how they end."""

from __future__ import annotations

import pytest

from tests.contract.client import ABSENT_NODE, Client, Object


async def test_a_watch_tells_every_change_after_its_resource_version(client: Client) -> None:
    await client.pod("before")
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    made = await client.pod("a")
    async with client.watch(client.pods, resourceVersion=start) as watch:
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
        (await client.delete(f"{client.pods}/a")).ok()
        events = [await watch.next() for _ in range(4)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {obj["metadata"]["uid"] for _, obj in events} == {made["metadata"]["uid"]}
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert versions[0] == int(made["metadata"]["resourceVersion"])
    assert all((obj["kind"], obj["apiVersion"]) == ("Pod", "v1") for _, obj in events)


async def test_a_watch_from_a_change_resumes_behind_it(client: Client) -> None:
    made = await client.pod("a")
    await client.pod("b")
    async with client.watch(client.pods, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_resource_version_begins_with_everything(client: Client, query: Object) -> None:
    await client.pod("a")
    await client.pod("b")
    async with client.watch(client.pods, **query) as watch:
        assert sorted(await watch.seen(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await client.pod("c")
        assert await watch.seen(1) == [("ADDED", "c")]


async def test_a_watch_with_a_selector_begins_with_what_matches_and_tells_its_end(client: Client) -> None:
    await client.pod("a", labels={"x": "1"})
    for name in ("other", "one-more"):
        await client.pod(name)
    async with client.watch(client.pods, labelSelector="x=1") as watch:
        (await client.delete(f"{client.pods}/other")).ok()
        (await client.delete(f"{client.pods}/a")).ok()
        await client.pod("b", labels={"x": "1"})
        assert await watch.seen(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


async def test_an_object_enters_and_leaves_a_watch_with_a_label_selector(client: Client) -> None:
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start, labelSelector="x=1") as watch:
        await client.pod("a")
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"y": "1"}}})).ok()
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "2"}}})).ok()
        await client.pod("b", labels={"x": "1"})
        assert await watch.seen(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


async def test_what_leaves_a_watch_is_told_as_it_was(client: Client) -> None:
    """Under the version of the change that took it out, so that a watch resumes behind that."""
    await client.pod("a", labels={"x": "1"})
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start, labelSelector="x=1") as watch:
        after = (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "2"}}})).ok()
        kind, obj = await watch.next()
    assert (kind, obj["metadata"]["labels"]) == ("DELETED", {"x": "1"})
    assert obj["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_binding_takes_a_pod_out_of_the_unassigned(client: Client) -> None:
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start, fieldSelector="spec.nodeName=") as watch:
        await client.pod("a")
        (await client.bind("a", ABSENT_NODE)).ok(201)
        assert await watch.seen(2) == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_ends_after_its_timeout_with_a_bookmark_to_resume_from(client: Client) -> None:
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    query = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "4"}
    async with client.watch(client.pods, **query) as watch:
        made = await client.pod("a")
        events = await watch.rest()
    assert events[0][0] == "ADDED"
    bookmarks = [obj for kind, obj in events if kind == "BOOKMARK"]
    assert bookmarks
    assert bookmarks[-1]["kind"] == "Pod"
    last = bookmarks[-1]["metadata"]["resourceVersion"]
    assert int(last) >= int(made["metadata"]["resourceVersion"])
    await client.pod("b")
    async with client.watch(client.pods, resourceVersion=last) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]


async def test_without_asking_there_are_no_bookmarks(client: Client) -> None:
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start, timeoutSeconds="3") as watch:
        assert await watch.rest() == []


async def test_initial_events_end_with_an_annotated_bookmark(client: Client) -> None:
    await client.pod("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with client.watch(client.pods, **query) as watch:
        assert await watch.seen(1) == [("ADDED", "a")]
        kind, obj = await watch.next()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["metadata"]["resourceVersion"].isdigit()


async def test_a_watch_from_too_old_a_version_gets_410_as_an_event(crd: Client) -> None:
    async with crd.watch(crd.podgroups, resourceVersion="1") as watch:
        ((kind, status),) = await watch.rest()
    assert kind == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version: 1" in status["message"]


async def test_a_resource_version_that_is_no_number_is_refused(client: Client) -> None:
    (await client.get(client.pods, resourceVersion="abc")).refused(400, "BadRequest")
    assert (await client.get(client.pods, watch="1", resourceVersion="abc")).code >= 400
