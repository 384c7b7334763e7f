"""Seed 001's rules by name (`services.federator.rules`): given these answers, these decisions."""

import re
from pathlib import Path

import pytest

import events as ev
from services.federator import rules
from services.federator.backends import Run
from tests.federator import test_forgotten, test_places
from tests.federator.world import Federation, equal, of_type, placed, scheduled, stops


def three(**given: float) -> Federation:
    """Priorities 10, 50 and 100; a minute for each point."""
    world = Federation(low=10, mid=50, high=100, **given)
    world.accept()
    return world


# --------------------------------------------------------------------------------------------- R1, R2: guard time


def test_r1_submitted_to_all() -> None:
    """The scheduler submits the job to all the clusters."""
    world = Federation(a=1, b=2, c=3)
    assert list(world.state.submitting) == [("u1", "a"), ("u1", "b"), ("u1", "c")]
    (event,) = of_type(world.log, ev.JobFederated)
    assert [contender.name for contender in event.clusters] == ["mc-job-name-a", "mc-job-name-b", "mc-job-name-c"]


def test_r1_nobody_waits_for_a_cluster_that_cannot_be_reached() -> None:
    world = Federation(a=50, b=50)
    world.silent("b")
    world.accept("a")
    world.at(1, a="running")
    assert placed(world.at(11)) == [("a", "FirstAvailable")]


def test_r2_running_for_a_guard_time() -> None:
    """When one of the jobs is successfully scheduled (to RUNNING state for a guard time)"""
    world = equal()
    world.at(1, a="waiting", b="waiting")
    assert world.at(2, a="running") == []
    assert world.at(11.9) == []
    assert scheduled(world.at(12)) == ["a"]


def test_r2_without_a_guard_time_running_is_enough() -> None:
    world = equal(guard=0)
    assert placed(world.at(1, a="running")) == [("a", "FirstAvailable")]


def test_r2_the_clusters_silence_earns_nothing_and_takes_nothing_back() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(6)
    world.silent("a")
    assert world.at(30) == []
    world.back("a")
    assert world.at(33.9) == []
    assert scheduled(world.at(34.5)) == ["a"]


def test_r2_our_own_silence_earns_nothing() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(6)
    world.minute = 60  # nobody looked
    world.restart()
    assert world.at(60) == []
    assert world.at(69) == []
    assert scheduled(world.at(70.5)) == ["a"], "what no answer in the log vouches for is lost"


def test_r2_another_attempt_begins_anew() -> None:
    world = equal()
    world.at(0, a="running/0")
    assert world.at(9, a="running/1") == []
    assert world.at(18.9) == []
    assert scheduled(world.at(19)) == ["a"]


def test_r2_a_run_that_waits_again_begins_anew() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(9, a="waiting")
    world.at(10, a="running")
    assert world.at(19.9) == []
    assert scheduled(world.at(20)) == ["a"]


def test_r2_a_state_that_is_not_known_is_like_silence() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(5, a="unknown")
    world.at(20, a="running")
    assert world.at(24.9) == []
    assert scheduled(world.at(25)) == ["a"]


def test_r2_a_state_that_is_not_known_before_it_runs_earns_nothing() -> None:
    world = equal()
    world.at(0, a="unknown")
    world.at(5, a="running")
    assert world.place("a").started_ns > 0
    assert world.at(14.9) == []
    assert scheduled(world.at(15)) == ["a"]


# -------------------------------------------------------------------------------------------- R3, R4: first available


def test_r3_the_first_available_keeps_the_job_and_all_others_are_cancelled() -> None:
    """the scheduler will cancel (kill) all other jobs and return the scheduled job and corresponding cluster to user."""
    world = Federation(a=50, b=50, c=50)
    world.accept()
    world.at(0, b="running")
    said = world.at(10, a="waiting")
    assert placed(said) == [("b", "FirstAvailable")]
    assert stops(said) == {"a": "NotEarliest", "c": "NotEarliest"}
    assert [type(event) for event in said[:2]] == [ev.JobScheduled, ev.JobPlaced], "the winner stands before any stop"


