"""What the simulated cluster has that a real one has not: hooks for faults, and bounds that a test can reach."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from services.simulator import __main__ as command
from services.simulator.cluster import SimulatedCluster
from services.simulator.errors import ApiError
from services.simulator.watches import SNAPSHOTS
from tests.contract.client import Client, Endpoint
from tests.simulator.objects import node, pod
from tests.waiting import until


def in_default(cluster: SimulatedCluster, session: aiohttp.ClientSession, **headers: str) -> Client:
    client = Client(Endpoint(cluster.url, headers), session)
    client.namespace = "default"
    return client


# --------------------------------------------------------------------------------------------------------------- faults


async def test_a_planned_error_is_answered_and_nothing_applied(cluster: SimulatedCluster, client: Client) -> None:
    cluster.create(pod("a"))
    fault = cluster.faults.plan(verb="bind", status=500, times=2)
    for _ in range(2):
        (await client.bind("a", "n")).refused(500, "InternalError")
        assert "nodeName" not in cluster.get("Pod", "a")["spec"]
    assert fault.hits == 2
    (await client.bind("a", "n")).ok(201)


async def test_an_applied_fault_takes_effect_and_answers_otherwise(cluster: SimulatedCluster, client: Client) -> None:
    cluster.create(pod("a"))
    cluster.faults.plan(verb="bind", status=504, applied=True)
    (await client.bind("a", "n")).refused(504, "Timeout")
    assert cluster.get("Pod", "a")["spec"]["nodeName"] == "n"


@pytest.mark.parametrize("applied", [False, True])
async def test_a_connection_breaks_instead_of_an_answer(
    cluster: SimulatedCluster, client: Client, applied: bool
) -> None:
    cluster.create(pod("a"))
    cluster.faults.plan(verb="bind", hang_up=True, applied=applied)
    with pytest.raises(aiohttp.ClientError):
        await client.bind("a", "n")
    assert ("nodeName" in cluster.get("Pod", "a")["spec"]) is applied


async def test_a_late_answer_to_an_effect_that_was_at_once(cluster: SimulatedCluster, client: Client) -> None:
    cluster.create(pod("a"))
    cluster.faults.plan(verb="bind", delay_s=3600, applied=True)
    waiting = asyncio.create_task(client.bind("a", "n"))
    await until(lambda: "nodeName" in cluster.get("Pod", "a")["spec"])
    assert not waiting.done()
    waiting.cancel()


async def test_too_many_requests_says_when_to_come_back(cluster: SimulatedCluster, client: Client) -> None:
    cluster.faults.plan(resource="pods", status=429, retry_after_s=7)
    status = (await client.get(client.pods)).refused(429, "TooManyRequests")
    assert status["details"]["retryAfterSeconds"] == 7


async def test_a_fault_without_end_lasts_until_it_is_lifted(cluster: SimulatedCluster, client: Client) -> None:
    fault = cluster.faults.plan(verb="get", name="a", status=503, times=0)
    cluster.create(pod("a"))
    cluster.create(pod("b"))
    for _ in range(3):
        assert (await client.get(f"{client.pods}/a")).code == 503
    assert (await client.get(f"{client.pods}/b")).code == 200
    cluster.faults.lift(fault)
    assert (await client.get(f"{client.pods}/a")).code == 200


# -------------------------------------------------------------------------------------------------------------- watches


async def test_cut_watches_end_and_resume(cluster: SimulatedCluster, client: Client) -> None:
    async with client.watch(client.pods) as watch:
        made = cluster.create(pod("a"))
        assert await watch.seen(1) == [("ADDED", "a")]
        assert cluster.cut_watches("nodes") == 0
        assert cluster.cut_watches("pods") == 1
        assert await watch.rest() == []
    cluster.create(pod("b"))
    async with client.watch(client.pods, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]


async def test_expired_watches_end_with_an_error_event(cluster: SimulatedCluster, client: Client) -> None:
    async with client.watch(client.pods) as watch:
        await until(lambda: cluster.server.watches)
        assert cluster.expire_watches() == 1
        ((kind, status),) = await watch.rest()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")


async def test_dropped_history_makes_old_places_too_old(cluster: SimulatedCluster, client: Client) -> None:
    for name in "abc":
        made = cluster.create(pod(name))
    page = (await client.get(client.pods, limit="1")).ok()
    cluster.drop_history("pods")
    async with client.watch(client.pods, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        ((kind, status),) = await watch.rest()
    assert (kind, status["code"]) == ("ERROR", 410)
    continued = await client.get(client.pods, limit="1", **{"continue": page["metadata"]["continue"]})
    continued.refused(410, "Expired")
    again = (await client.get(client.pods)).ok()["metadata"]["resourceVersion"]
    async with client.watch(client.pods, resourceVersion=again) as watch:
        cluster.create(pod("d"))
        assert await watch.seen(1) == [("ADDED", "d")]


async def test_a_410_can_be_told_as_http_status(cluster: SimulatedCluster, client: Client) -> None:
    cluster.faults.plan(verb="watch", status=410)
    (await client.get(client.pods, watch="1", resourceVersion="5")).refused(410, "Expired")


async def test_the_history_is_bounded(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(history=10) as cluster:
        client = in_default(cluster, session)
        made = [cluster.create(pod(f"p{i}"))["metadata"]["resourceVersion"] for i in range(50)]
        async with client.watch(client.pods, resourceVersion=made[0]) as watch:
            ((kind, status),) = await watch.rest()
        assert (kind, status["code"]) == ("ERROR", 410)
        async with client.watch(client.pods, resourceVersion=made[-3]) as watch:
            assert await watch.seen(2) == [("ADDED", "p48"), ("ADDED", "p49")]


async def test_so_many_lists_are_kept_for_who_goes_on(cluster: SimulatedCluster, client: Client) -> None:
    """The oldest goes first; one that is read to its end, and one of a single page, cost nothing."""
    for name in "abc":
        cluster.create(pod(name))
    tokens = [(await client.get(client.pods, limit="1")).ok()["metadata"]["continue"] for _ in range(SNAPSHOTS)]
    (await client.get(client.pods)).ok()
    second = (await client.get(client.pods, limit="1", **{"continue": tokens[0]})).ok()
    await client.get(client.pods, limit="1", **{"continue": second["metadata"]["continue"]})
    (await client.get(client.pods, **{"continue": tokens[0]})).ok()
    (await client.get(client.pods, limit="1")).ok()
    (await client.get(client.pods, **{"continue": tokens[0]})).refused(410, "Expired")
    (await client.get(client.pods, **{"continue": tokens[1]})).ok()


async def test_a_watch_is_of_its_namespace(cluster: SimulatedCluster, client: Client) -> None:
    cluster.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}])
    elsewhere = pod("elsewhere")
    elsewhere["metadata"]["namespace"] = "other"
    cluster.create(elsewhere)
    async with client.watch(client.pods) as all_of_it, client.watch(client.pods, labelSelector="!x") as selected:
        cluster.patch("Pod", "elsewhere", {"metadata": {"labels": {"y": "1"}}}, namespace="other")
        cluster.create(pod("here"))
        for watch in (all_of_it, selected):
            assert await watch.seen(1) == [("ADDED", "here")]


async def test_a_client_that_does_not_read_is_cut_off(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(watch_buffer=10, history=1_000) as cluster:
        host, port = cluster.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 12)
        writer.write(b"GET /api/v1/pods?watch=1&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: cluster.server.watches)
        created = 400
        for number in range(created):  # together far more than the sockets' buffers hold
            cluster.create(pod(f"p{number:04}", annotations={"filler": "x" * 50_000}))
            await asyncio.sleep(0)
        received = b""
        async with asyncio.timeout(30):
            while chunk := await reader.read(1 << 20):
                received += chunk
                if received.endswith(b"0\r\n\r\n"):
                    break
        writer.close()
        assert received.endswith(b"0\r\n\r\n"), "ended in order, not broken off"
        assert 0 < received.count(b'"type":"ADDED"') < created
        await until(lambda: not cluster.server.watches)


async def test_bookmarks_come_regularly(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(bookmark_every_s=0.02) as cluster:
        client = in_default(cluster, session)
        async with client.watch(client.pods, allowWatchBookmarks="true") as watch:
            cluster.create(node("n"))
            revision = cluster.api.store.revision
            seen = 0
            while seen < revision:
                kind, obj = await watch.next()
                assert kind == "BOOKMARK"
                assert "annotations" not in obj["metadata"], "that would be the end of the initial events"
                seen = int(obj["metadata"]["resourceVersion"])


async def test_bookmarks_come_to_who_asks_and_no_more_often(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(bookmark_every_s=0.2) as cluster:
        client = in_default(cluster, session)
        began_s = time.monotonic()
        marked = client.watch(client.pods, allowWatchBookmarks="true", timeoutSeconds="60")
        async with marked as watch, client.watch(client.pods, timeoutSeconds="60") as other:
            bookmarks = created = 0
            while bookmarks < 3:
                cluster.create(pod(f"p{created}"))
                created += 1
                bookmarks += (await watch.next())[0] == "BOOKMARK"
                await asyncio.sleep(0.01)
            lasted_s = time.monotonic() - began_s
            assert {(await other.next())[0] for _ in range(created)} == {"ADDED"}
        assert bookmarks <= lasted_s / 0.2 + 1


async def test_a_watch_that_begins_with_everything_marks_its_end_only_where_that_was_asked_for(
    cluster: SimulatedCluster, client: Client
) -> None:
    cluster.create(pod("a"))
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    for query in ({"allowWatchBookmarks": "true"}, asked):
        async with client.watch(client.pods, timeoutSeconds="60", **query) as watch:
            assert await watch.seen(1) == [("ADDED", "a")]
            cluster.patch("Pod", "a", {"metadata": {"labels": {"x": str(len(query))}}})
            assert await watch.seen(1) == [("MODIFIED", "a")]


# ------------------------------------------------------------------------------------------------ who may, what is there


async def test_a_token_is_asked_for(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(token="secret") as cluster:
        (await in_default(cluster, session).get("/api/v1/nodes")).refused(401, "Unauthorized")
        headers = {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession(headers=headers) as with_token:
            (await in_default(cluster, with_token).get("/api/v1/nodes")).ok()


async def test_the_podgroup_crd_may_be_absent(session: aiohttp.ClientSession) -> None:
    async with SimulatedCluster(podgroups=False) as cluster:
        client = in_default(cluster, session)
        path = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
        assert (await client.get(path)).code == 404
        with pytest.raises(ApiError, match="no matches for kind"):
            cluster.create(
                {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
            )
        cluster.install()
        listed = (await client.get(path)).ok()
        assert listed["items"] == []
        async with client.watch(path, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
            await until(lambda: cluster.server.watches)
            cluster.uninstall()
            assert await watch.rest() == []
        assert (await client.get(path)).code == 404


async def test_loading_defines_namespaces_and_kinds(cluster: SimulatedCluster, client: Client) -> None:
    quota = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"max": {"cpu": 20}},
    }
    assert cluster.load([quota]) == 1
    listed = (await client.get("/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas")).ok()
    assert [item["spec"] for item in listed["items"]] == [{"max": {"cpu": 20}}]
    assert cluster.exists("Namespace", "team")


async def test_with_a_namespace_goes_what_is_in_it(cluster: SimulatedCluster) -> None:
    for namespace in ("team", "other"):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        cluster.create(pod("a") | {"metadata": {"name": "a", "namespace": namespace}})
    cluster.delete("Namespace", "team")
    assert [cluster.exists("Namespace", name) for name in ("team", "other")] == [False, True]
    assert [one["metadata"]["namespace"] for one in cluster.list("Pod")] == ["other"]


@pytest.mark.parametrize("value", ["4x", "9007199254740993", -1, [], None])
async def test_bad_quantities_reach_the_scheduler(cluster: SimulatedCluster, value: object) -> None:
    bad = node("bad")
    bad["status"]["capacity"]["cpu"] = value
    assert cluster.create(bad)["status"]["allocatable"]["cpu"] == value


@pytest.mark.parametrize(
    "broken",
    [
        {"containers": "x"},
        {"containers": [{"name": "a", "resources": "many"}]},
        {"containers": [{"name": "a", "ports": 80}]},
        {"containers": [{"name": "a"}], "tolerations": "all"},
    ],
)
async def test_a_malformed_pod_is_refused_in_kubernetes_form(client: Client, broken: dict[str, object]) -> None:
    answer = await client.post(client.pods, {"metadata": {"name": "a"}, "spec": broken})
    assert answer.code in (400, 422), answer
    assert answer.body["kind"] == "Status"


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'"pod"'])
async def test_a_body_that_is_no_object_is_refused(client: Client, session: aiohttp.ClientSession, body: bytes) -> None:
    async with session.post(client.endpoint.url + client.pods, data=body) as response:
        assert response.status == 400
        assert (await response.json())["reason"] == "BadRequest"


async def test_a_body_in_protobuf_is_told_what_is_read(client: Client, session: aiohttp.ClientSession) -> None:
    """`kubectl create namespace` sends it. As it was: malformed JSON."""
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with session.post(client.endpoint.url + client.pods, data=b"k8s\x00", headers=headers) as response:
        assert response.status == 415
        assert "application/json" in (await response.json())["message"]


async def test_an_owner_does_not_go_alone(client: Client, cluster: SimulatedCluster) -> None:
    """``kubectl delete --cascade=orphan``: its pods went, too."""
    cluster.create(pod("a"))
    refused = await client.delete(f"{client.pods}/a", {"propagationPolicy": "Orphan"})
    assert "orphans nothing" in refused.refused(400, "BadRequest")["message"]
    (await client.request("DELETE", f"{client.pods}/a", propagationPolicy="Orphan")).refused(400, "BadRequest")
    (await client.delete(f"{client.pods}/a", {"propagationPolicy": "Foreground"})).ok()


async def test_the_same_seed_gives_the_same_uids() -> None:
    first, second, other = (SimulatedCluster(seed=seed).create(pod("a"))["metadata"]["uid"] for seed in (7, 7, 8))
    assert first == second != other


# ------------------------------------------------------------------------------------------------------ as others see it


async def test_the_official_client_finds_its_way(cluster: SimulatedCluster, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(config)
    cluster.create(node("n"))
    cluster.create(pod("a"))

    def visit() -> tuple[list[str], str, list[str]]:
        import kubernetes

        with kubernetes.config.new_client_from_config(str(config)) as api:
            core = kubernetes.client.CoreV1Api(api)
            nodes = [node.metadata.name for node in core.list_node().items]
            core.patch_namespaced_pod_status(
                "a", "default", {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
            )
            phase = core.read_namespaced_pod("a", "default").status.phase
            watch = kubernetes.watch.Watch()
            events = watch.stream(core.list_namespaced_pod, "default", timeout_seconds=1)
            return nodes, phase, [f"{event['type']} {event['object'].metadata.name}" for event in events]

    nodes, phase, events = await asyncio.to_thread(visit)
    assert (nodes, phase, events) == (["n"], "Pending", ["ADDED a"])


async def test_a_process_of_its_own_serves_manifests_until_sigterm(tmp_path: Path) -> None:
    manifest, config = tmp_path / "nodes.yaml", tmp_path / "kubeconfig"
    unnamed = {"apiVersion": "v1", "kind": "Node"}
    classy = pod("a") | {"spec": pod("a")["spec"] | {"priorityClassName": "high"}}
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}
    manifest.write_text("\n---\n".join(map(json.dumps, [unnamed, node("n"), node("n"), classy, high])))
    command = ("-m", "services.simulator", "--nodes", str(manifest), "--token", "t", "--kubeconfig", str(config))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        url = said["url"]
        assert said["refused"] == [
            f"{manifest}, document 1, Node: metadata.name: expected a name, found nothing",
            'nodes "n" already exists',
        ]
        assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == url
        headers = {"Authorization": "Bearer t"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/api/v1/nodes") as response:
            names = [item["metadata"]["name"] for item in (await response.json())["items"]]
        assert names == ["n"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "99999"], "argument --port: expected a port, not '99999'"),
        (["--port", "-1"], "argument --port: expected a whole number, not '-1'"),
        (["--limit", "x"], "argument --limit: expected a whole number, not 'x'"),
    ],
)
def test_arguments_that_are_wrong_are_a_usage_error(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["simulator", *arguments])
    monkeypatch.setattr(command, "_serve", None)  # who took them would serve for ever
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_what_is_wrong_with_a_manifest_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text("kind: Node\n")
    monkeypatch.setattr("sys.argv", ["simulator", "--nodes", str(manifest)])
    assert command.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "bad.yaml, document 1: apiVersion: expected a name" in line


@pytest.mark.parametrize(
    ("flag", "path", "said"),
    [
        ("--kubeconfig", "/nowhere/at/all", b"error: /nowhere/at/all: No such file or directory"),
        ("--nodes", "", b"error: '': expected the path of a file or directory, found nothing"),
    ],
)
async def test_a_process_tells_what_is_wrong_with_a_file(flag: str, path: str, said: bytes) -> None:
    """One that it cannot write; or none, which was the directory in which it ran."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.simulator", flag, path), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert said in errors.splitlines()[-1]
