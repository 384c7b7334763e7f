"""Gangs of other dialects on a real API server: Kubernetes' own with its gates on, and definitions that come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import yaml

from deploy.e2e.api import MERGE, Api, ApiError, Object
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import JOB_GATES, NativeGangs, native_gangs
from deploy.e2e.workload import GANG_LABEL, gangs, nodes, pod
from services.console.simulate import simulate
from services.simulator.workloads import expand
from tests.dialects import published
from tests.e2e.cluster import Muster, until
from tests.manifests import operated

K = "gang.scheduling.koordinator.sh/"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With Kubernetes' own gangs, if this version has any."""
    try:
        flags = native_gangs().apiserver_flags
    except LookupError:
        flags = ()
    with ControlPlane(tmp_path_factory.mktemp("dialects"), flags) as plane:
        yield plane


def definition(api_version: str, *, status: bool) -> Object:
    """A minimal definition of an API group's PodGroup."""
    group, _, version = api_version.partition("/")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: Object = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    if status:
        served["subresources"] = {"status": {}}
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    approved = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": approved},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


def groups_path(api_version: str) -> str:
    return f"/apis/{api_version}/namespaces/default/podgroups"


async def undefine(api: Api, api_version: str) -> None:
    """Until the definition is gone: the server first deletes its objects, and refuses another of its name until then."""
    name = f"podgroups.{api_version.partition('/')[0]}"
    await api.delete(f"{DEFINITIONS}/{name}")

    async def gone() -> bool:
        return name not in await api.names(DEFINITIONS)

    await until(gone, f"{name} is not defined any more")


async def serves(api: Api, *api_versions: str) -> None:
    """Waits until PodGroups can be made: a new API group is in the list of all before it has a handler."""

    async def served() -> bool:
        try:
            for api_version in api_versions:
                await api.get(groups_path(api_version))
        except ApiError:
            return False
        return True

    await until(served, "the definitions are served")


async def declare(
    api: Api, api_version: str, name: str, spec: Object, annotations: dict[str, str] | None = None
) -> Object:
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    group = {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    return await api.call("POST", groups_path(api_version), group)


def member(name: str, **of: Any) -> Object:
    """A pod with labels, annotations and fields of its spec."""
    made = pod(name, labels=of.pop("labels", None), **of.pop("spec", {}))
    made["metadata"]["annotations"] = of.pop("annotations", {})
    return made


async def status(api: Api, api_version: str, name: str) -> Object:
    found: Object = (await api.get(f"{groups_path(api_version)}/{name}")).get("status", {})
    return found


async def test_kubernetes_own_gangs_with_its_gates_on(api: Api, muster: Muster, native: NativeGangs) -> None:
    groups = native.api_version
    muster.start_all()
    await api.create_all(nodes(2))
    names = [f"native-{number}" for number in range(3)]
    asked = {"schedulingGroup": {"podGroupName": "train"}}
    await declare(api, groups, "train", {"schedulingPolicy": {"gang": {"minCount": 3}}})
    await declare(api, groups, "wide", {"schedulingPolicy": {"gang": {"minCount": 2}}})
    await api.create_all(member(name, spec=asked) for name in names[:2])
    wide = {"schedulingGroup": {"podGroupName": "wide"}, "cpu": "100"}
    await api.create_all(member(f"wide-{number}", spec=wide) for number in range(2))

    async def condition(name: str) -> Object:
        conditions = (await status(api, groups, name)).get("conditions", [])
        return next((one for one in conditions if one["type"] == native.scheduled), {})

    async def refused() -> bool:
        return bool((await condition("wide")).get("status") == "False")

    await until(refused, "the gang that fits nowhere is told so")
    assert (await condition("wide"))["reason"] == "Unschedulable"
    assert await muster.bound() == {}
    await api.create(member(names[2], spec=asked))
    assert sorted(await muster.until_bound(3)) == names

    async def scheduled() -> bool:
        return bool((await condition("train")).get("status") == "True")

    await until(scheduled, "its PodGroup says that it is scheduled")
    await api.delete(groups_path(groups))
    assert (await muster.verify())["verified"]


def job(name: str, size: int) -> Object:
    """Of so many pods at a time, of which Kubernetes makes a gang: since 1.37 only where it is asked for one."""
    asked = {"schedulingPolicy": {"gang": {"minCount": size}}}
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "scheduling": asked}
    template = {"spec": member(name)["spec"] | {"restartPolicy": "Never"}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec | {"template": template}}


