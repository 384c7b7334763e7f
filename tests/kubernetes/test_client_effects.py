"""What the client writes, over the simulated API: each changes only the object that was meant."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.kubernetes import binding
from services.kubernetes.annotation import Written, annotate
from services.kubernetes.client import Client, Regarding, micro_time
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.resources import POD_GROUPS, Resource
from services.kubernetes.transport import Answer
from services.simulator.cluster import SimulatedCluster
from tests.manifests import pod, pod_group


def test_a_binding_is_the_object_that_kubernetes_asks_for() -> None:
    """Each precondition where it is looked for, and names that are those of the URL; a real API server refuses others."""
    assert json.loads(binding.body("ns", "p", "uid-p", "7", "n1")) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "ns", "name": "p", "uid": "uid-p", "resourceVersion": "7"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


Sent = list[tuple[str, str, str, Any]]


@pytest.fixture
def sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Verb, path, kind of content and body of what the client sends; the answer is 201 and an object."""
    found: Sent = []

    async def send(
        _: str, verb: str, path: str, body: bytes, content_type: str = "application/json", *__: str
    ) -> Answer:
        found.append((verb, path, content_type, json.loads(body)))
        return Answer(201, b'{"metadata": {"name": "p", "uid": "uid-p", "resourceVersion": "8"}}')

    monkeypatch.setattr(client, "send", send)
    return found


NATIVE = Resource.custom("scheduling.k8s.io/v1alpha2", "podgroups")


@pytest.mark.parametrize(("version", "precondition"), [("7", {"resourceVersion": "7"}), ("", {})])
async def test_each_patch_has_its_preconditions_in_its_metadata(
    client: Client, sent: Sent, version: str, precondition: dict[str, str]
) -> None:
    """And is merged as the kind knows how: only built-in kinds know a strategic merge."""
    strategic, merge = "application/strategic-merge-patch+json", "application/merge-patch+json"
    pods, metadata = "/api/v1/namespaces/ns/pods/p", {"uid": "uid-p", **precondition}
    group = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/g"
    native = "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups/g"
    of, status = ("ns", "p", "uid-p", version), {"phase": "x"}
    assert await client.patch_pod_status(*of, status) == "8"
    assert await client.annotate_pod(*of, {"a": "b"}) == "8"
    for resource, subresource in ((POD_GROUPS, True), (POD_GROUPS, False), (NATIVE, True)):
        await client.patch_pod_group_status(
            resource, "ns", "g", "uid-p", status, resource_version=version, subresource=subresource
        )
    said = {"metadata": metadata, "status": status}
    assert sent == [
        ("PATCH", f"{pods}/status", strategic, said),
        ("PATCH", pods, strategic, {"metadata": {**metadata, "annotations": {"a": "b"}}}),
        ("PATCH", f"{group}/status", merge, said),
        ("PATCH", group, merge, said),
        ("PATCH", f"{native}/status", strategic, said),
    ]


async def test_a_name_of_somebody_elses_making_asks_for_nothing_but_an_object_of_that_name(
    client: Client, sent: Sent
) -> None:
    """A log may hold names that Kubernetes would not allow."""
    assert await client.patch_pod_status("ns/../other", "p?x#y/binding", "uid-p", "7", {}) == "8"
    await client.patch_pod_group_status(POD_GROUPS, "a/b", "c/d", "uid-p", {}, resource_version="7", subresource=False)
    assert [path for _, path, *_ in sent] == [
        "/api/v1/namespaces/ns%2F..%2Fother/pods/p%3Fx%23y%2Fbinding/status",
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/a%2Fb/podgroups/c%2Fd",
    ]


async def test_an_eviction_is_the_object_that_kubernetes_asks_for(
    client: Client, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.evict("ns", "p", "uid-p")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "ns", "name": "p"},
        "deleteOptions": {"preconditions": {"uid": "uid-p"}},
    }
    assert sent == [("POST", "/api/v1/namespaces/ns/pods/p/eviction", "application/json", body)]
    monkeypatch.setattr(client, "send", AsyncMock(return_value=Answer(200, b"<html>please log in</html>")))
    with pytest.raises(Unreachable, match=r"create pods/eviction ns/p: .* expected 201") as error:
        await client.evict("ns", "p", "uid-p")
    assert error.value.sent, "what stands between may have passed it on"


