"""R16 to R21, by their numbers: doubt, names, and how a job's place on a cluster comes to its end."""

from __future__ import annotations

import pytest

import events as ev
from services.federator import core, observing
from services.federator.backends import Accepted, Described, InDoubt, Listing, NotSent, Owner, Refused, Run
from services.federator.core import name_described
from services.federator.records import account_of
from tests.federator.world import Federation, equal, of_type, placed, stops

OURS = Owner(federation="fed", job="u1", cluster="a")
ACCOUNT = account_of("a", "a")

# -------------------------------------------------------------------------------------- R16, R17: doubt and names


def test_r16_a_refusal_settles_nothing_while_an_earlier_attempt_is_in_doubt() -> None:
    world = Federation(a=50, b=50)
    world.answer("a", InDoubt(reason="no answer"))
    world.answer("a", Refused(code="ForbiddenUserError", message="", of_content=False))
    assert ("u1", "a") in world.state.submitting
    assert world.place("a").contends
    world.answer("a", Accepted(uid=""))
    assert world.place("a").phase == "submitted"


def test_r16_what_is_held_and_refused_is_stopped_unless_it_is_already() -> None:
    """An answer that comes behind the decision adds nothing: whatever the federator says changes something."""
    refused = Refused(code="Forbidden", message="", of_content=False)
    world = Federation(a=50, b=50)
    for alias in ("a", "b"):
        world.answer(alias, Accepted(uid=f"uid of {alias}", held=True))
    said = core.release_refused(world.job, world.place("a"), refused)
    assert said is not None
    world.append(said)
    assert (world.place("a").phase, world.place("a").stopped_for) == ("stopping", "NotReleased")
    world.append(ev.JobCancelled(job="u1"))
    assert stops(world.decide()) == {"b": "Cancelled"}
    assert core.release_refused(world.job, world.place("b"), refused) is None


def test_r18_a_stop_that_is_refused_behind_its_end_adds_nothing() -> None:
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    world.at(0, a="running", b="waiting")
    world.at(10)
    refused = Refused(code="Forbidden", message="", of_content=False)
    assert core.stop_answered(world.job, world.place("b"), refused) == ev.StopRefused(
        job="u1", cluster="b", code="Forbidden", message=""
    )
    world.at(12, b="stopped")
    assert world.state.intends(("u1", "b")), "it is to be cleared"
    assert core.stop_answered(world.job, world.place("b"), refused) is None


def test_r16_what_was_taken_is_not_refused_any_more_and_its_stop_may_be() -> None:
    """As it was: `status` went on telling of the refusal, and a stop that was refused for the same was told nowhere."""
    expired = Refused(code="UnauthorizedUserError", message="", of_content=False)
    world = Federation(a=10, b=20)
    world.answer("a", InDoubt(reason="no answer"))
    world.answer("a", expired)
    assert world.place("a").refusal == expired.code
    world.answer("a", Accepted(uid=""))
    world.accept("b")
    assert world.place("a").refusal == ""
    world.at(1, a="waiting", b="running")
    world.at(12)
    assert world.place("a").phase == "stopping"
    assert isinstance(core.stop_answered(world.job, world.place("a"), expired), ev.StopRefused)


def test_r16_a_refusal_of_the_content_settles_earlier_attempts_too() -> None:
    world = Federation(a=50, b=50)
    world.answer("a", InDoubt(reason="no answer"))
    world.answer("a", Refused(code="InvalidProtocolError", message="", of_content=True))
    assert world.place("a").phase == "ended"


def test_r16_a_refusal_without_doubt_settles_it() -> None:
    world = Federation(a=50, b=50)
    world.answer("a", Refused(code="ForbiddenUserError", message="", of_content=False))
    assert world.place("a").phase == "ended"


def test_r16_another_process_has_everything_in_doubt_that_it_finds_intended() -> None:
    world = Federation(a=50, b=50)
    world.restart()
    world.answer("a", Refused(code="ForbiddenUserError", message="", of_content=False))
    assert world.place("a").phase == "submitting"


def test_r16_in_doubt_and_unwanted_it_is_repeated_and_then_stopped() -> None:
    world = Federation(a=50, b=50)
    world.answer("b", InDoubt(reason="no answer"))
    world.accept("a")
    world.at(0, a="running")
    assert stops(world.at(10)) == {"b": "NotEarliest"}
    assert world.place("b").phase == "abandoned"
    assert world.answer("b", NotSent(reason="refused"), tried=True) is None
    assert ("u1", "b") in world.state.submitting
    world.answer("b", Accepted(uid=""))
    assert list(world.state.stopping) == [("u1", "b")]


