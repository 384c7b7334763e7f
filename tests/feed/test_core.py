"""From commits to CloudEvents."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import (
    Event,
    GangPermitted,
    GroupsRefused,
    NodeDeleted,
    PlannerLeft,
    PodBound,
    RoomNominated,
    SchedulingClassObserved,
    Ticked,
    cloudevents,
    schema,
    subjects,
)
from events.envelope import MalformedCommit, Stored
from services.feed import core
from tests.events.samples import plain, sample, samples
from tests.feed.commits import TRACE, stored

PERMITTED = GangPermitted(group="team-a/train.v2", proposals=(), bindings=(), dropped=())
BOUND = sample(PodBound)


def refusal(*groups: str) -> GroupsRefused:
    return msgspec.structs.replace(sample(GroupsRefused), groups=groups)


def test_an_event_in_its_envelope() -> None:
    (message,) = core.messages(stored("binder", [PERMITTED], traceparent=TRACE), "prod")
    assert message.id == "7.0"
    assert message.subject == "muster-feed.prod.GangPermitted.team-a.train%2Ev2"
    assert json.loads(message.body) == {
        "specversion": "1.0",
        "id": "7.0",
        "source": "muster/prod",
        "type": "dev.muster.GangPermitted",
        "subject": "team-a/train.v2",
        "time": "2026-01-01T00:00:00.123456789Z",
        "datacontenttype": "application/json",
        "dataschema": "urn:muster:event:GangPermitted",
        "writer": "binder",
        "traceparent": TRACE,
        "data": {
            "type": "GangPermitted",
            "group": "team-a/train.v2",
            "proposals": [],
            "bindings": [],
            "dropped": [],
        },
    }


def test_what_is_about_nothing_in_particular_has_no_subject_attribute() -> None:
    (message,) = core.messages(stored("binder", [Ticked(time_ns=1, jumped_ns=0)]), "prod")
    assert message.subject == "muster-feed.prod.Ticked.-.-"
    assert "subject" not in json.loads(message.body)
    assert "traceparent" not in json.loads(message.body)


def test_what_has_no_namespace_is_named_alone() -> None:
    (message,) = core.messages(stored("ingest", [NodeDeleted(name="node-7.lan", uid="u")]), "prod")
    assert message.subject == "muster-feed.prod.NodeDeleted.-.node-7%2Elan"
    assert json.loads(message.body)["subject"] == "node-7.lan"


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ("default/train", ("default", "train")),
        ("pod/default/web-0", ("default", "web-0")),
        ("pod/x", ("pod", "x")),
        ("a/v.2@batch", ("a", "v.2")),
    ],
)
def test_a_group_is_a_gang_or_a_lone_pod(group: str, named: tuple[str, str]) -> None:
    assert core.about(GangPermitted(group=group, proposals=(), bindings=(), dropped=())) == named


@pytest.mark.parametrize(
    ("kind", "field", "value", "named"),
    [
        (RoomNominated, "gang", "a/g", ("a", "g")),
        (SchedulingClassObserved, "digest", "d7", ("", "d7")),
        (PlannerLeft, "shard", "3", ("", "3")),
    ],
)
def test_other_events_are_about_what_one_field_names(
    kind: type[Event], field: str, value: str, named: tuple[str, str]
) -> None:
    assert core.about(msgspec.structs.replace(sample(kind), **{field: value})) == named


def test_one_refusal_of_many_groups_tells_each_of_them_by_itself() -> None:
    found = core.messages(stored("planner.0", [BOUND, refusal("a/g", "pod/b/p", "a/h")]), "prod")
    assert [message.id for message in found] == ["7.1", "7.1.1", "7.1.2"], "a PodBound is not the planner's to write"
    assert [message.subject.split(".")[-2:] for message in found] == [["a", "g"], ["b", "p"], ["a", "h"]]
    assert [message.event().data["groups"] for message in found] == [["a/g"], ["pod/b/p"], ["a/h"]]


@pytest.fixture(scope="module")
def document() -> schema.Schema:
    return schema.asyncapi()


CLUSTERS = [event for event in samples() if type(event).__name__ in cloudevents.EVENT_TYPES]


@pytest.mark.parametrize("event", CLUSTERS, ids=lambda event: type(event).__name__)
def test_every_kind_of_event_has_a_message_that_fits_the_asyncapi_document(
    event: Event, document: schema.Schema
) -> None:
    role = next(role for role in subjects.WRITES if subjects.may_write(role, event))
    (message,) = core.messages(stored(f"{role}.0" if role == "planner" else role, [event]), "prod")
    name = type(event).__name__
    payload = document["components"]["messages"][name]["payload"]
    jsonschema.validate(json.loads(message.body), {**payload, "components": document["components"]})
    assert message.event().data == plain(event)
    assert message.subject.startswith(f"muster-feed.prod.{name}.")
    assert message.subject.count(".") == 4


@given(st.integers(1), st.integers(0), st.integers(0))
def test_a_place_is_read_from_its_identity(sequence: int, index: int, part: int) -> None:
    assert core.place_of(core.identity((sequence, index, part))) == (sequence, index, part)


@pytest.mark.parametrize("identity", ["", "7", "7.x", "1.2.3.4"])
def test_what_is_no_place_is_refused(identity: str) -> None:
    with pytest.raises(ValueError):
        core.place_of(identity)


def test_going_on_behind_any_message_gives_the_rest() -> None:
    commit = stored("planner.0", [refusal("a/g", "a/h"), Ticked(time_ns=1, jumped_ns=0), refusal("a/i", "a/j")])
    everything = core.messages(commit, "prod")
    assert len(everything) == 5
    for taken in range(5):
        rest = core.messages(commit, "prod", core.place_of(everything[taken].id))
        assert rest == everything[taken + 1 :]


def test_outsiders_are_set_aside() -> None:
    commit = stored("binder", [PERMITTED])
    assert not core.is_foreign(commit)
    assert core.is_foreign(stored("stranger", [PERMITTED]))
    assert core.is_foreign(Stored(sequence=1, subject="muster.prod.binder", message_id="", header=b"", payload=b"hi"))


def test_a_writers_commit_that_cannot_be_read_is_an_error_that_names_its_place() -> None:
    commit = Stored(
        sequence=9,
        subject="muster.prod.binder",
        message_id="",
        header=stored("binder", []).header,
        payload=b'[{"type":"NotYetInvented"}]',
    )
    with pytest.raises(MalformedCommit, match=r"commit 9 on muster.prod.binder"):
        core.messages(commit, "prod")


@given(st.integers(0, 2**63 - 1))
def test_timestamps_are_ordered_as_text(time_ns: int) -> None:
    assert core.timestamp(time_ns) <= core.timestamp(time_ns + 1)
    assert len(core.timestamp(time_ns)) == len("2026-01-01T00:00:00.123456789Z")


def test_an_events_type_is_known_to_patterns() -> None:
    """But for a federation's, which has no feed."""
    of_a_federation = subjects.WRITES["federator"] - subjects.WRITES["binder"] - subjects.WRITES["ingest"]
    known = {type(event).__name__ for event in samples() if type(event) not in of_a_federation}
    assert known == set(cloudevents.EVENT_TYPES)
