"""Jobs of a namespace: what is asked of the API server, and what is read of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from services.kubernetes import gang_jobs
from services.kubernetes.access import direct
from services.kubernetes.errors import Unreachable
from services.kubernetes.gang_jobs import GangJobs, GangPod, Job, pointer
from services.kubernetes.transport import NO_SUCH_PATH


class Server:
    """Answers each request with the next of its answers (None: it is not there), and keeps what was asked."""

    def __init__(self) -> None:
        self.url, self.over = "", asyncio.Event()
        self.answers: list[Any] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        """Verb, path, query, body."""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append((request.method, request.path, dict(request.query), msgspec.json.decode(body or b"null")))
        if not self.answers:
            await self.over.wait()
        answer = self.answers.pop(0)
        if answer is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        if answer == NO_SUCH_PATH:
            return web.Response(body=answer, status=404, content_type="text/plain")
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="application/json")
        date = f"Mon, 23 Nov 2026 12:00:0{len(self.asked)} GMT"
        return web.json_response(answer, headers={"Date": date})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield served
    served.answers.append({})
    served.over.set()
    await runner.cleanup()


@pytest.fixture
async def jobs(server: Server) -> AsyncIterator[GangJobs]:
    async with GangJobs(direct(server.url), "training") as opened:
        yield opened


def page(*names: str, token: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": "7", "continue": token}
    return {"metadata": metadata, "items": [{"metadata": {"name": name}} for name in names] or None}


async def test_a_list_goes_on_to_its_last_page(server: Server, jobs: GangJobs) -> None:
    server.answers = [page("a", "b", token="more"), page("c", token="and more"), page()]
    found, _ = await jobs.jobs("app=x")
    assert [job.metadata.name for job in found] == ["a", "b", "c"]
    asked = {"labelSelector": "app=x", "limit": "1000"}
    path = "/apis/batch/v1/namespaces/training/jobs"
    assert server.asked == [
        ("GET", path, asked, None),
        ("GET", path, {**asked, "continue": "more"}, None),
        ("GET", path, {**asked, "continue": "and more"}, None),
    ]


async def test_a_list_without_a_resource_version_is_none(server: Server, jobs: GangJobs) -> None:
    """A Status that is answered as if all were well looks like an empty list: every run on the cluster would be gone."""
    server.answers = [{"kind": "Status", "metadata": {}, "status": "Success"}]
    with pytest.raises(Unreachable, match=r"list jobs\.batch training: .*with a resourceVersion"):
        await jobs.jobs("app=x")


async def test_a_list_tells_the_servers_clock(server: Server, jobs: GangJobs) -> None:
    server.answers = [page("a")]
    assert (await jobs.jobs("app=x"))[1] == "Mon, 23 Nov 2026 12:00:01 GMT"


async def test_an_answer_that_is_no_kubernetes_object_is_none(server: Server, jobs: GangJobs) -> None:
    """A proxy that answers in the server's place; whether it passed an effect on, nobody knows."""
    server.answers = [b"<html>", b"[]"]
    with pytest.raises(Unreachable, match=r"get jobs\.batch training/a: .*Unreadable: expected an object: ") as told:
        await jobs.get_job("a")
    assert told.value.sent
    with pytest.raises(Unreachable, match="list pods training: ") as told:
        await jobs.pods("app=x")
    assert told.value.sent


async def test_a_job_that_is_not_there_is_none(server: Server, jobs: GangJobs) -> None:
    server.answers = [None]
    assert await jobs.get_job("a") is None


async def test_that_a_job_is_gone_is_said_by_a_status_alone(server: Server, jobs: GangJobs) -> None:
    """Jobs are always served: the words for a path that is not are a gateway's. As it was: what ran on was gone."""
    server.answers = [NO_SUCH_PATH] * 3
    with pytest.raises(Unreachable, match="get jobs"):
        await jobs.get_job("a")
    for effect in (jobs.delete("a", "uid-1"), jobs.suspend("a", "uid-1", {})):
        server.answers = [NO_SUCH_PATH]
        with pytest.raises(Unreachable, match="expected the API server"):
            await effect


