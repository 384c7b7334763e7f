"""`muster explain`: whose story is told, up to where, and with which exit code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from events import envelope, subjects
from events.envelope import Header
from events.homes import copy, open_log
from services.cli.muster import app
from services.console.explain import Explained, explain, read_name
from services.console.replay import BadPlace
from services.console.retention import retain
from services.console.summary import waiting_groups
from services.console.verify import verify
from tests.console.test_federation import SEED, commits_of
from tests.federator.logs import written
from tests.snapshots.test_left import tell_snapshot_of
from tests.snapshots.writing import NOW_NS
from tests.world import World

runner = CliRunner()


def saved(world: World, directory: Path) -> str:
    """The world's log, as a file."""

    async def made() -> None:
        log = await open_log(str(directory / "world.db"), "test", create=True)
        await copy(world.log, log)
        await log.close()

    asyncio.run(made())
    return str(directory / "world.db")


def said(*arguments: str) -> dict[str, Any]:
    result = runner.invoke(app, ["explain", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    return json.loads(line)


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 3, 3)
    world.pod("train")
    world.settle()
    return world


async def of(world: World, name: str, at: str | None = None) -> Explained:
    return await explain(world.log, name, at)


# ----------------------------------------------------------------------------------------------------------- whose story


async def test_a_pod_and_a_gang_of_one_name_are_both_told(world: World) -> None:
    found = await of(world, "default/train")
    assert [(one.kind, one.name) for one in found.stories] == [("gang", "default/train"), ("pod", "default/train")]
    gang, pod = found.stories
    assert gang.stands == f"3 pods not bound: {waiting_groups(world.state)['default/train'][1]}"
    assert pod.stands == "bound on node n0"
    assert found.sequence == world.state.sequence


async def test_a_pod_without_a_gang_has_the_name_that_replay_gives_its_group(world: World) -> None:
    assert await of(world, "pod/default/train") == await of(world, "default/train")


def test_a_namespace_may_be_called_pod() -> None:
    assert [read_name(text) for text in ("pod/web", "pod/pod/web", "pod/default/web")] == [
        "pod/web",
        "pod/web",
        "default/web",
    ]


async def test_a_gang_of_another_project_is_called_by_its_key() -> None:
    world = World()
    world.volcano("worker", "train")
    assert [one.kind for one in (await of(world, "default/train@batch")).stories] == ["gang"]
    found = await of(world, "default/train")
    assert (found.stories, found.near) == ([], ["default/train@batch"])


async def test_names_that_may_have_been_meant(world: World) -> None:
    assert (await of(world, "ml/train")).near == ["default/train"]
    world.pod("web-0")
    world.pod("web-1")
    world.deleted("web-0")
    assert (await of(world, "default/web")).near == ["default/web-0", "default/web-1"]
    assert (await of(world, "default/eval")).near == []
    for number in range(2, 6):
        world.pod(f"web-{number}")
    assert (await of(world, "default/web")).near == ["default/web-0", "default/web-1", "default/web-2"]


# ------------------------------------------------------------------------------------------------------------- to where


async def test_each_place_has_the_story_up_to_there_and_how_it_stood(world: World) -> None:
    whole = (await of(world, "default/train")).stories[0]
    seen = whole.lines[0].sequence
    assert (await of(world, "default/train", str(seen - 1))).stories == []
    told = 0
    for sequence in range(seen, world.state.sequence + 1):
        found = await of(world, "default/train", str(sequence))
        assert found.sequence == sequence
        (gang, *_) = found.stories
        assert [line.sequence for line in gang.lines] == [
            line.sequence for line in whole.lines if line.sequence <= sequence
        ]
        assert len(gang.lines) >= told
        told = len(gang.lines)
    for at in (str(world.state.sequence + 1), "2200-01-01", "soon"):
        with pytest.raises(BadPlace):
            await of(world, "default/train", at)
    assert (await of(world, "default/train", "2026-01-01")).stories[0] == whole


async def test_a_time_ends_before_the_first_younger_commit(world: World) -> None:
    before = await of(world, "default/train")
    header = Header(writer="ingest", epoch=0, basis=0, time_ns=1 << 60, cause="facts")
    last = world.log._last["muster.test.ingest"]
    world.log.append_now(subjects.subject("test", "ingest"), header, envelope.encode_events([]), last)
    assert (await of(world, "default/train", "1980-01-01")).sequence == world.state.sequence
    found = await of(world, "default/train")
    assert (before.time_ns, found.time_ns, found.sequence) == (0, 1 << 60, before.sequence + 1)


async def test_what_is_nobodys_commit_tells_nothing(world: World) -> None:
    before = await of(world, "default/train")
    forged = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="facts")
    last = world.log._last["muster.test.ingest"]
    world.log.append_now(subjects.subject("test", "ingest"), forged, b"[]", last)
    found = await of(world, "default/train")
    assert (found.sequence, found.time_ns, found.stories) == (before.sequence + 1, 0, before.stories)


