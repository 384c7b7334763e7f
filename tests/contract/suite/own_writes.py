"""Muster's own client, writing: bindings, evictions, conditions, annotations, events and the status of PodGroups; each
when it succeeds, and for each refusal that the services tell apart."""

from __future__ import annotations

from typing import Any

import pytest

from services.kubernetes.annotation import annotate
from services.kubernetes.binding import BindResult
from services.kubernetes.client import Client as Own
from services.kubernetes.client import Regarding
from services.kubernetes.errors import ApiError, Conflict, Forbidden, NotFound
from services.kubernetes.group_status import GroupStatusWriter
from services.kubernetes.resources import POD_GROUPS
from tests.contract.client import ABSENT_NODE, OTHER_UID, Client, Guard, Object, condition, eventually, pod, podgroup

LABELLED = {"metadata": {"labels": {"x": "1"}}}
WAITS = {"conditions": [condition("PodScheduled", "False", "Unschedulable")]}
KEPT = ["example.com/keep"]
MARK = ("example.com/mark", "true")
LONGEST = "n" * 253


async def bind(own: Own, made: Object, node: str = ABSENT_NODE, **other: str) -> BindResult:
    of = {**made["metadata"], **other}
    return await own.bind(of["namespace"], of["name"], of["uid"], of["resourceVersion"], node)


async def going(client: Client) -> tuple[Object, Object]:
    """A pod and a PodGroup of a namespace that is going, and does not get there."""
    namespace = f"{client.namespace}-going"
    metadata = {"name": namespace, "finalizers": KEPT}
    (await client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).ok(201)
    made = await eventually(
        lambda: client.post(f"/api/v1/namespaces/{namespace}/pods", pod("a")), lambda answer: answer.code == 201
    )
    groups = client.podgroups.replace(client.namespace, namespace)
    group = (await client.post(groups, podgroup("g"))).ok(201)
    gone = (await client.delete(f"/api/v1/namespaces/{namespace}")).ok()
    assert gone["status"]["phase"] == "Terminating"
    return made.body, group


# ------------------------------------------------------------------------------------------------------------ bindings


async def test_own_bindings_bind(client: Client, own: Own) -> None:
    made = await client.pod("a")
    assert await bind(own, made) == BindResult("bound")
    again = await bind(own, (await client.get(f"{client.pods}/a")).ok(), "another")
    assert (again.outcome, again.node, again.answered) == ("assigned", ABSENT_NODE, True)
    assert (await bind(own, made)).outcome == "precondition"


async def test_own_bindings_of_another_pod_or_version_fail_their_precondition(client: Client, own: Own) -> None:
    made = await client.pod("a")
    assert (await bind(own, made, uid=OTHER_UID)).outcome == "precondition"
    assert (await bind(own, made, resourceVersion="1")).outcome == "precondition"
    (await client.patch(f"{client.pods}/a", LABELLED)).ok()
    result = await bind(own, made)
    assert result.outcome == "precondition"
    assert "create pods/binding" in result.message
    assert not (await client.get(f"{client.pods}/a")).ok()["spec"].get("nodeName")


async def test_own_bindings_of_pods_that_are_gone_or_going(client: Client, own: Own) -> None:
    made = await client.pod("a")
    assert (await bind(own, made, namespace="no-such-namespace")).outcome == "gone"
    assert (await bind(own, made, name="b")).outcome == "gone"
    kept = (await client.post(client.pods, {**pod("b"), "metadata": {"name": "b", "finalizers": KEPT}})).ok(201)
    assert (await client.delete(f"{client.pods}/b")).code == 200
    assert (await bind(own, kept, resourceVersion="")).outcome == "gone"
    (await client.patch(f"{client.pods}/b", {"metadata": {"finalizers": None}})).ok()
    assert (await bind(own, kept)).outcome == "gone"


async def test_own_bindings_that_are_refused(client: Client, own: Own, unprivileged: Own) -> None:
    made = await client.pod("a", schedulingGates=[{"name": "example.com/wait"}])
    assert (await bind(own, made)).outcome == "rejected"
    assert (await bind(unprivileged, made)).outcome == "forbidden"


