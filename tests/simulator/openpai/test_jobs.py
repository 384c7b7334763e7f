"""How a job lives on a simulated OpenPAI cluster, by a clock that the test moves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.simulator.openpai.jobs import Cluster, Life, Refusal, lived, stopped
from tests.simulator.openpai.test_schema import JOB

START = 1_700_000_000_500


class Clock:
    def __init__(self) -> None:
        self.now_ms = START

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def body(name: str = "job", **fields: Any) -> str:
    return msgspec.json.encode(JOB | {"name": name, "jobRetryCount": 0} | fields).decode()


def cluster_of(clock: Clock, life: Life, **options: Any) -> Cluster:
    return Cluster(clock, {"t": "alice"}, life=life, **options)


def seen(cluster: Cluster, name: str = "job") -> tuple[str, str]:
    status = cluster.get(f"alice~{name}")["jobStatus"]
    return status["state"], status["subState"]


def states(cluster: Cluster, clock: Clock, until_ms: int) -> list[tuple[int, str, str]]:
    """What it was from when on, up to `until_ms`."""
    found: list[tuple[int, str, str]] = []
    for at in range(0, until_ms + 1, 100):
        clock.now_ms = START + at
        now = seen(cluster)
        if not found or found[-1][1:] != now:
            found.append((at, *now))
    return found


def test_a_life_that_nobody_disturbs(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(created_ms=200, waiting_ms=1_000, running_ms=2_000, dying_ms=300))
    assert cluster.submit("alice", body())["status"] == 202
    assert states(cluster, clock, 5_000) == [
        (0, "WAITING", "AttemptCreationPending"),
        (200, "WAITING", "AttemptPreparing"),
        (1_000, "RUNNING", "AttemptRunning"),
        (3_000, "RUNNING", "AttemptDeleting"),
        (3_300, "SUCCEEDED", "Completed"),
    ]
    (job,) = cluster.listed({})
    assert (job["submissionTime"], job["launchedTime"], job["completedTime"]) == (
        START // 1_000 * 1_000,
        (START + 1_000) // 1_000 * 1_000,
        (START + 3_300) // 1_000 * 1_000,
    )
    assert (job["retries"], job["appExitCode"], job["totalGpuNumber"], job["totalTaskNumber"]) == (0, 0, 2, 2)


def test_a_failed_attempt_reads_running_while_it_dies_and_is_tried_again(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(waiting_ms=500, running_ms=1_000, dying_ms=500, exit_codes=(1, 7)))
    cluster.submit("alice", body(jobRetryCount=1))
    assert states(cluster, clock, 5_000) == [
        (0, "WAITING", "AttemptPreparing"),
        (500, "RUNNING", "AttemptRunning"),
        (1_500, "RUNNING", "AttemptDeleting"),
        (2_000, "WAITING", "AttemptPreparing"),
        (2_500, "RUNNING", "AttemptRunning"),
        (3_500, "RUNNING", "AttemptDeleting"),
        (4_000, "FAILED", "Completed"),
    ]
    assert cluster.listed({})[0]["retries"] == 1
    assert cluster.listed({})[0]["launchedTime"] == (START + 500) // 1_000 * 1_000, "that of the first attempt"


def test_a_stop_is_only_an_intent(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(notice_ms=1_000, dying_ms=500))
    cluster.submit("alice", body())
    clock.now_ms = START + 400
    for _ in range(2):
        assert cluster.execute("alice", "alice~job", "STOP")["status"] == 202
    assert cluster.listed({})[0]["executionType"] == "STOP"
    assert states(cluster, clock, 3_000) == [
        (0, "RUNNING", "AttemptRunning"),
        (1_400, "STOPPING", "AttemptDeletionPending"),
        (1_900, "STOPPED", "Completed"),
    ]
    assert cluster.running() == []


def test_a_job_begins_to_run_although_it_was_stopped(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(waiting_ms=600, notice_ms=1_000))
    cluster.submit("alice", body())
    cluster.execute("alice", "alice~job", "STOP")
    assert [state for _, state, _ in states(cluster, clock, 2_000)] == ["WAITING", "RUNNING", "STOPPED"]


def test_a_job_that_never_ran_has_a_made_up_launched_time(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(waiting_ms=60_000, notice_ms=3_000))
    cluster.submit("alice", body())
    cluster.execute("alice", "alice~job", "STOP")
    clock.now_ms += 3_000
    (job,) = cluster.listed({})
    assert (job["state"], job["launchedTime"], job["completedTime"]) == (
        "STOPPED",
        clock.now_ms - 500,
        clock.now_ms - 500,
    )


def test_a_job_that_ends_before_the_stop_takes_hold_has_ended_by_itself(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(running_ms=500, notice_ms=1_000))
    cluster.submit("alice", body())
    cluster.execute("alice", "alice~job", "STOP")
    clock.now_ms += 5_000
    assert seen(cluster) == ("SUCCEEDED", "Completed")
    cluster.execute("alice", "alice~job", "START")
    cluster.execute("alice", "alice~job", "STOP")
    assert seen(cluster) == ("SUCCEEDED", "Completed")


def test_a_name_is_never_free_again(clock: Clock) -> None:
    cluster = cluster_of(clock, Life())
    cluster.submit("alice", body())
    cluster.execute("alice", "alice~job", "STOP")
    clock.now_ms += 10**9
    with pytest.raises(Refusal) as refused:
        cluster.submit("alice", body())
    assert (refused.value.status, refused.value.code) == (409, "ConflictJobError")


def test_what_is_refused(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(), virtual_clusters=["default"], storages=["data"])
    asked = [
        ("name: [", 500, ""),
        ("a: 1\n---\nb: 2", 500, ""),
        ("", 400, "InvalidProtocolError"),
        (body(extra={}), 400, "InvalidProtocolError"),
        (body(defaults={"virtualCluster": "vip"}), 403, "ForbiddenUserError"),
        (body(extras={"storages": [{"name": "nfs"}]}), 404, "NoStorageError"),
    ]
    for text, status, code in asked:
        with pytest.raises(Refusal) as refused:
            cluster.submit("alice", text)
        assert (refused.value.status, refused.value.code) == (status, code), text
    assert cluster.jobs == {}


def test_who_may_stop_a_job(clock: Clock) -> None:
    cluster = cluster_of(clock, Life(), admins=["root"])
    cluster.submit("alice", body())
    with pytest.raises(Refusal) as refused:
        cluster.execute("bob", "alice~job", "STOP")
    assert (refused.value.status, refused.value.code) == (403, "ForbiddenUserError")
    with pytest.raises(Refusal) as refused:
        cluster.execute("alice", "alice~other", "STOP")
    assert (refused.value.status, refused.value.code) == (404, "NoJobError")
    cluster.execute("root", "alice~job", "STOP")
    assert seen(cluster) == ("STOPPED", "Completed")


def test_lists_in_pages_and_by_what_is_asked(clock: Clock) -> None:
    cluster = cluster_of(clock, Life())
    for number in range(12):
        cluster.submit("alice" if number % 2 else "bob", body(f"job{number:02}"))
        clock.now_ms += 1_000
    assert [job["name"] for job in cluster.listed({"limit": "2"})] == ["job11", "job10"], "the youngest first"
    of_alice = {"username": "alice", "order": "jobName,ASC", "offset": "1", "limit": "3", "withTotalCount": "true"}
    page = cluster.listed(of_alice)
    assert page["totalCount"] == 6
    assert [job["name"] for job in page["data"]] == ["job03", "job05", "job07"]
    assert cluster.listed({"state": "WAITING,FAILED"}) == []
    assert len(cluster.listed({"keyword": "job1"})) == 2
    for query, status in (({"limit": "50001"}, 400), ({"offset": "x"}, 500)):
        with pytest.raises(Refusal) as refused:
            cluster.listed(query)
        assert refused.value.status == status


def test_secrets_are_hidden_only_where_they_are_lines_of_their_own(clock: Clock) -> None:
    cluster = cluster_of(clock, Life())
    lines = "\n".join(
        f"{key}: {msgspec.json.encode(value).decode()}" for key, value in (JOB | {"name": "lines"}).items()
    )
    cluster.submit("alice", lines)
    cluster.submit("alice", body("flow"))
    assert 'secrets: "******"\n' in cluster.config("alice~lines")
    assert '"password"' in cluster.config("alice~flow")


def test_a_submission_that_lands_late(clock: Clock) -> None:
    cluster = cluster_of(clock, Life())
    cluster.later(5_000, lambda: cluster.submit("alice", body()))
    with pytest.raises(Refusal):
        cluster.get("alice~job")
    clock.now_ms += 5_000
    assert seen(cluster) == ("RUNNING", "AttemptRunning")
    assert len(cluster.running()) == 1


LIVES = st.builds(
    Life,
    created_ms=st.integers(0, 50),
    waiting_ms=st.integers(0, 50),
    running_ms=st.none() | st.integers(0, 50),
    dying_ms=st.integers(0, 50),
    notice_ms=st.integers(0, 50),
    exit_codes=st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
)


@given(LIVES, st.integers(0, 3), st.integers(0, 300))
def test_however_it_is_stopped_it_ends_and_time_never_runs_back(life: Life, retries: int, stop_ms: int) -> None:
    whole = lived(life, 0, retries)
    cut = stopped(whole, stop_ms, life)
    assert [step for step in cut if step.at_ms < stop_ms + life.notice_ms] == [
        step for step in whole if step.at_ms < stop_ms + life.notice_ms
    ]
    for steps in (whole, cut):
        assert [step.at_ms for step in steps] == sorted(step.at_ms for step in steps)
        assert [step.attempt for step in steps] == sorted(step.attempt for step in steps)
    assert cut[-1].sub_state == "Completed"
    assert sum(step.sub_state == "Completed" for step in cut) == 1
    assert cut[-1].at_ms <= max(stop_ms + life.notice_ms + life.dying_ms, whole[-1].at_ms)
