"""What all books share: who is due, what is over, and how integers are read."""

from __future__ import annotations

import pytest

from services.ingest.books.ledger import Ledger
from services.ingest.references import Reference
from services.ingest.rejection import MOST, Rejection, integer
from tests.ingest.objects import ingest, names, pod_group


def test_of_who_names_what_changed_so_many_are_due_at_a_time() -> None:
    """However many name it: each is a fact that may have to be written, and others wait for their turn."""
    ledger = Ledger()
    naming = [Reference("Pod", f"{number}") for number in range(5)]
    for one in naming:
        ledger.references.put(one, Reference("Workload", "a/w"))
    ledger.changed(Reference("Workload", "a/w"))
    assert [ledger.due(2), ledger.due(2), ledger.due(2)] == [naming[:2], naming[2:4], naming[4:]]
    assert not ledger.any_due


@pytest.mark.parametrize(
    ("value", "found"),
    [("+7", 7), ("7", 7), (str(MOST), MOST), (MOST, MOST), ("0" * 19 + "7", 7), (1, 1)],
)
def test_an_integer_may_be_spelled(value: object, found: int) -> None:
    assert integer(value, "f") == found


@pytest.mark.parametrize(("value", "least", "found"), [("-0", 0, 0), ("-7", -7, -7)])
def test_so_may_one_with_a_sign_where_it_may_have_one(value: str, least: int, found: int) -> None:
    """As Go's Atoi reads it."""
    assert integer(value, "f", least=least) == found


@pytest.mark.parametrize("value", [True, "+-7", "--7", "-7", 0, MOST + 1, "0" * 20 + "7", "1" * 5_000, "٧", "", None])
def test_what_is_no_integer_in_its_bounds_is_refused(value: object) -> None:
    """As a list of digits without end, which Python refuses to read."""
    refused = integer(value, "f")
    assert isinstance(refused, Rejection)
    assert (refused.field, refused.expected) == ("f", f"an integer from 1 to {MOST}")


def test_what_could_not_be_taken_is_over_when_another_object_has_its_name() -> None:
    """Its end was missed, as a watch was cut: the version of each such object was remembered for ever."""
    core = ingest()
    for number in range(4):
        seen = pod_group(version=number + 1, uid=f"u{number}", minMember=1 if number == 3 else -1)
        core.observe(seen, listed=True)
        assert core.missing("PodGroup", {f"u{number}"}) == []
        assert list(core._ledger.versions) == [f"u{number}"]
    assert core.observe(pod_group(version=1, uid="u0", minMember=-1)) == [], "it comes late"


def test_an_older_object_of_the_name_ends_nothing() -> None:
    core = ingest(pod_group(version=5, uid="later", minMember=-1))
    core.observe(pod_group(version=2, uid="earlier", minMember=-1))
    (rejected,) = core.observe(pod_group(version=6, uid="later", minMember=-2))
    assert (names([rejected]), rejected.uid) == (["DeclarationRejected"], "later")
