"""What a poll adds to the log, by a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import events as ev
from events import Event
from services.decider import LogTime
from services.federator import observing
from services.federator.backends import Absent, Described, Listing, Owner, Reach, Run, Silent, Unchanged
from services.federator.records import account_of
from services.federator.service.agenda import Agenda
from services.federator.service.polling import Polling
from tests.federator.test_returned import ACCOUNT as B
from tests.federator.test_returned import OURS, run, settled, shown
from tests.federator.world import EPOCH_NS, Federation, of_type

ACCOUNT = account_of("a", "a")
SECOND_NS = 1_000_000_000
HOLDING = ("submit", "stop", "observe", "describe", "release", "is_gone", "clear", "close")
"""What a `Holding` has besides."""


class EndOfTest(Exception):
    pass


class Hand(LogTime):
    """A clock that is moved by hand."""

    ns = EPOCH_NS

    def now_ns(self) -> int:
        return self.ns


class Polled:
    """A job that runs on its one cluster, since the first answer."""

    def __init__(self) -> None:
        self.world, self.clock = Federation(a=0), Hand()
        self.world.accept()
        decider: Any = SimpleNamespace(state=self.world.state, log=SimpleNamespace(cluster="fed"))
        self.polling = Polling(decider, self.clock, {ACCOUNT: Agenda()})
        run = Run(name=self.world.place("a").name, uid="", state="running", attempt=0, started_ms=0)
        self.listing = Listing(runs=(run,), clock_ms=0)
        self.answered(self.asked(), self.listing)

    def asked(self) -> int:
        return observing.log_time_ns(self.world.state, self.clock.ns)

    def answered(self, asked_ns: int, answer: Listing | Unchanged | Silent) -> list[Event]:
        return self.said(self.polling._seen(ACCOUNT, answer, asked_ns, ()))

    def said(self, events: list[Event]) -> list[Event]:
        if events:
            self.world.append(*events)
        return events


def test_a_jump_while_a_question_is_under_way_vouches_for_nothing() -> None:
    """R2: what was asked before the process stood still is no answer from a time that log time has not reached."""
    polled = Polled()
    polled.clock.ns += 20 * SECOND_NS
    asked_ns = polled.asked()
    polled.clock.ns += 3_600 * SECOND_NS
    assert polled.answered(asked_ns, polled.listing) == []
    (beat,) = of_type(polled.said(polled.polling._ticked()), ev.Ticked)
    assert beat.jumped_ns > 0
    polled.clock.ns += 5 * SECOND_NS
    (silent,) = of_type(polled.answered(polled.asked(), Silent(reason="gone")), ev.ClusterSilent)
    assert silent.asked_ns == 0
    assert polled.world.state.clusters[ACCOUNT].covered_ns == 0


def test_a_beat_only_where_a_job_races_and_nobody_else_ticked() -> None:
    polled = Polled()
    polled.clock.ns += 9 * SECOND_NS
    assert polled.polling._ticked() == []
    polled.clock.ns += SECOND_NS
    (beat,) = of_type(polled.said(polled.polling._ticked()), ev.Ticked)
    assert (beat.time_ns, beat.jumped_ns) == (polled.clock.ns, 0)
    polled.world.append(ev.JobCancelled(job=polled.world.uid))
    polled.clock.ns += 60 * SECOND_NS
    assert polled.polling._ticked() == []


async def test_a_cluster_that_does_not_answer_is_told_of_before_any_job_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kubeconfig without rights shows at the federator's start, when clusters are listed for what came late."""

    async def observe() -> Silent:
        return Silent(reason="list jobs.batch default: 403 Forbidden")

    polled, backend = Polled(), SimpleNamespace(observe=observe)
    for _ in range(2):
        await polled.polling._sweep(ACCOUNT, backend)  # type: ignore[arg-type]
    assert [(record.getMessage(), vars(record)["reason"]) for record in caplog.records] == [
        ("a cluster does not answer", "list jobs.batch default: 403 Forbidden")
    ]


