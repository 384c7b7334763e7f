"""The client against the simulated API: lists, watches, bindings, and every way in which an answer can fail to come."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.kubernetes import client as client_module
from services.kubernetes.access import Access, AccessError, direct
from services.kubernetes.binding import BindResult
from services.kubernetes.client import Client
from services.kubernetes.errors import ApiError, Expired, Forbidden, NotFound, Unreachable
from services.kubernetes.objects import Listed, Pod, Watched
from services.kubernetes.resources import NODES, POD_GROUPS, PODS
from services.kubernetes.transport import Answer
from services.simulator.cluster import SimulatedCluster
from tests.manifests import pod
from tests.waiting import until

PAGE = msgspec.json.Decoder(Listed[Pod])
LINE = msgspec.json.Decoder(Watched[Pod])


async def bind(client: Client, created: dict[str, Any], target: str = "n1", **changed: str) -> BindResult:
    metadata = {**created["metadata"], **changed}
    return await client.bind("default", metadata["name"], metadata["uid"], metadata["resourceVersion"], target)


# ------------------------------------------------------------------------------------------------------------- reading


async def test_a_list_comes_in_pages_of_one_resource_version(cluster: SimulatedCluster, client: Client) -> None:
    for number in range(7):
        cluster.create(pod(f"p{number}"))
    pages = []
    async for body in client.pages(PODS, limit=3):
        pages.append(PAGE.decode(body))
        cluster.create(pod(f"later-{len(pages)}"))
    names = [seen.metadata.name for page in pages for seen in page.items or ()]
    assert names == [f"p{number}" for number in range(7)]
    assert len({page.metadata.resource_version for page in pages}) == 1


async def test_lists_and_reads_are_consistent(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name no resourceVersion: any, and be it 0, may be answered from a cache that is behind."""
    asked: list[str] = []
    send = client.send

    async def recorded(request: str, verb: str, path: str, *rest: Any) -> Answer:
        asked.append(path)
        return await send(request, verb, path, *rest)

    monkeypatch.setattr(client, "send", recorded)
    for number in range(2):
        cluster.create(pod(f"p{number}"))
    assert len([page async for page in client.pages(PODS, limit=1)]) == 2
    assert await client.get_pod("default", "p0") is not None
    assert await client.get_pod_group(POD_GROUPS, "default", "none") is None
    assert len(asked) == 4
    assert not [path for path in asked if "resourceVersion" in path]


async def test_a_continuation_that_is_too_old(cluster: SimulatedCluster, client: Client) -> None:
    for number in range(5):
        cluster.create(pod(f"p{number}"))
    pages = client.pages(PODS, limit=1)
    await anext(pages)
    cluster.drop_history()
    with pytest.raises(Expired) as error:
        [page async for page in pages]
    assert "list pods" in str(error.value)


async def test_a_watch_gives_whole_lines_and_resumes(cluster: SimulatedCluster, client: Client) -> None:
    start = cluster.create(pod("p0"))["metadata"]["resourceVersion"]
    names = []
    version = start
    for number in range(1, 4):
        cluster.create(pod(f"p{number}", nodeSelector={f"k{key}": "x" * 60 for key in range(1_600)}))
        async for lines in client.watch(PODS, version):
            for line in lines:
                seen = LINE.decode(line)
                names.append((seen.type, seen.object.metadata.name))
                version = seen.object.metadata.resource_version
            if names[-1][1] == f"p{number}":
                break
    assert names == [("ADDED", "p1"), ("ADDED", "p2"), ("ADDED", "p3")]


async def test_a_watch_that_the_server_closes_ends(cluster: SimulatedCluster, client: Client) -> None:
    version = cluster.create(pod("p0"))["metadata"]["resourceVersion"]

    async def watched() -> int:
        return sum([len(lines) async for lines in client.watch(PODS, version)])

    watching = asyncio.create_task(watched())
    await until(cluster.cut_watches, "a watch to cut")
    assert await watching == 0


