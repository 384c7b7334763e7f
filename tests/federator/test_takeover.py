"""A federator goes on where another was: from the log, from a snapshot, killed at any moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import events as ev
from events import Event
from events.log import LogError, TooLarge, Unavailable
from events.micro import Unfit
from services.console.verify import verify
from services.federator import mcc, service, state
from services.federator.mcc import InvalidJob
from services.federator.records import SETTLED
from services.federator.rules import forgotten
from services.federator.service import Federator
from services.federator.service.decider import Decider
from services.federator.snapshot import FORM
from services.federator.specialize import to_yaml
from services.federator.state import WRITER, State
from services.simulator.openpai.server import LateFault
from services.snapshots import take
from services.state.form import UnknownCommit, UnknownVersion
from services.writer import SteppedDown, Writer
from tests.federator.backends.sites import job
from tests.federator.field import NAMES, Field


@pytest.mark.parametrize("later", [("RULES", "rules_version"), ("FOLD", "state_version")])
async def test_who_lacks_a_later_federators_version_neither_folds_nor_writes(
    monkeypatch: pytest.MonkeyPatch, field: Field, later: tuple[str, str]
) -> None:
    """An upgrade is a takeover by a later version, which says so in its commits; an earlier one that stood by must not go
    on behind it."""
    await field.start()
    await field.kill()
    with monkeypatch.context() as next_version:
        for owner, name in zip((state, State), later, strict=True):
            next_version.setattr(owner, name, 2)
        await Decider(field.log, lambda said: None).take("the next version")
    place = await field.log.end()
    with pytest.raises(UnknownVersion, match=f"commit {place} is by rules version"):
        await Decider(field.log, lambda said: None).take("this version")
    assert await field.log.end() == place
    with pytest.raises(UnknownVersion):
        State().apply_stored(field.log.commits[-1])


async def test_who_cannot_read_the_log_does_not_take_it(field: Field) -> None:
    writer = Writer(field.log, WRITER)
    await writer.take(ev.FederatorTaken(holder="another version"))
    place = await writer.append_payload(b'[{"type":"NotYetInvented"}]', 1, basis=1, cause="decide")
    with pytest.raises(UnknownCommit, match="NotYetInvented"):
        await Decider(field.log, lambda said: None).take("this version")
    assert await field.log.end() == place


async def test_who_takes_over_goes_on_from_the_log_time_of_the_one_before(field: Field) -> None:
    """On a host whose clock is behind: else no guard time would end before that has caught up."""
    ahead_ns = 2**62
    await field.start()
    field.federator.decider.report(ev.Ticked(time_ns=ahead_ns, jumped_ns=0))
    await field.until(lambda: field.federator.state.clock.time_ns == ahead_ns, "the tick")
    await field.kill()
    federator = await field.start()
    assert federator._clock.now_ns() > ahead_ns


async def test_it_starts_from_a_snapshot_and_what_was_purged_is_not_missed(field: Field) -> None:
    """The job that is under way goes on where it was, the settled one keeps its name."""
    field.cluster("a", waiting_ms=50)
    field.cluster("b", waiting_ms=600_000, notice_ms=50)
    await field.start()
    await field.federate("done", a=0)
    await field.settled("done")
    await field.federate("waits", b=0)
    whole = field.federator.decider.tail_bytes
    await field.kill()
    kept = await take(field.log, FORM)
    await field.log.purge(kept.sequence)
    federator = await field.start()
    assert 0 < federator.decider.tail_bytes < whole
    assert federator.state.names.keys() == {"done", "waits"}
    with pytest.raises(InvalidJob, match="there was a job 'done' already"):
        await federator.federate(field.text("done", a=0))
    assert await federator.cancel(field.job("waits"))
    await field.settled("waits")
    assert field.alive() == {"done": ["a"]}


async def test_a_job_that_is_too_large_by_now_waits_and_is_told_of_and_may_be_given_up(
    field: Field, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier federator took it, or a later one, which takes more and may come back: so it is not refused for good."""
    field.cluster("a").faults.plan(verb="submit", status=503, times=0)
    await field.start()
    await field.federate("deep", a=0)
    await field.kill()
    monkeypatch.setattr(mcc, "MOST_CHARACTERS", 100)
    federator = await field.start()
    await field.until(lambda: "cannot be submitted" in caplog.text, "the operator to be told")
    assert await federator.cancel(field.job("deep"))
    job = field.job("deep")
    assert job.phase != SETTLED, "an attempt of before may have come to something"
    await federator.give_up(job, job.places["a"], "ann", "too large")
    await field.settled("deep")


