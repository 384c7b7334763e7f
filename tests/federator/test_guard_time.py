"""R2: what earns guard time. Given answers, each with the minute at which it was asked for and that at which it came."""

from __future__ import annotations

import events as ev
from events.federation import RunSeen
from services.federator import observing
from services.federator.backends import RUNNING, UNKNOWN
from tests.federator.world import EPOCH_NS, MINUTE_NS, Federation, equal, scheduled

A = "a@a"


class Answers:
    """Of cluster ``a``, to a federation with a guard time of ten minutes."""

    def __init__(self, world: Federation) -> None:
        self.world = world
        self.began_ns = world.state.now_ns
        self.minute = 0.0

    def ns(self, minute: float) -> int:
        return self.began_ns + int(minute * MINUTE_NS)

    def run(self, state: str, attempt: int = 0, *, since: float = 0) -> RunSeen:
        return RunSeen(job="u1", cluster="a", state=state, attempt=attempt, started_ns=self.ns(since))

    def came(self, asked: float, came: float, *runs: RunSeen, account: str = A) -> list[str]:
        """Which clusters have scheduled the job by that?"""
        return self._say(came, ev.ClusterObserved(account=account, asked_ns=self.ns(asked), runs=runs))

    def failed(self, asked: float, came: float, account: str = A) -> list[str]:
        """`asked`: when it was asked last before it fell silent."""
        return self._say(came, ev.ClusterSilent(account=account, reason="no answer", asked_ns=self.ns(asked)))

    def _say(self, minute: float, said: ev.Event) -> list[str]:
        """A federator's clock goes by small steps: what is more counts for none."""
        while self.minute < minute:
            self.minute = min(self.minute + 1 / 6, minute)
            self.world.append(observing.ticked(self.world.state, EPOCH_NS + int(self.minute * MINUTE_NS)))
        self.world.append(said)
        return scheduled(self.world.decide())


def running(attempt: int = 0) -> Answers:
    """It runs from the beginning."""
    answers = Answers(equal())
    assert answers.came(0, 0, answers.run(RUNNING, attempt)) == []
    return answers


def test_it_runs_from_the_answer_that_shows_it_on_and_not_from_the_question() -> None:
    answers = Answers(equal())
    assert answers.came(1, 3, answers.run(RUNNING, since=1)) == []
    assert answers.came(12.9, 12.9) == []
    assert answers.came(13, 13) == ["a"]


def test_it_ends_with_an_answer_to_a_question_from_after_its_end() -> None:
    answers = running()
    assert answers.came(9.9, 12) == []
    assert answers.came(12, 12) == ["a"]


def test_a_question_from_the_future_is_one_of_now() -> None:
    """Whoever asked had another clock."""
    answers = running()
    assert answers.came(20, 9) == []
    assert answers.came(10, 10) == ["a"]


def test_an_answer_that_another_overtook_neither_earns_anything_again_nor_takes_it_back() -> None:
    answers = running()
    assert answers.came(6, 6) == []
    assert answers.came(4, 7) == []
    assert answers.came(9.9, 9.9) == []
    assert answers.came(10, 10) == ["a"]


def test_what_is_seen_running_again_goes_on() -> None:
    """As by a federator that takes over."""
    answers = running()
    assert answers.came(5, 6, answers.run(RUNNING)) == []
    assert answers.came(9.9, 9.9) == []
    assert answers.came(10, 10) == ["a"]


def test_a_cluster_that_does_not_know_for_a_while_keeps_what_the_attempt_earned() -> None:
    """Five minutes; and five from the answer that shows it again."""
    answers = running(attempt=2)
    assert answers.came(5, 5, answers.run(UNKNOWN)) == []
    assert answers.came(6, 8, answers.run(RUNNING, 2)) == []
    assert answers.came(12.9, 12.9) == []
    assert answers.came(13, 13) == ["a"]


def test_silence_begins_with_the_last_question_that_was_answered() -> None:
    answers = running()
    assert answers.failed(3, 5) == []
    assert answers.came(6, 6) == []
    assert answers.came(12.9, 12.9) == []
    assert answers.came(13, 13) == ["a"]


def test_also_where_that_is_one_from_the_future() -> None:
    answers = running()
    assert answers.failed(20, 5) == []
    assert answers.came(6, 6) == []
    assert answers.came(10.9, 10.9) == []
    assert answers.came(11, 11) == ["a"]


def test_what_is_said_of_runs_that_nobody_waits_for_changes_nothing() -> None:
    """Of jobs that are not known, and of one that the cluster has not taken."""
    world = Federation(a=50, b=50)
    answers = Answers(world)
    of_nobody = RunSeen(job="nobody", cluster="a", state=RUNNING, attempt=0, started_ns=answers.ns(0))
    answers.came(1, 1, of_nobody, answers.run(RUNNING))
    assert world.place("a").run == ""
    assert answers.came(20, 20) == []


def test_what_is_said_of_clusters_that_nobody_knows_is_ignored_and_counted() -> None:
    answers = running()
    assert answers.came(1, 1, account="nobody@nowhere") == []
    assert answers.failed(1, 1, account="nobody@nowhere") == []
    assert answers.world.state.ignored == {"ClusterObserved": 1, "ClusterSilent": 1}