@pytest.mark.parametrize("ending", ["breaks", "falls silent"])
async def test_a_watch_that_does_not_end_as_it_should_is_unreachable(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Its whole lines count; the half of one does not."""
    monkeypatch.setattr(client_module, "WATCH_S", -59.9)  # silence is 60 s more
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'
    over = asyncio.Event()

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + line + line[:9])
        await writer.drain()
        if ending == "falls silent":
            await over.wait()
        writer.close()

    async with await asyncio.start_server(heard, "127.0.0.1", 0) as server:
        lines: list[bytes] = []

        async def watched(client: Client) -> None:
            async for some in client.watch(PODS, "1"):
                lines.extend(some)

        async with Client(direct(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as client:
            with pytest.raises(Unreachable, match="watch pods"):
                await watched(client)
        over.set()
    assert lines == [line.rstrip()]


async def test_a_name_that_kubernetes_would_not_give_stays_a_name(cluster: SimulatedCluster, client: Client) -> None:
    """Names come from the log, and anybody may have written there."""
    cluster.create(pod("p"))
    for odd in ("p?x", "x/../p", "p#", "%70", "é"):
        assert await client.get_pod("default", odd) is None


async def test_without_credentials_nothing_is_asked() -> None:
    """A token's file may go while the service runs."""

    def gone() -> str:
        raise AccessError("token: no such file")

    async with Client(Access("http://127.0.0.1:1", authorization=gone)) as bare:
        result = await bare.bind("default", "p", "u", "1", "n1")
    assert result.outcome == "not_executed"
    assert "token: no such file" in result.message


async def test_a_resource_that_is_not_there(client: Client, cluster: SimulatedCluster) -> None:
    cluster.uninstall()
    with pytest.raises(NotFound) as error:
        await anext(client.pages(POD_GROUPS))
    assert str(error.value).startswith("list podgroups.scheduling.x-k8s.io: 404")


async def test_a_forbidden_list_names_verb_and_resource(client: Client, cluster: SimulatedCluster) -> None:
    cluster.faults.plan(verb="list", resource="nodes", status=403, times=0)
    with pytest.raises(Forbidden) as error:
        await anext(client.pages(NODES))
    assert str(error.value).startswith("list nodes: 403")


async def test_reads_are_repeated_while_the_server_is_busy(client: Client, cluster: SimulatedCluster) -> None:
    created = cluster.create(pod("p"))
    fault = cluster.faults.plan(verb="get", status=503, times=2)
    found = await client.get_pod("default", "p")
    assert found is not None
    assert found.metadata.uid == created["metadata"]["uid"]
    assert fault.hits == 2
    assert await client.get_pod("default", "other") is None


# ------------------------------------------------------------------------------------------------------------- binding


async def test_a_pod_is_bound_to_its_node(cluster: SimulatedCluster, client: Client) -> None:
    created = cluster.create(pod("p"))
    assert (await bind(client, created)).outcome == "bound"
    assert cluster.get("Pod", "p", "default")["spec"]["nodeName"] == "n1"


async def test_a_second_binding_names_the_node(cluster: SimulatedCluster, client: Client) -> None:
    cluster.create(pod("p"))
    cluster.bind("p", "n1")
    result = await bind(client, cluster.get("Pod", "p", "default"), "n2")
    assert (result.outcome, result.node) == ("assigned", "n1")
    assert "create pods/binding default/p: 409" in result.message


@pytest.mark.parametrize("changed", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_a_binding_of_another_uid_or_version_fails_its_precondition(
    cluster: SimulatedCluster, client: Client, changed: dict[str, str]
) -> None:
    created = cluster.create(pod("p"))
    assert (await bind(client, created, **changed)).outcome == "precondition"
    assert not cluster.get("Pod", "p", "default")["spec"].get("nodeName")


async def test_pods_that_cannot_be_bound_any_more(cluster: SimulatedCluster, client: Client) -> None:
    gone = cluster.create(pod("gone"))
    cluster.delete("Pod", "gone", "default")
    assert (await bind(client, gone)).outcome == "gone"

    leaving = pod("leaving")
    leaving["metadata"]["finalizers"] = ["example.com/wait"]
    cluster.create(leaving)
    cluster.delete("Pod", "leaving", "default")
    assert (await bind(client, cluster.get("Pod", "leaving", "default"))).outcome == "gone"

    gated = cluster.create(pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    assert (await bind(client, gated)).outcome == "rejected"


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ({"status": 403}, "forbidden"),
        ({"status": 401}, "not_executed"),
        ({"status": 401, "message": 'admission webhook "w" denied the request: no'}, "forbidden"),
        ({"status": 401, "message": "p is forbidden: ValidatingAdmissionPolicy 'v' denied request: no"}, "forbidden"),
        ({"status": 422}, "rejected"),
        ({"status": 500}, "in_doubt"),
        ({"status": 504, "applied": True}, "in_doubt"),
        ({"status": 501}, "in_doubt"),
        ({"status": 520, "applied": True}, "in_doubt"),
        ({"status": 561, "applied": True}, "in_doubt"),
        ({"hang_up": True}, "in_doubt"),
        ({"hang_up": True, "applied": True}, "in_doubt"),
    ],
)
async def test_every_other_answer(
    cluster: SimulatedCluster, client: Client, fault: dict[str, Any], outcome: str
) -> None:
    created = cluster.create(pod("p"))
    cluster.faults.plan(verb="bind", **fault)
    assert (await bind(client, created)).outcome == outcome
    assert bool(cluster.get("Pod", "p", "default")["spec"].get("nodeName")) == fault.get("applied", False)


@pytest.mark.parametrize(
    "said",
    [
        "rpc error: code = Unavailable desc = error reading from server: connection reset by peer",
        "etcdserver: request timed out",
        "context deadline exceeded",
    ],
)
async def test_what_goes_wrong_before_etcd_leaves_a_binding_in_doubt(
    cluster: SimulatedCluster, client: Client, said: str
) -> None:
    """As it was: the API server tells it as a conflict, which was taken for a refusal where the pod had not changed yet,
    and its room was given to others; the binding could land all the same."""
    created = cluster.create(pod("p"))
    told = f'Operation cannot be fulfilled on pods/binding "p": {said}'
    cluster.faults.plan(verb="bind", status=409, message=told, applied=True)
    assert (await bind(client, created)).outcome == "in_doubt"
    cluster.faults.plan(verb="bind", status=409, message='admission webhook "w" denied the request: no')
    assert (await bind(client, created)).outcome == "precondition", "the pod tells what that means"


@pytest.fixture
async def proxy() -> AsyncIterator[tuple[str, list[bytes]]]:
    """The URL of a proxy with a password, and what it answers to all; nothing, where that is empty."""
    answers: list[bytes] = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answers:
            writer.write(answers[0])
            writer.close()
        else:
            await reader.read()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    yield f"http://user:s3cr3t@127.0.0.1:{server.sockets[0].getsockname()[1]}", answers
    server.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"HTTP/1.1 407 Who\r\n\r\n"])