async def test_a_replaced_federator_steps_down(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000)
    federator = await field.start()
    await field.federate("first", a=0)
    other = Federator(field.log, {}, field.bodies, holder="other")
    running = asyncio.create_task(other.run())
    await other.ready.wait()
    bodies = len(field.blobs.data)
    with pytest.raises(SteppedDown):
        await federator.federate(field.text("second", a=0))
    assert len(field.blobs.data) == bodies + 1, "of a commit whose answer was lost the log has the job"
    with pytest.raises(Unavailable, match="another federator took over: ask again"):
        await federator.handlers()["cancel"](b'{"name": "first"}')
    await field.ended(SteppedDown)
    running.cancel()


async def test_what_a_request_meets_in_the_log_ends_the_federator_unless_the_request_is_too_large(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state may be another than the log by then, though the next commit would be taken."""
    field.cluster("a", waiting_ms=600_000)
    federator = await field.start()
    append, met = federator.decider.writer.append, list[LogError]()

    async def meeting(*said: Any, **more: Any) -> int:
        if more["cause"] == "request" and met:
            raise met.pop()
        return await append(*said, **more)

    monkeypatch.setattr(federator.decider.writer, "append", meeting)
    met.append(TooLarge("too large"))
    with pytest.raises(TooLarge):
        await field.federate("large", a=0)
    await field.federate("small", a=0)
    await field.until(lambda: bool(field.alive().get("small")), "it to go on")
    met.append(LogError("the log failed once"))
    with pytest.raises(LogError, match="failed once"):
        await field.federate("unlucky", a=0)
    await field.ended(LogError)


async def test_a_body_of_no_job_goes_soon(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """A federator that was replaced as it stored it, or one that sent it twice and was heard late (chaos, seed 20)."""
    monkeypatch.setattr(service, "CLEARS_AFTER_S", 0.05)
    field.cluster("a", waiting_ms=600_000)
    federator = await field.start()
    job = await field.federate("train", a=0)
    await field.bodies.keep(b"of nobody")
    await field.until(lambda: [*field.blobs.data] == [job.digest], "what is nobody's to go")
    assert sum(isinstance(event, ev.Renewed) for event in field.said()) == 1, "where there is nothing to clear, nothing"
    await federator.cancel(job)
    await field.settled("train")
    await field.blobs.put(job.digest, b"as a process leaves it that ends before it is deleted")
    await field.until(lambda: not field.blobs.data, "what a job that is over does not need to go")
    kept = await field.federate("again", a=0)
    await field.bodies.keep(b"of another, who took over")
    other = Writer(field.log, WRITER)
    await other.take(ev.FederatorTaken(holder="other"))
    await field.ended(SteppedDown)
    assert len(field.blobs.data) == 2
    assert kept.digest in field.blobs.data
    assert not federator.ready.is_set()


async def test_what_a_request_stored_stays_and_what_is_nobodys_goes_though_requests_never_pause(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is decided only when the next one has stored its body."""
    monkeypatch.setattr(service, "CLEARS_AFTER_S", 0.01)
    field.cluster("a", waiting_ms=600_000)
    federator = await field.start()
    put, say = field.blobs.put, federator.decider.say
    stored, asked, said = list[asyncio.Event](), list[asyncio.Task[str]](), list[str]()

    async def storing(name: str, data: bytes) -> None:
        await put(name, data)
        stored.append(asyncio.Event())
        await stored[-1].wait()

    async def saying(make: Callable[[], Sequence[Event]], cause: str) -> bool:
        said.append(cause)
        return await say(make, cause)

    async def next_request() -> None:
        asked.append(asyncio.create_task(federator.federate(field.text(f"train-{len(asked)}", a=0))))
        await field.until(lambda: len(stored) == len(asked), "its body to be stored")

    field.blobs.put, federator.decider.say = storing, saying  # type: ignore[method-assign]
    await next_request()
    await put("nobody's", b"")
    while "nobody's" in field.blobs.data:
        assert len(asked) < 1000, "what is nobody's stays for as long as requests come"
        await next_request()
        stored[-2].set()
        await asked[-2]
    assert "request" in said[: said.index("renew")], "what a request has stored is looked at only once it is decided"
    stored[-1].set()
    await asked[-1]
    assert {job.digest for job in federator.state.jobs.values()} == {*field.blobs.data}


async def go_on(field: Field, rng: random.Random, waiting: list[str], *, killed: float) -> None:
    """One more of the jobs that wait, some time, and perhaps another process."""
    if waiting:
        await field.federate(waiting.pop(), a=rng.randrange(3), b=rng.randrange(3), c=rng.randrange(3))
    await asyncio.sleep(rng.random() * 0.1)
    if rng.random() < killed:
        await field.kill()
        await field.start()


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_one_survives(field: Field, seed: int) -> None:
    """Processes killed at random moments, answers lost, submissions late, stops refused, a cluster cut off."""
    rng = random.Random(seed)
    clusters = [
        field.cluster(alias, waiting_ms=rng.randrange(300), notice_ms=rng.randrange(100), dying_ms=rng.randrange(50))
        for alias in NAMES
    ]
    clusters[0].submit("alice", to_yaml(job("job-0-a", None)))
    await field.start()
    names = [f"job-{number}" for number in range(6)]
    waiting = list(names)
    for step in range(30):
        cluster = rng.choice(clusters)
        cluster.cut_off = step < 25 and rng.random() < 0.2
        cluster.faults.plan(verb=rng.choice(("submit", "stop", "list")), hang_up=True, applied=True)
        cluster.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=rng.randrange(500)))
        cluster.faults.plan(verb="stop", status=rng.choice((403, 500)))
        await go_on(field, rng, waiting, killed=0.4)
    for cluster in clusters:
        cluster.cut_off = False
        cluster.faults.lift()
    await field.settled(*names)
    alive = field.alive()
    foreign = clusters[0].jobs["alice", "job-0-a"]
    assert foreign.stop_ms is None
    alive["job-0"].remove("a")
    assert {name: len(where) for name, where in alive.items()} == dict.fromkeys(names, 1)
    for name in names:
        assert alive[name] == [field.job(name).winner]
    assert not field.federator.state.submitting
    assert not field.federator.state.stopping


