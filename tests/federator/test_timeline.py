"""A job's timeline: given these answers at these minutes, which stretches has each cluster?"""

from __future__ import annotations

from typing import Any

import pytest

from events import Event
from services.federator import core
from services.federator.explain import Said
from services.federator.rules import forgotten
from services.federator.timeline import GUARDED, HOLDS, KEPT, OVER, SENT, STOPS, WAITS, Timeline, drawn
from tests.federator.world import EPOCH_NS, MINUTE_NS, Federation


class Recorded(Federation):
    """With its commits and their times."""

    def __init__(self, **of: Any) -> None:
        self.commits: list[Said] = []
        super().__init__(**of)

    def append(self, *said: Event) -> None:
        super().append(*said)
        self.commits.append(Said(self.state.sequence, EPOCH_NS + int(self.minute * MINUTE_NS), said))

    @property
    def line(self) -> Timeline:
        found = drawn(self.commits, "mc-job-name")
        assert found is not None
        return found

    def minutes(self, alias: str) -> list[tuple[float, str]]:
        return [(round((s.from_ns - EPOCH_NS) / MINUTE_NS, 3), s.kind) for s in self.line.stretches[alias]]


def test_who_starts_first_is_overtaken_and_who_comes_late_is_not_waited_for() -> None:
    federation = Recorded(guard=10, scale=1, low=10, middle=70, high=90)
    federation.accept()
    federation.at(1, low="running", middle="waiting", high="waiting")
    federation.at(11)
    federation.at(12, middle="running")
    federation.at(22)
    federation.at(23, low="stopped")
    federation.at(42)
    federation.at(43, high="stopped")
    assert [(round(minute), kind) for minute, kind in federation.minutes("low")] == [
        (0, SENT),
        (1, GUARDED),
        (11, HOLDS),
        (22, STOPS),
        (23, OVER),
    ]
    assert [(round(minute), kind) for minute, kind in federation.minutes("middle")] == [
        (0, SENT),
        (1, WAITS),
        (12, GUARDED),
        (22, HOLDS),
        (42, KEPT),
    ]
    assert [kind for _, kind in federation.minutes("high")] == [SENT, WAITS, STOPS, OVER]
    assert list(federation.line.priorities) == ["high", "middle", "low"]
    assert federation.line.until_ns == EPOCH_NS + 43 * MINUTE_NS


def test_a_log_that_has_no_such_job() -> None:
    assert drawn(Recorded(a=0, b=0).commits, "other") is None
    assert drawn([], "mc-job-name") is None


def test_a_job_that_was_just_accepted_is_sent_to_all() -> None:
    federation = Recorded(a=0, b=0)
    assert (federation.minutes("a"), federation.minutes("b")) == ([(0, SENT)], [(0, SENT)])
    assert federation.line.from_ns == federation.line.until_ns


def test_what_is_cancelled_before_its_cluster_answered_stops_and_a_clock_that_is_behind_ends_nothing() -> None:
    federation = Recorded(a=0, b=0)
    federation.accept("b")
    federation.at(5, b="waiting")
    federation.minute = 3  # another process took over, on another host
    cancelled = core.cancelled(federation.job)
    assert cancelled is not None
    federation.append(cancelled)
    federation.decide()
    assert federation.minutes("a") == [(0, SENT), (3, STOPS)]
    assert federation.line.until_ns == EPOCH_NS + 5 * MINUTE_NS


def test_of_a_name_that_was_forgotten_the_last_job_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten, "KEPT", 0)
    federation = Recorded(a=50, b=50, job="fed.u1")
    federation.accept()
    federation.at(1, a="failed", b="failed")
    assert federation.minutes("a")[-1] == (1.0, OVER)
    federation.minute, federation.uid = 30.0, "fed.u2"
    federation.append(core.federated(federation.state, federation.mcc, "fed.u2", "digest"))
    assert federation.minutes("a") == [(30.0, SENT)]