async def test_a_server_that_says_nothing_is_asked_for_as_long_as_was_said(server: Server) -> None:
    async with GangJobs(direct(server.url), "training", timeout_s=0.01) as impatient:
        with pytest.raises(Unreachable, match="delete jobs"):
            async with asyncio.timeout(20):  # less than without that word
                await impatient.delete("a", "uid-1")


@pytest.mark.parametrize("answer", [{}, [], "It works!"])
async def test_a_yes_that_is_no_api_servers_has_deleted_nothing(server: Server, jobs: GangJobs, answer: object) -> None:
    server.answers = [answer]
    with pytest.raises(Unreachable, match="delete jobs") as told:
        await jobs.delete("a", "uid-1")
    assert told.value.sent


async def test_what_belongs_to_a_job_goes_with_it(server: Server, jobs: GangJobs) -> None:
    gone = {"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "uid-1"}}
    going: dict[str, Any] = {
        "kind": "Job",
        "metadata": {"uid": "uid-1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {},
    }
    there, other = {"metadata": {"uid": "uid-1"}, "status": {}}, {**gone, "details": {"uid": "uid-2"}}
    another = {**going, "metadata": {**going["metadata"], "uid": "uid-2"}}
    server.answers = [gone, going, there, other, another, {"status": "Success"}, {"status": "Failure"}]
    for _ in range(2):
        await jobs.delete("a", "uid-1")
    for _ in range(5):
        with pytest.raises(Unreachable, match="expected that the Job of this UID goes"):
            await jobs.delete("a", "uid-1")
    options = {"preconditions": {"uid": "uid-1"}, "propagationPolicy": "Background"}
    assert server.asked == [("DELETE", "/apis/batch/v1/namespaces/training/jobs/a", {}, options)] * 7


async def test_what_is_made_is_known_by_its_uid(server: Server, jobs: GangJobs) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"suspend": True}}
    server.answers = [{"metadata": {"name": "a", "uid": "uid-1"}}]
    assert await jobs.create(gang_jobs.JOBS, body) == "uid-1"
    assert server.asked == [("POST", "/apis/batch/v1/namespaces/training/jobs", {}, body)]


async def test_a_job_is_suspended_if_it_is_still_this_one(server: Server, jobs: GangJobs) -> None:
    """The UID of a patch is its precondition: an API server answers as if it was to be changed."""
    server.answers = [{"metadata": {}}]
    await jobs.suspend("a", "uid-1", {"example/phase": "ending"})
    metadata = {"uid": "uid-1", "annotations": {"example/phase": "ending"}}
    patch = {"metadata": metadata, "spec": {"suspend": True}}
    assert server.asked == [("PATCH", "/apis/batch/v1/namespaces/training/jobs/a", {}, patch)]


async def test_a_job_is_resumed_if_what_was_read_of_it_stands(server: Server, jobs: GangJobs) -> None:
    said = {"metadata": {"annotations": {"example/phase~1": "released"}}}
    server.answers = [said, {"metadata": {"annotations": {"example/phase~1": "held"}}}]
    await jobs.resume("a", {("metadata", "uid"): "uid-1"}, "example/phase~1", "released")
    with pytest.raises(Unreachable, match="expected example/phase~1 to be 'released': 'held'"):
        await jobs.resume("a", {("metadata", "uid"): "uid-1"}, "example/phase~1", "released")
    assert server.asked[0][3] == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "replace", "path": "/metadata/annotations/example~1phase~01", "value": "released"},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]


def test_a_pointer_is_written_as_json_patch_has_it() -> None:
    assert pointer(("a/b", "~1", "")) == "/a~1b/~01/"


