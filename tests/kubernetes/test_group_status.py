"""The status of PodGroups, written where each API group has it, and never onto another object of the name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import pytest

from services.kubernetes import group_status
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.discovery import Served, served
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.group_status import GroupStatusWriter
from services.kubernetes.resources import POD_GROUPS, Resource
from services.kubernetes.transport import Answer
from services.simulator import server
from services.simulator.cluster import SimulatedCluster
from services.simulator.resources import pod_groups_crd
from tests.manifests import pod_group

NATIVE = Resource.custom("scheduling.k8s.io/v1alpha2", "podgroups")
WITHOUT = Resource.custom("scheduling.volcano.sh/v1beta1", "podgroups")


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(kubelet=False, native_gangs=True) as running:
        running.install(pod_groups_crd(WITHOUT.api_version, status=False))
        yield running


@pytest.fixture
async def client(cluster: SimulatedCluster) -> AsyncIterator[Client]:
    async with Client(direct(cluster.url)) as opened:
        yield opened


async def test_what_the_server_says_that_it_serves(cluster: SimulatedCluster, client: Client) -> None:
    found = await client.discover()
    assert (found.has(POD_GROUPS), found.has(POD_GROUPS, "status")) == (True, True)
    assert (found.has(WITHOUT), found.has(WITHOUT, "status")) == (True, False)
    assert not found.has(Resource.custom("scheduling.sigs.dev/v1alpha2", "podgroups"))
    assert not found.has(Resource.custom("scheduling.x-k8s.io/v1alpha1", "elasticquotas"))
    cluster.uninstall()
    assert not (await client.discover()).has(POD_GROUPS)


def test_an_older_server_names_its_groups_alone() -> None:
    versions = b'[{"groupVersion":"scheduling.x-k8s.io/v1alpha1","version":"v1alpha1"}]'
    found = served(b'{"kind":"APIGroupList","groups":[{"name":"scheduling.x-k8s.io","versions":' + versions + b"}]}")
    assert found.has(POD_GROUPS, "status"), "only asking for it tells"
    assert not found.has(WITHOUT)


def test_an_answer_may_have_holes_and_what_nobody_reads() -> None:
    nothing = b'{"metadata":{"name":"empty.example","creationTimestamp":null},"versions":null}'
    older = b'{"version":"v1","resources":null}'
    newer = b'{"version":"v1alpha1","resources":[{"resource":"podgroups","subresources":null}]}'
    group = b'{"metadata":{"name":"scheduling.x-k8s.io"},"versions":[' + older + b"," + newer + b"]}"
    deep = b"[" * 100_000 + b"]" * 100_000
    found = served(b'{"items":[' + nothing + b"," + group + b'],"odd":' + deep + b"}")
    assert (found.has(POD_GROUPS), found.has(POD_GROUPS, "status")) == (True, False)
    assert not found.has(Resource.custom("scheduling.x-k8s.io/v1", "podgroups"))


@pytest.mark.parametrize("body", [b"<html>", b'{"items":[{"metadata":{"name":"\xff"}}]}', b"[" * 100_000, b""])
async def test_what_is_no_discovery_is_no_answer(client: Client, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again; whoever runs the service is told."""

    async def answer(*_: object, **__: object) -> Answer:
        return Answer(200, body)

    monkeypatch.setattr(client, "_repeated", answer)
    with pytest.raises(Unreachable, match="get /apis"):
        await client.discover()


@pytest.mark.parametrize(("said", "minor"), [("36", 36), ("37+", 37)])
async def test_the_servers_version(client: Client, said: str, minor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server.VERSION, "minor", said)
    assert await client.minor() == minor


@pytest.mark.parametrize("said", ["", "thirty-six", "36.3", "99999"])
async def test_what_is_no_version_is_no_answer(client: Client, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server.VERSION, "minor", said)
    with pytest.raises(Unreachable, match="get /version"):
        await client.minor()


