"""The federator as a process of its own, the requests of the command line, and what kill -9 leaves."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from events import permissions
from events.connection import Connection
from events.log import Unavailable
from events.micro import ask
from events.object_store import Bucket, bodies_bucket
from events.server import EmbeddedServer
from events.subjects import FEDERATION, jobs
from services.cli.muster import app
from services.simulator.openpai.server import OpenPai
from tests.federator import kills
from tests.nats_server import connected, own_server

__all__ = ["own_server"]

runner = CliRunner()


class Running:
    """A federator over two clusters."""

    def __init__(self, run: kills.Run, directory: Path) -> None:
        self.run, self.directory = run, directory

    async def muster(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of ``muster job …``."""
        return await self.command("job", *arguments, "--nats", self.run.url)

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(runner.invoke, app, arguments)
        return done.exit_code, done.stdout, done.stderr

    async def answer(self, *arguments: str) -> Any:
        code, out, err = await self.muster(*arguments, "--json")
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    def file(self, name: str) -> str:
        file = self.directory / f"{name}.yaml"
        file.write_text(self.run.text(name))
        return str(file)


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """On a server that knows users: the federator runs as its own, ``muster job`` as `jobs`."""
    text = permissions.configuration("default", {user: f"of {user}" for user in permissions.users()})
    with EmbeddedServer(tmp_path / "nats", extra=text) as server:
        async with OpenPai() as pai:
            run = kills.Run(server.url, pai, tmp_path, jobs=0, clusters=2, seed=1)
            sign_in(monkeypatch, "federator")
            await run.start()
            sign_in(monkeypatch, "jobs")
            try:
                yield Running(run, tmp_path)
            finally:
                await run.kill()


