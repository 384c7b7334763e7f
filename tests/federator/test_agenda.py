"""When what settled nothing is tried again."""

from __future__ import annotations

import pytest

from services.federator.service import agenda
from services.federator.service.agenda import Agenda

KEY = ("job", "a")


def test_ever_more_seldom_and_from_the_beginning_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda.random, "uniform", lambda _, most: most)
    found = Agenda()
    for _ in range(8):
        found.again(KEY, 1_000.0)
    found.again(KEY, 1_000.0, at_least_s=90.0)  # a cluster said so
    found.done(KEY)
    found.again(KEY, 1_000.0)
    found.again(KEY, 1_000.0)
    found.hasten(KEY, 1_000.0)
    found.again(KEY, 1_000.0)
    due = [due_s - 1_000.0 for due_s, number, _ in sorted(found.due, key=lambda entry: entry[1])]
    assert due == [1, 2, 4, 8, 16, 32, 60, 60, 90, 1, 2, 0, 1]


async def test_the_last_word_on_when_a_key_is_due_counts() -> None:
    """And of a key that nobody waits for none is taken."""
    found = Agenda()
    for key in (KEY, ("job", "b")):
        found.add(key, 3_600.0 * 24 * 365 * 100)
    found.hasten(KEY, 0.0)
    assert await found.next() == KEY
    found.hasten(KEY, 0.0)
    found.hasten(("job", "b"), 0.0)
    assert await found.next() == ("job", "b")
    assert not found.entries


async def test_of_a_cluster_that_answers_again_everything_is_due_and_nothing_is_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agenda.random, "uniform", lambda _, most: most)
    found, other = Agenda(), ("job", "b")
    for _ in range(8):
        found.again(KEY, 1e9)
        found.again(other, 1e9)
    del found.entries[other]  # under way
    found.renew(0.0)
    assert await found.next() == KEY
    found.again(KEY, 1e9)
    found.again(other, 1e9)
    assert {key: due_s - 1e9 for due_s, number, key in found.due if found.entries[key] == number} == {KEY: 1, other: 1}