class Polls:
    """By the numbers of the polls in which they were asked for, lists of a cluster; with `sleep` a poll ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.lists, self._ended, self._most = list[int](), 0, most
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, _: float) -> None:
        self._ended += 1
        if self._ended == self._most:
            raise EndOfTest

    def asked(self) -> int:
        """For a list: in which poll."""
        self.lists.append(self._ended)
        return self._ended


async def said(make: Callable[[], list[Event]], cause: str) -> None:
    make()


async def test_a_cluster_that_answers_again_is_swept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been restored meanwhile, and that is not found before the next hour else."""
    polled, polls = Polled(), Polls(monkeypatch, 6)

    async def observe() -> Listing | Silent:
        return Silent(reason="503") if polls.asked() == 1 else polled.listing

    polled.polling._decider.say = said  # type: ignore[method-assign]
    backend: Any = SimpleNamespace(**dict.fromkeys(HOLDING, observe))
    with pytest.raises(EndOfTest):
        await polled.polling.run(ACCOUNT, Reach(backend, poll_s=60.0))
    assert polls.lists == [0, 0, 1, 2, 3, 3, 4, 5], "two where it is swept, as it holds submissions"


async def test_a_cluster_that_did_not_say_whose_it_is_is_swept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """R18: what runs again goes on until it did."""
    world, polls = settled(), Polls(monkeypatch, 6)

    async def observe() -> Listing:
        polls.asked()
        return shown(run(world))

    async def describe(name: str) -> Absent | Silent:
        return Silent(reason="503") if len(polls.lists) < 3 else Absent()

    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"), say=said)
    backend: Any = SimpleNamespace(observe=observe, describe=describe)
    with pytest.raises(EndOfTest):
        await Polling(decider, Hand(), {B: Agenda()}).run(B, Reach(backend, poll_s=60.0))
    assert polls.lists == [0, 1, 2]


async def test_of_a_job_that_is_forgotten_while_the_cluster_is_asked_whose_it_is_nothing_is_said() -> None:
    world, told = settled(), list[list[Event]]()
    again = run(world)

    async def observe() -> Listing:
        return shown(again)

    async def describe(name: str) -> Described:
        del world.state.names[world.state.jobs.pop(world.uid).name]
        return Described(run=again, owner=OURS)

    async def say(make: Callable[[], list[Event]], cause: str) -> None:
        told.append(make())

    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"), say=say)
    backend: Any = SimpleNamespace(observe=observe, describe=describe)
    await Polling(decider, Hand(), {B: Agenda()})._sweep(B, backend)
    assert told == [[]]


def test_a_run_that_was_released_is_held_again_when_a_second_list_shows_it_so() -> None:
    """One list may be from before the release."""
    world = Federation(b=0)
    world.accept(identified=True)
    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"))
    polling = Polling(decider, Hand(), {B: Agenda()})
    held = run(world, state="waiting", held=True)
    lists = [Listing(runs=(held,), clock_ms=0, held=(Described(run=held, owner=OURS),)), shown(run(world))]
    again = [of_type(polling._seen(B, lists[at], 0, ()), ev.SubmissionHeld) for at in (0, 1, 0, 0)]
    assert [[one.uid for one in said] for said in again] == [[], [], [], [held.uid]]


async def test_what_a_list_shows_held_again_another_list_tells_though_nothing_happens_there() -> None:
    """Seed 4709 of the histories of the service: the cluster's own log vouched for what had been seen, no second list was
    asked for, and the run was held for good."""
    world = Federation(b=0)
    world.accept(identified=True)
    decider: Any = SimpleNamespace(state=world.state, log=SimpleNamespace(cluster="fed"))
    polling = Polling(decider, Hand(), {B: Agenda()})
    held = run(world, state="waiting", held=True)
    listing = Listing(runs=(held,), clock_ms=0, held=(Described(run=held, owner=OURS),))

    async def vouches(_: object) -> bool:
        return True

    async def listed(_: object) -> Listing:
        return listing

    reach: Any = SimpleNamespace(log=SimpleNamespace(vouches=vouches, listed=listed), backend=None)
    world.append(*polling._seen(B, listing, 0, ()))
    answer = await polling._ask(B, reach, 1)
    assert isinstance(answer, Listing)
    said = polling._seen(B, answer, 1, ())
    assert [one.uid for one in of_type(said, ev.SubmissionHeld)] == [held.uid]
    world.append(*said)
    polling._seen(B, listing, 2, ())
    assert isinstance(await polling._ask(B, reach, 2), Unchanged), "it is held in the log as well"


