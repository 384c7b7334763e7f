"""The contract: what Muster relies on in a Kubernetes API. Holds on a real kube-apiserver v1.36 and on the simulator.

A module that collects it provides the fixture `api`, an `Endpoint`, and imports everything from here:

    from tests.contract.suite import *

and a conftest.py beside it says `pytest.register_assert_rewrite("tests.contract.suite")`.

Each test has a namespace of its own; nothing here needs a kubelet or a controller, and nothing minds one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from services.simulator.resources import PODGROUPS_CRD
from tests.contract.client import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Client,
    Endpoint,
    Object,
    condition,
    eventually,
    pod,
    podgroup,
)

ABSENT_NODE = "no-such-node"
OTHER_UID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def client(api: Endpoint) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers=api.headers) as session:
        client = Client(api, session)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}}
        (await client.post("/api/v1/namespaces", namespace)).ok(201)
        yield client
        await client.request("DELETE", client.pods, {"gracePeriodSeconds": 0})


@pytest.fixture
async def crd(client: Client) -> Client:
    """A client of a cluster that has the PodGroup CRD."""
    created = await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", PODGROUPS_CRD)
    assert created.code in (201, 409), created
    await eventually(lambda: client.get(client.podgroups), lambda answer: answer.code == 200)
    return client


# ------------------------------------------------------------------------------------------------------------ discovery


async def test_discovery_names_what_is_served(client: Client) -> None:
    assert (await client.get("/api")).ok()["versions"] == ["v1"]
    groups = {group["name"] for group in (await client.get("/apis")).ok()["groups"]}
    assert {"apps", "batch", "events.k8s.io", "scheduling.k8s.io", "coordination.k8s.io"} <= groups
    core = (await client.get("/api/v1")).ok()
    assert core["kind"] == "APIResourceList"
    by_name = {resource["name"]: resource for resource in core["resources"]}
    assert {"pods", "pods/status", "pods/binding", "pods/eviction", "nodes", "events", "namespaces"} <= by_name.keys()
    assert by_name["pods"]["namespaced"] is True
    assert by_name["nodes"]["namespaced"] is False
    assert by_name["pods"]["kind"] == "Pod"
    assert (await client.get("/version")).ok()["major"] == "1"
    assert (await client.get("/readyz")).code == 200


async def test_a_group_that_is_not_served_is_a_plain_404(client: Client) -> None:
    answer = await client.get("/apis/nobody.example/v1/things")
    assert answer.code == 404
    assert "404 page not found" in str(answer.body)


# --------------------------------------------------------------------------------------------------------- create, get


async def test_create_fills_in_what_the_server_owns(client: Client) -> None:
    made = await client.pod("a", labels={"app": "x"})
    metadata = made["metadata"]
    assert metadata["namespace"] == client.namespace
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["labels"] == {"app": "x"}
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["priority"] == 0
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    read = (await client.get(f"{client.pods}/a")).ok()
    assert read["metadata"]["uid"] == metadata["uid"]
    assert (read["kind"], read["apiVersion"]) == ("Pod", "v1")


async def test_limits_become_requests(client: Client) -> None:
    limits = {"cpu": "2", "memory": "1Gi"}
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": {"cpu": "1"}}
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


async def test_the_default_scheduler_is_named(client: Client) -> None:
    body = pod("a")
    del body["spec"]["schedulerName"]
    body["metadata"]["labels"] = {"contract": "default-scheduler"}
    made = (await client.post(client.pods, body)).ok(201)
    assert made["spec"]["schedulerName"] == "default-scheduler"


async def test_generate_name_appends_a_suffix(client: Client) -> None:
    body = pod("")
    body["metadata"] = {"generateName": "gen-"}
    names = {(await client.post(client.pods, body)).ok(201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == len("gen-") + 5 for name in names)


async def test_a_second_create_is_already_exists(client: Client) -> None:
    await client.pod("a")
    status = (await client.post(client.pods, pod("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'pods "a" already exists'
    assert status["details"] == {"name": "a", "kind": "pods"}


async def test_a_namespace_that_does_not_exist_is_not_found(client: Client) -> None:
    status = (await client.post("/api/v1/namespaces/nowhere/pods", pod("a"))).refused(404, "NotFound")
    assert status["message"] == 'namespaces "nowhere" not found'


async def test_the_body_must_agree_with_the_path(client: Client) -> None:
    body = pod("a")
    body["metadata"]["namespace"] = "elsewhere"
    (await client.post(client.pods, body)).refused(400, "BadRequest")


async def test_an_invalid_pod_is_refused_with_its_field(client: Client) -> None:
    body = pod("a")
    body["spec"]["containers"] = []
    status = (await client.post(client.pods, body)).refused(422, "Invalid")
    assert status["details"]["kind"] == "Pod"
    assert "spec.containers" in {cause["field"] for cause in status["details"]["causes"]}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
async def test_an_invalid_name_is_refused(client: Client, name: str) -> None:
    status = (await client.post(client.pods, pod(name))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


async def test_labels_must_be_strings(client: Client) -> None:
    body = pod("a")
    body["metadata"]["labels"] = {"min-available": 3}
    (await client.post(client.pods, body)).refused(400, "BadRequest")


async def test_names_with_dots_and_of_253_characters_are_accepted(client: Client) -> None:
    name = ".".join(["a" * 62] * 3 + ["b" * 64])
    assert len(name) == 253
    assert (await client.pod(name))["metadata"]["name"] == name
    assert (await client.get(f"{client.pods}/{name}")).code == 200


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    status = (await client.get(f"{client.pods}/a")).refused(404, "NotFound")
    assert status["message"] == 'pods "a" not found'
    assert status["details"] == {"name": "a", "kind": "pods"}


async def test_priority_comes_from_the_class(client: Client) -> None:
    name = client.unique("priority")
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1234}
    made = (await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)).ok(201)
    assert made["preemptionPolicy"] == "PreemptLowerPriority"
    try:
        # Admission reads a cache of its own, which may not know the class yet.
        body = pod("a", priorityClassName=name)
        answer = await eventually(lambda: client.post(client.pods, body), lambda answer: answer.code != 403)
        assert answer.ok(201)["spec"]["priority"] == 1234
    finally:
        (await client.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).ok()
    (await client.post(client.pods, pod("b", priorityClassName="nobody"))).refused(403, "Forbidden")
    (await client.post(client.pods, pod("c", priority=5))).refused(403, "Forbidden")


# ---------------------------------------------------------------------------------------------------------------- lists


async def test_a_list_has_a_resource_version_and_bare_items(client: Client) -> None:
    made = await client.pod("a")
    listed = (await client.get(client.pods)).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    (item,) = listed["items"]
    assert item["metadata"]["name"] == "a"
    assert "kind" not in item
    everywhere = (await client.get("/api/v1/pods")).ok()
    assert made["metadata"]["uid"] in {item["metadata"]["uid"] for item in everywhere["items"]}


async def test_pages_continue_one_consistent_list(client: Client) -> None:
    for name in "edcba":
        await client.pod(name)
    first = (await client.get(client.pods, limit="2")).ok()
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    await client.pod("aa")
    await client.pod("ca")
    second = (await client.get(client.pods, limit="2", **{"continue": first["metadata"]["continue"]})).ok()
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = (await client.get(client.pods, limit="2", **{"continue": second["metadata"]["continue"]})).ok()
    assert [item["metadata"]["name"] for item in third["items"]] == ["e"]
    assert not third["metadata"].get("continue")


async def test_a_continue_token_that_is_none_is_refused(client: Client) -> None:
    (await client.get(client.pods, limit="2", **{"continue": "nonsense"})).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web", ["a", "b"]),
        ("app!=web", ["c", "d"]),
        ("app=web,tier=back", ["b"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c", "d"]),
        ("app in (web, db)", ["a", "b", "c"]),
        ("app notin (web,db)", ["d"]),
        ("app in (web),tier notin (back)", ["a"]),
    ],
)
async def test_label_selectors(client: Client, selector: str, expected: list[str]) -> None:
    await client.pod("a", labels={"app": "web", "tier": "front"})
    await client.pod("b", labels={"app": "web", "tier": "back"})
    await client.pod("c", labels={"app": "db"})
    await client.pod("d")
    listed = (await client.get(client.pods, labelSelector=selector)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", ["a"]),
        ("spec.nodeName=", ["b", "c"]),
        ("spec.nodeName!=", ["a"]),
        (f"spec.nodeName={ABSENT_NODE}", ["a"]),
        ("status.phase=Pending", ["a", "b", "c"]),
        ("status.phase!=Pending", []),
        ("spec.schedulerName=nobody", ["a", "b"]),
        ("spec.schedulerName=somebody,spec.nodeName=", ["c"]),
    ],
)
async def test_field_selectors(client: Client, selector: str, expected: list[str]) -> None:
    await client.pod("a")
    await client.pod("b")
    await client.pod("c", schedulerName="somebody")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    listed = (await client.get(client.pods, fieldSelector=selector)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == expected


async def test_selectors_that_cannot_be_understood_are_refused(client: Client) -> None:
    (await client.get(client.pods, fieldSelector="spec.containers=a")).refused(400, "BadRequest")
    (await client.get(client.pods, labelSelector="a b c")).refused(400, "BadRequest")


async def test_a_resource_version_from_the_future_times_out(client: Client) -> None:
    listed = (await client.get(client.pods)).ok()
    future = str(int(listed["metadata"]["resourceVersion"]) + 1_000_000)
    status = (await client.get(client.pods, resourceVersion=future)).refused(504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


# -------------------------------------------------------------------------------------------------------------- watches


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


async def test_an_object_enters_and_leaves_a_watch_with_a_label_selector(client: Client) -> None:
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start, labelSelector="x=1") as watch:
        await client.pod("a")
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"y": "1"}}})).ok()
        (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "2"}}})).ok()
        await client.pod("b", labels={"x": "1"})
        assert await watch.seen(4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]


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


# -------------------------------------------------------------------------------------------------------------- updates


async def test_a_merge_patch_replaces_the_list_of_conditions(client: Client) -> None:
    await client.pod("a")
    path = f"{client.pods}/a/status"
    for kind in ("One", "Two"):
        patched = (await client.patch(path, {"status": {"conditions": [condition(kind, "True")]}}, MERGE)).ok()
    assert [c["type"] for c in patched["status"]["conditions"]] == ["Two"]


async def test_a_strategic_merge_patch_keys_conditions_by_type(client: Client) -> None:
    await client.pod("a")
    path = f"{client.pods}/a/status"
    for kind, status in (("One", "True"), ("Two", "True"), ("One", "False")):
        body = {"status": {"conditions": [condition(kind, status, "Because")]}}
        patched = (await client.patch(path, body, STRATEGIC)).ok()
    told = {c["type"]: c["status"] for c in patched["status"]["conditions"]}
    assert told == {"One": "False", "Two": "True"}
    assert patched["status"]["phase"] == "Pending"


async def test_a_patch_that_changes_nothing_raises_no_resource_version(client: Client) -> None:
    await client.pod("a")
    path, body = f"{client.pods}/a/status", {"status": {"conditions": [condition("PodScheduled", "False", "No")]}}
    first = (await client.patch(path, body, STRATEGIC)).ok()
    again = (await client.patch(path, body, STRATEGIC)).ok()
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    labels = {"metadata": {"labels": {"x": "1"}}}
    first = (await client.patch(f"{client.pods}/a", labels)).ok()
    again = (await client.patch(f"{client.pods}/a", labels)).ok()
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_patch_with_a_stale_resource_version_conflicts(
    client: Client, media_type: str, subresource: str
) -> None:
    made = await client.pod("a")
    (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
    metadata = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    body = {"metadata": metadata, "status": {"message": "late"}, "spec": {"activeDeadlineSeconds": 5}}
    status = (await client.patch(f"{client.pods}/a{subresource}", body, media_type)).refused(409, "Conflict")
    assert status["message"].startswith('Operation cannot be fulfilled on pods "a": ')


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_patch_with_another_uid_is_invalid(client: Client, subresource: str) -> None:
    await client.pod("a")
    body = {"metadata": {"uid": OTHER_UID}, "status": {"message": "x"}}
    status = (await client.patch(f"{client.pods}/a{subresource}", body, STRATEGIC)).refused(422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {"metadata.uid"}


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_a_patch_with_another_uid_and_a_stale_resource_version_conflicts(
    client: Client, subresource: str
) -> None:
    await client.pod("a")
    body = {"metadata": {"uid": OTHER_UID, "resourceVersion": "1"}, "status": {"message": "x"}}
    (await client.patch(f"{client.pods}/a{subresource}", body, STRATEGIC)).refused(409, "Conflict")


async def test_status_and_spec_are_written_apart(client: Client) -> None:
    made = await client.pod("a")
    patched = (await client.patch(f"{client.pods}/a", {"status": {"message": "x"}})).ok()
    assert "message" not in patched["status"]
    body = {"spec": {"activeDeadlineSeconds": 5}, "status": {"message": "x"}}
    patched = (await client.patch(f"{client.pods}/a/status", body)).ok()
    assert patched["status"]["message"] == "x"
    assert patched["spec"] == made["spec"]


async def test_a_json_patch_edits_places(client: Client) -> None:
    await client.pod("a", labels={"x": "1", "y": "1"})
    operations = [
        {"op": "test", "path": "/metadata/labels/x", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/x", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/y"},
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "3"},
    ]
    patched = (await client.patch(f"{client.pods}/a", operations, JSON_PATCH)).ok()
    assert patched["metadata"]["labels"] == {"x": "2", "a/b": "3"}
    assert (await client.patch(f"{client.pods}/a", operations, JSON_PATCH)).code == 422


async def test_a_put_needs_the_current_resource_version(client: Client) -> None:
    made = await client.pod("a")
    made["metadata"]["labels"] = {"x": "1"}
    put = (await client.put(f"{client.pods}/a", made)).ok()
    assert int(put["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    made["metadata"]["labels"] = {"x": "2"}
    status = (await client.put(f"{client.pods}/a", made)).refused(409, "Conflict")
    assert "the object has been modified" in status["message"]
    (await client.put(f"{client.pods}/b", pod("b"))).refused(404, "NotFound")
    (await client.put(f"{client.pods}/a", pod("b"))).refused(400, "BadRequest")


async def test_a_put_of_another_uid_conflicts(client: Client) -> None:
    made = await client.pod("a")
    made["metadata"] |= {"uid": OTHER_UID, "resourceVersion": ""}
    (await client.put(f"{client.pods}/a", made)).refused(409, "Conflict")


async def test_a_pods_node_cannot_be_written(client: Client) -> None:
    await client.pod("a")
    (await client.patch(f"{client.pods}/a", {"spec": {"nodeName": ABSENT_NODE}})).refused(422, "Invalid")


async def test_a_pods_containers_cannot_be_written_but_for_their_images(client: Client) -> None:
    made = await client.pod("a")
    (container,) = made["spec"]["containers"]
    image = {"spec": {"containers": [container | {"image": "registry.k8s.io/pause:3.9"}]}}
    (await client.patch(f"{client.pods}/a", image)).ok()
    asked = {"spec": {"containers": [container | {"resources": {"requests": {"cpu": "1"}}}]}}
    (await client.patch(f"{client.pods}/a", asked)).refused(422, "Invalid")
    assert (await client.patch(f"{client.pods}/a", {"spec": {"containers": "none"}})).code in (400, 422)


async def test_a_pod_is_resized_through_its_subresource(client: Client) -> None:
    made = await client.pod("a")
    asked = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "20m"}}}]}}
    resized = (await client.patch(f"{client.pods}/a/resize", asked, STRATEGIC)).ok()
    assert resized["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "20m"}
    assert resized["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def test_conditions_must_be_a_list(client: Client) -> None:
    await client.pod("a")
    answer = await client.patch(f"{client.pods}/a/status", {"status": {"conditions": "none"}}, MERGE)
    assert answer.code in (400, 422)


async def test_a_patch_of_what_is_not_there_is_not_found(client: Client) -> None:
    (await client.patch(f"{client.pods}/a/status", {"status": {}}, STRATEGIC)).refused(404, "NotFound")


# -------------------------------------------------------------------------------------------------------------- binding


async def test_a_binding_assigns_the_pod(client: Client) -> None:
    made = await client.pod("a")
    metadata = made["metadata"]
    answer = await client.bind("a", ABSENT_NODE, uid=metadata["uid"], resourceVersion=metadata["resourceVersion"])
    status = answer.ok(201)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    bound = (await client.get(f"{client.pods}/a")).ok()
    assert bound["spec"]["nodeName"] == ABSENT_NODE
    told = {c["type"]: c["status"] for c in bound["status"]["conditions"]}
    assert told["PodScheduled"] == "True"
    assert int(bound["metadata"]["resourceVersion"]) > int(metadata["resourceVersion"])


async def test_a_binding_replaces_the_refusal_in_the_condition(client: Client) -> None:
    await client.pod("a")
    body = {"status": {"conditions": [condition("PodScheduled", "False", "Unschedulable")]}}
    (await client.patch(f"{client.pods}/a/status", body, STRATEGIC)).ok()
    (await client.bind("a", ABSENT_NODE)).ok(201)
    (told,) = (await client.get(f"{client.pods}/a")).ok()["status"]["conditions"]
    assert (told["type"], told["status"]) == ("PodScheduled", "True")
    assert "reason" not in told


async def test_a_second_binding_conflicts_and_names_the_node(client: Client) -> None:
    made = await client.pod("a")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    for node in (ABSENT_NODE, "another"):
        status = (await client.bind("a", node, uid=made["metadata"]["uid"])).refused(409, "Conflict")
        assert f'already assigned to node "{ABSENT_NODE}"' in status["message"]
    assert (await client.get(f"{client.pods}/a")).ok()["spec"]["nodeName"] == ABSENT_NODE


async def test_a_binding_with_a_stale_resource_version_conflicts(client: Client) -> None:
    made = await client.pod("a")
    (await client.patch(f"{client.pods}/a", {"metadata": {"labels": {"x": "1"}}})).ok()
    stale = made["metadata"]["resourceVersion"]
    status = (await client.bind("a", ABSENT_NODE, resourceVersion=stale)).refused(409, "Conflict")
    assert "Precondition failed" in status["message"]
    assert not (await client.get(f"{client.pods}/a")).ok()["spec"].get("nodeName")


async def test_a_repeated_binding_with_its_resource_version_fails_its_precondition(client: Client) -> None:
    made = await client.pod("a")
    version = made["metadata"]["resourceVersion"]
    (await client.bind("a", ABSENT_NODE, resourceVersion=version)).ok(201)
    status = (await client.bind("a", ABSENT_NODE, resourceVersion=version)).refused(409, "Conflict")
    assert "Precondition failed" in status["message"]


async def test_a_binding_with_another_uid_conflicts(client: Client) -> None:
    await client.pod("a")
    answer = await client.bind("a", ABSENT_NODE, uid=OTHER_UID)
    assert "Precondition failed" in answer.refused(409, "Conflict")["message"]


async def test_a_binding_of_what_is_not_there_is_not_found(client: Client) -> None:
    (await client.bind("a", ABSENT_NODE)).refused(404, "NotFound")


async def test_a_binding_without_a_node_is_refused(client: Client) -> None:
    await client.pod("a")
    assert (await client.bind("a", "")).code >= 400
    assert not (await client.get(f"{client.pods}/a")).ok()["spec"].get("nodeName")


async def test_a_gated_pod_cannot_be_bound(client: Client) -> None:
    made = await client.pod("a", schedulingGates=[{"name": "example.com/wait"}])
    (told,) = made["status"]["conditions"]
    assert (told["type"], told["status"], told["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    (await client.bind("a", ABSENT_NODE)).refused(409, "Conflict")
    (await client.patch(f"{client.pods}/a", {"spec": {"schedulingGates": None}})).ok()
    (await client.bind("a", ABSENT_NODE)).ok(201)


# --------------------------------------------------------------------------------------------------- delete and evict


async def test_a_pending_pod_is_deleted_at_once(client: Client) -> None:
    made = await client.pod("a")
    async with client.watch(client.pods, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        gone = (await client.delete(f"{client.pods}/a")).ok()
        (await client.get(f"{client.pods}/a")).refused(404, "NotFound")
        events = [await watch.next() for _ in range(2)]
    # It is seen with its deletionTimestamp before it is gone, all the same.
    assert [kind for kind, _ in events] == ["MODIFIED", "DELETED"]
    for obj in (gone, *(obj for _, obj in events)):
        assert obj["metadata"]["uid"] == made["metadata"]["uid"]
        assert obj["metadata"]["deletionTimestamp"].endswith("Z")
        assert obj["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_finished_pod_is_deleted_at_once(client: Client) -> None:
    await client.pod("a")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    (await client.patch(f"{client.pods}/a/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})).ok()
    (await client.delete(f"{client.pods}/a")).ok()
    (await client.get(f"{client.pods}/a")).refused(404, "NotFound")


async def test_a_bound_pod_is_deleted_gracefully(client: Client) -> None:
    await client.pod("a")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start) as watch:
        doomed = (await client.delete(f"{client.pods}/a")).ok()
        kind, seen = await watch.next()
        assert kind == "MODIFIED"
        await client.delete(f"{client.pods}/a", {"gracePeriodSeconds": 0})
        assert await watch.seen(2) == [("MODIFIED", "a"), ("DELETED", "a")]
    for obj in (doomed, seen):
        assert obj["metadata"]["deletionTimestamp"].endswith("Z")
        assert obj["metadata"]["deletionGracePeriodSeconds"] == 30
    (await client.get(f"{client.pods}/a")).refused(404, "NotFound")


async def test_a_pod_being_deleted_cannot_be_bound(client: Client) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["example.com/keep"]
    (await client.post(client.pods, body)).ok(201)
    (await client.delete(f"{client.pods}/a")).ok()
    kept = (await client.get(f"{client.pods}/a")).ok()
    assert kept["metadata"]["deletionTimestamp"]
    status = (await client.bind("a", ABSENT_NODE)).refused(409, "Conflict")
    assert "is being deleted" in status["message"]
    (await client.patch(f"{client.pods}/a", {"metadata": {"finalizers": None}})).ok()
    (await client.get(f"{client.pods}/a")).refused(404, "NotFound")


async def test_deletion_honours_its_preconditions(client: Client) -> None:
    made = await client.pod("a")
    wrong = {"uid": OTHER_UID}
    (await client.delete(f"{client.pods}/a", {"preconditions": wrong})).refused(409, "Conflict")
    stale = {"resourceVersion": "1"}
    (await client.delete(f"{client.pods}/a", {"preconditions": stale})).refused(409, "Conflict")
    right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    (await client.delete(f"{client.pods}/a", {"preconditions": right})).ok()
    (await client.delete(f"{client.pods}/a")).refused(404, "NotFound")


def eviction(name: str, **options: object) -> Object:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


async def test_an_eviction_deletes(client: Client) -> None:
    made = await client.pod("a")
    path = f"{client.pods}/a/eviction"
    wrong = {"uid": OTHER_UID}
    (await client.post(path, eviction("a", preconditions=wrong))).refused(409, "Conflict")
    status = (await client.post(path, eviction("a", preconditions={"uid": made["metadata"]["uid"]}))).ok(201)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    (await client.get(f"{client.pods}/a")).refused(404, "NotFound")
    (await client.post(path, eviction("a"))).refused(404, "NotFound")


async def test_an_eviction_of_a_bound_pod_is_graceful(client: Client) -> None:
    await client.pod("a")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    start = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=start) as watch:
        (await client.post(f"{client.pods}/a/eviction", eviction("a"))).ok(201)
        kind, marked = await watch.next()
        assert kind == "MODIFIED"
        assert "deletionTimestamp" not in marked["metadata"]
        target = next(c for c in marked["status"]["conditions"] if c["type"] == "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
        kind, doomed = await watch.next()
        assert kind == "MODIFIED"
        assert doomed["metadata"]["deletionTimestamp"]


# ---------------------------------------------------------------------------------------------------------------- nodes


async def test_a_node_is_created_patched_and_deleted(client: Client) -> None:
    name = client.unique("node")
    status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    made = (await client.post("/api/v1/nodes", body)).ok(201)
    try:
        assert "namespace" not in made["metadata"]
        assert made["status"]["allocatable"] == status["capacity"]
        patched = (await client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, STRATEGIC)).ok()
        assert patched["spec"]["unschedulable"] is True
        more = {"status": {"allocatable": {"example.com/gpu": "8"}, "capacity": {"example.com/gpu": "8"}}}
        patched = (await client.patch(f"/api/v1/nodes/{name}/status", more, STRATEGIC)).ok()
        assert patched["status"]["allocatable"] == {**status["capacity"], "example.com/gpu": "8"}
        taints = [{"key": "a", "value": "b", "effect": "NoSchedule"}]
        patched = (await client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}, STRATEGIC)).ok()
        assert taints[0] in patched["spec"]["taints"]
    finally:
        gone = (await client.delete(f"/api/v1/nodes/{name}")).ok()
    assert (gone["kind"], gone["status"]) == ("Status", "Success")
    assert gone["details"]["uid"] == made["metadata"]["uid"]


# --------------------------------------------------------------------------------------------------------------- events


async def test_an_event_is_found_by_what_it_is_about(client: Client) -> None:
    made = await client.pod("a")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": client.namespace, "name": "a", "uid": made["metadata"]["uid"]},
        "reason": "Scheduled",
        "message": "Successfully assigned",
        "type": "Normal",
    }
    (await client.post(f"{client.core}/events", body)).ok(201)
    for selector, expected in (("involvedObject.name=a,reason=Scheduled", 1), ("involvedObject.name=b", 0)):
        listed = (await client.get(f"{client.core}/events", fieldSelector=selector)).ok()
        assert len(listed["items"]) == expected


async def test_both_groups_serve_the_same_events(client: Client) -> None:
    made = await client.pod("a")
    new = f"/apis/events.k8s.io/v1/namespaces/{client.namespace}/events"
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a.1"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "muster.dev/binder",
        "reportingInstance": "binder-0",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"kind": "Pod", "namespace": client.namespace, "name": "a", "uid": made["metadata"]["uid"]},
        "note": "Successfully assigned",
        "type": "Normal",
    }
    created = (await client.post(new, body)).ok(201)
    assert created["note"] == "Successfully assigned"
    assert created["apiVersion"] == "events.k8s.io/v1"
    core = (await client.get(f"{client.core}/events/a.1")).ok()
    assert core["message"] == "Successfully assigned"
    assert core["involvedObject"]["name"] == "a"
    assert core["reportingComponent"] == "muster.dev/binder"
    again = (await client.get(f"{new}/a.1")).ok()
    assert again["regarding"]["uid"] == made["metadata"]["uid"]
    (await client.post(new, body)).refused(409, "AlreadyExists")
    body["metadata"] = {"name": "a.2"}
    del body["action"]
    (await client.post(new, body)).refused(422, "Invalid")


# ------------------------------------------------------------------------------------------------------------ podgroups


async def test_a_podgroup_is_created_read_and_deleted(crd: Client) -> None:
    made = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    assert made["metadata"]["uid"]
    assert made["spec"] == {"minMember": 3}
    listed = (await crd.get(crd.podgroups)).ok()
    assert listed["kind"] == "PodGroupList"
    (item,) = listed["items"]
    assert (item["kind"], item["apiVersion"]) == ("PodGroup", "scheduling.x-k8s.io/v1alpha1")
    status = (await crd.delete(f"{crd.podgroups}/g")).ok()
    assert (status["kind"], status["status"]) == ("Status", "Success")
    refused = (await crd.get(f"{crd.podgroups}/g")).refused(404, "NotFound")
    assert refused["message"] == 'podgroups.scheduling.x-k8s.io "g" not found'


async def test_a_podgroups_status_is_merged_by_itself(crd: Client) -> None:
    body = podgroup("g") | {"status": {"phase": "Running"}}
    made = (await crd.post(crd.podgroups, body)).ok(201)
    assert "status" not in made
    patched = (await crd.patch(f"{crd.podgroups}/g/status", {"status": {"phase": "Scheduled", "scheduled": 3}})).ok()
    assert patched["status"] == {"phase": "Scheduled", "scheduled": 3}
    patched = (await crd.patch(f"{crd.podgroups}/g/status", {"status": {"running": 1}})).ok()
    assert patched["status"] == {"phase": "Scheduled", "scheduled": 3, "running": 1}
    same = (await crd.patch(f"{crd.podgroups}/g/status", {"status": {"running": 1}})).ok()
    assert same["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
    patched = (await crd.patch(f"{crd.podgroups}/g", {"spec": {"minMember": 4}, "status": {"running": 2}})).ok()
    assert patched["spec"]["minMember"] == 4
    assert patched["status"]["running"] == 1
    assert patched["metadata"]["generation"] == made["metadata"]["generation"] + 1


async def test_a_podgroups_status_honours_the_resource_version_but_no_uid(crd: Client) -> None:
    (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    stale = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "x"}}
    (await crd.patch(f"{crd.podgroups}/g/status", stale)).refused(409, "Conflict")
    other = {"metadata": {"uid": OTHER_UID}, "status": {"phase": "x"}}
    patched = (await crd.patch(f"{crd.podgroups}/g/status", other)).ok()
    assert patched["status"] == {"phase": "x"}
    assert patched["metadata"]["uid"] != OTHER_UID
    (await crd.patch(f"{crd.podgroups}/g", {"metadata": {"uid": OTHER_UID}})).refused(422, "Invalid")


async def test_custom_resources_know_no_strategic_merge(crd: Client) -> None:
    (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    answer = await crd.patch(f"{crd.podgroups}/g/status", {"status": {"phase": "x"}}, STRATEGIC)
    answer.refused(415, "UnsupportedMediaType")


async def test_a_podgroup_is_replaced_only_with_a_resource_version(crd: Client) -> None:
    made = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    (await crd.put(f"{crd.podgroups}/g", podgroup("g", 5))).refused(422, "Invalid")
    made["spec"]["minMember"] = 5
    (await crd.put(f"{crd.podgroups}/g", made)).ok()
    (await crd.put(f"{crd.podgroups}/g", made)).refused(409, "Conflict")


@pytest.mark.parametrize("value", ["abc", 1.5, True, 1 << 40])
async def test_a_podgroup_with_a_minimum_that_is_no_count_is_refused(crd: Client, value: object) -> None:
    (await crd.post(crd.podgroups, podgroup("g", value))).refused(422, "Invalid")


async def test_a_negative_minimum_reaches_the_scheduler(crd: Client) -> None:
    assert (await crd.post(crd.podgroups, podgroup("g", -1))).ok(201)["spec"]["minMember"] == -1


# --------------------------------------------------------------------------------------------------------------- leases


async def test_a_lease_is_taken_by_one(client: Client) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{client.namespace}/leases"
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    made = (await client.post(leases, body)).ok(201)
    made["spec"]["holderIdentity"] = "two"
    (await client.put(f"{leases}/l", made)).ok()
    made["spec"]["holderIdentity"] = "three"
    (await client.put(f"{leases}/l", made)).refused(409, "Conflict")
    assert (await client.get(f"{leases}/l")).ok()["spec"]["holderIdentity"] == "two"