async def test_jobs_of_which_kubernetes_makes_gangs(
    control_plane: ControlPlane, api: Api, muster: Muster, native: NativeGangs
) -> None:
    """The Job controller makes a Workload and a PodGroup of each, and names it in the pods."""
    groups = groups_path(native.api_version)
    names = ("job-controller", "podgroup-protection-controller")
    controllers = control_plane.start_controllers(*names, gates=JOB_GATES)
    muster.start_all()
    try:
        await api.create_all(nodes(1, gpus=8))
        await api.create(job("first", 6))
        assert len(await muster.until_bound(6)) == 6
        await api.create(job("second", 4))

        async def told() -> bool:
            said = [
                one["reason"]
                for group in await api.items(groups)
                for one in group.get("status", {}).get("conditions", ())
            ]
            return "Unschedulable" in said

        await until(told, "the PodGroup of the second says that it does not fit")
        assert len(await muster.bound()) == 6, "two of the second's would have had room"
        assert (await muster.verify())["verified"]
    finally:
        for path in ("/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods", groups):
            await api.delete(path)

        async def gone() -> bool:
            return not await api.names(groups) and not await api.names("/api/v1/namespaces/default/pods")

        await until(gone, "controllers have let go of what is deleted")
        controllers.stop()


@pytest.mark.parametrize(
    ("api_version", "has_status", "of", "phase"),
    [
        (
            "scheduling.sigs.k8s.io/v1alpha1",
            False,
            {"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}},
            "Running",
        ),
        (
            "scheduling.volcano.sh/v1beta1",
            False,
            {"annotations": {"scheduling.k8s.io/group-name": "train"}, "spec": {}},
            "Running",
        ),
        (
            "scheduling.incubator.k8s.io/v1alpha1",
            True,
            {"annotations": {"scheduling.k8s.io/group-name": "train"}},
            "Running",
        ),
        ("scheduling.sigs.dev/v1alpha2", True, {"annotations": {"scheduling.k8s.io/group-name": "train"}}, "Running"),
    ],
)
async def test_a_definition_that_comes_and_goes_while_everything_runs(
    api: Api, muster: Muster, api_version: str, has_status: bool, of: Object, phase: str
) -> None:
    muster.start_all()
    await api.create_all(nodes(1))
    await api.create_all(member(f"train-{number}", **of) for number in range(2))

    async def waits() -> bool:
        return bool((await muster.condition("train-0")).get("reason") == "WaitingForPodGroup")

    await until(waits, "the pods wait for their PodGroup")
    crd = definition(api_version, status=has_status)
    await api.create(crd)

    await serves(api, api_version)
    await declare(api, api_version, "train", {"minMember": 2})
    await muster.until_bound(2)

    async def told() -> bool:
        return bool((await status(api, api_version, "train")).get("phase") == phase)

    await until(told, "its status says so")
    assert (await status(api, api_version, "train"))["running"] == 2
    await undefine(api, api_version)
    late: list[str] = []

    async def waits_again() -> bool:
        """Pods that come before ingest sees the end still belong to a gang that started."""
        if not late or late[-1] in await muster.bound():
            late.append(f"late-{len(late)}")
            await api.create(member(late[-1], **of))
        return bool((await muster.condition(late[-1])).get("reason") == "WaitingForPodGroup")

    await until(waits_again, "a later pod waits: its PodGroup is gone with the definition")
    assert (await muster.verify())["verified"]


async def test_koordinators_gang_by_annotation(api: Api, muster: Muster) -> None:
    muster.start_all()
    await api.create_all(nodes(1))
    said = {K + "name": "gang-a", K + "min-available": "2", K + "waiting-time": "300s"}
    await api.create(member("a-0", annotations=said))
    bad = {K + "name": "gang-b", K + "min-available": "2", K + "mode": "strict"}
    await api.create(member("b-0", annotations=bad))

    async def rejected() -> bool:
        events = await api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return any(event["reason"] == "DeclarationRejected" and "one of Strict" in event["note"] for event in events)

    await until(rejected, "the bad mode is named in an event")
    assert await muster.bound() == {}
    await api.create(member("a-1", annotations=said))
    assert sorted(await muster.until_bound(2)) == ["a-0", "a-1"]
    assert (await muster.verify())["verified"]


# -------------------------------------------------------------------------------------------------- published manifests

CUSTOM = ("scheduling.sigs.k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1")
CLUSTER_WIDE = ("Namespace", "PriorityClass")
READ = (*CLUSTER_WIDE, "Workload", "PodGroup", "Pod")


@pytest.fixture
async def definitions(api: Api) -> AsyncIterator[None]:
    """Koordinator's and Volcano's PodGroups."""
    for api_version in CUSTOM:
        await api.create(definition(api_version, status=True))
    await serves(api, *CUSTOM)
    yield
    for api_version in CUSTOM:
        await undefine(api, api_version)


def collection(obj: Object) -> str:
    """The path of the objects beside it."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    plural = f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"
    base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    namespace = obj["metadata"].get("namespace", "default")
    return f"{base}/{plural}" if kind in CLUSTER_WIDE else f"{base}/namespaces/{namespace}/{plural}"


def taken(native: NativeGangs) -> list[Object]:
    """What Muster reads of all published manifests: their pods as the controllers make them, PodGroups, classes.

    Kubernetes' own kinds are written as this server's version has them. It refuses a PodGroup whose
    Workload is not there, and that of one was not published.
    """
    given = [obj for one in published.ACCEPTED for obj in published.loaded(one.files)]
    given += [*published.master_and_workers(), *published.legacy_pods(2), published.native_group("pg1")]
    made = [obj for obj in expand(operated(given)) if obj["kind"] in READ]
    for obj in made:
        if obj["apiVersion"].startswith("scheduling.k8s.io/") and obj["kind"] in ("PodGroup", "Workload"):
            obj["apiVersion"] = native.api_version
    namespaces = sorted({obj["metadata"].get("namespace", "default") for obj in made} - {"default"})
    made += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    kept = [obj for obj in made if obj["metadata"]["name"] != "training-worker-0"]
    return sorted(kept, key=lambda obj: READ.index(obj["kind"]))


@published.there
@pytest.mark.usefixtures("definitions")
async def test_every_published_manifest_is_placed_as_it_was_simulated(
    api: Api, muster: Muster, native: NativeGangs
) -> None:
    room = nodes(4, cpu="64", memory="512Gi", gpus=64)
    await api.create_all(room)
    muster.start_all(MUSTER_SCHEDULER_NAMES="default-scheduler,volcano,koord-scheduler")
    objects = taken(native)
    for obj in objects:
        await api.call("POST", collection(obj), obj)
    expected = simulate([*room, *objects]).answer()
    found: set[str] = set()

    async def placed() -> bool:
        muster.check_alive()
        pods = [obj for obj in await api.items("/api/v1/pods") if obj["spec"].get("nodeName")]
        found.update(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)
        return found >= set(expected["bound"])

    await until(placed, "what was bound in the simulation is bound")
    assert sorted(found) == sorted(expected["bound"])
    assert len(found) > 100

    async def explained() -> bool:
        """Whoever waits has heard why."""
        pods = [obj for obj in await api.items("/api/v1/pods") if not obj["spec"].get("nodeName")]
        assert len(pods) == len(expected["waiting"])
        said = [one for pod in pods for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
        return len(said) == len(pods)

    await until(explained, "the others are told why they wait")

    async def enqueued() -> bool:
        """Volcano's controllers make a Job's pods once its PodGroup is Inqueue: it has none before."""
        return bool((await status(api, CUSTOM[1], "test-pg")).get("phase") == "Inqueue")

    await until(enqueued, "a PodGroup of Volcano's without pods is told that it is in the queue")
    assert (await muster.verify())["verified"]
    for namespace in ("default", *(obj["metadata"]["name"] for obj in objects if obj["kind"] == "Namespace")):
        await api.delete(f"/api/v1/namespaces/{namespace}/pods")
    for kind in ("podgroups", "workloads"):
        await api.delete(f"/apis/{native.api_version}/namespaces/default/{kind}")


@published.there
@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("file", ["koordinator/podgroup-strict-groups.yaml", "koordinator/gang-master-worker.yaml"])
async def test_annotations_that_are_no_strings_are_rejected_by_a_real_server_too(api: Api, file: str) -> None:
    """As the list of sources says; the document's first object, under the API group that it means."""
    obj = next(yaml.safe_load_all(published.text(file)))
    group = {**obj, "apiVersion": CUSTOM[0], "metadata": {**obj["metadata"], "namespace": "default"}}
    with pytest.raises(ApiError, match="annotations") as refused:
        await api.call("POST", groups_path(CUSTOM[0]), group)
    assert refused.value.status == 400


async def test_a_definition_whose_version_is_not_served_for_a_while(api: Api, muster: Muster) -> None:
    """It stops in the middle of binding: no gang stays half bound, who comes then waits, and ingest says why."""
    path = f"{DEFINITIONS}/podgroups.scheduling.x-k8s.io"
    [read] = (await api.get(path))["spec"]["versions"]
    later = read | {"name": "v1beta1", "storage": False}
    groups, pods = gangs(10, 20)
    ingest = muster.start_all(MUSTER_BIND_CONCURRENCY="1")["ingest"]
    await api.create_all([*nodes(30), *groups])
    await api.create_all(pods)
    await muster.until_bound(20)
    await api.call("PATCH", path, {"spec": {"versions": [read | {"served": False}, later]}}, MERGE)
    try:
        assert len(await muster.bound()) < len(pods), "it was over before it was hurt"

        async def gone() -> bool:
            return "gone kind=PodGroup" in ingest.log.read_text()

        await until(gone, "ingest's watch has ended")
        await serves(api, "scheduling.x-k8s.io/v1beta1")
        await declare(api, "scheduling.x-k8s.io/v1beta1", "late", {"minMember": 1})
        await api.create(member("late", labels={GANG_LABEL: "late"}))

        async def told() -> bool:
            return "are served as scheduling.x-k8s.io/v1beta1, and read as" in ingest.log.read_text()

        async def waits() -> bool:
            conditions = (await api.get("/api/v1/namespaces/default/pods/late"))["status"].get("conditions", [])
            return any(one.get("reason") == "WaitingForPodGroup" for one in conditions)

        await until(told, "ingest says in which version they are served")
        await until(waits, "the pod is told what it waits for")
    finally:
        await api.call("PATCH", path, {"spec": {"versions": [read]}}, MERGE)
    await muster.until_bound(len(pods) + 1)
    await muster.check()