async def test_of_a_purged_log_it_begins_with_the_snapshot(world: World) -> None:
    await tell_snapshot_of(world)
    world.node("n1", cpu=8)
    world.pass_s(12)
    await tell_snapshot_of(world)
    world.settle()
    whole = (await of(world, "default/train")).stories[0]
    place = min(world.state.snapshots)
    assert (await retain(world.log, None, days=1, now_ns=NOW_NS)).first == place + 1
    left = (await of(world, "default/train")).stories[0]
    assert left.stands == whole.stands == "3 of 3 pods bound, on node n1"
    first, *rest = left.lines
    assert (first.sequence, first.what, first.time_ns) == (place, "as of a snapshot", 0)
    assert rest == [line for line in whole.lines if line.sequence > place]
    assert (await of(world, "default/train", str(place))).stories[0].lines == [first]
    for at in (str(place - 1), "1960-01-01"):
        with pytest.raises(BadPlace, match="everything before"):
            await of(world, "default/train", at)
    assert (await of(world, "ml/train")).near == ["default/train"]
    assert (await verify(world.log)).verified


# ----------------------------------------------------------------------------------------------------------- the command


def test_as_json_it_is_one_document(world: World, tmp_path: Path) -> None:
    file = saved(world, tmp_path)
    found = said(file, "default/train")
    assert found.keys() == {"sequence", "time_ns", "stories"}
    gang, pod = found["stories"]
    assert (gang["kind"], gang["name"], pod["kind"]) == ("gang", "default/train", "pod")
    assert gang["lines"][-1].keys() == {
        "sequence",
        "time_ns",
        "writer",
        "what",
        "reason",
        "times",
        "until",
        "until_ns",
    }
    assert (gang["lines"][-1]["what"], gang["lines"][-1]["writer"]) == ("no room", "planner.a")
    assert said(file, "default/train", "--at", "10")["sequence"] == 10


def test_for_people_each_line_says_when_by_whom_what_and_why(world: World, tmp_path: Path) -> None:
    result = runner.invoke(app, ["explain", saved(world, tmp_path), "default/train"])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    end = world.state.sequence
    assert lines[0] == "gang default/train"
    assert "pod default/train" in lines
    assert any("planner.a no room: 0/1 nodes are available: 1 Insufficient cpu. gang" in line for line in lines)
    assert lines[-1] == f"{end} – stands: bound on node n0"


def test_a_log_of_a_simulation_is_explained(log: Path) -> None:
    (story,) = said(str(log), "default/b")["stories"]
    assert [line["what"] for line in story["lines"]][-1] == "no room"
    (story,) = said(str(log), "default/a")["stories"]
    assert story["stands"] == "bound on node n1"


def test_who_is_not_there_is_exit_code_1(world: World, tmp_path: Path) -> None:
    file = saved(world, tmp_path)
    for arguments, error in (
        (["ml/train"], "error: there is no pod or gang ml/train in the log of 'test'; there is default/train\n"),
        (["a/b", "--at", "3"], "error: there is no pod or gang a/b in the log of 'test' up to 3\n"),
        (["a/\x1b[2J"], "error: there is no pod or gang a/\\x1b[2J in the log of 'test'\n"),
    ):
        result = runner.invoke(app, ["explain", file, *arguments])
        assert (result.exit_code, result.stderr, result.stdout) == (1, error, "")
        result = runner.invoke(app, ["explain", file, *arguments, "--json"])
        assert (result.exit_code, result.stderr) == (1, error)
        answer = json.loads(result.stdout)  # an answer, as of every command whose exit code is 1
        assert (answer["sequence"], answer["stories"]) == (3 if "--at" in arguments else world.state.sequence, [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["train"], "'train': expected NAMESPACE/NAME"),
        (["/train"], "'/train': expected NAMESPACE/NAME"),
        (["pod/train/"], "expected NAMESPACE/NAME"),
        (["a/b", "--at", "soon"], "--at soon: expected a sequence, or a time"),
        (["a/b", "--at", "99999"], "--at 99999: the log ends at"),
        (["a/b", "--cluster", "other"], "simulated"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(log: Path, arguments: list[str], error: str) -> None:
    result = runner.invoke(app, ["explain", str(log), *arguments])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: ")
    assert error in result.stderr


def test_of_a_federation_the_other_command_is_named(tmp_path: Path) -> None:
    async def made() -> None:
        log = await open_log(str(tmp_path / "log.db"), "federation", create=True)
        await copy(await written(commits_of(SEED)), log)
        await log.close()

    asyncio.run(made())
    result = runner.invoke(app, ["explain", str(tmp_path / "log.db"), "default/train"])
    assert result.exit_code == 2
    assert result.stderr == "error: this is the log of a federation: `muster job explain NAME` tells a job's story\n"


def test_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    """A log in NATS has what somebody wrote into it."""
    world = World()
    world.node("n\x1b[2J0")
    world.pod("a\x1b[2J")
    world.settle()
    result = runner.invoke(app, ["explain", saved(world, tmp_path), "default/a\x1b[2J"])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.stdout
    assert r"pod default/a\x1b[2J" in result.stdout
    assert r"bound: to node n\x1b[2J0" in result.stdout
