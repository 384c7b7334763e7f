"""The binding subresource: what it writes, and every precondition on which the binder relies."""

from __future__ import annotations

from tests.contract.client import ABSENT_NODE, OTHER_UID, STRATEGIC, Client, condition, pod


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


async def test_what_a_binding_is_annotated_with_comes_to_the_pod(client: Client) -> None:
    """Beside what is there, and in its place where it has the same name; labels as well."""
    body = pod("a", labels={"a": "1", "b": "1"})
    body["metadata"]["annotations"] = {"a": "1", "b": "1"}
    (await client.post(client.pods, body)).ok(201)
    said = {field: {"b": "2", "c": "2"} for field in ("annotations", "labels")}
    (await client.bind("a", ABSENT_NODE, **said)).ok(201)
    metadata = (await client.get(f"{client.pods}/a")).ok()["metadata"]
    assert [metadata[field] for field in said] == [{"a": "1", "b": "2", "c": "2"}] * 2


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