def test_r4_the_one_entering_running_earliest() -> None:
    """If more than one jobs are scheduled, the scheduler will keep only the one entering RUNNING state earliest"""
    world = equal()
    world.at(0, b="waiting")
    world.at(0.15, b="running")
    world.at(0.2, a="running")
    said = world.at(10.5)
    assert placed(said) == [("b", "FirstAvailable")]
    assert stops(said) == {"a": "NotEarliest"}


def test_r4_a_clusters_age_is_told_by_its_own_clock_so_that_its_skew_cancels_out() -> None:
    world = Federation(a=50, b=50, guard=0)
    world.skew_ms = {"a": -300_000, "b": 300_000}
    world.accept()
    world.silent("a", "b")
    world.runs["a"] = Run(name="mc-job-name-a", uid="", state="running", attempt=0, started_ms=world._clock_ms("a"))
    world.minute = 0.1
    world.runs["b"] = Run(name="mc-job-name-b", uid="", state="running", attempt=0, started_ms=world._clock_ms("b"))
    world.minute = 0.3
    world.back("a", "b")
    assert placed(world.at(0.3)) == [("a", "FirstAvailable")], "a's clock is ten minutes behind b's"


def test_r4_ties_by_priority_and_then_alias() -> None:
    world = Federation(b=50, a=50, c=50, guard=0)
    world.accept()
    assert placed(world.at(0, c="running", b="running", a="running")) == [("a", "FirstAvailable")]
    world = Federation(a=50, b=60, guard=0)
    world.accept()
    said = world.at(0, a="running", b="running")
    assert (scheduled(said), placed(said)) == (["b"], [("b", "FirstAvailable")])


# ----------------------------------------------------------------------------------------------- R5 to R9: priority


def test_r5_lower_priorities_are_cancelled_at_once() -> None:
    """then all jobs submitted to clusters whose priority is smaller than p_i will be cancelled intermediately"""
    world = three()
    world.at(0, mid="running")
    said = world.at(10)
    assert scheduled(said) == ["mid"]
    assert stops(said) == {"low": "LowerPriority"}
    assert placed(said) == []


def test_r5_equal_priorities_are_cancelled_as_well() -> None:
    world = Federation(a=50, b=50, c=90)
    world.accept()
    world.at(0, a="running")
    assert stops(world.at(10)) == {"b": "NotEarliest"}


def test_r6_higher_priorities_have_their_difference_times_the_time_scale() -> None:
    """C_j's job will not be cancelled until (p_j-p_i)*timeScale later"""
    world = three()
    world.at(0, low="running")
    assert scheduled(world.at(10)) == ["low"]
    assert world.at(49.9) == []
    assert stops(world.at(50)) == {"mid": "ExtraTimeOver"}
    assert world.at(99.9) == []
    said = world.at(100)
    assert stops(said) == {"high": "ExtraTimeOver"}
    assert placed(said) == [("low", "FirstAvailable")]


def test_r6_without_a_time_scale_nobody_has_extra_time() -> None:
    world = three(scale=0)
    world.at(0, low="running")
    said = world.at(10.2)
    assert placed(said) == [("low", "FirstAvailable")]
    assert stops(said) == {"mid": "ExtraTimeOver", "high": "ExtraTimeOver"}


def test_r7_who_is_scheduled_in_this_time_takes_over() -> None:
    """If C_j's job is successfully scheduled in this time, the scheduler will choose C_j as the execution cluster and
    cancel the job on lower priority cluster C_i."""
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(30, high="running")
    said = world.at(40)
    assert placed(said) == [("high", "FirstAvailable")]
    assert stops(said) == {"low": "LowerPriority"}


def test_r7_its_guard_time_must_end_within_the_extra_time() -> None:
    world = Federation(low=10, high=50)  # the extra time ends at 50
    world.accept()
    world.at(0, low="running")
    world.at(41, high="running")
    said = world.at(50)
    assert placed(said) == [("low", "FirstAvailable")]
    assert stops(said) == {"high": "ExtraTimeOver"}


def test_r7_with_its_end_is_within_it() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(40, high="running")
    assert placed(world.at(50)) == [("high", "FirstAvailable")]


def test_r7_an_answer_that_comes_late_still_counts_for_the_time_that_it_is_about() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(39, high="running")
    world.at(48.9)
    world.minute = 49.2  # the answers from between are only looked at now
    assert placed(world.at(49.3)) == [("high", "FirstAvailable")]


