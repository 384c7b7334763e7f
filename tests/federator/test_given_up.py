"""What an operator gives up, and what is gone by itself: the federator as it runs."""

from __future__ import annotations

import asyncio

import pytest

import events as ev
from services.federator.backends import Absent, Accepted, Described, Listing, Reach, Run, Submission
from services.federator.core import KeptUp
from services.federator.records import SETTLED, account_of
from services.federator.service import Federator
from tests.federator.field import POLL_S, Field
from tests.waiting import until


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
    assert ev.RunGivenUp(job=job.uid, cluster="a", by="ann", reason="its rack burned") in field.said()


async def test_of_a_winner_that_has_ended_no_body_is_kept(field: Field) -> None:
    field.cluster("a", waiting_ms=50, running_ms=500)
    await field.start()
    await field.federate("train", a=0)
    await field.settled("train")
    await until(lambda: not field.blobs.data, "its body to go")


async def test_of_a_winner_that_is_given_up_no_body_is_kept(field: Field) -> None:
    lost = field.cluster("a", waiting_ms=50)
    federator = await field.start()
    job = await field.federate("train", a=0)
    await field.settled("train")
    assert field.blobs.data
    lost.cut_off = True
    await until(lambda: federator.state.clusters[job.places["a"].account].silent, "its silence")
    await federator.give_up(job, job.places["a"], "ann", "its rack burned")
    await until(lambda: not field.blobs.data, "its body to go")


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
    said = [type(event) for event in field.said()]
    assert ev.SubmissionAccepted in said
    assert ev.RunGivenUp not in said[: said.index(ev.SubmissionAccepted)]


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
