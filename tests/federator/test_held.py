"""Histories over clusters that hold submissions: one survives, nothing is left; and whoever does not hold is caught."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from services.federator import observing
from services.federator.backends import Accepted
from services.federator.records import ENDED, SETTLED, Job
from services.federator.rules import forgotten
from tests.federator import held
from tests.federator.clusters import a_life


def test_no_history_of_held_submissions_breaks_an_invariant() -> None:
    count: Counter[str] = Counter()
    for seed in range(150):
        violation, faults = held.run(seed)
        assert not violation, f"seed {seed}: {violation}"
        count += faults
    for fault in (
        "late submission",
        "late submission found",
        "late submission of a forgotten job",
        "submitted again",
        "paused and replaced",
        "release refused",
        "crash",
        "lost answer",
        "cleared",
    ):
        assert count[fault], f"no history had: {fault}"


def violated(most: int) -> str:
    """The first violation."""
    return next((violation for seed in range(most) if (violation := held.run(seed)[0])), "")


def test_a_cluster_that_does_not_hold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs begin at once: then late ones survive, or are cleared while they run."""
    submit = held.HeldCluster.submit

    def at_once(self: Any, name: str, owner: Any, now_ms: int) -> Any:
        answer = submit(self, name, owner, now_ms)
        if isinstance(answer, Accepted):
            run = self.runs[name]
            run.held, run.life = False, a_life(self.rng, now_ms, self.guard_ms)
        return answer

    monkeypatch.setattr(held.HeldCluster, "submit", at_once)
    assert violated(500)


def test_a_stop_that_does_not_keep_releases_off_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a stopped Job were merely suspended, and a late release let it go."""

    release = held.HeldCluster.release

    def lets_go(self: Any, name: str, uid: str, now_ms: int) -> Any:
        run = self.of(name, uid)
        if run is not None and run.stopped:
            run.stopped, run.life = False, a_life(self.rng, now_ms, self.guard_ms)
        return release(self, name, uid, now_ms)

    monkeypatch.setattr(held.HeldCluster, "release", lets_go)
    assert violated(500)


def test_who_does_not_look_for_late_submissions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "remains", lambda *_: [])
    assert violated(500).startswith("garbage")


def test_who_does_not_look_for_what_comes_late_of_forgotten_jobs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "strays", lambda *_: [])
    assert violated(500).startswith("garbage")


def test_who_forgets_what_is_to_be_cleared_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose clearing was intended, and not settled."""

    def is_over(job: Job, origin: str) -> bool:
        return job.phase == SETTLED and all(place.phase == ENDED for place in job.places.values())

    monkeypatch.setattr(forgotten, "is_over", is_over)
    assert "R22" in violated(500)