async def test_a_cluster_that_did_not_answer_is_swept_again_at_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was only an hour later, where no job was open: what had come late until then stayed."""
    polled, polls = Polled(), Polls(monkeypatch, 20)
    polled.world.state.open.clear()

    async def observe() -> Listing | Silent:
        return Silent(reason="503") if polls.asked() < 2 else polled.listing

    polled.polling._decider.say = said  # type: ignore[method-assign]
    backend: Any = SimpleNamespace(**dict.fromkeys(HOLDING, observe))
    with pytest.raises(EndOfTest):
        await polled.polling.run(ACCOUNT, Reach(backend, poll_s=60.0))
    assert polls.lists == [0, 1, 2], "and then in an hour"


async def test_a_list_that_looks_for_what_nobody_waits_for_is_the_polls_as_well() -> None:
    """Each counts against the cluster's limit of lists. As it was, where `poll_ms` is as short as that allows, the poll
    behind it had no room: the cluster counted as silent, and was listed for that again once it answered, for ever."""
    polled, lists, seen = Polled(), 0, list[str]()

    async def observe() -> Listing:
        nonlocal lists
        if (lists := lists + 1) == 4:
            raise EndOfTest
        return polled.listing

    async def say(make: Callable[[], list[Event]], cause: str) -> None:
        make()
        seen.append(cause)

    polled.polling._decider.say = say  # type: ignore[method-assign]
    backend: Any = SimpleNamespace(observe=observe)
    with pytest.raises(EndOfTest):
        await polled.polling.run(ACCOUNT, Reach(backend, poll_s=0.001))
    assert len(seen) == 3


@pytest.mark.parametrize("by_log", [True, False], ids=["its log", "a list"])
def test_a_cluster_is_heard_up_to_the_question_that_it_answered(by_log: bool) -> None:
    """R14, also of what its own log vouched for. What comes while the answer is under way, it need not show."""
    polled = Polled()
    polled.clock.ns += 5 * SECOND_NS
    asked_ns = polled.asked()
    polled.clock.ns += 2 * SECOND_NS
    assert polled.answered(asked_ns, Unchanged() if by_log else polled.listing) == []
    polled.clock.ns += 5 * SECOND_NS
    (silent,) = of_type(polled.answered(polled.asked(), Silent(reason="gone")), ev.ClusterSilent)
    assert silent.asked_ns == asked_ns > 0


async def test_a_silence_and_its_end_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "muster.federator")
    polled = Polled()
    away = Silent(reason="gone")
    for answer in (polled.listing, away, away, polled.listing, polled.listing, away):
        polled.polling._tell(ACCOUNT, answer)
    again = ["a cluster does not answer", "the cluster answers again", "a cluster does not answer"]
    assert [record.getMessage() for record in caplog.records] == again


class Slept(Exception):
    """For so many seconds."""


@pytest.mark.parametrize("open_", [True, False], ids=["a job is open", "none is"])
@pytest.mark.parametrize("holds", [True, False], ids=["holding", "not"])
async def test_a_cluster_that_says_when_it_may_be_asked_again_is_not_asked_before(
    open_: bool, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was listed for what nobody waits for, too. As it was, it was asked again at once where it holds
    submissions, and by the next poll where no job was open."""
    polled, asked = Polled(), list[str]()
    if not open_:
        polled.world.state.open.clear()

    async def say(make: Callable[[], list[Event]], cause: str) -> None:
        polled.said(make())

    async def observe() -> Silent:
        asked.append("list")
        return Silent(reason="HTTP 429", retry_after_ms=60_000)

    async def sleep(seconds: float) -> None:
        raise Slept(seconds)

    monkeypatch.setattr(polled.polling._decider, "say", say, raising=False)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    backend: Any = SimpleNamespace(**dict.fromkeys(HOLDING if holds else ("observe",), observe))
    with pytest.raises(Slept, match=r"^60\.0$"):
        await polled.polling.run(ACCOUNT, Reach(backend, 1.0))
    assert asked == ["list"]


