"""Patch and put: the three forms of patches, their preconditions, and what cannot be written."""

from __future__ import annotations

import pytest

from tests.contract.client import ABSENT_NODE, JSON_PATCH, MERGE, OTHER_UID, STRATEGIC, Client, condition, pod


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