def volcanos(name: str) -> dict[str, Any]:
    return pod_group(name, 3) | {"apiVersion": "scheduling.volcano.sh/v1beta1"}


def native(name: str) -> dict[str, Any]:
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    return {"apiVersion": NATIVE.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def scheduled(status: str, message: str = "") -> dict[str, Any]:
    said = {"type": "PodGroupScheduled", "status": status, "reason": "x", "message": message}
    return {"conditions": [said]}


async def test_each_api_groups_own_object_where_it_has_its_status(cluster: SimulatedCluster, client: Client) -> None:
    writer = GroupStatusWriter(client)
    made = {POD_GROUPS: cluster.create(pod_group("g", 3)), WITHOUT: cluster.create(volcanos("g"))}
    for resource, obj in made.items():
        about = ("default", "g", obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
        await writer.write(resource, *about, {"phase": resource.name})
        await writer.write(resource, *about, {"phase": resource.name, "running": 1})
    for resource, obj in made.items():
        seen = await client.get_pod_group(resource, "default", "g")
        assert seen is not None
        assert seen.metadata.uid == obj["metadata"]["uid"]
        after = cluster.get(f"PodGroup.{resource.name.partition('.')[2]}", "g", "default")
        assert after["status"] == {"phase": resource.name, "running": 1}
        assert after["spec"] == {"minMember": 3}


async def test_our_own_writes_need_no_second_look(cluster: SimulatedCluster, client: Client) -> None:
    writer = GroupStatusWriter(client)
    metadata = cluster.create(pod_group("g", 3))["metadata"]
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    took = [(await writer.write(POD_GROUPS, *about, {"running": count}))[0] for count in range(3)]
    assert took == [2, 1, 1], "discovery, once"
    older = (*about[:3], "9")
    assert (await writer.write(POD_GROUPS, *older, {"running": 3}))[0] == 1, "a fact's version, which is a number"


async def test_a_conflict_where_nobody_wrote_is_a_webhooks(cluster: SimulatedCluster, client: Client) -> None:
    """It is not asked for again as if the next look could tell more."""
    writer, metadata = GroupStatusWriter(client), cluster.create(pod_group("g", 3))["metadata"]
    cluster.faults.plan(verb="patch", status=409, message="a webhook does not like it")
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    with pytest.raises(ApiError, match="a webhook does not like it") as error:
        await writer.write(POD_GROUPS, *about, {"running": 1})
    assert not isinstance(error.value, Conflict)


async def test_of_pod_groups_that_are_gone_nothing_is_kept(cluster: SimulatedCluster, client: Client) -> None:
    writer = GroupStatusWriter(client)
    made = {NATIVE: native, POD_GROUPS: lambda name: pod_group(name, 3)}
    uids = []
    for resource, of in made.items():
        for name in ("g", "h"):
            metadata = cluster.create(of(name))["metadata"]
            uids.append(metadata["uid"])
            about = ("default", name, metadata["uid"], metadata["resourceVersion"])
            await writer.write(resource, *about, scheduled("True"))
    for kept in (4, 2, 1, 0):
        writer.keep(uids[:kept])
        assert len(writer) == kept
    metadata = cluster.create(native("i"))["metadata"]
    cluster.faults.plan(verb="patch", status=403)
    with pytest.raises(ApiError):
        await writer.write(NATIVE, "default", "i", metadata["uid"], metadata["resourceVersion"], scheduled("True"))
    assert len(writer) == 1, "of one that was looked at, and not written, too"


async def test_what_somebody_else_wrote_is_looked_at_now_and_written_when_that_is_asked_for_again(
    cluster: SimulatedCluster, client: Client
) -> None:
    """A binder that was stopped and replaced overwrote what its successor had said, before it knew of that."""
    writer = GroupStatusWriter(client)
    metadata = cluster.create(pod_group("g", 3))["metadata"]
    cluster.patch("PodGroup", "g", {"metadata": {"labels": {"x": "y"}}}, "default")
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    with pytest.raises(Conflict):
        await writer.write(POD_GROUPS, *about, {"phase": "Scheduling"})
    assert "status" not in cluster.get("PodGroup", "g", "default")
    await writer.write(POD_GROUPS, *about, {"phase": "Scheduling"})
    assert cluster.get("PodGroup", "g", "default")["status"] == {"phase": "Scheduling"}


async def test_what_somebody_wrote_there_may_be_no_condition(cluster: SimulatedCluster, client: Client) -> None:
    """A custom resource without a schema takes anything."""
    obj = cluster.create(volcanos("g"))
    odd: Any = {"conditions": [{"type": ["a list"]}, {"type": {}}, {}]}
    await client.patch_pod_group_status(WITHOUT, "default", "g", obj["metadata"]["uid"], odd, subresource=False)
    about = ("default", "g", obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
    writer = GroupStatusWriter(client)
    with pytest.raises(Conflict):
        await writer.write(WITHOUT, *about, {"phase": "Running"})
    assert (await writer.write(WITHOUT, *about, {"phase": "Running"}))[0] == 1
    assert cluster.get("PodGroup.scheduling.volcano.sh", "g", "default")["status"]["phase"] == "Running"


async def test_a_pod_group_that_was_made_anew_is_left_alone(cluster: SimulatedCluster, client: Client) -> None:
    writer = GroupStatusWriter(client)
    old = cluster.create(pod_group("g", 3))["metadata"]
    cluster.delete("PodGroup", "g", "default")
    cluster.create(pod_group("g", 2))
    about = ("default", "g", old["uid"], old["resourceVersion"])
    took = await writer.write(POD_GROUPS, *about, {"phase": "Running"})
    assert took == (3, {"phase": "Running"}), "discovery, the patch, a look"
    assert "status" not in cluster.get("PodGroup", "g", "default")


@pytest.mark.parametrize("anew", [False, True])
async def test_so_is_one_that_is_another_or_gone_when_it_is_looked_at_first(
    cluster: SimulatedCluster, client: Client, anew: bool
) -> None:
    writer, where = GroupStatusWriter(client), {"Finished": {"running": 0}}
    old, natives = cluster.create(pod_group("g", 3))["metadata"], cluster.create(native("g"))["metadata"]
    for kind in ("PodGroup", "PodGroup.scheduling.k8s.io"):
        cluster.delete(kind, "g", "default")
    for obj in (pod_group("g", 2), native("g")) if anew else ():
        cluster.create(obj)
    about = ("default", "g", natives["uid"], natives["resourceVersion"])
    assert (await writer.write(NATIVE, *about, scheduled("True")))[0] == 2, "discovery and a look"
    about = ("default", "g", old["uid"], old["resourceVersion"])
    assert (await writer.write(POD_GROUPS, *about, {"phase": "Pending"}, where=where))[0] == 1
    for kind in ("PodGroup", "PodGroup.scheduling.k8s.io") if anew else ():
        assert not cluster.get(kind, "g", "default").get("status")


async def test_a_phase_that_is_to_be_left_is_left(cluster: SimulatedCluster, client: Client) -> None:
    metadata = cluster.create(volcanos("g"))["metadata"]
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    ended: Any = {"phase": "Finished", "running": 2, "succeeded": 1}
    await client.patch_pod_group_status(WITHOUT, "default", "g", metadata["uid"], ended, subresource=False)
    writer, where = GroupStatusWriter(client), {"Finished": {"running": 0}}

    async def written(said: Any) -> Any:
        with pytest.raises(Conflict):  # somebody else wrote it: seen now, written when that is asked for again
            await writer.write(WITHOUT, *about, {"phase": "Pending", "succeeded": 0}, where=where)
        again = await writer.write(WITHOUT, *about, {"phase": "Pending", "succeeded": 0}, where=where)
        assert again == (2, said)
        return cluster.get("PodGroup.scheduling.volcano.sh", "g", "default")["status"]

    assert await written({"running": 0}) == {"phase": "Finished", "running": 0, "succeeded": 1}
    odd: Any = {"phase": ["a list"]}
    await client.patch_pod_group_status(WITHOUT, "default", "g", metadata["uid"], odd, subresource=False)
    told = {"phase": "Pending", "succeeded": 0}
    await client.patch_pod_group_status(
        WITHOUT, "default", "g", metadata["uid"], {"phase": "Running"}, subresource=False
    )
    assert await written(told) == told | {"running": 0}, "of another phase nothing else is said"
    await client.patch_pod_group_status(WITHOUT, "default", "g", metadata["uid"], odd, subresource=False)
    assert await written(told) == {"phase": "Pending", "running": 0, "succeeded": 0}


async def test_a_look_before_the_first_word_overwrites_nobodys_either(
    cluster: SimulatedCluster, client: Client
) -> None:
    """Stopped before it looked, it would read the version of what its successor had said."""
    made = cluster.create(native("g"))["metadata"]
    about = ("default", "g", made["uid"], made["resourceVersion"])
    successor, writer = GroupStatusWriter(client), GroupStatusWriter(client)
    assert (await successor.write(NATIVE, *about, scheduled("True")))[0] == 3, "discovery, a look, the patch"
    with pytest.raises(Conflict):
        await writer.write(NATIVE, *about, scheduled("False"))
    assert cluster.get("PodGroup.scheduling.k8s.io", "g")["status"]["conditions"][0]["status"] == "True"
    assert (await writer.write(NATIVE, *about, scheduled("False")))[0] == 1


@pytest.mark.parametrize("comes", [False, True], ids=["goes", "comes"])
async def test_a_status_subresource_that_goes_or_comes_is_noticed(
    cluster: SimulatedCluster, client: Client, comes: bool
) -> None:
    """One write was lost where it went, and all behind it where it came: the object takes them, and keeps its status."""
    writer = GroupStatusWriter(client)
    for with_status in (not comes, comes):
        cluster.uninstall()
        cluster.install(pod_groups_crd(POD_GROUPS.api_version, status=with_status))
        metadata = cluster.create(pod_group("g", 3))["metadata"]
        about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
        took = [(await writer.write(POD_GROUPS, *about, {"running": count}))[0] for count in (1, 2)]
        assert took == ([2, 1] if with_status != comes else [3, 1])
        assert cluster.get("PodGroup.scheduling.x-k8s.io", "g", "default")["status"] == {"running": 2}


async def test_a_kind_that_was_installed_later_has_its_status_where_it_has_it(
    cluster: SimulatedCluster, client: Client
) -> None:
    """What was discovered before lacks it: its status was patched into the object, which took that and kept its own."""
    cluster.uninstall()
    writer, other = GroupStatusWriter(client), cluster.create(volcanos("g"))["metadata"]
    await writer.write(WITHOUT, "default", "g", other["uid"], other["resourceVersion"], {"running": 1})
    cluster.install()
    metadata = cluster.create(pod_group("g", 3))["metadata"]
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    assert (await writer.write(POD_GROUPS, *about, {"running": 1}))[0] == 2, "discovery"
    assert cluster.get("PodGroup.scheduling.x-k8s.io", "g", "default")["status"] == {"running": 1}


async def test_a_kind_that_discovery_does_not_name_yet_has_its_status_written_all_the_same(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has a definition names it some moments later. The object would have taken it, and kept its own."""

    async def discover() -> Served:
        return Served({})

    monkeypatch.setattr(client, "discover", discover)
    metadata = cluster.create(pod_group("g", 3))["metadata"]
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    await GroupStatusWriter(client).write(POD_GROUPS, *about, {"running": 1})
    assert cluster.get("PodGroup", "g", "default")["status"] == {"running": 1}


async def test_where_a_server_does_not_tell_where_the_status_is_it_is_looked_for(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kubernetes 1.27. As it was: where a definition has no status subresource none was ever written."""
    older = b'{"groups":[{"name":"scheduling.volcano.sh","versions":[{"version":"v1beta1"}]}]}'
    monkeypatch.setattr(client, "discover", AsyncMock(return_value=served(older)))
    made = cluster.create(volcanos("g"))["metadata"]
    writer = GroupStatusWriter(client)
    await writer.write(WITHOUT, "default", "g", made["uid"], made["resourceVersion"], {"phase": "Running"})
    assert cluster.get("PodGroup.scheduling.volcano.sh", "g", "default")["status"] == {"phase": "Running"}


async def test_what_says_so_already_among_what_others_said_is_not_asked_about(
    cluster: SimulatedCluster, client: Client
) -> None:
    """After a start: conditions are merged, so that more stands there than was said."""
    made = cluster.create(native("g"))["metadata"]
    other = {"type": "DisruptionTarget", "status": "False", "reason": "x", "message": ""}
    cluster.patch("PodGroup.scheduling.k8s.io", "g", {"status": {"conditions": [other]}}, subresource="status")
    about = ("default", "g", made["uid"])
    with pytest.raises(Conflict):
        await GroupStatusWriter(client).write(NATIVE, *about, made["resourceVersion"], scheduled("True"))
    for took in (3, 3):
        at = cluster.get("PodGroup.scheduling.k8s.io", "g")["metadata"]["resourceVersion"]
        written = await GroupStatusWriter(client).write(NATIVE, *about, at, scheduled("True"))
        assert written[0] == took, "discovery, a look, the patch"


async def test_a_pod_group_that_is_gone_is_not_found_and_one_that_says_so_already_is_not_asked_about(
    cluster: SimulatedCluster, client: Client
) -> None:
    writer = GroupStatusWriter(client)
    metadata = cluster.create(volcanos("g"))["metadata"]
    about = ("default", "g", metadata["uid"], metadata["resourceVersion"])
    took = [(await writer.write(WITHOUT, *about, {"running": 1}))[0] for _ in range(3)]
    assert took == [2, 1, 1]
    cluster.delete("PodGroup.scheduling.volcano.sh", "g", "default")
    with pytest.raises(NotFound):
        await writer.write(WITHOUT, *about, {"running": 2})


async def test_kubernetes_own_conditions_keep_the_time_at_which_they_changed(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000_000_000.0
    monkeypatch.setattr(group_status.time, "time_ns", lambda: int(now_s * 1e9))
    made = cluster.create(native("g"))
    other = {"type": "DisruptionTarget", "status": "False", "reason": "x", "message": ""}
    cluster.patch("PodGroup.scheduling.k8s.io", "g", {"status": {"conditions": [other]}}, subresource="status")
    about = ("default", "g", made["metadata"]["uid"], made["metadata"]["resourceVersion"])

    async def written(writer: GroupStatusWriter, status: str, message: str) -> str:
        with suppress(Conflict):  # the other writer of this test wrote it last
            await writer.write(NATIVE, *about, scheduled(status, message))
        await writer.write(NATIVE, *about, scheduled(status, message))
        found = cluster.get("PodGroup.scheduling.k8s.io", "g")["status"]["conditions"]
        assert [one["type"] for one in found] == ["DisruptionTarget", "PodGroupScheduled"], "merged by type"
        assert found[1]["message"] == message
        return str(found[1]["lastTransitionTime"])

    writer = GroupStatusWriter(client)
    first = await written(writer, "False", "no room")
    now_s += 60
    assert await written(writer, "False", "less room") == first
    assert await written(GroupStatusWriter(client), "False", "after a restart") == first
    before = cluster.get("PodGroup.scheduling.k8s.io", "g")["metadata"]["resourceVersion"]
    assert await written(GroupStatusWriter(client), "False", "after a restart") == first
    assert cluster.get("PodGroup.scheduling.k8s.io", "g")["metadata"]["resourceVersion"] == before, "nothing changed"
    assert await written(writer, "True", "") > first