def test_r7_that_it_is_over_is_decided_on_an_answer_from_after_its_end() -> None:
    """The holder's answer alone does not tell whether C_j's job was successfully scheduled in this time."""
    world = Federation(low=10, high=50)  # the extra time ends at 50
    world.accept()
    world.at(0, low="running")
    world.at(39, high="running")
    world.at(48.9)
    assert [world.heard(minute, "low") for minute in (49.3, 49.7, 50.1)] == [[], [], []]
    assert placed(world.heard(50.2, "high")) == [("high", "FirstAvailable")]


def test_r7_whoever_is_silent_when_its_time_is_over_is_not_waited_for() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(40, high="waiting")
    world.silent("high")
    said = world.at(50)
    assert placed(said) == [("low", "FirstAvailable")]
    assert stops(said) == {"high": "ExtraTimeOver"}


def test_r7_nor_who_falls_silent_when_its_answer_was_waited_for() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(39, high="running")
    world.at(48.9)
    assert [world.heard(minute, "low") for minute in (49.3, 49.7, 50.1)] == [[], [], []]
    world.silent("high")
    assert placed(world.heard(50.2, "high")) == [("low", "FirstAvailable")]


def test_r8_after_a_switch_extra_times_begin_anew_and_end_no_later() -> None:
    world = three()
    world.at(0, low="running")
    assert scheduled(world.at(20, mid="running")) == ["low"]
    assert scheduled(world.at(30)) == ["mid"]
    assert world.at(79.9) == []
    said = world.at(80)  # 30 + (100 - 50); by the first switch it was 100
    assert placed(said) == [("mid", "FirstAvailable")]
    assert stops(said) == {"high": "ExtraTimeOver"}


def test_r9_nobody_is_cancelled_for_a_holder_that_is_silent() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(45)
    world.silent("low")
    assert world.at(70) == []
    world.back("low")
    said = world.at(71)
    assert placed(said) == [("low", "FirstAvailable")]
    assert stops(said) == {"high": "ExtraTimeOver"}


def test_r9_who_is_scheduled_while_the_holder_is_silent_takes_over_however_late() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(45)
    world.silent("low")
    world.at(70, high="running")
    said = world.at(80)
    assert placed(said) == [("high", "FirstAvailable")]
    assert stops(said) == {"low": "LowerPriority"}


def test_r9_a_holder_of_which_its_cluster_does_not_know_is_silent() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(49.9)
    assert world.at(50, low="unknown") == [], "that answer is from after the extra time, and tells nothing"
    assert world.at(70) == []
    world.at(75, high="running")
    assert placed(world.at(85)) == [("high", "FirstAvailable")]


@pytest.mark.parametrize("known", [False, True])
def test_r9_a_holder_that_is_silent_does_not_win_by_being_the_last(known: bool) -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running")
    world.at(20)
    if known:
        world.silent("low")
    else:
        world.at(20, low="unknown")
    assert world.at(25, high="failed") == []
    assert world.at(60) == []
    world.back("low")
    assert placed(world.at(61, low="running")) == [("low", "FirstAvailable")]


def test_r7_an_answer_without_news_is_written_down_where_a_time_ends() -> None:
    world = three()
    world.at(0, low="running", mid="waiting", high="waiting")
    said = []
    for minute in (9.9, 10, 49.9, 50, 99.9, 100, 120):
        before = len(world.log)
        world.at(minute)
        said.append({event.account for event in of_type(world.log[before:], ev.ClusterObserved)})
    low, mid, high = (world.place(alias).account for alias in ("low", "mid", "high"))
    assert said == [set(), {low}, set(), {low, mid}, set(), {low, high}, set()]


# ---------------------------------------------------------------------------------------------- R10 to R15: endings


def test_r10_who_succeeds_before_its_guard_time_ends_is_the_winner_at_once() -> None:
    world = three()
    world.at(0, low="running")
    said = world.at(3, low="succeeded")
    assert placed(said) == [("low", "Succeeded")]
    assert stops(said) == {"mid": "OtherSucceeded", "high": "OtherSucceeded"}


def test_r10_a_success_that_a_cancellation_came_too_late_for_counts() -> None:
    world = three()
    world.at(0, mid="running", low="running")
    assert stops(world.at(10)) == {"low": "LowerPriority"}
    assert placed(world.at(10.1, low="succeeded")) == [("low", "Succeeded")]