def test_r16_unwanted_and_never_sent_it_is_withdrawn() -> None:
    world = Federation(a=50, b=50)
    world.accept("a")
    world.at(0, a="running")
    world.at(10)
    assert world.answer("b", NotSent(reason="refused"), tried=True) is None
    world.answer("b", NotSent(reason="refused"), tried=False)
    assert [type(event) for event in world.decide()] == [ev.JobSettled]


def test_r16_of_a_further_name_nobody_knows_that_it_was_never_sent() -> None:
    """A log that was set back may have lost that it was."""
    world = Federation(a=50, b=50)
    world.accept("a")
    world.append(ev.NameTaken(job="u1", cluster="b"))
    world.append(*world.decide())
    world.at(0, a="running")
    assert stops(world.at(10)) == {"b": "NotEarliest"}
    assert world.answer("b", NotSent(reason="refused"), tried=False) is None
    world.answer("b", Refused(code="BodyGone", message="", of_content=True), tried=True)
    assert world.place("b").phase == "ended"


def test_r16_what_may_have_been_sent_is_never_withdrawn() -> None:
    world = Federation(a=50, b=50)
    world.accept("a")
    world.at(0, a="running")
    world.at(10)
    world.restart()
    assert world.answer("b", NotSent(reason="refused"), tried=False) is None
    world.append(ev.SubmissionWithdrawn(job="u1", cluster="b"))
    assert world.place("b").phase == "abandoned"


def test_r16_after_a_lost_answer_it_finds_and_adopts_its_own() -> None:
    world = Federation(a=50, b=50)
    run = Run(name="mc-job-name-a", uid="7", state="waiting", attempt=0, started_ms=0)
    said = name_described(world.job, world.place("a"), OURS, Described(run=run, owner=OURS))
    assert said == ev.SubmissionAccepted(job="u1", cluster="a", uid="7", adopted=True)


def test_r17_a_name_that_somebody_else_has_is_left_alone() -> None:
    world = Federation(a=50, b=50)
    run = Run(name="mc-job-name-a", uid="", state="running", attempt=0, started_ms=0)
    for owner in (
        None,
        Owner(federation="other", job="u1", cluster="a"),
        Owner(federation="fed", job="u1", cluster="b"),
    ):
        said = name_described(world.job, world.place("a"), OURS, Described(run=run, owner=owner))
        assert said == ev.NameTaken(job="u1", cluster="a")
    world.append(ev.NameTaken(job="u1", cluster="a"))
    assert world.decide() == [ev.SubmissionIntended(job="u1", cluster="a", name="mc-job-name-a-2", number=2)]
    world.append(ev.NameTaken(job="u1", cluster="a"))
    assert [event.name for event in of_type(world.decide(), ev.SubmissionIntended)] == ["mc-job-name-a-3"]
    world.append(ev.NameTaken(job="u1", cluster="a"))
    assert stops(world.decide()) == {"a": "NoName"}
    assert world.place("a").phase == "ended"


# ------------------------------------------------------------------------------------------------ R18, R19: settled


def test_r18_settled_only_when_each_loser_was_seen_to_have_ended() -> None:
    world = Federation(a=50, b=50, c=50)
    world.accept()
    world.at(0, a="running", b="running", c="waiting")
    world.at(10, b="stopping", c="waiting")
    assert world.at(11, b="stopped") == []
    assert world.at(12, c="stopping") == []
    assert world.at(13, c="failed") == [ev.JobSettled(job="u1")]


def test_r19_cancelled_by_its_user_every_run_is_stopped() -> None:
    world = equal()
    world.at(0, a="running")
    world.append(ev.JobCancelled(job="u1"))
    assert stops(world.decide()) == {"a": "Cancelled", "b": "Cancelled"}
    assert world.at(1, a="stopped") == []
    assert world.at(2, b="stopped") == [ev.JobSettled(job="u1")]


def test_r19_the_winner_as_well() -> None:
    world = equal()
    world.at(0, a="running")
    world.at(10)
    assert world.at(11, b="stopped") == [ev.JobSettled(job="u1")]
    world.append(ev.JobCancelled(job="u1"))
    assert stops(world.decide()) == {"a": "Cancelled"}
    assert world.at(12, a="stopped") == [ev.JobSettled(job="u1")]


# -------------------------------------------------------------------------------------------------- R20, R21: gone


def identified(**given: float) -> Federation:
    """Both clusters know their runs by identities; `a` is the winner, and `b` is being stopped."""
    world = Federation(a=50, b=50, **given)
    world.accept(identified=True)
    world.at(0, a="running", b="waiting")
    world.at(10)
    return world