@pytest.mark.parametrize(("warning", "kind"), [(True, "Warning"), (False, "Normal")])
@pytest.mark.parametrize(("namespace", "where"), [("ns", "ns"), ("", "default")])
async def test_an_event_is_the_object_that_kubernetes_asks_for(
    client: Client, sent: Sent, warning: bool, kind: str, namespace: str, where: str
) -> None:
    """Of what has no namespace, as a node, it stands in the default one."""
    regarding = Regarding("v1", "Pod", namespace, "p", "uid-p")
    told = {"reason": "Why", "action": "Scheduling", "note": "words"}
    await client.create_event("p.1", regarding, **told, warning=warning, time_ns=0, instance="binder-0")
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": where},
        "eventTime": "1970-01-01T00:00:00.000000Z",
        "reportingController": "muster",
        "reportingInstance": "binder-0",
        "type": kind,
        **told,
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p", "uid": "uid-p"},
    }
    assert sent == [("POST", f"/apis/events.k8s.io/v1/namespaces/{where}/events", "application/json", body)]


async def test_conditions_are_merged_by_type(cluster: SimulatedCluster, client: Client) -> None:
    created = cluster.create(pod("p"))
    cluster.patch(
        "Pod", "p", {"status": {"conditions": [{"type": "Other", "status": "True"}]}}, "default", subresource="status"
    )
    metadata = cluster.get("Pod", "p", "default")["metadata"]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    version = await client.patch_pod_status(
        "default", "p", metadata["uid"], metadata["resourceVersion"], {"conditions": [condition]}
    )
    after = cluster.get("Pod", "p", "default")
    assert version == after["metadata"]["resourceVersion"]
    assert {each["type"] for each in after["status"]["conditions"]} == {"Other", "PodScheduled"}
    with pytest.raises(Conflict):
        await client.patch_pod_status(
            "default", "p", metadata["uid"], created["metadata"]["resourceVersion"], {"conditions": [condition]}
        )
    with pytest.raises(Conflict):
        await client.patch_pod_status("default", "p", "another", "", {"conditions": [condition]})
    with pytest.raises(NotFound):
        await client.patch_pod_status("default", "none", "another", "", {"conditions": [condition]})


async def test_pod_group_status(cluster: SimulatedCluster, client: Client) -> None:
    uid = cluster.create(pod_group("g", 3))["metadata"]["uid"]
    status = {"phase": "Scheduling", "scheduled": 2}
    written = await client.patch_pod_group_status(POD_GROUPS, "default", "g", uid, status)
    after = cluster.get("PodGroup", "g", "default")
    assert (after["metadata"]["resourceVersion"], status) == (written.metadata.resource_version, written.status)
    assert after["status"] == {"phase": "Scheduling", "scheduled": 2}
    assert after["spec"] == {"minMember": 3}
    with pytest.raises(Conflict):
        await client.patch_pod_group_status(POD_GROUPS, "default", "g", uid, {"phase": "x"}, resource_version="1")
    with pytest.raises(Conflict):  # a server looks at the UID where the object itself is patched
        await client.patch_pod_group_status(POD_GROUPS, "default", "g", "another", {"phase": "x"}, subresource=False)


async def test_annotating_only_that_pod_as_it_was(cluster: SimulatedCluster, client: Client) -> None:
    metadata = cluster.create(pod("p") | {"metadata": {"name": "p", "annotations": {"a": "1"}}})["metadata"]
    about = ("default", "p", metadata["uid"])
    version = await client.annotate_pod(*about, metadata["resourceVersion"], {"timeout": "true"})
    after = cluster.get("Pod", "p", "default")["metadata"]
    assert (after["annotations"], after["resourceVersion"]) == ({"a": "1", "timeout": "true"}, version)
    with pytest.raises(Conflict):
        await client.annotate_pod(*about, metadata["resourceVersion"], {"timeout": "false"})
    with pytest.raises(Conflict):
        await client.annotate_pod("default", "p", "another", "", {"timeout": "false"})
    with pytest.raises(NotFound):
        await client.annotate_pod("default", "none", "another", "", {"timeout": "true"})
    assert await client.annotate_pod(*about, "", {"timeout": "true"}) == version, "nothing changed"


