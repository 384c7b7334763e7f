"""The federator as it runs: its log in memory, clusters over real HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import events as ev
from events import envelope
from events.log import Unavailable
from events.micro import Unfit
from services.console.verify import verify
from services.federator import observing, requests
from services.federator.backends import Absent, Accepted, Described, Listing, Reach, Run, Submission
from services.federator.backends.credentials import Secret
from services.federator.backends.openpai import Limits
from services.federator.backends.openpai import OpenPai as Backend
from services.federator.core import KeptUp
from services.federator.mcc import InvalidJob
from services.federator.records import PLACED, SETTLED, Job, account_of
from services.federator.rules import forgotten
from services.federator.service import Federator, effects, polling
from services.federator.service.decider import Decider
from services.federator.snapshot import FORM
from services.federator.specialize import to_yaml
from services.federator.state import WRITER, State
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.server import LateFault, OpenPai, Served
from services.snapshots import take
from services.state.form import UnknownVersion
from services.writer import SteppedDown, Writer
from tests.federator.backends.sites import UNLIMITED, job
from tests.federator.jobs import document, plugin
from tests.federator.processes import Processes
from tests.waiting import until

GUARD = 0.002
"""Minutes: 120 ms."""
POLL_S = 0.02
NO_LIMITS = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)
NAMES = ("a", "b", "c")


class Field(Processes):
    """Three clusters of OpenPAI."""

    def __init__(self, pai: OpenPai, directory: Path) -> None:
        super().__init__()
        token = directory / "token"
        token.write_text("secret")
        self.secret = Secret(file=str(token))
        self.pai = pai

    def cluster(self, alias: str, **life: Any) -> Served:
        return self.pai.add(alias, tokens={"secret": "alice"}, limits=UNLIMITED, life=Life(**life))

    async def start(self) -> Federator:
        reaches = {}
        for cluster in self.pai.clusters.values():
            backend = Backend(cluster.url, "alice", self.secret, limits=NO_LIMITS, timeout_s=2.0)
            reaches[account_of("alice", cluster.url)] = Reach(backend=backend, poll_s=POLL_S)
        return await self.begin(reaches)

    def text(self, name: str, **priorities: int) -> str:
        made = document()
        del made["secrets"]
        made["name"] = name
        plugin(made).update(
            guardTimeRunning=GUARD,
            timeScale=0.001,
            clusters={
                alias: {"uri": self.pai.clusters[alias].url, "user": "alice", "priority": priority}
                for alias, priority in priorities.items()
            },
            params={name: dict.fromkeys(priorities, 1) for name in ("gpuNum", "storageConfigs")},
        )
        made["extra"]["com.microsoft.pai.runtimeplugin"] = made["extra"]["com.microsoft.pai.runtimeplugin"][-1:]
        plugin(made)["params"].pop("storageConfigs")
        return to_yaml(made)

    async def federate(self, name: str, **priorities: int) -> Job:
        uid = await self.federator.federate(self.text(name, **priorities))
        return self.federator.state.jobs[uid]

    def alive(self) -> dict[str, list[str]]:
        """By federated job: on which clusters something of it runs, or still may."""
        found: dict[str, list[str]] = {}
        for alias, cluster in self.pai.clusters.items():
            for (_, name), one in cluster.jobs.items():
                if one.now(cluster.clock()).sub_state != "Completed":
                    found.setdefault(name.removesuffix(f"-{alias}").removesuffix(f"-{alias}-2"), []).append(alias)
        return found

    async def said(self) -> list[ev.Event]:
        return [
            event async for batch in self.log.read() for stored in batch for event in envelope.decode_events(stored)
        ]


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    async with OpenPai() as pai:
        made = Field(pai, tmp_path)
        yield made
        await made.kill()


async def test_the_first_good_cluster_keeps_the_job(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000, notice_ms=50)
    field.cluster("b", waiting_ms=100)
    field.cluster("c", waiting_ms=600_000)
    await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await field.settled("train")
    assert field.job("train").winner == "b"
    assert field.alive() == {"train": ["b"]}
    await until(lambda: not field.blobs.data, "the body to go")


async def test_a_cluster_of_higher_priority_gets_the_job_in_its_extra_time(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    field.cluster("b", waiting_ms=400)
    await field.start()
    await field.federate("train", a=0, b=20)  # 20 points: 1.2 s
    await field.settled("train")
    assert field.job("train").winner == "b"
    assert field.alive() == {"train": ["b"]}


async def test_log_time_goes_on_between_two_lists(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: a guard time ends although clusters are listed less often than what counts as a jump."""
    monkeypatch.setattr(observing, "JUMP_NS", 500_000_000)
    monkeypatch.setattr(polling, "HEARTBEAT_NS", 100_000_000)
    monkeypatch.setattr(sys.modules[__name__], "POLL_S", 0.7)
    field.cluster("a", waiting_ms=50)
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert field.job("train").winner == "a"


