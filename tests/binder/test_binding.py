"""From an answer of the API server to an outcome (design, rule 5): a definite answer settles, an open one does not."""

from __future__ import annotations

import pytest

import events as ev
from services.binder.binding import Intent, Seen, outcome, settled_by

INTENT = Intent("uid", "default", "web", "n0", "7")


@pytest.mark.parametrize(
    ("answer", "assigned", "expected"),
    [
        ("bound", "", "PodBound"),
        ("assigned", "n0", "PodBound"),
        ("assigned", "n1", "AlreadyAssigned"),
        ("forbidden", "", "Forbidden"),
        ("rejected", "", "Rejected"),
        ("precondition", "", None),
        ("gone", "", None),
        ("unknown", "", None),
        ("", "", None),
    ],
)
def test_only_a_definite_answer_is_an_outcome(answer: str, assigned: str, expected: str | None) -> None:
    found = outcome(INTENT, answer, "why", assigned)
    assert (None if found is None else getattr(found, "reason", type(found).__name__)) == expected
    if isinstance(found, ev.BindingFailed):
        assert (found.node, found.message, found.assigned_node) == ("n0", "why", assigned)


@pytest.mark.parametrize(
    ("seen", "expected", "message"),
    [
        (None, "PodGone", "pod default/web is gone"),
        (Seen("another", "9", "", False, False, False), "PodGone", "pod default/web is gone"),
        (Seen("uid", "9", "n0", False, False, False), "PodBound", None),
        (Seen("uid", "9", "n1", False, False, False), "AlreadyAssigned", "already assigned to node n1"),
        (Seen("uid", "9", "n0", True, False, False), "PodBound", None),
        (Seen("uid", "9", "", True, False, False), "PodGone", "pod default/web is being deleted"),
        (Seen("uid", "9", "", False, False, True), "PodGone", "pod default/web has ended"),
        (Seen("uid", "9", "", False, True, False), "Rejected", "pod default/web has scheduling gates"),
        (Seen("uid", "9", "", False, False, False), "BindingRenewed", None),
    ],
)
def test_after_a_failed_precondition_the_pod_itself_says(seen: Seen | None, expected: str, message: str | None) -> None:
    found = settled_by(INTENT, seen, "why")
    assert getattr(found, "reason", type(found).__name__) == expected
    assert getattr(found, "message", None) == message
    assert (found.uid, found.namespace, found.name, found.node) == ("uid", "default", "web", "n0")


def test_a_renewed_intent_has_the_version_that_was_seen() -> None:
    renewed = settled_by(INTENT, Seen("uid", "9", "", False, False, False), "why")
    assert isinstance(renewed, ev.BindingRenewed)
    assert renewed.resource_version == "9"


def test_a_conflict_about_a_pod_that_did_not_change_is_a_refusal() -> None:
    """A webhook may answer 409, or 404. Renewed, the intent would be the same, and be refused and renewed for ever."""
    refused = settled_by(INTENT, Seen("uid", "7", "", False, False, False), "why")
    assert isinstance(refused, ev.BindingFailed)
    assert (refused.reason, refused.message) == ("Rejected", "why")