def sign_in(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    """What is started from now on."""
    monkeypatch.setenv("MUSTER_NATS_USER", user)
    monkeypatch.setenv("MUSTER_NATS_PASSWORD", f"of {user}")


@pytest.fixture
async def running(own_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Running]:
    async with OpenPai() as pai:
        run = kills.Run(own_server.url, pai, tmp_path, jobs=0, clusters=2, seed=1)
        await run.start()
        try:
            yield Running(run, tmp_path)
        finally:
            await run.kill()


async def ready(running: Running) -> None:
    async with connected(running.run.url) as connection:
        await running.run.settled(connection)


async def test_a_job_by_the_command_line(running: Running) -> None:
    await ready(running)
    code, out, err = await running.muster("submit", running.file("train"), "--watch")
    assert code == 0, err
    assert out.splitlines()[-1].startswith("settled on c")
    told = await running.answer("status", "train")
    assert (told["name"], told["phase"]) == ("train", "settled")
    assert sorted(at["phase"] for at in told["clusters"]) == ["ended", "submitted"]
    assert [job["name"] for job in await running.answer("list")] == ["train"]
    for command in (("status", "train"), ("list",), ("explain", "train")):
        code, out, err = await running.muster(*command)
        assert (code, err) == (0, "")
        assert "train" in out
    story = await running.answer("explain", "train")
    assert (story[0]["what"], story[-1]["rule"]) == ("accepted", "R18")
    (placed,) = [line for line in story if line["what"] == "placed"]
    assert told["cluster"] == placed["cluster"]
    assert await running.answer("explain", "train", "--at", str(story[0]["sequence"])) == story[:1]
    assert await running.answer("cancel", "train") == {"cancelled": True}
    code, _, err = await running.muster("submit", running.file("train"))
    assert (code, "there was a job 'train' already" in err) == (2, True)
    code, _, err = await running.muster("status", "other")
    assert (code, "there is no job 'other'" in err) == (2, True)
    code, _, err = await running.muster("explain", "other")
    assert (code, "there is no job 'other'" in err, "expected" in err) == (2, True, True)


async def test_each_as_its_own_user(guarded: Running) -> None:
    """From the submission to the body that is forgotten, nothing that is needed is denied."""
    url = guarded.run.url
    assert await answers(guarded) == []
    code, out, err = await guarded.muster("submit", guarded.file("train"), "--watch")
    assert code == 0, err
    assert out.splitlines()[-1].startswith("settled on c")
    assert [job["name"] for job in await guarded.answer("list")] == ["train"]
    async with asyncio.timeout(60), signed_in(url, "jobs") as client:
        story = await ask(client, jobs(FEDERATION), "explain", {"name": "train"})
    assert (story[0]["what"], story[-1]["rule"]) == ("accepted", "R18")
    assert await guarded.answer("cancel", "train") == {"cancelled": True}
    async with asyncio.timeout(60), signed_in(url, "federation-operator") as operator:
        bucket = Bucket(operator, bodies_bucket(FEDERATION))
        while await bucket.listed():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    said = (guarded.directory / "federator.log").read_text()
    assert ("denies" in said, "violation" in said.lower()) == (False, False)


async def test_it_has_snapshots_taken_and_its_log_is_verified_copied_and_replayed(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The federator as its own user, the commands as the operator; `jobs` may not."""
    url, file = guarded.run.url, str(guarded.directory / "log.db")
    await guarded.run.kill()
    monkeypatch.setenv("MUSTER_SNAPSHOT_AFTER_BYTES", "1000")
    sign_in(monkeypatch, "federator")
    await guarded.run.start()
    sign_in(monkeypatch, "jobs")
    await answers(guarded)
    code, _, err = await guarded.muster("submit", guarded.file("train"), "--watch")
    assert code == 0, err
    for command in ("verify", "replay", "snapshot"):
        code, _, err = await guarded.command(command, url, "--cluster", FEDERATION)
        assert (code, "denies" in err) == (2, True), err
    sign_in(monkeypatch, "federation-operator")
    async with asyncio.timeout(60):
        while not (found := await told(guarded, "verify", url, "--cluster", FEDERATION))["snapshots"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert found["verified"] is True
    await guarded.run.kill()
    sign_in(monkeypatch, "federator")
    await guarded.run.start()
    sign_in(monkeypatch, "jobs")
    assert [job["phase"] for job in await answers(guarded)] == ["settled"]
    await guarded.run.kill()
    sign_in(monkeypatch, "federation-operator")
    await told(guarded, "export", url, file, "--cluster", FEDERATION)
    there = await told(guarded, "replay", url, "--cluster", FEDERATION)
    assert there["digest"] == (await told(guarded, "verify", file))["digest"]
    said = (guarded.directory / "federator.log").read_text()
    assert ("denies" in said, "violation" in said.lower(), "left out" in said) == (False, False, False)


async def test_an_operator_gives_up_what_his_cluster_took_with_it(
    guarded: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jobs` may not. What the cluster shows, nobody may."""
    await answers(guarded)
    code, _, err = await guarded.muster("submit", guarded.file("train"), "--watch")
    assert code == 0, err
    winner = (await guarded.answer("status", "train"))["cluster"]
    given_up = ("give-up", "train", "--cluster", winner, "--reason", "its rack burned", "--by", "ann")
    code, _, err = await guarded.muster(*given_up)
    assert (code, "denies" in err) == (2, True), err
    sign_in(monkeypatch, "federation-operator")
    code, _, err = await guarded.muster(*given_up)
    assert (code, "the cluster answers and shows it: running" in err) == (2, True), err
    code, _, err = await guarded.muster("give-up", "train", "--cluster", "other", "--reason", "?")
    assert (code, "train has no cluster 'other': expected one of" in err) == (2, True), err
    guarded.run.pai.clusters[winner].cut_off = True
    async with asyncio.timeout(60):
        while (await guarded.muster(*given_up))[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    (place,) = [at for at in (await guarded.answer("status", "train"))["clusters"] if at["cluster"] == winner]
    assert (place["phase"], place["given_up"]) == ("ended", "ann")
    (line,) = [line for line in await guarded.answer("explain", "train") if line["rule"] == "R21"]
    assert line["reason"] == "ann declared that nothing of it is there: its rack burned"
    assert (await told(guarded, "verify", guarded.run.url, "--cluster", FEDERATION))["verified"] is True


async def answers(running: Running) -> list[Any]:
    """All jobs, when the federator answers `jobs`."""
    async with asyncio.timeout(60), signed_in(running.run.url, "jobs") as client:
        while True:
            try:
                found: list[Any] = await ask(client, jobs(FEDERATION), "list", {})
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return found


async def told(running: Running, *command: str) -> Any:
    code, out, err = await running.command(*command, "--json")
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


@asynccontextmanager
async def signed_in(url: str, user: str) -> AsyncIterator[Connection]:
    connection = await Connection(url).connect(user=user, password=f"of {user}")
    yield connection
    await connection.close()


async def test_where_no_federator_runs(own_server: EmbeddedServer, tmp_path: Path) -> None:
    async with OpenPai() as pai:
        running = Running(kills.Run(own_server.url, pai, tmp_path, jobs=0, clusters=1, seed=1), tmp_path)
        code, _, err = await running.muster("list")
    assert (code, "is `muster federator` running?" in err) == (2, True)


async def test_files_that_are_wrong(own_server: EmbeddedServer, tmp_path: Path) -> None:
    async with OpenPai() as pai:
        run = kills.Run(own_server.url, pai, tmp_path, jobs=0, clusters=1, seed=1)
        for file, said in (("keys", "URL-safe base64"), ("clusters.yaml", "expected a mapping with 'clusters'")):
            kept = (tmp_path / file).read_text()
            (tmp_path / file).write_text("nothing")
            await run.start()
            assert run.process is not None
            assert await asyncio.wait_for(run.process.wait(), 60) == 2
            assert said in (tmp_path / "federator.log").read_text()
            (tmp_path / file).write_text(kept)


async def test_files_that_are_not_named(own_server: EmbeddedServer) -> None:
    command = [sys.executable, "-m", "services", "federator", "--nats", own_server.url]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, b"--clusters: missing; expected a file" in out) == (2, True)


async def test_a_program_finds_it_as_a_nats_micro_service(running: Running) -> None:
    await ready(running)
    async with connected(running.run.url) as connection:
        info = json.loads((await connection.request("$SRV.INFO.muster-federator", b"")).data)
    assert sorted(endpoint["subject"] for endpoint in info["endpoints"]) == [
        "muster-jobs.federation.cancel",
        "muster-jobs.federation.explain",
        "muster-jobs.federation.give-up",
        "muster-jobs.federation.list",
        "muster-jobs.federation.status",
        "muster-jobs.federation.submit",
    ]


async def test_killed_again_and_again_each_job_has_one_survivor(tmp_path: Path) -> None:
    found = await kills.run(tmp_path, kills=4, jobs=5, clusters=3, seed=1)
    assert found["survivors"] == {1: 5}
    assert found["elsewhere"] == []
    assert found["happened"]["kill -9"] >= 4
    assert "secret" not in (tmp_path / "federator.log").read_text()