def test_r20_a_run_that_was_seen_and_deleted_has_ended() -> None:
    world = identified()
    world.delete("b")
    assert world.at(11) == [ev.JobSettled(job="u1")]
    assert world.place("b").run == "gone"


def test_r20_what_goes_on_or_has_its_name_leaves_it_possibly_running() -> None:
    world = identified()
    world.delete("b", left=True)
    assert world.at(11) == []
    assert (world.place("b").phase, world.place("b").run) == ("stopping", "unknown")
    world.left.clear()
    assert world.at(12) == [ev.JobSettled(job="u1")]


def test_r20_while_another_attempt_may_land_it_stays_possibly_running() -> None:
    world = Federation(a=50, b=50)
    world.accept("a", identified=True)
    world.answer("b", InDoubt(reason="no answer"))
    world.accept("b", identified=True)
    world.at(0, a="running", b="waiting")
    world.at(10)
    world.delete("b")
    assert world.at(60) == []
    assert world.place("b").run == "unknown"


def test_r20_one_that_was_found_with_our_marker_stays_possibly_running() -> None:
    """Whose attempt made it is not known, nor how many there were."""
    world = Federation(a=50, b=50)
    world.accept("a", identified=True)
    owner = Owner(federation="fed", job="u1", cluster="b")
    run = Run(name=world.place("b").name, uid="uid of b", state="waiting", attempt=0, started_ms=0)
    world.append(core.name_described(world.job, world.place("b"), owner, Described(run=run, owner=owner)))
    world.at(0, a="running", b="waiting")
    world.at(10)
    world.delete("b")
    assert world.at(60) == []


def test_r20_without_an_identity_it_stays_possibly_running() -> None:
    world = equal()
    world.at(0, a="running", b="waiting")
    world.at(10)
    world.delete("b")
    assert world.at(60) == []
    assert (world.place("b").phase, world.place("b").run) == ("stopping", "unknown")


def test_r20_it_need_not_have_been_seen() -> None:
    """The cluster is asked for it by name, behind its acceptance."""
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    world.left.add("b")
    world.at(0, a="running")
    assert placed(world.at(10)) == [("a", "FirstAvailable")]
    assert world.place("b").phase == "stopping"
    world.left.clear()
    assert world.at(11) == [ev.JobSettled(job="u1")]


def test_r20_where_submissions_are_held_doubt_does_not_matter() -> None:
    """What lands late there never runs."""
    world = Federation(a=50, b=50)
    world.accept("a", identified=True)
    world.answer("b", InDoubt(reason="no answer"))
    world.answer("b", Accepted(uid="uid of b", held=True))
    world.at(0, a="running", b="waiting")
    world.at(10)
    world.delete("b")
    assert world.at(11) == [ev.JobSettled(job="u1")]


def test_r20_in_the_race_it_is_out_and_a_holder_is_lost() -> None:
    world = Federation(low=10, high=50)
    world.accept(identified=True)
    world.at(0, low="running", high="waiting")
    world.at(10)
    assert world.job.holder == "low"
    world.delete("low")
    assert world.at(11) == []
    assert (world.job.holder, [place.cluster for place in world.job.contenders()]) == ("", ["high"])
    world.at(12, high="running")
    assert placed(world.at(22)) == [("high", "FirstAvailable")]


def test_r21_what_an_operator_gives_up_lets_the_job_settle() -> None:
    world = equal()
    world.at(0, a="running", b="running")
    world.silent("b")
    world.at(10)
    assert world.job.phase == "placed"
    assert world.give_up("b") == [ev.JobSettled(job="u1")]
    said = next(event for event in world.log if isinstance(event, ev.RunGivenUp))
    assert said == ev.RunGivenUp(job="u1", cluster="b", by="ann", reason="it was decommissioned")
    assert world.place("b").given_up == "ann"


def test_r21_a_refusal_behind_a_lost_answer_ends_with_it() -> None:
    world = Federation(a=50, b=50)
    world.answer("b", InDoubt(reason="no answer"))
    world.answer("b", Refused(code="ForbiddenUserError", message="", of_content=False))
    world.accept("a")
    world.at(0, a="running")
    world.at(10)
    assert world.place("b").phase == "abandoned"
    assert world.give_up("b") == [ev.JobSettled(job="u1")]
    assert not world.state.submitting


def test_r21_nothing_is_asked_of_the_cluster_for_it_any_more_and_a_late_answer_changes_nothing() -> None:
    world = Federation(a=50, b=50)
    world.accept("a")
    world.at(0)
    world.give_up("b")
    assert not world.state.submitting
    world.append(ev.SubmissionAccepted(job="u1", cluster="b", uid="", adopted=False))
    assert (world.place("b").phase, world.state.ignored) == ("ended", {"SubmissionAccepted": 1})