async def test_intent_is_in_the_log_before_anything_is_submitted_or_stopped(field: Field) -> None:
    for alias in NAMES:
        cluster = field.cluster(alias, waiting_ms=50)
        submit, execute = cluster.submit, cluster.execute

        def submitting(user: str, body: str, submit: Callable[..., Any] = submit) -> Any:
            assert any(b"JobFederated" in stored.payload for stored in field.log.commits)
            return submit(user, body)

        def stopping(user: str, framework: str, value: str, execute: Callable[..., Any] = execute) -> Any:
            assert any(b"StopIntended" in stored.payload for stored in field.log.commits)
            return execute(user, framework, value)

        cluster.submit, cluster.execute = submitting, stopping  # type: ignore[method-assign]
    await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await field.settled("train")
    assert len(field.alive()["train"]) == 1


async def test_a_submission_that_was_limited_and_is_not_wanted_any_more_is_withdrawn_at_once(field: Field) -> None:
    """Nothing came of it: it need not be submitted, when the limit ends in an hour, only to be stopped."""
    field.cluster("a", waiting_ms=50)
    limited = field.cluster("b")
    limited.faults.plan(verb="submit", status=429, retry_after_s=3_600, times=0)
    await field.start()
    job = await field.federate("train", a=0, b=0)
    await field.settled("train")
    assert (job.winner, limited.jobs) == ("a", {})
    assert ev.SubmissionWithdrawn(job=job.uid, cluster="b") in await field.said()


async def test_while_a_cluster_takes_no_submissions_it_is_not_asked_by_other_jobs_either(field: Field) -> None:
    limited = field.cluster("a")
    fault = limited.faults.plan(verb="submit", status=429, retry_after_s=3_600, times=0)
    federator = await field.start()
    first = await field.federate("first", a=0)
    agenda = federator.effects.agendas[first.places["a"].account]
    await field.until(lambda: agenda.tries.get((first.uid, "a")), "the limit")
    second = await field.federate("second", a=0)
    await field.until(lambda: agenda.tries.get((second.uid, "a")), "the turn of the other")
    assert fault.hits == 1
    in_s = [due_s - asyncio.get_running_loop().time() for due_s, _, _ in agenda.due]
    assert min(in_s) > 3_000, "and both are tried again when it ends"


async def test_a_foreign_job_of_the_same_name_is_never_touched(field: Field) -> None:
    cluster = field.cluster("a", waiting_ms=50)
    cluster.submit("alice", to_yaml(job("train-a", None)))
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    assert cluster.jobs["alice", "train-a"].stop_ms is None
    assert field.job("train").places["a"].name == "train-a-2"


async def test_a_cancelled_job_ends_everywhere(field: Field) -> None:
    for alias in NAMES:
        field.cluster(alias, waiting_ms=50, notice_ms=50)
    federator = await field.start()
    await field.federate("train", a=0, b=0, c=0)
    await until(lambda: field.job("train").phase in (PLACED, SETTLED), "a decision")
    assert await federator.cancel(field.job("train"))
    await until(lambda: field.job("train").cancelled and not field.alive(), "its end")
    await field.settled("train")


async def test_what_the_log_says_shows_no_secret(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    text = field.text("train", a=0) + "\nsecrets: {password: hunter2}\n"
    await federator.federate(text)
    await field.settled("train")
    written = b"".join(stored.payload for stored in field.log.commits)
    assert b"hunter2" not in written
    assert b"secret" not in written


async def test_what_is_refused(field: Field) -> None:
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    text = field.text("train", a=0)
    await federator.federate(text)
    for wrong, said in (
        (text, "there was a job 'train' already"),
        (
            text.replace("user: alice", "user: mallory"),
            "clusters.a: mallory@.*: expected user and uri of the clusters file",
        ),
        (text + "\nsecrets: {token-a: hunter2}\n", "tokens are the federator's"),
        ("a: [", "expected YAML"),
    ):
        with pytest.raises(InvalidJob, match=said) as error:
            await federator.federate(wrong)
        assert "hunter2" not in str(error.value)
    assert len(field.blobs.data) <= 1


async def test_of_two_that_take_a_name_at_once_one_is_refused_and_leaves_nothing(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000)

    def slow(work: Callable[..., Awaitable[Any]]) -> Any:
        async def slowly(*arguments: Any, **more: Any) -> Any:
            await asyncio.sleep(0)
            return await work(*arguments, **more)

        return slowly

    field.blobs.put = slow(field.blobs.put)
    field.log.append = slow(field.log.append)  # type: ignore[method-assign]
    federator = await field.start()
    both = [federator.federate(field.text("train", a=0)) for _ in range(2)]
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(answer, InvalidJob) for answer in answers) == [False, True]
    assert list(field.blobs.data) == [field.job("train").digest]


