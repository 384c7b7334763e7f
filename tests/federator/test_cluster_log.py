"""What a cluster's log tells of runs, and when the cluster itself must be asked."""

from __future__ import annotations

from typing import Any

import pytest

import events as ev
from services.federator.backends import RUNNING, STOPPED, WAITING, Owner
from services.federator.backends.gangs import job_names
from services.federator.cluster_log import job_of, needs_list, runs_of, watched
from services.federator.records import account_of
from tests.federator.world import MINUTE_NS, Federation

POD = {"uid": "u", "namespace": "ml", "name": "train-v100-12-x7k2p"}
OBSERVED: dict[str, Any] = POD | {
    "resource_version": "1",
    "scheduling_class": "c",
    "gang": None,
    "priority": 0,
    "created_ns": 0,
    "candidate": True,
    "gated": False,
}


@pytest.mark.parametrize(
    "event",
    [
        ev.PodAssigned(**POD, resource_version="1", node="n"),
        ev.PodTerminating(**POD, resource_version="1"),
        ev.PodFinished(**POD, resource_version="1", succeeded=True, reason=""),
        ev.PodDeleted(**POD),
        ev.PodObserved(**OBSERVED, status="bound", node="n"),
        ev.PodObserved(**OBSERVED, status="failed", node=""),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_that_a_list_may_show(event: ev.Event) -> None:
    assert job_of(event, "ml") == "train-v100"
    assert job_of(event, "default") == ""


@pytest.mark.parametrize(
    "event",
    [
        ev.PodObserved(**OBSERVED, status="pending", node=""),
        ev.NodeDeleted(name="train-v100-12-x7k2p", uid="u"),
        ev.PodGroupDeleted(namespace="ml", name="train-v100", uid="u", dialect="coscheduling/v1alpha1"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_pod_that_waits_is_no_news(event: ev.Event) -> None:
    assert job_of(event, "ml") == ""


def test_jobs_are_known_for_runs_of_open_places() -> None:
    federation = Federation(a=0, b=0)
    federation.accept()
    cluster = federation.state.clusters[account_of("a", "a")]
    found = watched(federation.state, cluster, "federation")
    first, others = job_names("mc-job-name-a", Owner(federation="federation", job="u1", cluster="a"))
    assert found == {first: "mc-job-name-a", others: "mc-job-name-a"}
    assert runs_of([first], found) == runs_of([f"{others}-3"], found) == {"mc-job-name-a"}
    assert runs_of(["mc-job-name-b", "mc-job-name", f"{first}-x-y", ""], found) == set()


def test_what_is_waiting_or_runs_need_not_be_listed_until_a_decision_is_due() -> None:
    federation = Federation(guard=10, a=0, b=0)
    state, cluster = federation.state, federation.state.clusters[account_of("a", "a")]
    now_ns = state.now_ns
    assert needs_list(state, cluster, now_ns), "it did not answer yet"
    federation.accept()
    federation.at(0)
    assert needs_list(state, cluster, state.now_ns), "accepted, and not seen yet"
    federation.at(1, a=WAITING, b=WAITING)
    assert not needs_list(state, cluster, state.now_ns)
    federation.at(2, a=RUNNING)
    assert not needs_list(state, cluster, state.now_ns + 9 * MINUTE_NS)
    assert needs_list(state, cluster, state.now_ns + 10 * MINUTE_NS), "the end of its guard time"


def test_what_is_to_be_stopped_is_listed_until_its_end_is_seen() -> None:
    federation = Federation(guard=1, a=0, b=0)
    federation.accept()
    federation.at(1, a=RUNNING, b=WAITING)
    federation.at(3)
    state, loser = federation.state, federation.state.clusters[account_of("b", "b")]
    assert federation.job.winner == "a"
    assert needs_list(state, loser, state.now_ns)
    federation.at(4, b=STOPPED)
    assert not needs_list(state, loser, state.now_ns)
    assert not needs_list(state, state.clusters[account_of("a", "a")], state.now_ns), "the winner runs on"
