"""Lists: versions, pages, selectors."""

from __future__ import annotations

import pytest

from tests.contract.client import ABSENT_NODE, Client, pod


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


async def test_lists_that_are_read_at_once_continue_each_for_itself(client: Client) -> None:
    for name in "abc":
        await client.pod(name)
    before = (await client.get(client.pods, limit="2")).ok()["metadata"]
    await client.pod("aa")
    behind = (await client.get(client.pods, limit="2")).ok()["metadata"]
    for metadata, rest in ((before, ["c"]), (behind, ["b", "c"])):
        page = (await client.get(client.pods, limit="2", **{"continue": metadata["continue"]})).ok()
        assert page["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        assert [item["metadata"]["name"] for item in page["items"]] == rest


async def test_of_a_selected_list_nobody_knows_how_much_is_left(client: Client) -> None:
    for name in "abc":
        await client.pod(name, labels={"app": "web"})
    first = (await client.get(client.pods, limit="2", labelSelector="app=web")).ok()
    assert first["metadata"]["continue"]
    assert "remainingItemCount" not in first["metadata"]


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
        (" app = web , tier ", ["a", "b"]),
        *((f"n{operator}7", [name]) for operator, name in ((">", "a"), ("<", "b"))),
    ],
)
async def test_label_selectors(client: Client, selector: str, expected: list[str]) -> None:
    await client.pod("a", labels={"app": "web", "tier": "front", "n": "10"})
    await client.pod("b", labels={"app": "web", "tier": "back", "n": "6"})
    await client.pod("c", labels={"app": "db", "n": "x"})
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
        *(("metadata.name=a,", ["a"]), (",", ["a", "b", "c"]), ("spec.nodeName= ", []), ("metadata.name=a\\,b", [])),
    ],
)
async def test_field_selectors(client: Client, selector: str, expected: list[str]) -> None:
    await client.pod("a")
    await client.pod("b")
    await client.pod("c", schedulerName="somebody")
    (await client.bind("a", ABSENT_NODE)).ok(201)
    listed = (await client.get(client.pods, fieldSelector=selector)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == expected


@pytest.mark.parametrize(
    "selector",
    [
        *("a b c", "a,", ",", "a,,b", "a===b", "a!==b", "a=b=c", "a=b c", "a=-b", "a/b/c=d", "a in (b c)", "a in b"),
        *("n>x", "n<1.5", "n>"),
    ],
)
async def test_label_selectors_that_cannot_be_understood_are_refused(client: Client, selector: str) -> None:
    """Somebody meant something, and would get all, or nothing."""
    (await client.get(client.pods, labelSelector=selector)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    "selector",
    ["spec.containers=a", "metadata.name", " metadata.name=a", "metadata.name=a=b", "metadata.name!==a", "=a"],
)
async def test_field_selectors_that_cannot_be_understood_are_refused(client: Client, selector: str) -> None:
    (await client.get(client.pods, fieldSelector=selector)).refused(400, "BadRequest")


async def test_a_resource_version_from_the_future_times_out(client: Client) -> None:
    listed = (await client.get(client.pods)).ok()
    future = str(int(listed["metadata"]["resourceVersion"]) + 1_000_000)
    status = (await client.get(client.pods, resourceVersion=future)).refused(504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("path", "selector", "found"),
    [
        *(("pods", f"spec.hostNetwork={says}", says == "false") for says in ("true", "false")),
        *(("pods", f"{field}=", True) for field in ("status.podIP", "status.nominatedNodeName", "spec.nodeName")),
        *(("pods", f"spec.restartPolicy={says}", says == "Always") for says in ("Always", "Never", "")),
        *(("pods", f"spec.serviceAccountName={says}", says == "default") for says in ("default", "other")),
        *(("jobs", f"status.successful={number}", number == "0") for number in ("0", "1", "")),
        *(("namespaces", f"status.phase={phase}", phase == "Active") for phase in ("Active", "Terminating")),
        *(("nodes", f"spec.unschedulable={says}", says == "false") for says in ("true", "false", "")),
    ],
)
async def test_a_field_that_is_not_said_has_its_types_zero(
    client: Client, path: str, selector: str, found: bool
) -> None:
    """As `kubectl get nodes --field-selector spec.unschedulable=false` asks for."""
    await client.pod("a", serviceAccountName="default")
    name = client.unique("n")
    paths = {"pods": client.pods, "jobs": f"/apis/batch/v1/namespaces/{client.namespace}/jobs"}
    if path == "jobs":
        template = {"spec": pod("a")["spec"] | {"restartPolicy": "Never"}}
        (await client.post(paths[path], {"metadata": {"name": "j"}, "spec": {"template": template}})).ok(201)
    elif path == "nodes":
        (await client.post("/api/v1/nodes", {"metadata": {"name": name}})).ok(201)
    about = {"nodes": name, "namespaces": client.namespace}.get(path, "")
    named = f"metadata.name={about}," if about else ""
    listed = (await client.get(paths.get(path, f"/api/v1/{path}"), fieldSelector=named + selector)).ok()
    if path == "nodes":
        (await client.delete(f"/api/v1/nodes/{name}")).ok()
    assert len(listed["items"]) == found