async def test_a_token_that_is_not_there_is_told_once(
    field: Field, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: a federator without a token took jobs, submitted none of them, and printed nothing."""
    caplog.set_level("INFO", "muster.federator")
    field.cluster("a")
    (tmp_path / "token").write_text("")
    await field.start()
    await field.federate("train", a=0)
    await until(lambda: "a cluster does not answer" in caplog.messages, "its silence to be told")
    (tmp_path / "token").write_text("secret")
    await field.settled("train")
    await until(lambda: "the cluster answers again" in caplog.messages, "its answer to be told")
    told = [record for record in caplog.records if record.getMessage() == "a cluster does not answer"]
    assert [vars(record)["reason"] for record in told] == [f"{tmp_path}/token: expected a secret, found nothing"]


async def test_a_job_whose_body_is_lost_is_told_of_and_holds_nobody_up(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = field.cluster("a", waiting_ms=50)
    fault = cluster.faults.plan(verb="submit", status=500, times=0)
    await field.start()
    await field.federate("lost", a=0)
    await field.until(lambda: fault.hits, "an attempt")
    await field.kill()
    field.blobs.data.clear()
    cluster.faults.lift()
    await field.start()
    await field.until(lambda: "cannot be submitted" in caplog.messages, "a word")
    await field.federate("train", a=0)
    await field.settled("train")


async def test_of_jobs_that_were_parsed_so_many_are_kept(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "PARSED", 1)
    field.cluster("a", waiting_ms=50)
    federator = await field.start()
    for name in ("first", "second"):
        await field.federate(name, a=0)
        await field.settled(name)
    assert list(federator.effects._parsed) == [field.job("second").digest]


async def test_requests_that_are_out_of_bounds(field: Field) -> None:
    """A job as large as a message would keep everybody waiting while it is read; before the first there is no job."""
    field.cluster("a", waiting_ms=50)
    asks = (await field.start()).handlers()
    large = field.text("train", a=0) + "\n#" + "x" * requests.MOST_DOCUMENT
    for verb, request in (("submit", {"document": large}), ("list", {"offset": -1}), ("list", {"offset": 1 << 70})):
        with pytest.raises(Unfit) as refused:
            await asks[verb](json.dumps(request).encode())
        assert refused.value.code == 400
    assert await asks["list"](b'{"offset": 9007199254740992}') == []


@pytest.mark.parametrize("later", [{"rules": 2}, {"state": 2}])
async def test_who_lacks_a_later_federators_version_neither_folds_nor_writes(
    field: Field, later: dict[str, int]
) -> None:
    """An upgrade is a takeover by a later version; an earlier one that stood by must not go on behind it."""
    await field.start()
    await field.kill()
    writer = Writer(field.log, WRITER)
    for name, version in later.items():
        setattr(writer, name, version)
    place = await writer.take(ev.FederatorTaken(holder="the next version"))
    with pytest.raises(UnknownVersion, match=f"commit {place} is by rules version"):
        await Decider(field.log, lambda said: None).take("this version")
    assert await field.log.end() == place
    with pytest.raises(UnknownVersion):
        State().apply_stored(field.log.commits[-1])


async def test_what_an_operator_gives_up_settles_its_job(field: Field) -> None:
    lost = field.cluster("a", waiting_ms=600_000, notice_ms=600_000)
    field.cluster("b", waiting_ms=50)
    federator = await field.start()
    job = await field.federate("train", a=0, b=0)
    await until(lambda: job.winner == "b" and job.places["a"].run, "a decision, while the other is seen")
    with pytest.raises(KeptUp, match="the cluster answers and shows it"):
        await federator.give_up(job, job.places["a"], "ann", "?")
    lost.cut_off = True
    await until(lambda: federator.state.clusters[job.places["a"].account].silent, "its silence")
    await federator.give_up(job, job.places["a"], "ann", "its rack burned")
    await field.settled("train")
    assert ev.RunGivenUp(job=job.uid, cluster="a", by="ann", reason="its rack burned") in await field.said()


async def test_it_is_given_up_when_no_attempt_is_under_way(field: Field) -> None:
    """An attempt that is lands before the declaration, and what it came to is known."""
    cluster = field.cluster("a", waiting_ms=600_000)
    cluster.faults.plan(verb="submit", hang_up=True)
    cluster.faults.plan(verb="submit", status=403, times=0)
    federator = await field.start()
    job = await field.federate("train", a=0)
    key = job.uid, "a"
    await until(lambda: job.places["a"].doubtful, "doubt")
    async with federator.effects.agendas[job.places["a"].account].alone(key):
        declaring = asyncio.create_task(federator.give_up(job, job.places["a"], "ann", "?"))
        await asyncio.sleep(0)
        assert not declaring.done()
        assert job.places["a"].phase == "submitting"
    await declaring
    assert job.places["a"].phase == "ended"
    await field.settled("train")


async def test_what_the_clusters_file_has_lost_can_be_given_up(field: Field) -> None:
    """Nobody tries anything there any more."""
    field.cluster("a", waiting_ms=600_000)
    await field.start()
    await field.federate("train", a=0)
    await field.kill()
    federator = await field.begin({})
    job = field.job("train")
    await federator.give_up(job, job.places["a"], "ann", "it was sold")
    await field.settled("train")


async def test_who_takes_over_goes_on_from_the_log_time_of_the_one_before(field: Field) -> None:
    """On a host whose clock is behind: else no guard time would end before that has caught up."""
    ahead_ns = 2**62
    await field.start()
    field.federator.decider.report(ev.Ticked(time_ns=ahead_ns, jumped_ns=0))
    await field.until(lambda: field.federator.state.clock.time_ns == ahead_ns, "the tick")
    await field.kill()
    federator = await field.start()
    assert federator._clock.now_ns() > ahead_ns


class Kube:
    """A backend whose runs have identities, and of which somebody deletes some."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.labelled = True
        """Whether the list shows them."""

    async def submit(self, submission: Submission) -> Accepted:
        run = Run(name=submission.name, uid="the first", state="waiting", attempt=0, started_ms=0)
        self.runs[submission.name] = run
        return Accepted(uid=run.uid)

    async def observe(self) -> Listing:
        return Listing(runs=tuple(self.runs.values()) if self.labelled else (), clock_ms=0)

    async def describe(self, name: str) -> Described | Absent:
        return Described(run=self.runs[name], owner=None) if name in self.runs else Absent()

    async def is_gone(self, name: str, uid: str) -> bool:
        return name not in self.runs

    async def release(self, submission: Submission, uid: str) -> Accepted:
        return Accepted(uid=uid)

    async def clear(self, name: str, uid: str) -> Absent:
        return Absent()

    async def stop(self, name: str, uid: str) -> Accepted | Absent:
        return Accepted(uid=uid) if name in self.runs else Absent()

    async def close(self) -> None: ...


async def test_a_run_that_was_deleted_ends_and_one_that_only_the_list_lacks_does_not(field: Field) -> None:
    kube = Kube()
    url = field.cluster("a", waiting_ms=1).url
    federator = Federator(
        field.log, {account_of("alice", url): Reach(backend=kube, poll_s=POLL_S)}, field.bodies, holder="test"
    )
    field.federator = federator
    running = asyncio.create_task(federator.run())
    await federator.ready.wait()
    job = await field.federate("train", a=0)
    place = job.places["a"]
    await until(lambda: place.run == "waiting", "it to be seen")
    kube.labelled = False
    await until(lambda: place.run == "unknown", "it to be missed")
    assert place.phase == "submitted"
    kube.runs.clear()
    await until(lambda: job.phase == SETTLED, "its end")
    assert (place.run, job.winner) == ("gone", "")
    running.cancel()


async def test_nothing_is_given_up_while_an_attempt_is_under_way(field: Field) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    class Slow(Kube):
        async def submit(self, submission: Submission) -> Accepted:
            asked.set()
            await answered.wait()
            return await super().submit(submission)

    federator = await field.begin({account_of("alice", field.cluster("a").url): Reach(backend=Slow(), poll_s=POLL_S)})
    job = await field.federate("train", a=0)
    await asked.wait()
    declaring = asyncio.create_task(federator.give_up(job, job.places["a"], "ann", "?"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not declaring.done()
    answered.set()
    await asyncio.wait({declaring})
    said = [type(event) for event in await field.said()]
    assert ev.SubmissionAccepted in said
    assert ev.RunGivenUp not in said[: said.index(ev.SubmissionAccepted)]


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


async def test_a_replaced_federator_steps_down(field: Field) -> None:
    field.cluster("a", waiting_ms=600_000)
    federator = await field.start()
    await field.federate("first", a=0)
    other = Federator(field.log, {}, field.bodies, holder="other")
    running = asyncio.create_task(other.run())
    await other.ready.wait()
    with pytest.raises(SteppedDown):
        await federator.federate(field.text("second", a=0))
    with pytest.raises(Unavailable, match="another federator took over: ask again"):
        await federator.handlers()["cancel"](b'{"name": "first"}')
    running.cancel()


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
    assert sum(isinstance(event, ev.JobForgotten) for event in await field.said()) == 8
    await field.until(lambda: not field.blobs.data, "no body to be left")
