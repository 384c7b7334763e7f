"""The commands over a federation's log: verified, replayed, copied, archived and purged as a cluster's."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from typer.testing import CliRunner

import events as ev
from events import Event, envelope
from events.envelope import FIRST_VERSION, Header
from events.homes import copy, open_log
from events.log import EventLog
from events.memory import MemoryLog
from events.subjects import FEDERATION, subject
from services.cli.muster import app
from services.console import jobs
from services.console.commands import NICER
from services.console.kinds import CLUSTER, FEDERATED, kind_of
from services.console.kinds.federation import DECISIONS, INPUTS
from services.console.replay import BadPlace, replay
from services.console.retention import DAY_NS, retain
from services.console.verify import verify
from services.federator.explain import Said, Story
from services.federator.rules import forgotten
from services.federator.snapshot import FORM
from services.federator.state import WRITER, State
from tests.federator.audit import DECIDED
from tests.federator.held import HeldWorld
from tests.federator.logs import CAUSES, append, history, tell_snapshot, written
from tests.federator.simulation import World, world

commits_of = cache(history)
SEED = 5
runner = CliRunner()


@cache
def forgetting() -> int:
    """The seed of a history in which something came late of a job that was forgotten."""
    wanted = {ev.JobForgotten, ev.StrayCleared, ev.SnapshotTaken}
    return next(
        seed
        for seed in range(200)
        if wanted <= {type(event) for commit in commits_of(seed, HeldWorld) for event in commit}
    )


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many jobs as in the histories."""
    monkeypatch.setattr(forgotten, "KEPT", world.KEPT)


def fold(commits: list[tuple[Event, ...]]) -> State:
    state = State()
    for number, commit in enumerate(commits, 1):
        state.apply(number, commit)
    return state


def altered(commits: list[tuple[Event, ...]], index: int, *events: Event) -> list[tuple[Event, ...]]:
    return [*commits[:index], events, *commits[index + 1 :]]


def first(commits: list[tuple[Event, ...]], kind: type) -> int:
    return next(index for index, commit in enumerate(commits) if isinstance(commit[0], kind))


# ---------------------------------------------------------------------------------------------------------- verify


@pytest.mark.parametrize("of", [World, HeldWorld])
@pytest.mark.parametrize("seed", range(20))
async def test_every_decision_is_reproduced(seed: int, of: type[World]) -> None:
    commits = commits_of(seed, of)
    report = await verify(await written(commits), validate_every=1)
    assert report.verified, report
    assert report.decided == report.reproduced == report.causes["decide"] > 0
    assert report.digest == FORM.digest(fold(commits))
    taken = [commit for commit in commits if isinstance(commit[0], ev.SnapshotTaken)]
    assert report.snapshots == len(taken)
    told = (*DECIDED, *CAUSES, ev.SnapshotTaken)
    assert report.outcomes == sum(len(commit) for commit in commits if not isinstance(commit[0], told))


def test_an_event_is_a_decision_or_an_input_of_one_cause() -> None:
    """One that nobody placed would be an outcome: what a rule says has to be named."""
    told = [DECISIONS, *INPUTS.values()]
    assert sum(map(len, told)) == len(frozenset[type]().union(*told)) == len(get_args(ev.FederatorEvents))
    assert {*DECIDED} == DECISIONS


async def test_forgetting_is_reproduced_and_nobody_is_forgotten_against_the_rules() -> None:
    commits = commits_of(forgetting(), HeldWorld)
    report = await verify(await written(commits), validate_every=1)
    assert report.verified, report
    assert report.snapshots
    index = first(commits, ev.JobForgotten)
    other = await verify(await written(altered(commits[: index + 1], index, ev.JobForgotten(job="fed.u9"))))
    assert (other.exit_code, other.difference and other.difference.sequence) == (1, index + 1)
    assert other.difference is not None
    assert [one["type"] for one in other.difference.decided] == ["JobForgotten"]