async def test_a_proxy_that_does_not_connect(proxy: tuple[str, list[bytes]], answer: bytes) -> None:
    """As it was: a silent one kept a watch for ever, and what others answered was told with their password."""
    url, answers = proxy
    answers += [answer] if answer else []
    access = Access(base_url="https://h", ssl_context=ssl.create_default_context, proxy=url)
    async with Client(access, timeout_s=0.2) as client:
        with pytest.raises(Unreachable) as error:
            async for _ in client.stream("watch pods", "/api/v1/pods?watch=1", 0.2):
                pass
        assert "s3cr3t" not in str(error.value)
        with pytest.raises(Unreachable) as error:
            await client.send("get pods", "GET", "/api/v1/pods")
        assert "s3cr3t" not in str(error.value)


async def test_a_watch_that_is_refused_tells_when_to_ask_again(proxy: tuple[str, list[bytes]]) -> None:
    url, answers = proxy
    answers.append(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
    async with Client(Access(base_url="http://h", proxy=url)) as client:
        with pytest.raises(ApiError, match="watch pods: 429") as error:
            async for _ in client.stream("watch pods", "/api/v1/pods?watch=1", 5.0):
                pass
        assert error.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("code", "said", "after_s"),
    [(429, b"7", 7.0), (503, b"0", 0.0), (400, b"7", 7.0), (399, b"7", None), (429, b"", None), (429, b"soon", None)],
)
async def test_whoever_refuses_may_say_when_to_ask_again(
    proxy: tuple[str, list[bytes]], code: int, said: bytes, after_s: float | None
) -> None:
    """In seconds: a date, which HTTP knows as well, is no number of them."""
    url, answers = proxy
    answers.append(b"HTTP/1.1 %d So\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n" % (code, said))
    async with Client(Access(base_url="http://h", proxy=url)) as client:
        answer = await client.send("get pods", "GET", "/api/v1/pods")
    assert (answer.code, answer.retry_after_s) == (code, after_s)


