"""Subjects of the feed: escaping, and the patterns that people subscribe to."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import cloudevents
from events.cloudevents import NOTHING, PatternError, pattern_subject, subject, token

LONGEST = "a." * 126 + "a"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("train-1", "train-1"),
        ("model.v2", "model%2Ev2"),
        ("*", "%2A"),
        (">", "%3E"),
        ("a b", "a%20b"),
        ("50%", "50%25"),
        ("a/b", "a%2Fb"),
        ("ü", "%C3%BC"),
        ("a\r\nPUB x", "a%0D%0APUB%20x"),
        ("", "-"),
        ("-", "%2D"),
        ("--", "--"),
        (LONGEST, LONGEST.replace(".", "%2E")),
    ],
)
def test_a_name_becomes_one_token_and_comes_back(name: str, escaped: str) -> None:
    assert token(name) == escaped
    assert ("" if escaped == NOTHING else unquote(escaped)) == name


@given(st.text(max_size=253, alphabet=st.characters(codec="ascii")))
def test_escaping_is_reversible_for_every_name_that_kubernetes_could_have(name: str) -> None:
    escaped = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", escaped)
    assert "." not in escaped
    assert ("" if escaped == NOTHING else unquote(escaped)) == name


@given(st.text(), st.text())
def test_no_two_names_share_a_token(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)


@given(st.text(min_size=300, max_size=2_000))
def test_a_token_is_bounded_whatever_the_name(name: str) -> None:
    assert len(token(name)) <= cloudevents.MAX_TOKEN
    assert re.fullmatch(r"(?:[A-Za-z0-9_~-]|%[0-9A-F]{2})+", token(name))


def test_a_subject_names_what_has_no_namespace() -> None:
    assert subject("prod", "NodeObserved", "", "node-7.lan") == "muster-feed.prod.NodeObserved.-.node-7%2Elan"


@pytest.mark.parametrize(
    ("pattern", "filtered"),
    [
        ("GangPermitted", "muster-feed.prod.GangPermitted.>"),
        ("GangPermitted.default", "muster-feed.prod.GangPermitted.default.>"),
        ("GangPermitted.default.*", "muster-feed.prod.GangPermitted.default.*"),
        ("GangPermitted.default.model%2Ev2", "muster-feed.prod.GangPermitted.default.model%2Ev2"),
        ("*.team-a.>", "muster-feed.prod.*.team-a.>"),
        ("*.team-a", "muster-feed.prod.*.team-a.>"),
        ("*", "muster-feed.prod.*.>"),
        (">", "muster-feed.prod.>"),
        ("NodeObserved.-.*", "muster-feed.prod.NodeObserved.-.*"),
    ],
)
def test_a_pattern_becomes_the_subject_filter_of_the_feed(pattern: str, filtered: str) -> None:
    assert pattern_subject("prod", pattern) == filtered


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("GangPermited", "did you mean GangPermitted"),
        ("nonsense", "no event type 'nonsense'"),
        ("", "'' is neither"),
        ("GangPermitted..x", "'' is neither"),
        (
            "GangPermitted." + "x" * 760,
            "…: no part is longer than 759 characters",
        ),  # the connection was reset for half a minute
        ("GangPermitted.default.model.v2", "a dot within a name is written %2E"),
        (">.default", "must be last"),
        ("GangPermitted.de*", "'de*' is neither '*' nor '>' nor an escaped name; try '*'"),
        ("GangPermitted.default.web->", "try '*'"),
        ("GangPermitted.a b", "try 'a%20b'"),
    ],
)
def test_a_bad_pattern_says_what_was_expected(pattern: str, complaint: str) -> None:
    with pytest.raises(PatternError, match=re.escape(complaint)):
        pattern_subject("prod", pattern)


def test_a_bad_cluster_is_named() -> None:
    with pytest.raises(PatternError, match=r"cluster 'a.b'"):
        pattern_subject("a.b", "GangPermitted")