def test_a_condition_counts_where_it_is_true() -> None:
    conditions = [{"type": "Failed", "status": "False"}, {"type": "Complete", "status": "True"}, {"type": "Suspended"}]
    job = msgspec.convert({"metadata": {}, "status": {"conditions": conditions}}, Job)
    assert [job.is_so(each) for each in ("Failed", "Complete", "Suspended", "Other")] == [False, True, False, False]
    bare = msgspec.convert({"metadata": {}}, Job)
    assert not bare.is_so("Complete")
    assert bare.says("anything") == ""
    assert (bare.spec.completions, bare.spec.suspend) == (1, None)


@pytest.mark.parametrize(
    ("phase", "over"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True), ("", False)],
)
def test_of_a_pod_that_is_over_nothing_runs_nor_will(phase: str, over: bool) -> None:
    about = {"labels": {"batch.kubernetes.io/controller-uid": "uid-1"}}
    pod = msgspec.convert({"metadata": about, "status": {"phase": phase}}, GangPod)
    assert (pod.is_over, pod.job_uid) == (over, "uid-1")


FIRST, LAST = "2026-11-23T12:00:00Z", "2026-11-23T12:00:05Z"
LAST_MS = 1_795_435_205_000


def test_of_several_conditions_the_first_to_hold_says_since_when() -> None:
    conditions = [
        {"type": "FailureTarget", "status": "True", "lastTransitionTime": LAST},
        {"type": "Failed", "status": "False", "lastTransitionTime": FIRST},
        {"type": "Suspended", "status": "True"},
    ]
    job = msgspec.convert({"metadata": {}, "status": {"conditions": conditions}}, Job, strict=False)
    assert job.since_ms("FailureTarget", "Failed") == LAST_MS
    assert job.since_ms("FailureTarget", "Suspended") == 0, "it does not say"
    assert job.since_ms("Failed", "Complete") is None


@pytest.mark.parametrize(
    ("states", "started_ms"),
    [
        (None, 0),
        ([], 0),
        ([None, {}, {"waiting": {}}], 0),
        ([{"running": {"startedAt": None}}, {"terminated": {}}], 0),
        ([{"running": {"startedAt": LAST}}, {"running": {"startedAt": FIRST}}, {}], LAST_MS),
        ([{"running": {"startedAt": FIRST}}, {"terminated": {"startedAt": LAST}}, None], LAST_MS),
    ],
)
def test_a_pod_has_started_when_its_last_container_has(states: list[Any] | None, started_ms: int) -> None:
    statuses = None if states is None else [{"state": state} for state in states]
    pod = msgspec.convert({"metadata": {}, "status": {"containerStatuses": statuses}}, GangPod, strict=False)
    assert (pod.started_ms, pod.job_uid, pod.is_over) == (started_ms, "", False)


async def test_what_would_fill_the_memory_is_not_read_to_its_end(
    server: Server, jobs: GangJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: an answer without an end was read for half a minute, and pages without an end for ever."""
    monkeypatch.setattr(gang_jobs, "MOST_LISTED", 10)
    page = {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": [{"metadata": {"name": "a"}}] * 4}
    server.answers += [page, page, page]
    with pytest.raises(Unreachable, match="expected at most 10 objects"):
        await jobs.jobs("a=b")
    monkeypatch.setattr(gang_jobs, "MOST_ANSWERED_BYTES", 1_000)
    async with GangJobs(direct(server.url), "training") as bounded:
        server.answers += [b" " * 1_001] * 3
        with pytest.raises(Unreachable, match="HTTP 200 with more than 1000 bytes"):
            await bounded.pods("a=b")


async def test_words_that_no_log_could_keep_are_no_answer(server: Server, jobs: GangJobs) -> None:
    """As it was: a UID of 8 MB was accepted, no commit took it, and the federator ended."""
    server.answers.append({"metadata": {"uid": "u" * 254}})
    with pytest.raises(Unreachable, match="expected an object"):
        await jobs.create(gang_jobs.JOBS, {"metadata": {"name": "train"}})
    server.answers += [{"metadata": {"name": "train", "uid": "u" * 254}}] * 3
    with pytest.raises(Unreachable, match="expected an object"):
        await jobs.get_job("train")
