"""The federation's own log is set back, as by a backup that is restored (D84), while its clusters go on: over Kubernetes,
where submissions are held. The simulator of faults has what may come together with that
(`tests/simulation/federation/set_back.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

import events as ev
from events import envelope
from services.federator import core
from services.federator.backends import Absent, Described, Owner, Run
from services.federator.records import ENDED, SETTLED
from services.federator.service import agenda, polling
from services.simulator.cluster import SimulatedCluster
from tests.federator.backends.sites import KubernetesSite
from tests.federator.processes import Processes
from tests.federator.test_holding import Field, scheduled
from tests.federator.world import Federation


@pytest.fixture
async def field(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Field]:
    """Two clusters, looked at often."""
    monkeypatch.setattr(agenda, "AGAIN_S", 0.05)
    monkeypatch.setattr(polling, "SWEEP_S", 0.1)
    async with SimulatedCluster() as a, SimulatedCluster() as b:
        made = Field({"a": KubernetesSite(a), "b": KubernetesSite(b)})
        await made.start()
        yield made
        await made.kill()


async def set_back(field: Processes, to_before: Callable[[ev.Event], bool]) -> None:
    """While nobody runs; to before the first event of these."""
    await field.kill()
    log = field.log
    log.commits = log.commits[: next(n for n, one in enumerate(log.commits) if any(map(to_before, _said(one))))]
    log._last = {one.subject: one.sequence for one in log.commits}


def _said(stored: envelope.Stored) -> list[ev.Event]:
    return envelope.decode_events(stored)


def told_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Run and job, of each warning of a run that the log does not have."""
    said = [one for one in caplog.records if one.getMessage() == "a run goes on, and the log does not have it"]
    return [(vars(one)["run"], vars(one)["job"]) for one in said]


async def test_a_job_that_the_log_has_lost_goes_on_is_told_of_and_may_be_submitted_again(
    field: Field, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduled(field, "b"):
        await field.submit("first", a=0)
        await field.submit("train", a=0, b=0)
        await field.settled("train")
        await field.cleared()
        lost = field.job("train").uid
        await set_back(field, lambda event: isinstance(event, ev.JobFederated) and event.job == lost)
        await field.start()
        await field.until(lambda: told_of(caplog), "it to be told of")
        assert told_of(caplog) == [("train-b", lost)]
        await field.submit("train", b=0)
        await field.settled("train")
    assert field.job("train").places["b"].name == "train-b-2", "the first is nobody's here, and left alone"
    assert len(told_of(caplog)) == 1


async def test_a_winner_that_the_log_has_as_held_goes_on_though_its_body_is_gone(field: Field) -> None:
    """As it was: what is held and has no body was stopped."""
    async with scheduled(field, "b"):
        await field.submit("train", a=0, b=0)
        await field.settled("train")
        field.blobs.data.clear()
        await set_back(field, lambda event: isinstance(event, ev.RunReleased) and event.cluster == "b")
        assert field.folded().releasing
        await field.start()
        await field.settled("train")
    job = field.job("train")
    assert (job.winner, job.places["b"].run, field.left()) == ("b", "running", {"train": ["b"]})
    assert not [event for event in field.said() if isinstance(event, ev.StopIntended) and event.cluster == "b"]


async def test_a_second_name_of_which_the_log_has_lost_that_it_was_tried_is_looked_for(field: Field) -> None:
    """As it was: without a body it was refused, and what ran under that name was nobody's (lossy-federated, 712283)."""
    async with scheduled(field, "b"):
        await field.submit("first", b=0)
        await field.settled("first")
        lost = field.job("first").uid
        await set_back(field, lambda event: isinstance(event, ev.JobFederated) and event.job == lost)
        await field.start()
        await field.submit("first", b=0)
        await field.settled("first")
        assert field.job("first").places["b"].name == "first-b-2"
        field.blobs.data.clear()
        await set_back(field, lambda event: isinstance(event, ev.SubmissionIntended))
        await field.start()
        await field.settled("first")
    job = field.job("first")
    assert (job.winner, job.places["b"].name, job.places["b"].run) == ("b", "first-b-2", "running")


async def test_r20_a_run_that_was_let_go_by_what_is_lost_and_is_deleted_has_ended(field: Field) -> None:
    """As it was: nobody knew whether another attempt might still land and run. Here what lands is held."""
    await field.submit("train", a=0, b=0)
    await field.until(lambda: not field.federator.state.intents(), "both to be let go")
    await set_back(field, lambda event: isinstance(event, ev.SubmissionHeld))
    await field.start()
    await field.until(lambda: not field.federator.state.intents(), "both to be found")
    assert [event.adopted for event in field.said() if isinstance(event, ev.SubmissionHeld)] == [True, True]
    field.sites["a"].cluster.delete("Job", "train-a")
    await field.until(lambda: field.job("train").places["a"].phase == ENDED, "that to be seen")
    async with scheduled(field, "b"):
        await field.settled("train")
    assert (field.job("train").winner, field.job("train").phase) == ("b", SETTLED)


def test_r17_what_is_found_where_submissions_are_held_is_let_go_once_more() -> None:
    world = Federation(a=0)
    ours = Owner(federation="fed", job="u1", cluster="a")
    for held in (True, False):
        run = Run(name=world.place("a").name, uid="7", state="running", attempt=0, started_ms=0, held=held)
        said = core.name_described(world.job, world.place("a"), ours, Described(run=run, owner=ours), holds=True)
        assert said == ev.SubmissionHeld(job="u1", cluster="a", uid="7", adopted=True)


def test_r11_what_has_no_body_any_more_and_is_held_is_refused() -> None:
    world = Federation(a=0)
    world.append(ev.SubmissionHeld(job="u1", cluster="a", uid="7", adopted=False))
    place = world.place("a")
    for uid, held, goes_on in (("7", False, True), ("7", True, False), ("8", False, False)):
        run = Run(name=place.name, uid=uid, state="waiting", attempt=0, started_ms=0, held=held)
        assert (core.released_without_body(place, Described(run=run, owner=None)) is not None) == goes_on
    assert core.released_without_body(place, Absent()) is None
