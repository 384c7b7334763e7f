"""When a client leaves a server, without servers: only the times of what was asked count."""

from __future__ import annotations

import pytest

from events.leaderless import GIVEN_UP_AFTER_S, LEFT_AFTER_S, Leaderless

INFO = "$JS.API.STREAM.INFO.muster-c"
OTHER = "muster.c.binder"


def asked_for(leaderless: Leaderless, question: str, until_s: float, since_s: float = 0.0) -> list[float]:
    """Once a second, never answered: when it was time to leave."""
    times = [since_s + second for second in range(int(until_s - since_s) + 1)]
    return [now_s for now_s in times if leaderless.unanswered(question, now_s, now_s)]


def test_a_question_that_is_never_answered_is_a_reason_to_leave() -> None:
    assert asked_for(Leaderless(), INFO, LEFT_AFTER_S + 1) == [LEFT_AFTER_S, LEFT_AFTER_S + 1]


def test_an_answer_to_another_question_is_none_to_this() -> None:
    leaderless = Leaderless()
    assert asked_for(leaderless, INFO, LEFT_AFTER_S - 1) == []
    leaderless.answered(OTHER)
    assert leaderless.unanswered(INFO, LEFT_AFTER_S, LEFT_AFTER_S)


def test_an_answer_ends_the_wait() -> None:
    leaderless = Leaderless()
    asked_for(leaderless, INFO, LEFT_AFTER_S - 1)
    leaderless.answered(INFO)
    assert not leaderless.unanswered(INFO, LEFT_AFTER_S, LEFT_AFTER_S)


def test_a_question_that_is_not_asked_any_more_is_forgotten() -> None:
    leaderless = Leaderless()
    asked_for(leaderless, INFO, 3)
    asked_for(leaderless, OTHER, 3 + GIVEN_UP_AFTER_S)
    assert list(leaderless._asked) == [OTHER]
    again_s = 4 + GIVEN_UP_AFTER_S
    assert not leaderless.unanswered(INFO, again_s, again_s)


@pytest.mark.parametrize("lease_s", [2, 10, 60])
def test_who_waits_for_a_lease_leaves_however_long_that_is(lease_s: int) -> None:
    """A standby asks five times in a lease's time, each time for a third of it; a holder renews after a third. As it was,
    with MUSTER_LEASE_S of 10 and more each question was taken for a new one."""
    for pause_s in (lease_s / 5, lease_s / 3):
        leaderless, asked_s, times = Leaderless(), 0.0, 1
        while not leaderless.unanswered(OTHER, asked_s, asked_s + lease_s / 3):
            asked_s, times = asked_s + lease_s / 3 + pause_s, times + 1
            assert asked_s < LEFT_AFTER_S + lease_s
        assert times > 1, "one answer that does not come says nothing"


def test_another_server_is_given_as_long() -> None:
    leaderless = Leaderless()
    asked_for(leaderless, INFO, LEFT_AFTER_S)
    leaderless.forget()
    assert asked_for(leaderless, INFO, 2 * LEFT_AFTER_S - 1, since_s=LEFT_AFTER_S) == []


def test_leaders_in_another_domain_are_no_reason_to_leave() -> None:
    assert asked_for(Leaderless(), "$JS.prod.API.STREAM.INFO.muster-prod", 10 * LEFT_AFTER_S) == []