async def test_a_log_of_before_jobs_were_forgotten_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its UIDs have no origin: its state is recorded as it was, and nobody is forgotten."""
    seed = forgetting()  # before anything is patched: the histories that it looks through are kept for other tests
    monkeypatch.setattr(world, "ORIGIN", "")
    commits = history(seed, HeldWorld)
    assert not any(isinstance(event, ev.JobForgotten) for commit in commits for event in commit)
    report = await verify(await written(commits), validate_every=1)
    assert (report.verified, report.snapshots > 0, fold(commits).origin) == (True, True, "")


async def test_another_cluster_in_a_decision_is_a_difference() -> None:
    commits = commits_of(SEED)
    index = next(at for at, commit in enumerate(commits) if any(type(one) is ev.StopIntended for one in commit))
    other = [
        msgspec.structs.replace(one, reason="Cancelled") if isinstance(one, ev.StopIntended) else one
        for one in commits[index]
    ]
    report = await verify(await written(altered(commits, index, *other)))
    assert report.exit_code == 1
    assert report.difference is not None
    assert (report.difference.sequence, report.difference.writer) == (index + 1, "federator")


async def test_a_decision_under_another_cause_is_a_difference() -> None:
    commits = commits_of(SEED)
    index = first(commits, ev.SubmissionAccepted)
    uid = commits[index][0].job  # type: ignore[union-attr]
    report = await verify(await written(altered(commits, index, *commits[index], ev.JobUnplaced(job=uid))))
    assert report.difference is not None
    assert report.difference.what == "event 1: JobUnplaced under the cause 'outcome'"


async def test_an_outcome_without_an_intent_is_a_difference() -> None:
    commits = commits_of(SEED)
    index = first(commits, ev.SubmissionAccepted)
    astray = msgspec.structs.replace(commits[index][0], cluster="elsewhere")
    report = await verify(await written(altered(commits, index, commits[index][0], astray)))
    assert report.difference is not None
    assert (report.difference.sequence, report.difference.what) == (index + 1, "1 of its events change nothing")


async def test_what_somebody_else_wrote_is_set_aside() -> None:
    commits = commits_of(SEED)
    log = await written(commits)
    header = envelope.Header(writer="ingest", epoch=0, basis=0, time_ns=1, cause="facts")
    await log.append(subject(log.cluster, "ingest"), header, b"[]", 0)
    report = await verify(log)
    assert report.verified
    state = await replay(log, None, FORM)
    assert (state.set_aside, state.sequence) == (1, len(commits) + 1)


async def test_the_digest_of_each_snapshot_is_found_again() -> None:
    commits = commits_of(SEED)
    place = len(commits) // 2
    for digest, snapshots in ((FORM.digest(fold(commits[:place])), 1), ("0" * 64, 0)):
        taken = ev.SnapshotTaken(sequence=place, digest=digest, bytes=1, state=FIRST_VERSION)
        report = await verify(await written([*commits, (taken,)]))
        assert (report.snapshots, report.verified) == (snapshots, bool(snapshots))


# --------------------------------------------------------------------------------------------- replay, copies, retention


async def test_which_kind_it_is_the_log_says() -> None:
    assert await kind_of(MemoryLog("prod")) is CLUSTER
    assert await kind_of(MemoryLog(FEDERATION)) is FEDERATED
    other = MemoryLog("labs")
    header = envelope.Header(writer=WRITER, epoch=0, basis=0, time_ns=1, cause="taken")
    payload = envelope.encode_events([ev.FederatorTaken(holder="one")])
    await other.append(subject("labs", WRITER), header, payload, 0)
    assert await kind_of(other) is FEDERATED


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A history in an SQLite file."""

    async def made() -> None:
        log = await open_log(str(tmp_path / "log.db"), FEDERATION, create=True)
        await copy(await written(commits_of(SEED)), log)
        await log.close()

    asyncio.run(made())
    return str(tmp_path / "log.db")


