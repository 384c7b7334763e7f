"""What a cluster's own log tells, event by event; over real leaf nodes: `tests.federator.test_leaf`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

import events as ev
from events.connection import Connection
from events.envelope import Header, Stored, encode_events, encode_header
from events.log import LogError, Purged, Unavailable
from events.subjects import subject
from services.federator.backends import RUNNING, STOPPING, WAITING, Listing, Run, Silent, leaf
from services.federator.backends.leaf import Leaf


@pytest.fixture
def heard() -> Leaf:
    """A leaf whose log is followed, and whose cluster was listed since."""
    found = Leaf(Connection("nats://127.0.0.1"), "log-prod", "prod", "default")
    found._place, found._is_listed, found._listed_s = 0, True, monotonic()
    return found


def commit(*events: ev.Event, payload: bytes = b"", writer: str = "ingest") -> Stored:
    header = Header(writer=writer, epoch=0, basis=0, time_ns=0, cause="facts")
    return Stored(
        sequence=1,
        subject=subject("prod", writer),
        message_id="",
        header=encode_header(header),
        payload=payload or encode_events(events),
    )


def gone(job: str) -> ev.PodDeleted:
    return ev.PodDeleted(uid=job, namespace="default", name=f"{job}-0-abcde")


def test_an_event_of_a_run_asks_for_a_list_of_its_cluster(heard: Leaf) -> None:
    heard._hear(commit(gone("train")))
    assert not heard._is_settled({"train": "train"})
    assert heard._is_settled({"other": "other"})
    assert heard._stirred.is_set()


def test_what_cannot_be_read_may_be_about_anybody(heard: Leaf) -> None:
    heard._hear(commit(payload=b'[{"type":"OfAVersionToCome"}]'))
    assert not heard._is_settled({"other": "other"})
    assert heard._stirred.is_set()


def test_of_too_many_jobs_none_is_remembered(heard: Leaf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf, "MOST_JOBS", 3)
    heard._hear(commit(*(gone(f"job-{number}") for number in range(3))))
    assert heard._is_settled({"other": "other"})
    heard._hear(commit(gone("job-3")))
    assert not heard._is_settled({"other": "other"})
    assert not heard._told


TRAIN = {"train": "train"}


class Listed:
    """A cluster, and what happens while it is listed."""

    def __init__(self, *runs: Run, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.answer: Listing | Silent = Listing(runs=runs, clock_ms=0)
        self.meanwhile = meanwhile

    async def observe(self) -> Listing | Silent:
        self.meanwhile()
        return self.answer


async def listed(heard: Leaf, cluster: Any) -> bool:
    """Whether that list can be vouched for."""
    await heard.listed(cluster)
    return heard._is_settled(TRAIN)


async def test_what_is_told_while_the_cluster_is_listed_may_not_be_in_that_list(heard: Leaf) -> None:
    assert not await listed(heard, Listed(meanwhile=lambda: heard._hear(commit(gone("train")))))
    heard._place = 1
    assert await listed(heard, Listed())


async def test_a_list_from_before_the_log_was_followed_anew_is_none(heard: Leaf) -> None:
    def anew() -> None:
        heard._beginnings, heard._is_listed = heard._beginnings + 1, False

    assert not await listed(heard, Listed(meanwhile=anew))


@pytest.mark.parametrize(
    ("state", "placed", "settled"),
    [(WAITING, False, True), (WAITING, True, False), (RUNNING, False, True), (STOPPING, False, False)],
)
async def test_of_what_changes_without_an_event_a_list_is_asked_for(
    heard: Leaf, state: str, placed: bool, settled: bool
) -> None:
    run = Run(name="train", uid="u", state=state, attempt=0, started_ms=0, placed=placed)
    assert await listed(heard, Listed(run)) is settled


@pytest.mark.parametrize("meanwhile", [None, "train", "other"])
async def test_what_is_told_while_it_is_asked_whether_it_vouches_counts(
    heard: Leaf, meanwhile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end_now(within_s: float) -> int:
        if meanwhile:
            heard._hear(commit(gone(meanwhile)))
        return 0

    async def holder_of(*_: object, **__: object) -> str:
        return "ingest-0"

    monkeypatch.setattr(heard._log, "end_now", end_now)
    monkeypatch.setattr(leaf.lease, "holder_of", holder_of)
    assert await heard.vouches(TRAIN) is (meanwhile != "train")


@pytest.mark.parametrize(("ago_s", "vouched"), [(299.0, True), (301.0, False)])
async def test_a_list_is_vouched_for_five_minutes(
    heard: Leaf, ago_s: float, vouched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: for ever. No event tells that a run without pods was deleted."""

    async def said(*_: object, **__: object) -> int:
        return 0

    monkeypatch.setattr(heard._log, "end_now", said)
    monkeypatch.setattr(leaf.lease, "holder_of", lambda *_, **__: asyncio.sleep(0, "ingest-0"))
    await heard.listed(Listed())
    heard._listed_s -= ago_s
    assert await heard.vouches(TRAIN) is vouched