def test_r10_of_several_successes_the_highest_priority_and_then_the_alias() -> None:
    world = three()
    world.at(0, low="running", mid="running", high="waiting")
    assert placed(world.at(3, low="succeeded", mid="succeeded")) == [("mid", "Succeeded")]
    world = Federation(b=50, a=50)
    world.accept()
    assert placed(world.at(0.1, b="succeeded", a="succeeded")) == [("a", "Succeeded")]


def test_r6_parts_of_a_point_count() -> None:
    world = Federation(low=10, high=10.5, scale=10)
    world.accept()
    world.at(0, low="running")
    assert scheduled(world.at(10)) == ["low"]
    assert world.at(14.9) == []
    assert placed(world.at(15)) == [("low", "FirstAvailable")]


def test_r11_who_fails_within_its_guard_time_is_out_and_the_others_go_on() -> None:
    world = equal()
    world.at(0, a="running")
    assert world.at(9, a="failed", b="running") == []
    assert placed(world.at(19)) == [("b", "FirstAvailable")]


def test_r11_who_is_stopped_by_others_is_out() -> None:
    world = equal()
    world.at(0, a="running")
    assert world.at(5, a="stopped") == []
    assert placed(world.at(20, b="running")) == []
    assert placed(world.at(30)) == [("b", "FirstAvailable")]


def test_r12_a_holder_that_is_lost_before_the_decision_leaves_the_race_open() -> None:
    world = three()
    world.at(0, mid="running")
    assert stops(world.at(10)) == {"low": "LowerPriority"}
    assert world.at(20, mid="failed") == []
    assert world.at(200) == [], "no extra time without a holder"
    world.at(300, high="running")
    assert placed(world.at(310)) == [("high", "FirstAvailable")]


def test_r12_a_holder_in_another_attempt_must_run_for_a_guard_time_again() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running/0")
    assert scheduled(world.at(10)) == ["low"]
    assert world.at(20, low="running/1") == []
    assert world.at(29.9) == []
    assert scheduled(world.at(30)) == ["low"]
    assert world.at(69.9) == []
    assert placed(world.at(70)) == [("low", "FirstAvailable")]


def test_r13_when_nobody_is_left_the_job_is_placed_nowhere() -> None:
    world = equal()
    world.at(0, a="failed")
    said = world.at(1, b="stopped")
    assert [type(event) for event in said] == [ev.JobUnplaced, ev.JobSettled]


def test_r14_who_does_not_answer_is_not_elected() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(5)
    world.silent("a")
    assert world.at(120) == []


def test_r14_a_silent_loser_stays_possibly_running() -> None:
    world = equal()
    world.at(0, a="running", b="running")
    world.silent("b")
    assert placed(world.at(10)) == [("a", "FirstAvailable")]
    assert world.at(60) == []
    assert world.job.phase == "placed"
    world.back("b")
    assert [type(event) for event in world.at(61, b="stopped")] == [ev.JobSettled]


def test_r15_after_the_decision_nothing_is_started_again() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(10, b="stopped")
    assert world.at(20, a="failed") == []
    assert (world.job.phase, world.job.winner) == ("settled", "a")
    assert not world.state.submitting
    assert not world.state.stopping


def test_every_rule_has_its_tests() -> None:
    numbers = set(re.findall(r"^ ?(R\d+)\. ", rules.__doc__ or "", re.MULTILINE))
    names = (*globals(), *vars(test_places), *vars(test_forgotten))
    tested = {name.split("_")[1].upper() for name in names if name.startswith("test_r") and name[6].isdigit()}
    assert numbers == tested == {f"R{number}" for number in range(1, 23)}


def test_the_documentation_has_the_rules_word_by_word() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "federation.md").read_text(encoding="utf-8").split())
    stated = rules.__doc__ or ""
    for rule in re.split(r"\n(?= ?R\d+\. )", stated[stated.index("\n R1.") : stated.index("\n\n`guard`")]):
        number, _, words = " ".join(rule.split()).partition(". ")
        title, _, words = words.partition(". ")
        assert f"- **{number}. {title}.** {words}" in text or not number