@pytest.mark.parametrize("fault", [{"status": 500}, {"hang_up": True}])
async def test_an_annotation_in_doubt_is_not_asked_for_again_unseen(
    cluster: SimulatedCluster, client: Client, fault: dict[str, Any]
) -> None:
    """The refusal that came next was taken for the answer to both, and the first one may still land (design, rule 5)."""
    metadata = cluster.create(pod("p"))["metadata"]
    cluster.faults.plan(verb="patch", **fault)
    refused = cluster.faults.plan(verb="patch", status=403)
    found = await annotate(client, "default", "p", metadata["uid"], metadata["resourceVersion"], ("timeout", "true"))
    assert (found.outcome, refused.hits) == ("in_doubt", 0)


async def test_what_became_of_an_annotation_only_the_pod_tells(cluster: SimulatedCluster, client: Client) -> None:
    created, mark = cluster.create(pod("p"))["metadata"], ("timeout", "true")
    about, first = (client, "default", "p", created["uid"]), created["resourceVersion"]
    cluster.faults.plan(verb="patch", status=409, message="a webhook does not like it")
    refused = await annotate(*about, first, mark)
    assert (refused.outcome, refused.resource_version) == ("refused", first), "with that version it would be again"
    assert "a webhook does not like it" in refused.message
    written = await annotate(*about, first, mark)
    now = cluster.get("Pod", "p", "default")["metadata"]
    assert (written, now["annotations"]) == (Written("written", now["resourceVersion"]), dict([mark]))
    assert await annotate(*about, first, mark) == written, "already there"
    assert await annotate(*about, first, ("timeout", "false")) == Written("changed", now["resourceVersion"])
    assert await annotate(client, "default", "p", "of another", first, mark) == Written("gone")
    assert await annotate(client, "default", "none", created["uid"], first, mark) == Written("gone")


@pytest.mark.parametrize(
    ("code", "outcome"), [(403, "refused"), (422, "refused"), (503, "in_doubt"), (429, None), (401, None)]
)
async def test_what_an_annotations_refusal_means(
    client: Client, monkeypatch: pytest.MonkeyPatch, code: int, outcome: str | None
) -> None:
    async def refuse(*_: object) -> str:
        raise ApiError("patch pods default/p", code, "", "no")

    monkeypatch.setattr(client, "annotate_pod", refuse)
    if outcome is None:  # nothing was executed, and it may be answered otherwise later
        with pytest.raises(ApiError):
            await annotate(client, "default", "p", "u", "1", ("timeout", "true"))
    else:
        found = await annotate(client, "default", "p", "u", "1", ("timeout", "true"))
        assert found == Written(outcome, message=f"patch pods default/p: {code} : no")


async def test_evicting_only_that_pod(cluster: SimulatedCluster, client: Client) -> None:
    uid = cluster.create(pod("p"))["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.evict("default", "p", "another")
    await client.evict("default", "p", uid)
    assert not cluster.exists("Pod", "p", "default")
    with pytest.raises(NotFound):
        await client.evict("default", "p", uid)


async def test_an_event_is_written_once(cluster: SimulatedCluster, client: Client) -> None:
    created = cluster.create(pod("p"))
    about = Regarding("v1", "Pod", "default", "p", created["metadata"]["uid"])
    for _ in range(2):
        await client.create_event(
            "p.1",
            about,
            reason="FailedScheduling",
            action="Scheduling",
            note="x" + "é" * 2_000,
            warning=True,
            time_ns=1_700_000_000_123_456_789,
            instance="binder-" * 30,
        )
    [event] = cluster.list("Event", "default")
    assert event["involvedObject"]["uid"] == created["metadata"]["uid"]
    assert event["type"] == "Warning"
    assert event["message"] == "x" + "é" * 511, "1,024 bytes, and no half of a character"
    assert event["reportingInstance"] == ("binder-" * 30)[:128]


async def test_an_effect_that_is_refused_for_good_is_not_repeated(cluster: SimulatedCluster, client: Client) -> None:
    uid = cluster.create(pod("p"))["metadata"]["uid"]
    fault = cluster.faults.plan(verb="patch", status=422, times=0)
    with pytest.raises(ApiError) as error:
        await client.patch_pod_status("default", "p", uid, "", {"conditions": []})
    assert error.value.code == 422
    assert fault.hits == 1


def test_a_micro_time_is_cut_to_microseconds_in_utc() -> None:
    assert micro_time(1_700_000_000_000_001_999) == "2023-11-14T22:13:20.000001Z"