async def test_a_job_that_is_over_is_forgotten_and_its_name_is_free(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here none is kept. The cluster keeps its name for ever: the next one has another there."""
    monkeypatch.setattr(forgotten, "KEPT", 0)
    cluster = field.cluster("a", waiting_ms=50, running_ms=200)
    federator = await field.start()
    first = await field.federate("train", a=0)
    await field.until(lambda: not federator.state.jobs, "it to be forgotten")
    assert (first.phase, first.winner, first.places["a"].run) == (SETTLED, "a", "succeeded")
    with pytest.raises(Unfit, match="there is no job 'train', or none any more") as error:
        await federator.handlers()["status"](b'{"name": "train"}')
    assert error.value.code == 404
    assert await federator.handlers()["list"](b"{}") == []
    await field.kill()
    federator = await field.start()
    second = await field.federate("train", a=0)
    assert (second.uid.partition(".")[0], second.uid == first.uid) == (first.uid.partition(".")[0], False)
    await field.until(lambda: not federator.state.jobs, "the next to be forgotten")
    assert second.places["a"].name == "train-a-2"
    assert {name for _, name in cluster.jobs} == {"train-a", "train-a-2"}
    await field.until(lambda: not field.blobs.data, "no body to be left")
    report = await verify(field.log)
    assert report.verified, report


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_all_that_is_over_is_forgotten(
    field: Field, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, while attempts, stops and lists of it are still under way."""
    monkeypatch.setattr(forgotten, "KEPT", 0)
    rng = random.Random(seed)
    clusters = [
        field.cluster(alias, waiting_ms=rng.randrange(300), running_ms=300, notice_ms=rng.randrange(100))
        for alias in NAMES
    ]
    await field.start()
    waiting = [f"job-{number}" for number in range(8)]
    for _ in range(20):
        cluster = rng.choice(clusters)
        cluster.faults.plan(verb=rng.choice(("submit", "stop", "list")), hang_up=True, applied=True)
        cluster.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=rng.randrange(500)))
        await go_on(field, rng, waiting, killed=0.2)
    for cluster in clusters:
        cluster.faults.lift()
    await field.until(lambda: not field.federator.state.jobs, "all to be forgotten")
    assert field.alive() == {}
    assert sum(isinstance(event, ev.JobForgotten) for event in field.said()) == 8
    await field.until(lambda: not field.blobs.data, "no body to be left")
