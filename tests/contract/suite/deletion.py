"""Delete and evict: at once or gracefully, and their preconditions."""

from __future__ import annotations

from tests.contract.client import ABSENT_NODE, MERGE, OTHER_UID, Client, Object, pod


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


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    """It may be refused. Deletions say in their body that they are none, as ``kubectl delete --dry-run=server`` does."""
    made, dry = await client.pod("a"), {"dryRun": ["All"]}
    one, bound = f"{client.pods}/a", {"target": {"kind": "Node", "name": ABSENT_NODE}, "metadata": {"name": "a"}}
    label = {"metadata": {"labels": {"dry": "run"}}}
    for answer in [
        await client.delete(one, dry),
        await client.delete(client.pods, dry),
        await client.post(f"{one}/eviction", eviction("a", **dry)),
        await client.request("DELETE", one, dryRun="All"),
        await client.request("DELETE", client.pods, dryRun="All"),
        await client.request("PATCH", one, label, MERGE, dryRun="All"),
        await client.request("POST", f"{one}/binding", {"apiVersion": "v1", "kind": "Binding"} | bound, dryRun="All"),
        await client.request("POST", client.pods, pod("b"), dryRun="All"),
    ]:
        assert answer.code in (200, 201, 400), answer
    (left,) = (await client.get(client.pods)).ok()["items"]
    assert left["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