class Cluster:
    """Runs that no job here has, and of which it says whose they are; None: that it does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **owners: Owner | None) -> None:
        self.owners, self.asked, self.also = owners, list[str](), list[Run]()
        self.polling = Polled().polling
        self.polling._decider.state.open.clear()
        self.polling._decider.say = said  # type: ignore[method-assign]
        self._monkeypatch = monkeypatch

    async def observe(self) -> Listing:
        runs = [Run(name=name, uid=f"of {name}", state="running", attempt=0, started_ms=0) for name in self.owners]
        return shown(*runs, *self.also)

    async def describe(self, name: str) -> Described | Silent:
        self.asked.append(name)
        if (owner := self.owners[name]) is None:
            return Silent(reason="503")
        return Described(run=Run(name=name, uid="", state="running", attempt=0, started_ms=0), owner=owner)

    async def polled(self, times: int) -> list[str]:
        """Of which runs it was asked, in so many polls; the first lists it."""
        self.asked.clear()
        Polls(self._monkeypatch, times)
        self.polling._sweep_s.clear()
        backend: Any = SimpleNamespace(observe=self.observe, describe=self.describe)
        with pytest.raises(EndOfTest):
            await self.polling.run(ACCOUNT, Reach(backend, poll_s=60.0))
        return self.asked.copy()


LOST, OTHERS = Owner(federation="fed", job="x.1", cluster="a"), Owner(federation="else", job="y.1", cluster="a")


async def test_what_goes_on_and_is_not_in_the_log_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was set back: what it had accepted behind that runs on, where nobody asks for it any more."""
    cluster = Cluster(monkeypatch, lost=LOST, others=OTHERS)
    assert sorted(await cluster.polled(3)) == ["lost", "others"], "each once"
    (told,) = caplog.records
    assert told.getMessage() == "a run goes on, and the log does not have it"
    assert [vars(told)[name] for name in ("account", "run", "uid", "job", "on")] == [
        ACCOUNT,
        "lost",
        "of lost",
        "x.1",
        "a",
    ]
    assert await cluster.polled(3) == [], "nor behind another list"
    cluster.owners["later"] = LOST
    assert await cluster.polled(3) == ["later"]
    del cluster.owners["lost"]
    await cluster.polled(1)
    cluster.owners["lost"] = LOST
    assert await cluster.polled(3) == ["lost"], "it is there again"


async def test_what_has_the_name_of_a_place_for_a_while_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of the same name is submitted again, and gets the next name behind that."""
    cluster = Cluster(monkeypatch, lost=LOST)
    assert await cluster.polled(2) == ["lost"]
    state = cluster.polling._decider.state
    (job,) = state.jobs.values()
    job.places["a"].name, state.open[ACCOUNT] = "lost", {(job.uid, "a"): None}
    assert await cluster.polled(2) == []
    state.open.clear()
    job.places["a"].name = "lost-2"
    assert await cluster.polled(2) == []


async def test_of_what_is_known_held_or_over_no_cluster_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    place = next(iter(cluster.polling._decider.state.jobs.values())).places["a"]
    known = Run(name=place.name, uid=place.uid, state="running", attempt=0, started_ms=0)
    others: list[dict[str, Any]] = [{"held": True, "state": "waiting"}, {"state": "stopped"}, {"state": "gone"}]
    cluster.also = [known, *(msgspec.structs.replace(known, name=f"other-{n}", **o) for n, o in enumerate(others))]
    assert await cluster.polled(5) == []


async def test_one_is_asked_for_with_each_poll_until_the_cluster_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing waits for it: there may be hundreds that are nobody's here."""
    cluster = Cluster(monkeypatch, mute=None)
    assert await cluster.polled(3) == ["mute"] * 3
    cluster.owners = dict.fromkeys((f"other-{n}" for n in range(5)), OTHERS)
    assert len(await cluster.polled(3)) == 3


async def test_another_run_that_has_a_places_name_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place has ended, and what runs there now has another identity."""
    world = settled()
    another = run(world, uid="another")
    assert observing.unknown(world.state, B, shown(another)) == [another]
    assert observing.unknown(world.state, B, shown(run(world))) == [], "it came back (R18)"