def test_r21_what_the_cluster_shows_cannot_be_given_up() -> None:
    world = equal()
    world.at(0, a="running", b="waiting")
    world.at(10, b="stopping")
    with pytest.raises(core.KeptUp, match="the cluster answers and shows it: stopping"):
        world.give_up("b")
    world.at(11, b="stopped")
    with pytest.raises(core.KeptUp, match="it has ended already"):
        world.give_up("b")


def test_r21_another_federator_asks_the_cluster_first() -> None:
    """As it was: right behind a takeover nothing had been shown to it, and what ran was given up."""
    world = equal()
    world.at(0, a="running", b="waiting")
    world.restart()
    with pytest.raises(core.KeptUp, match="nobody knows yet whether the cluster answers and shows it"):
        world.give_up("a")
    world.silent("a")
    world.at(1)
    world.give_up("a")
    assert world.place("a").phase == "ended"


def test_r21_in_the_race_the_last_that_is_given_up_leaves_the_job_nowhere() -> None:
    world = equal()
    world.at(0, a="running")
    world.silent("a", "b")
    world.at(1)
    assert world.give_up("a") == []
    assert [type(event) for event in world.give_up("b")] == [ev.JobUnplaced, ev.JobSettled]


def test_r21_a_holder_that_is_given_up_is_lost() -> None:
    world = Federation(low=10, high=50)
    world.accept()
    world.at(0, low="running", high="waiting")
    world.at(10)
    world.silent("low")
    world.at(11)
    assert world.give_up("low") == []
    assert (world.job.holder, world.place("low").phase) == ("", "ended")


# ------------------------------------------------------------------------------------------------- what comes late


def held(alias: str, *uids: str) -> Listing:
    owner = Owner(federation="fed", job="u1", cluster=alias)
    runs = [Run(name=f"n-{uid}", uid=uid, state="waiting", attempt=0, started_ms=0, held=True) for uid in uids]
    return Listing(runs=(), clock_ms=0, held=tuple(Described(run=run, owner=owner) for run in runs))


def test_of_what_comes_late_one_after_the_other_is_cleared() -> None:
    world = Federation(a=50, b=50)
    world.at(0)
    world.append(ev.JobCancelled(job="u1"))
    world.answer("a", Accepted(uid="x", held=True))
    world.decide()
    found = observing.remains(world.state, ACCOUNT, "fed", held("a", "y", "z"))
    assert [remains.uid for remains in found] == ["y"]
    world.append(*found)
    assert observing.remains(world.state, ACCOUNT, "fed", held("a", "y", "z")) == []
    world.append(ev.RemainsCleared(job="u1", cluster="a", uid="y"))
    assert [remains.uid for remains in observing.remains(world.state, ACCOUNT, "fed", held("a", "z"))] == ["z"]
    assert not world.state.ignored


def test_what_a_cluster_says_of_a_run_on_another_is_not_believed() -> None:
    """As it was: one that lied had runs of other clusters cleared, there and with the federator's rights."""
    world = Federation(a=50, b=50)
    world.accept(identified=True)
    lie = held("a", "uid of somebody's run")
    assert observing.remains(world.state, account_of("b", "b"), "fed", lie) == []
    assert len(observing.remains(world.state, ACCOUNT, "fed", lie)) == 1


def test_a_list_from_before_a_release_does_not_clear_a_winner_that_ended() -> None:
    """It shows as held what was let go meanwhile, ran, and succeeded; what is left of it is its user's."""
    world = Federation(a=50, b=50)
    for alias in ("a", "b"):
        world.answer(alias, Accepted(uid=f"uid of {alias}", held=True))
    world.append(ev.RunReleased(job="u1", cluster="a"))
    assert placed(world.at(0.1, a="succeeded", b="waiting")) == [("a", "Succeeded")]
    assert observing.remains(world.state, ACCOUNT, "fed", held("a", "uid of a")) == []
    (late,) = observing.remains(world.state, ACCOUNT, "fed", held("a", "another"))
    assert late.uid == "another"


def test_r21_what_is_held_still_where_it_was_given_up_is_cleared() -> None:
    world = Federation(a=50, b=50)
    world.answer("a", Accepted(uid="uid of a", held=True))
    world.silent("a")
    world.at(0)
    world.give_up("a")
    (late,) = observing.remains(world.state, ACCOUNT, "fed", held("a", "uid of a"))
    assert late.uid == "uid of a"