async def test_own_bindings_that_make_a_pod_too_large_are_refused_for_good(client: Client, own: Own) -> None:
    """Etcd takes no more than 1.5 MiB. The API server answers 500; nothing was executed, nor ever will be."""
    made = await nearly_too_large(client)
    result = await bind(own, made, LONGEST)
    assert (result.outcome, result.final) == ("rejected", True)
    assert "etcdserver: request is too large" in result.message
    assert not (await client.get(f"{client.pods}/a")).ok()["spec"].get("nodeName")


async def nearly_too_large(client: Client) -> Object:
    """The largest pod that can be made, but for some bytes."""
    for size in range(1_572_600, 1_566_000, -100):
        made = await client.post(client.pods, pod("a", containers=[{"name": "c", "image": "i", "args": ["x" * size]}]))
        if made.code == 201:
            return made.ok(201)
    raise AssertionError(made)


# ----------------------------------------------------------------------------------------------------------- evictions


async def test_own_evictions(client: Client, own: Own, unprivileged: Own) -> None:
    uid = (await client.pod("a"))["metadata"]["uid"]
    with pytest.raises(Conflict):
        await own.evict(client.namespace, "a", OTHER_UID)
    with pytest.raises(NotFound):
        await own.evict(client.namespace, "b", uid)
    with pytest.raises(NotFound):
        await own.evict("no-such-namespace", "a", uid)
    with pytest.raises(Forbidden):
        await unprivileged.evict(client.namespace, "a", uid)
    await own.evict(client.namespace, "a", uid)
    assert await own.get_pod(client.namespace, "a") is None
    with pytest.raises(NotFound):
        await own.evict(client.namespace, "a", uid)


async def test_own_evictions_that_a_budget_refuses_may_come_again(client: Client, own: Own, guard: Guard) -> None:
    uid = (await client.pod("a"))["metadata"]["uid"]
    (await client.patch(f"{client.pods}/a/status", {"status": {"phase": "Running"}})).ok()
    await guard(client.namespace)
    with pytest.raises(ApiError) as busy:
        await own.evict(client.namespace, "a", uid)
    assert (busy.value.code, busy.value.retry_after_s, busy.value.retryable) == (429, 10.0, True)
    assert await own.get_pod(client.namespace, "a") is not None


# ------------------------------------------------------------------------------------------- conditions and annotations


async def test_own_conditions_are_written_and_say_their_version(client: Client, own: Own) -> None:
    metadata = (await client.pod("a"))["metadata"]
    about = (client.namespace, "a", metadata["uid"])
    version = await own.patch_pod_status(*about, metadata["resourceVersion"], WAITS)
    there = (await client.get(f"{client.pods}/a")).ok()
    assert version == there["metadata"]["resourceVersion"] != metadata["resourceVersion"]
    assert [c["reason"] for c in there["status"]["conditions"]] == ["Unschedulable"]
    assert await own.patch_pod_status(*about, "", WAITS) == version, "nothing changed"
    other = {"conditions": [condition("Other", "True")]}
    assert await own.patch_pod_status(*about, version, other) != version
    assert {c["type"] for c in (await client.get(f"{client.pods}/a")).ok()["status"]["conditions"]} == {
        "Other",
        "PodScheduled",
    }


async def test_own_annotations_are_added_and_say_their_version(client: Client, own: Own) -> None:
    metadata = (await client.pod("a"))["metadata"]
    about = (client.namespace, "a", metadata["uid"])
    version = await own.annotate_pod(*about, metadata["resourceVersion"], dict([MARK]))
    there = (await client.get(f"{client.pods}/a")).ok()["metadata"]
    assert (there["annotations"], there["resourceVersion"]) == (dict([MARK]), version)
    assert await own.annotate_pod(*about, "", dict([MARK])) == version, "nothing changed"


