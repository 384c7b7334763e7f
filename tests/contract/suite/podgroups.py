"""PodGroups: what a custom resource does otherwise than a built-in one."""

from __future__ import annotations

import pytest

from tests.contract.client import OTHER_UID, STRATEGIC, Client, podgroup


async def test_a_podgroup_is_created_read_and_deleted(crd: Client) -> None:
    made = (await crd.post(crd.podgroups, podgroup("g"))).ok(201)
    assert made["metadata"]["uid"]
    assert made["spec"] == {"minMember": 3}
    listed = (await crd.get(crd.podgroups)).ok()
    assert listed["kind"] == "PodGroupList"
    (item,) = listed["items"]
    assert (item["kind"], item["apiVersion"]) == ("PodGroup", "scheduling.x-k8s.io/v1alpha1")
    assert listed["metadata"]["continue"] == "", "of a built-in kind it is not there"
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
    assert (await crd.patch(f"{crd.podgroups}/g", {"status": {"running": 2}})).ok() == same
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


async def test_null_is_nothing(crd: Client) -> None:
    asked = podgroup("g")
    asked["spec"]["scheduleTimeoutSeconds"] = None
    assert (await crd.post(crd.podgroups, asked)).ok(201)["spec"] == {"minMember": 3}