async def test_nobody_is_followed_elsewhere(proxy: tuple[str, list[bytes]]) -> None:
    """With the credentials of this server, and as if its word came from there."""
    url, answers = proxy
    answers.append(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/login\r\nContent-Length: 0\r\n\r\n")
    async with Client(Access(base_url="http://h", proxy=url)) as client:
        with pytest.raises(ApiError, match="get pods default/p: 302"):
            await client.get_pod("default", "p")


async def test_an_answer_that_was_packed_unasked_is_told_as_that(proxy: tuple[str, list[bytes]]) -> None:
    """As it was: that JSON was malformed, or no UTF-8."""
    url, answers = proxy
    body = gzip.compress(b'{"metadata": {"name": "p"}}')
    answers.append(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with Client(Access(base_url="http://h", proxy=url)) as client:
        questions = client.get_pod("default", "p"), client.discover(), anext(client.pages(PODS))
        for asked in questions:
            with pytest.raises(Unreachable, match="something between packs it with gzip"):
                await asked


async def test_a_write_that_is_to_come_again_much_later_is_its_callers(
    cluster: SimulatedCluster, client: Client
) -> None:
    """One namespace's webhook that answered 429, with a Retry-After of half a minute, kept all conditions waiting for two
    and a half."""
    created = cluster.create(pod("p"))
    fault = cluster.faults.plan(verb="patch", status=429, retry_after_s=30, times=0)
    with pytest.raises(ApiError) as refused:
        await client.patch_pod_status("default", "p", created["metadata"]["uid"], "", {"conditions": []})
    assert (refused.value.code, refused.value.retryable, fault.hits) == (429, True, 1)


async def test_a_timeout_leaves_a_binding_in_doubt(cluster: SimulatedCluster) -> None:
    created = cluster.create(pod("p"))
    cluster.faults.plan(verb="bind", delay_s=30.0)
    async with Client(direct(cluster.url), timeout_s=0.1) as hasty:
        assert (await bind(hasty, created)).outcome == "in_doubt"


async def test_a_busy_server_did_nothing_and_says_when_to_ask_again(cluster: SimulatedCluster, client: Client) -> None:
    """Bindings are repeated by the binder, beside others: one namespace's webhook may be what is busy."""
    created = cluster.create(pod("p"))
    fault = cluster.faults.plan(verb="bind", status=429, retry_after_s=7)
    result = await bind(client, created)
    assert (result.outcome, result.retry_after_s, fault.hits) == ("not_executed", 7.0, 1)
    assert "429" in result.message
    assert (await bind(client, created)).outcome == "bound"


async def test_no_server_at_all(cluster: SimulatedCluster) -> None:
    created = cluster.create(pod("p"))
    async with Client(direct("http://127.0.0.1:1")) as nowhere:
        assert (await bind(nowhere, created)).outcome == "not_executed"


async def test_who_is_asked_to_wait_waits_before_the_first_repetition_too(
    cluster: SimulatedCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has too much to do got every request twice at once."""
    cluster.create(pod("p"))
    fault = cluster.faults.plan(verb="get", status=429, retry_after_s=7)
    waited: list[float] = []
    sleep = asyncio.sleep

    async def told(delay_s: float) -> None:
        waited.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", told)
    assert await client.get_pod("default", "p") is not None
    assert fault.hits == 1
    assert 7.0 in waited


async def test_a_list_that_is_to_come_again_much_later_is_told_of(
    cluster: SimulatedCluster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Asked to wait for 20 s, an ingest that starts said nothing for two minutes, and nobody was scheduled meanwhile."""
    cluster.faults.plan(verb="list", status=429)
    assert [page async for page in client.pages(PODS)]
    assert not caplog.text, "a moment's trouble is nobody's"
    cluster.faults.plan(verb="list", status=429, retry_after_s=20)
    listing = asyncio.create_task(anext(client.pages(PODS)))  # type: ignore[arg-type]
    await until(lambda: caplog.text or listing.done(), "a warning")
    listing.cancel()
    assert "read again: 1, the last: list pods: 429 TooManyRequests" in caplog.text