@pytest.mark.parametrize("what", ["status", "annotation"])
async def test_own_patches_of_pods_that_are_refused(client: Client, own: Own, unprivileged: Own, what: str) -> None:
    async def write(who: Own, namespace: str, name: str, uid: str, version: str) -> str:
        if what == "status":
            return await who.patch_pod_status(namespace, name, uid, version, WAITS)
        return await who.annotate_pod(namespace, name, uid, version, dict([MARK]))

    metadata = (await client.pod("a"))["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]
    for wrong in ((uid, "1"), (OTHER_UID, version), (OTHER_UID, "1"), (OTHER_UID, "")):
        with pytest.raises(Conflict):
            await write(own, client.namespace, "a", *wrong)
    with pytest.raises(NotFound):
        await write(own, client.namespace, "b", uid, "")
    with pytest.raises(NotFound):
        await write(own, "no-such-namespace", "a", uid, "")
    with pytest.raises(Forbidden):
        await write(unprivileged, client.namespace, "a", uid, version)
    assert (await client.get(f"{client.pods}/a")).ok()["metadata"]["resourceVersion"] == version
    (await client.delete(f"{client.pods}/a")).ok()
    with pytest.raises(NotFound):
        await write(own, client.namespace, "a", uid, version)


async def test_own_writes_that_are_too_large(client: Client, own: Own) -> None:
    """Neither is asked for again: the answer stays the same."""
    uid = (await client.pod("a"))["metadata"]["uid"]
    about = (client.namespace, "a", uid, "")
    for size, code in ((1_600_000, 500), (3_200_000, 413)):
        with pytest.raises(ApiError) as error:
            await own.patch_pod_status(*about, {"message": "m" * size})
        assert (error.value.code, error.value.retryable) == (code, False)
    with pytest.raises(ApiError) as error:
        await own.annotate_pod(*about, {"a": "b" * 300_000})
    assert (error.value.code, error.value.reason) == (422, "Invalid")


async def test_what_becomes_of_an_annotation(client: Client, own: Own, unprivileged: Own) -> None:
    metadata = (await client.pod("a"))["metadata"]
    uid, version = metadata["uid"], metadata["resourceVersion"]

    async def outcome(name: str, uid: str, version: str, who: Own = own) -> str:
        return (await annotate(who, client.namespace, name, uid, version, MARK)).outcome

    assert await outcome("b", uid, version) == "gone"
    assert await outcome("a", OTHER_UID, version) == "gone"
    assert await outcome("a", uid, "1") == "changed"
    assert await outcome("a", uid, version, unprivileged) == "refused"
    assert await outcome("a", uid, version) == "written"
    assert await outcome("a", uid, version) == "written", "it stands there"


# -------------------------------------------------------------------------------------------------------------- events


async def test_own_events(client: Client, own: Own, unprivileged: Own) -> None:
    metadata = (await client.pod("a"))["metadata"]

    async def tell(name: str, namespace: str, who: Own = own, **more: Any) -> None:
        about = Regarding("v1", "Pod", namespace, "a", metadata["uid"])
        said: dict[str, Any] = {"reason": "Scheduled", "action": "Binding", "note": "told", "instance": "i"}
        await who.create_event(name, about, warning=False, time_ns=10**18, **{**said, **more})

    await tell("one", client.namespace)
    await tell("one", client.namespace)
    await tell("two", client.namespace, note="é" * 2_000, instance="i" * 2_000)
    await tell(LONGEST, client.namespace, note="")
    listed = (await client.get(f"{client.core}/events")).ok()["items"]
    assert {one["metadata"]["name"] for one in listed} == {"one", "two", LONGEST}
    for wrong in (
        {"name": "One_"},
        {"name": LONGEST + "n"},
        {"reason": ""},
        {"reason": "r" * 129},
        {"action": "a" * 129},
    ):
        with pytest.raises(ApiError) as error:
            await tell(**{"name": "three", "namespace": client.namespace, **wrong})
        assert (error.value.code, error.value.reason, error.value.retryable) == (422, "Invalid", False)
    with pytest.raises(NotFound):
        await tell("one", "no-such-namespace")
    with pytest.raises(Forbidden):
        await tell("four", client.namespace, unprivileged)


async def test_own_events_on_nodes_are_in_the_default_namespace(client: Client, own: Own) -> None:
    name = client.unique("event")
    about = Regarding("v1", "Node", "", ABSENT_NODE, "")
    said = {"reason": "DeclarationRejected", "action": "Reading", "note": "told", "instance": "i"}
    await own.create_event(name, about, warning=True, time_ns=10**18, **said)
    there = (await client.get(f"/api/v1/namespaces/default/events/{name}")).ok()
    assert (there["involvedObject"]["kind"], there["type"]) == ("Node", "Warning")


# ----------------------------------------------------------------------------------------------------------- PodGroups


async def test_own_status_of_a_podgroup(crd: Client, own: Own, unprivileged: Own) -> None:
    metadata = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)["metadata"]
    about = (POD_GROUPS, crd.namespace, "g", metadata["uid"])
    written = await own.patch_pod_group_status(
        *about, {"phase": "Scheduling"}, resource_version=metadata["resourceVersion"]
    )
    assert written.status == {"phase": "Scheduling"}
    version = written.metadata.resource_version
    assert version != metadata["resourceVersion"]
    unchanged = await own.patch_pod_group_status(*about, {"phase": "Running"}, subresource=False)
    assert (unchanged.status, unchanged.metadata.resource_version) == ({"phase": "Scheduling"}, version)
    with pytest.raises(Conflict):
        await own.patch_pod_group_status(*about, {"phase": "x"}, resource_version="1")
    other = (POD_GROUPS, crd.namespace, "g", OTHER_UID, {"phase": "x"})
    with pytest.raises(Conflict):
        await own.patch_pod_group_status(*other, subresource=False)
    with pytest.raises(Conflict):
        await own.patch_pod_group_status(*other, subresource=False, resource_version="1")
    with pytest.raises(NotFound):
        await own.patch_pod_group_status(POD_GROUPS, crd.namespace, "h", metadata["uid"], {})
    with pytest.raises(Forbidden):
        await unprivileged.patch_pod_group_status(*about, {"phase": "x"})
    (await crd.delete(f"{crd.podgroups}/g")).ok()
    with pytest.raises(NotFound):
        await own.patch_pod_group_status(*about, {"phase": "x"}, resource_version=version)


