"""What a cluster's own log tells, event by event; over real leaf nodes: `tests.federator.test_leaf`."""

from __future__ import annotations

import pytest

import events as ev
from events.connection import Connection
from events.envelope import Header, Stored, encode_events, encode_header
from events.subjects import subject
from services.federator.backends import leaf
from services.federator.backends.leaf import Leaf


@pytest.fixture
def heard() -> Leaf:
    """A leaf whose log is followed, and whose cluster was listed since."""
    found = Leaf(Connection("nats://127.0.0.1"), "log-prod", "prod", "default")
    found._place, found._is_listed = 0, True
    return found


def commit(*events: ev.Event, payload: bytes = b"") -> Stored:
    header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
    return Stored(
        sequence=1,
        subject=subject("prod", "ingest"),
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