def said(*arguments: str) -> dict[str, Any]:
    """As JSON, behind exit code 0."""
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_verify_replay_snapshot_and_export_take_a_federations_log(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gave_way: list[int] = []
    monkeypatch.setattr(os, "nice", gave_way.append)
    commits = commits_of(SEED)
    assert said("verify", file)["verified"] is True
    asked = said("replay", file, "--at", "2")
    assert (asked["jobs"], asked["sequence"]) == ({"racing": 1}, 2)
    assert asked["unsettled_jobs"]["job-0"]["phase"] == "racing"
    whole = said("replay", file)
    assert (whole["jobs"], whole["unsettled_jobs"]) == ({"settled": len(fold(commits).jobs)}, {})
    assert whole["digest"] == FORM.digest(fold(commits))
    taken = said("snapshot", file)
    assert (taken["sequence"], taken["digest"]) == (len(commits), whole["digest"])
    assert gave_way == [NICER]
    target = str(tmp_path / "copy.db")
    assert said("export", file, target)["end"] == len(commits)
    assert said("verify", target)["digest"] == whole["digest"]


def test_replay_for_people_says_what_waits(file: str) -> None:
    result = runner.invoke(app, ["replay", file, "--at", "2"])
    assert result.exit_code == 0
    assert "job-0" in result.output


@pytest.mark.parametrize(
    "arguments", [["policy", "show"], ["policy", "set", "--profile", "binpack"], ["versions", "show"], ["status"]]
)
def test_what_only_clusters_have_is_neither_shown_nor_written(file: str, arguments: list[str]) -> None:
    """As it was: `policy set` appended a cluster's policy to the federation's log, `status` saw an ingest in it."""
    before = said("replay", file)["sequence"]
    found = runner.invoke(app, [*arguments, file])
    assert found.exit_code == 2
    assert found.stderr.startswith("error: this is the log of a federation: ")
    assert said("replay", file)["sequence"] == before


async def test_a_purged_log_is_verified_from_its_snapshot_and_the_archive_from_the_start(tmp_path: Path) -> None:
    commits = commits_of(SEED)
    places = (len(commits) // 2, len(commits) * 3 // 4)
    log = await written(commits, places)
    archive = await open_log(str(tmp_path / "archive.db"), FEDERATION, create=True)
    found = await retain(log, archive, days=1, now_ns=2 * DAY_NS)
    assert (found.purged, found.first) == (places[0], places[0] + 1)
    report = await verify(log)
    assert (report.verified, report.start, report.snapshots) == (True, places[0], 2)
    assert (await verify(archive)).verified
    assert report.digest == FORM.digest(await replay(archive, None, FORM))
    await archive.close()


async def test_a_log_that_was_purged_is_purged_again() -> None:
    """What is left of it can be read as a federation's alone."""
    commits = commits_of(SEED)
    half = len(commits) // 2
    log = await written(commits[:half], (half // 2,))
    older = await tell_snapshot(log)
    assert (await retain(log, None, days=1, now_ns=2 * DAY_NS)).first == half // 2 + 1
    for commit in commits[half:]:
        await append(log, commit)
    await tell_snapshot(log)
    assert (await retain(log, None, days=1, now_ns=2 * DAY_NS)).first == older + 1
    assert (await verify(log)).verified


async def test_a_place_that_was_purged_is_not_explained_by_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what became of the job until the first snapshot, as if that had been asked for."""
    commits = commits_of(SEED)
    places = (len(commits) // 2, len(commits) * 3 // 4)
    log = await written(commits, places)
    assert (await retain(log, None, days=1, now_ns=2 * DAY_NS)).first == places[0] + 1

    async def opened(*_: object) -> EventLog:
        return log

    monkeypatch.setattr(jobs, "open_location", opened)
    for at, gone in (
        (str(places[0] - 1), f"everything before {places[0]} was purged; that is the first place left"),
        ("1960-01-01", f"what follows {places[0]} is younger, and everything before was purged"),
    ):
        with pytest.raises(BadPlace, match=f"--at {at}.*: {gone}"):
            await jobs._told("train", None, FEDERATION, at)
    for place in (places[0], places[0] + 2):
        _, story = await jobs._told("train", None, FEDERATION, str(place))
        assert story._state.sequence == place


def test_a_forgotten_job_is_explained_by_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And commit by commit: a log of months would not fit into memory."""
    held: list[int] = []

    def in_memory() -> int:
        return sum(isinstance(one, Said) for one in gc.get_objects())

    class Counting(Story):
        def add(self, said: Said) -> None:
            super().add(said)
            held.append(in_memory())
            states.append(sum(type(one) is State for one in gc.get_objects()))

    monkeypatch.setattr(jobs, "Story", Counting)
    commits = commits_of(forgetting(), HeldWorld)
    file = str(tmp_path / "log.db")

    async def made() -> None:
        log = await open_log(file, FEDERATION, create=True)
        await copy(await written(commits), log)
        await log.close()

    asyncio.run(made())
    index = first(commits, ev.JobForgotten)
    uid = commits[index][0].job  # type: ignore[union-attr]
    request = next(one for commit in commits for one in commit if isinstance(one, ev.JobFederated) and one.job == uid)
    gc.collect()  # of the history above nothing is left
    before_us, states = in_memory(), [sum(type(one) is State for one in gc.get_objects())]
    result = runner.invoke(app, ["job", "explain", request.name, "--nats", file, "--json"])
    assert result.exit_code == 0, result.output
    story = json.loads(result.stdout.splitlines()[-1])
    assert (story[0]["what"], "forgotten" in [line["what"] for line in story]) == ("accepted", True)
    assert len(held) == len(commits)
    assert max(held) <= before_us + 1
    assert max(states) <= states[0] + 2, "as it was: one for the picture, too"
    monkeypatch.undo()
    before = runner.invoke(app, ["job", "explain", request.name, "--nats", file, "--json", "--at", str(index)])
    assert json.loads(before.stdout.splitlines()[-1]) == [line for line in story if line["sequence"] <= index]
    too_early = runner.invoke(
        app, ["job", "explain", request.name, "--nats", file, "--at", str(story[0]["sequence"] - 1)]
    )
    assert f"no job {request.name!r} in the log of {FEDERATION!r} up to {story[0]['sequence'] - 1}:" in too_early.stderr
    assert request.name in said("replay", file, "--at", "3")["unsettled_jobs"]
    beyond = runner.invoke(app, ["job", "explain", request.name, "--nats", file, "--at", str(10 * len(commits))])
    assert (beyond.exit_code, beyond.stderr.startswith("error: --at ")) == (2, True)
    later = runner.invoke(app, ["job", "explain", request.name, "--nats", file, "--at", "2999-01-01T00:00:00Z"])
    assert (later.exit_code, "still to come; the log ends at" in later.stderr) == (2, True)


@pytest.mark.parametrize(
    ("rules", "payload", "expected"),
    [
        (FIRST_VERSION, b'[{"type":"JobMoved","job":"u"}]', "Invalid value 'JobMoved'"),
        (FIRST_VERSION + 1, b"[]", "commit 2 is by rules version 2"),
    ],
)
def test_what_a_later_version_said_is_not_explained(tmp_path: Path, rules: int, payload: bytes, expected: str) -> None:
    """As it was: a traceback."""
    file, of = str(tmp_path / "log.db"), subject(FEDERATION, WRITER)

    async def made() -> None:
        log = await open_log(file, FEDERATION, create=True)
        header = Header(writer=WRITER, epoch=0, basis=0, time_ns=0, cause="taken")
        last = await log.append(of, header, envelope.encode_events([ev.FederatorTaken(holder="x")]), 0)
        later = Header(writer=WRITER, epoch=0, basis=last, time_ns=0, cause="outcome", rules=rules)
        await log.append(of, later, payload, last)
        await log.close()

    asyncio.run(made())
    result = runner.invoke(app, ["job", "explain", "train", "--nats", file])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: commit 2 ")
    assert expected in result.stderr


async def test_a_list_that_shrinks_while_it_is_read_lacks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are forgotten between two pages, more than a page of them."""
    there = [{"job": f"u{number}"} for number in range(50)]
    asked: list[int] = []

    class Asking:
        async def __aenter__(self) -> Asking:
            return self

        async def __aexit__(self, *exception: object) -> None:
            pass

        async def ask(self, verb: str, offset: int) -> list[dict[str, str]]:
            if asked:
                del there[: min(15, max(0, len(there) - 20))]
            asked.append(offset)
            return there[offset : offset + jobs.PAGE]

    async def opened(*_: object) -> Asking:
        return Asking()

    monkeypatch.setattr(jobs, "PAGE", 10)
    monkeypatch.setattr(jobs._Asking, "open", opened)
    found = [job["job"] for job in await jobs._listed(None, FEDERATION)]
    assert found[:10] == [f"u{number}" for number in range(10)]
    assert {job["job"] for job in there} <= {*found}
    assert len(found) == len({*found})
