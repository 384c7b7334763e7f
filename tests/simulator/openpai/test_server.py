"""Simulated OpenPAI clusters over real HTTP: paths, codes, headers, limits and faults."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from services.simulator.openpai import __main__ as command
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import BASE, LateFault, OpenPai, Served
from tests.simulator.openpai.test_jobs import START, Clock, body
from tests.waiting import until


@pytest.fixture
async def pai() -> AsyncIterator[OpenPai]:
    async with OpenPai() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(pai: OpenPai, clock: Clock) -> Served:
    return pai.add("v100", tokens={"secret": "alice"}, clock=clock, life=Life(waiting_ms=1_000))


class Http:
    def __init__(self, session: aiohttp.ClientSession, cluster: Served) -> None:
        self.session, self.url = session, f"{cluster.url}/{BASE}"
        self.headers = {"Authorization": "Bearer secret"}

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any, aiohttp.ClientResponse]:
        headers = self.headers | options.pop("headers", {})
        async with self.session.request(method, f"{self.url}/{path}", headers=headers, **options) as answer:
            json = answer.content_type == "application/json"
            return answer.status, (await answer.json() if json else await answer.text()), answer

    async def submit(self, text: str, media_type: str = "text/yaml") -> tuple[int, Any, aiohttp.ClientResponse]:
        return await self.ask("POST", "jobs", data=text.encode(), headers={"Content-Type": media_type})


@pytest.fixture
async def http(cluster: Served) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, cluster)


async def test_a_job_from_submission_to_stop(http: Http, clock: Clock) -> None:
    assert (await http.submit(body()))[0] == 202
    status, job, answer = await http.ask("GET", "jobs/alice~job")
    assert (status, job["jobStatus"]["state"], job["name"]) == (200, "WAITING", "job")
    assert answer.headers["Date"] == "Tue, 14 Nov 2023 22:13:20 GMT", "the cluster's own clock"
    clock.now_ms += 1_000
    assert (await http.ask("GET", "jobs?username=alice"))[1][0]["state"] == "RUNNING"
    status, text, _ = await http.ask("GET", "jobs/alice~job/config")
    assert (status, text) == (200, body())
    assert (await http.ask("PUT", "jobs/alice~job/executionType", json={"value": "STOP"}))[0] == 202
    assert (await http.ask("GET", "jobs/alice~job"))[1]["jobStatus"]["state"] == "STOPPED"


async def test_refusals_have_a_code_and_a_message(http: Http) -> None:
    await http.submit(body())
    asked: list[tuple[Any, int, str | None]] = [
        (http.submit(body()), 409, "ConflictJobError"),
        (http.submit("name: ["), 500, None),
        (http.submit(body("b"), "application/json"), 400, "InvalidProtocolError"),
        (http.submit(body("b", description="x" * 110_000)), 413, None),
        (http.ask("GET", "jobs/alice~other"), 404, "NoJobError"),
        (http.ask("GET", "jobs/alice~other/config"), 404, "NoJobError"),
        (http.ask("PUT", "jobs/alice~job/executionType", json={"value": "DELETE"}), 400, "InvalidParametersError"),
        (http.ask("DELETE", "jobs/alice~job"), 404, "NoApiError"),
        (http.ask("GET", "jobs", headers={"Authorization": "Bearer other"}), 401, "UnauthorizedUserError"),
        (http.ask("GET", "jobs", headers={"Authorization": ""}), 401, "UnauthorizedUserError"),
    ]
    for request, status, code in asked:
        got, answer, _ = await request
        assert (got, answer.get("code")) == (status, code), answer
        assert answer["message"]


async def test_limits_by_fixed_windows(http: Http, clock: Clock, pai: OpenPai) -> None:
    limits = Limits(requests_per_minute=8, lists_per_minute=3, submissions_per_hour=2)
    narrow = pai.add("narrow", tokens={"secret": "alice"}, clock=clock, limits=limits)
    http.url = f"{narrow.url}/{BASE}"
    assert [(await http.ask("GET", "jobs"))[0] for _ in range(4)] == [200, 200, 200, 429]
    assert [(await http.submit(body(f"j{number}")))[0] for number in range(3)] == [202, 202, 429]
    status, text, answer = await http.submit(body("j9"))
    assert (status, text) == (429, "Too many requests, please try again later.")
    assert answer.headers["Retry-After"] == "3600"
    assert (await http.ask("GET", "jobs/alice~j0"))[0] == 429, "the ninth request of a minute"
    clock.now_ms += 60_000
    assert (await http.ask("GET", "jobs"))[0] == 200
    assert (await http.submit(body("j9")))[0] == 429
    clock.now_ms = START + 3_700_000
    assert (await http.submit(body("j9")))[0] == 202


async def test_an_answer_that_is_lost(http: Http, cluster: Served) -> None:
    cluster.faults.plan(verb="submit", name="job", hang_up=True, applied=True)
    with pytest.raises(aiohttp.ClientError):
        await http.submit(body())
    assert (await http.submit(body()))[0] == 409
    cluster.faults.plan(verb="submit", status=500, applied=True)
    assert (await http.submit(body("b")))[0] == 500
    assert (await http.ask("GET", "jobs/alice~b"))[0] == 200


async def test_a_submission_that_lands_behind_a_404(http: Http, cluster: Served, clock: Clock) -> None:
    cluster.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=5_000))
    with pytest.raises(aiohttp.ClientError):
        await http.submit(body())
    assert (await http.ask("GET", "jobs/alice~job"))[0] == 404
    clock.now_ms += 5_000
    assert (await http.ask("GET", "jobs/alice~job"))[0] == 200


async def test_a_stop_that_is_refused_and_an_answer_that_takes_its_time(http: Http, cluster: Served) -> None:
    await http.submit(body())
    cluster.faults.plan(verb="stop", name="job", status=403)
    assert (await http.ask("PUT", "jobs/alice~job/executionType", json={"value": "STOP"}))[0] == 403
    cluster.faults.plan(verb="stop", delay_s=60.0, applied=True)
    asking = asyncio.ensure_future(http.ask("PUT", "jobs/alice~job/executionType", json={"value": "STOP"}))
    await until(lambda: cluster.jobs["alice", "job"].stop_ms is not None, "the stop")
    asking.cancel()


async def test_a_partition_is_one_clusters_own(http: Http, cluster: Served, pai: OpenPai) -> None:
    other = pai.add("k80", tokens={"secret": "alice"})
    cluster.cut_off = True
    with pytest.raises(aiohttp.ClientError):
        await http.ask("GET", "jobs")
    http.url = f"{other.url}/{BASE}"
    assert (await http.ask("GET", "jobs"))[0] == 200
    assert (cluster.counts["list"], other.counts["list"]) == (0, 1)


async def test_as_a_process() -> None:
    import json

    command = [sys.executable, "-m", "services.simulator.openpai", "v100:50", "k80", "--token", "t", "--user", "bob"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        clusters = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))["clusters"]
        assert list(clusters) == ["v100", "k80"]
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session:
            for url in clusters.values():
                async with session.get(f"{url}/{BASE}/jobs") as answer:
                    assert (answer.status, await answer.json()) == (200, [])
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["v100:soon"], "'v100:soon': expected an alias"),
        ([":50"], "':50': expected an alias"),
        (["v100:-1"], "'v100:-1': expected an alias"),
        (["v100", "--port", "99999"], "argument --port: expected a port, not '99999'"),
        (["v100", "--dying-ms", "-1"], "argument --dying-ms: expected a whole number, not '-1'"),
        (["v100", "v100:50"], "v100 v100: expected each alias once"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it was: a traceback; two clusters of one name were one."""
    monkeypatch.setattr("sys.argv", ["openpai", *arguments])
    monkeypatch.setattr(command, "_serve", None)  # who took them would serve for ever
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_taken_is_one_line_and_exit_code_2() -> None:
    """As it was: a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        process = [sys.executable, "-m", "services.simulator.openpai", "v100", "--port", str(taken)]
        ended = subprocess.run(process, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: error while attempting to bind on address ('127.0.0.1', {taken}): ")
