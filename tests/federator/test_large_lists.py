"""What one list shows of more places than a commit can take."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.federation import RunSeen
from events.log import MAX_COMMIT_BYTES
from services.federator import observing
from services.federator.backends import LONGEST_WORD
from tests.federator.field import Field


def seen(number: int) -> RunSeen:
    """The longest there is."""
    uid, alias = "f" * 16 + ".f" * 8, "a" * LONGEST_WORD
    return RunSeen(job=uid, cluster=alias, state="succeeded", attempt=1 << 53, started_ns=number + (1 << 62))


def test_what_is_seen_of_many_places_is_cut_into_commits_that_the_log_takes() -> None:
    """As it was: the federator ended, and so did the next one."""
    runs = tuple(map(seen, range(60_000)))
    before, behind = ev.Ticked(time_ns=1, jumped_ns=0), ev.RunReleased(job="u1", cluster="a")
    commits = [*observing.commits([before, ev.ClusterObserved(account="a", asked_ns=5, runs=runs), behind])]
    assert len(msgspec.json.encode(runs)) > MAX_COMMIT_BYTES
    assert all(len(msgspec.json.encode(commit)) < MAX_COMMIT_BYTES // 2 for commit in commits)
    observed = [event for commit in commits for event in commit if isinstance(event, ev.ClusterObserved)]
    assert tuple(run for event in observed for run in event.runs) == runs
    assert {(event.account, event.asked_ns) for event in observed} == {("a", 5)}
    assert (commits[0][0], commits[-1][-1]) == (before, behind)
    assert [*observing.commits([before, behind])] == [[before, behind]]


@pytest.mark.parametrize("kind", [ev.RunReleased, ev.RemainsFound, ev.SubmissionHeld])
def test_what_else_is_seen_of_many_places_is_cut_as_well(kind: type[ev.Event]) -> None:
    """A cluster that was away while tens of thousands of runs were released: as it was, the federator ended, and so did
    the next one."""
    uid, longest = "f" * 16 + ".f" * 8, "a" * LONGEST_WORD
    about = {"job": uid, "cluster": longest, "name": longest, "uid": longest, "adopted": False}
    told = [kind(**{name: about[name] for name in kind.__struct_fields__})] * 60_000
    sight = ev.ClusterObserved(account="a", asked_ns=5, runs=tuple(map(seen, range(30_000))))
    commits = [*observing.commits([ev.Ticked(time_ns=1, jumped_ns=0), *told, sight, *told])]
    assert len(msgspec.json.encode(told)) > MAX_COMMIT_BYTES
    assert all(len(msgspec.json.encode(commit)) < MAX_COMMIT_BYTES for commit in commits)
    assert [event for commit in commits for event in commit if isinstance(event, kind)] == told * 2


async def test_nothing_is_decided_before_all_of_a_list_is_in_the_log(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "MOST_SEEN", 2)
    field.cluster("a", waiting_ms=50)
    await field.start()
    names = [f"train-{number}" for number in range(7)]
    for name in names:
        await field.federate(name, a=0)
    await field.settled(*names)
    assert all(field.job(name).winner == "a" for name in names)
    asked = [event.asked_ns for event in field.said() if isinstance(event, ev.ClusterObserved)]
    assert len(asked) > len(set(asked)), "a list was cut"
    assert not field.folded().ignored