async def test_own_status_never_lands_on_a_podgroup_that_was_made_anew(crd: Client, own: Own) -> None:
    metadata = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)["metadata"]
    (await crd.delete(f"{crd.podgroups}/g")).ok()
    (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    writer = GroupStatusWriter(own)
    about = (POD_GROUPS, crd.namespace, "g", metadata["uid"], metadata["resourceVersion"])
    await writer.write(*about, {"phase": "Running"})
    assert "status" not in (await crd.get(f"{crd.podgroups}/g")).ok()


# ------------------------------------------------------------------------------------------ a namespace that is going


async def test_own_writes_into_a_namespace_that_is_going(crd: Client, own: Own) -> None:
    """What is there may be changed; bindings and evictions are made, and nothing is."""
    made, group = await going(crd)
    namespace, uid = made["metadata"]["namespace"], made["metadata"]["uid"]
    bound = await bind(own, made)
    assert bound.outcome == "forbidden"
    assert "because it is being terminated" in bound.message
    with pytest.raises(Forbidden):
        await own.evict(namespace, "a", uid)
    about = Regarding("v1", "Pod", namespace, "a", uid)
    with pytest.raises(Forbidden) as refused:
        await own.create_event("e", about, reason="r", action="a", note="n", warning=False, time_ns=1, instance="i")
    assert refused.value.namespace_is_going
    await own.patch_pod_status(namespace, "a", uid, "", WAITS)
    await own.annotate_pod(namespace, "a", uid, "", dict([MARK]))
    await own.patch_pod_group_status(POD_GROUPS, namespace, "g", group["metadata"]["uid"], {"phase": "x"})
    found = await own.get_pod(namespace, "a")
    assert found is not None
    assert found.metadata.deletion_timestamp is None
    await crd.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
