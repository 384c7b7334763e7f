"""What a run on Kubernetes is called, by its Jobs and pods as a list shows them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.federator.backends import FAILED, RUNNING, STOPPED, STOPPING, SUCCEEDED, WAITING, Run, gangs
from services.federator.backends.kubernetes import _found, _name, _run
from services.kubernetes import gang_jobs
from services.kubernetes.gang_jobs import GangPod

MOMENT, LATER = "2026-11-23T12:00:00Z", "2026-11-23T12:00:05Z"
LATER_MS = 1_795_435_205_000


def job(
    *conditions: str, name: str = "train", of: str = "", roles: str = "1", suspend: bool = False, **said: Any
) -> Any:
    """Of one pod. `said`: annotations by their names in `gangs`; `deleted`; `since` when its conditions hold."""
    metadata = {
        "name": name,
        "uid": f"uid of {name}",
        "labels": {gangs.FIRST: f"uid of {of}"} if of else {},
        "annotations": {gangs.JOBS: roles, gangs.PHASE: said.get("phase", gangs.RELEASED)}
        | ({gangs.DECIDES: "true"} if said.get("decides") else {})
        | ({gangs.NAME: said["claims"]} if "claims" in said else {}),
        "deletionTimestamp": MOMENT if said.get("deleted") else None,
    }
    since = said.get("since")
    status = {"conditions": [{"type": one, "status": "True", "lastTransitionTime": since} for one in conditions]}
    return msgspec.convert({"metadata": metadata, "spec": {"suspend": suspend}, "status": status}, gang_jobs.Job)


def other(*conditions: str, **given: Any) -> Any:
    return job(*conditions, name="train-1", of="train", **given)


def pod(phase: str, of: str = "train", node: str = "n1", deleted: bool = False, started: str = MOMENT) -> GangPod:
    made = {
        "metadata": {
            "labels": {gang_jobs.CONTROLLER: f"uid of {of}"},
            "deletionTimestamp": MOMENT if deleted else None,
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": [{"state": {"running": {"startedAt": started}}}]},
    }
    return msgspec.convert(made, GangPod)


def runs(*things: Any) -> list[Run]:
    jobs = [thing for thing in things if isinstance(thing, gang_jobs.Job)]
    found = _found(jobs, [thing for thing in things if isinstance(thing, GangPod)])
    return [_run(_name(one.first.metadata), one) for one in found]


def run(*things: Any) -> Run:
    (one,) = runs(*things)
    return one


RUNS, DONE, BROKE, PENDING = pod("Running"), pod("Succeeded"), pod("Failed"), pod("Pending")
STOP: dict[str, Any] = {"phase": gangs.STOPPED, "suspend": True}


@pytest.mark.parametrize(
    ("things", "state"),
    [
        # it runs when all pods of all Jobs run or have succeeded
        ((job(), RUNS), RUNNING),
        ((job(), PENDING), WAITING),
        ((job(), pod("Running", deleted=True)), WAITING),
        ((job(), other(), RUNS), WAITING),
        ((job(), other(), RUNS, pod("Running", of="train-1")), RUNNING),
        ((job(), other(), RUNS, pod("Succeeded", of="train-1")), RUNNING),
        ((job(roles="2"), RUNS), WAITING),
        ((job(roles="x"), RUNS), RUNNING),
        ((job(roles="9" * 5_000), RUNS), RUNNING),
        ((job(), DONE), STOPPING),
        ((job(), BROKE), STOPPING),
        # how it ended, when no pod of it is left that runs
        ((job("Complete"), DONE), SUCCEEDED),
        ((job("Complete"), RUNS), STOPPING),
        ((job("Failed"), BROKE), FAILED),
        ((job("Failed"), pod("Unknown")), STOPPING),
        ((job(), other("Failed"), DONE), FAILED),
        ((job("Complete"), other(), DONE, pod("Running", of="train-1")), RUNNING),
        ((job("Complete", roles="2"), DONE), WAITING),
        ((job("Complete"), other("Complete")), SUCCEEDED),
        ((job("Complete", decides=True), other(), DONE), SUCCEEDED),
        ((job("Failed"), other("Complete", decides=True)), SUCCEEDED),
        # of one that failed and one that decides, the first
        ((job("Failed", since=MOMENT), other("Complete", decides=True, since=LATER)), FAILED),
        ((job("Failed", since=LATER), other("Complete", decides=True, since=MOMENT)), SUCCEEDED),
        ((job("Failed", since=MOMENT), other("Complete", decides=True, since=MOMENT)), SUCCEEDED),
        ((job("Failed", since=MOMENT), other("Complete", since=MOMENT)), FAILED),
        # its controller says so before the last of its pods is over
        ((job("FailureTarget", since=MOMENT), other("Complete", decides=True, since=LATER), RUNS), STOPPING),
        ((job("FailureTarget", since=MOMENT), other("Complete", decides=True, since=LATER), BROKE), FAILED),
        ((job("SuccessCriteriaMet", decides=True), other(), RUNS), STOPPING),
        ((job("SuccessCriteriaMet", decides=True), other(), DONE), SUCCEEDED),
        # stopped, when its controllers say so and no pod is left that runs
        ((job("Suspended", **STOP),), STOPPED),
        ((job(**STOP),), STOPPING),
        ((job("Suspended", **STOP), RUNS), STOPPING),
        ((job("Suspended", **STOP), BROKE), STOPPED),
        ((job("Suspended", **STOP), other(**STOP)), STOPPING),
        ((job("Suspended", **STOP), other("Complete", **STOP)), STOPPED),
        ((job("Complete", **STOP),), SUCCEEDED),
        ((job("Failed", **STOP),), FAILED),
        # on its way out, or suspended by somebody who may let it go on
        ((job(deleted=True), RUNS), STOPPING),
        ((job(suspend=True),), WAITING),
        ((job(suspend=True), RUNS), STOPPING),
        ((job(), other(suspend=True), RUNS), STOPPING),
        ((job(suspend=True, phase=gangs.HELD),), WAITING),
        ((job(suspend=True, phase=gangs.HELD), other(), pod("Pending", of="train-1")), WAITING),
    ],
)
def test_what_a_run_is_called(things: tuple[Any, ...], state: str) -> None:
    assert run(*things).state == state


def test_a_run_began_with_its_last_pod_and_only_while_it_runs() -> None:
    late = pod("Running", of="train-1", started=LATER)
    assert run(job(), other(), late, RUNS).started_ms == LATER_MS
    assert run(job(), other(), late, PENDING).started_ms == 0


def test_it_is_placed_while_it_waits_and_a_pod_has_a_node() -> None:
    unbound = pod("Pending", of="train-1", node="")
    assert run(job(), other(), PENDING, unbound).placed
    assert not run(job(), other(), unbound).placed
    assert not run(job(), RUNS).placed


def test_held_is_what_says_so() -> None:
    """And not what somebody suspended, or made without that word: nobody may clear it."""
    said = [run(job(suspend=True, phase=phase)).held for phase in (gangs.HELD, gangs.RELEASED, gangs.STOPPED, "")]
    assert said == [True, False, False, False]


def test_a_job_whose_first_is_gone_is_nobodys_run() -> None:
    assert runs(other(), pod("Running", of="train-1")) == []
    assert [one.name for one in runs(job(name="a"), other(), job(name="b", of="a"))] == ["a"]


def test_a_run_has_the_name_that_its_job_was_made_for_and_no_other() -> None:
    """Whoever may make Jobs may write any name on them."""
    made = gangs.kubernetes_name("Train_V100")
    named = runs(job(name=made, claims="Train_V100"), job(name="mine", claims="train"), job(name="plain"))
    assert [one.name for one in named] == ["Train_V100", "mine", "plain"]
    long = "x" * 1_000
    assert [one.name for one in runs(job(name=gangs.kubernetes_name(long), claims=long))] != [long], "a log keeps it"
