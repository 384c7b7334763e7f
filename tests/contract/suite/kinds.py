"""What is particular to nodes, events and leases."""

from __future__ import annotations

from tests.contract.client import MERGE, STRATEGIC, Client

# ---------------------------------------------------------------------------------------------------------------- nodes


async def test_a_node_is_created_patched_and_deleted(client: Client) -> None:
    name = client.unique("node")
    status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    metadata = {"name": name, "namespace": "has-none"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
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
        for wrong in ([*taints, taints[0] | {"value": "c"}], [taints[0] | {"effect": "no"}]):
            answer = await client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": wrong}}, MERGE)
            answer.refused(422, "Invalid")
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
    for number, (length, code) in enumerate(((1024, 201), (1025, 422))):
        long = body | {"metadata": {"name": f"long.{number}"}, "note": "n" * length}
        assert (await client.post(new, long)).code == code
    body["metadata"] = {"name": "a.2"}
    del body["action"]
    (await client.post(new, body)).refused(422, "Invalid")


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