def test_while_ingest_compares_the_cluster_with_its_log_nothing_is_vouched_for(heard: Leaf) -> None:
    heard._hear(commit(ev.IngestTaken(holder="another")))
    assert not heard._is_settled(TRAIN)
    heard._hear(commit(ev.ClusterSynced(nodes=1, pods=1)))
    assert heard._is_settled(TRAIN)


async def test_a_log_that_is_followed_anew_vouches_for_nothing_before_the_next_list(
    heard: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end() -> int:
        return 7

    async def follow(after: int) -> AsyncIterator[list[Stored]]:
        yield [commit(gone("other"))]
        raise Purged(f"what follows {after} was purged")

    monkeypatch.setattr(heard._log, "end", end)
    monkeypatch.setattr(heard._log, "follow", follow)
    heard._hear(commit(ev.IngestTaken(holder="another")))
    with pytest.raises(Purged, match="what follows 7"):
        await heard._follow()
    assert heard._read.is_set(), "who waits for what was read"
    assert not heard._is_settled(TRAIN)
    assert await listed(heard, Listed())


async def test_of_commits_only_ingests_own_are_heard(heard: Leaf, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end() -> int:
        return 0

    async def follow(_: int) -> AsyncIterator[list[Stored]]:
        yield [commit(gone("train"), writer="admin"), replace(commit(gone("train")), header=b"")]

    monkeypatch.setattr(heard._log, "end", end)
    monkeypatch.setattr(heard._log, "follow", follow)
    await heard._follow()
    assert not heard._told


async def test_a_cluster_that_is_silent_is_not_vouched_for(heard: Leaf) -> None:
    heard._is_listed = False
    cluster = Listed()
    cluster.answer = Silent(reason="no answer")
    assert not await listed(heard, cluster)


async def test_it_is_not_waited_for_without_end(heard: Leaf, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the log, and is not read in time."""

    async def end_now(within_s: float) -> int:
        return 1

    async def holder_of(*_: object, **__: object) -> str:
        return "ingest-0"

    monkeypatch.setattr(leaf, "ANSWER_S", 0.0)
    monkeypatch.setattr(heard._log, "end_now", end_now)
    monkeypatch.setattr(leaf.lease, "holder_of", holder_of)
    assert not await heard.vouches(TRAIN)


@pytest.mark.parametrize("job", ["train", "other"])
async def test_it_vouches_when_everything_up_to_the_logs_end_is_read(
    heard: Leaf, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end_now(within_s: float) -> int:
        return 1

    async def holder_of(*_: object, **__: object) -> str:
        return "ingest-0"

    monkeypatch.setattr(leaf, "ANSWER_S", 60.0)
    monkeypatch.setattr(heard._log, "end_now", end_now)
    monkeypatch.setattr(leaf.lease, "holder_of", holder_of)
    asked = asyncio.create_task(heard.vouches(TRAIN))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    heard._hear(commit(gone(job)))
    heard._place = 1
    heard._read.set()
    assert await asked is (job != "train")


async def test_what_happened_once_asks_for_one_list(heard: Leaf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf, "GATHER_S", 0.0)
    heard._hear(commit(gone("train")))
    await heard.stirred()
    assert not heard._stirred.is_set()


async def test_a_log_that_is_lost_is_followed_again_and_vouches_for_nothing_meanwhile(
    heard: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    async def follow() -> None:
        places.append(heard._place)
        heard._place = 5
        if len(places) == 3:
            raise asyncio.CancelledError
        raise Purged("what follows 5 was purged")

    before = heard._log
    monkeypatch.setattr(leaf, "AGAIN_S", 0.0)
    monkeypatch.setattr(heard, "_follow", follow)
    with pytest.raises(asyncio.CancelledError):
        await heard.follow()
    assert places == [0, -1, -1]
    assert heard._log is not before, "it remembers an end that another log of this name may not have"
    assert (heard._log.cluster, heard._log.domain) == (before.cluster, before.domain)


async def test_people_are_told_once_that_a_log_is_not_heard_and_once_that_it_is_again(
    heard: Leaf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether a leaf is cut while its log is followed, or is not there at all."""
    caplog.set_level("INFO", "muster.federator")
    ends: list[int | LogError] = []

    async def end_now(within_s: float) -> int:
        if isinstance(end := ends.pop(0), LogError):
            raise end
        return end

    async def holder_of(*_: object, **__: object) -> str:
        return "ingest-0"

    async def follow() -> None:
        heard._place = 0
        raise asyncio.CancelledError if not ends else ends.pop(0)  # type: ignore[misc]

    monkeypatch.setattr(leaf, "AGAIN_S", 0.0)
    monkeypatch.setattr(leaf.lease, "holder_of", holder_of)
    monkeypatch.setattr(heard._log, "end_now", end_now)
    ends += [Unavailable("nothing answers"), Unavailable("nothing answers"), 0, 0]
    assert [await heard.vouches(TRAIN) for _ in range(4)] == [False, False, True, True]
    monkeypatch.setattr(heard, "_follow", follow)
    ends += [LogError("no such log"), LogError("no such log")]
    with pytest.raises(asyncio.CancelledError):
        await heard.follow()
    assert caplog.messages == [
        "the log of prod is not heard: nothing answers",
        "the log of prod is heard again",
        "the log of prod is not heard: no such log",
    ]


async def test_a_log_whose_lease_cannot_be_asked_for_is_told_of_once_while_its_commits_come(
    heard: Leaf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: each commit said that the log was heard again, and each question that it was not."""
    caplog.set_level("INFO", "muster.federator")
    answers: list[str | LogError] = [Unavailable("no answer"), Unavailable("no answer"), "ingest-0"]
    vouched: list[bool] = []

    async def end() -> int:
        return 0

    async def end_now(within_s: float) -> int:
        return 0

    async def holder_of(*_: object, **__: object) -> str:
        if isinstance(answer := answers.pop(0), LogError):
            raise answer
        return answer

    async def follow(after: int) -> AsyncIterator[list[Stored]]:
        while answers:
            heard._is_listed = True
            yield [commit(gone("other"))]
            vouched.append(await heard.vouches(TRAIN))

    monkeypatch.setattr(leaf.lease, "holder_of", holder_of)
    for name, one in (("end", end), ("end_now", end_now), ("follow", follow)):
        monkeypatch.setattr(heard._log, name, one)
    await heard._follow()
    assert vouched == [False, False, True]
    assert caplog.messages == ["the log of prod is not heard: no answer", "the log of prod is heard again"]
