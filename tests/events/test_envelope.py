"""Commits and their bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events import PolicyAdopted
from events.envelope import (
    Header,
    MalformedCommit,
    Stored,
    decode,
    decode_header,
    encode_events,
    encode_header,
    message_id,
)
from tests.events.stored import EVENTS, STORED, any_of, is_current
from tests.events.writing import HEADER


def stored(payload: bytes, header: bytes = encode_header(HEADER)) -> Stored:
    return Stored(sequence=42, subject="muster.c.binder", message_id="id", header=header, payload=payload)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(event: type[msgspec.Struct], data: st.DataObject) -> None:
    written = [data.draw(any_of(event))]
    payload = encode_events(written)
    commit = decode(stored(payload))
    assert commit.events == written
    assert type(commit.events[0]) is event
    assert encode_events(commit.events) == payload


@given(st.lists(st.one_of([any_of(event) for event in EVENTS]), max_size=5))
def test_a_commit_keeps_its_events_in_order(written: list[object]) -> None:
    assert decode(stored(encode_events(written))).events == written  # type: ignore[arg-type]


@given(any_of(Header))
def test_a_header_comes_back_on_one_line(header: Header) -> None:
    """It travels in a NATS header: no line may end in it."""
    raw = encode_header(header)
    assert decode_header(stored(b"[]", raw)) == header
    assert b"\r" not in raw
    assert b"\n" not in raw


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_no_field_is_omitted_and_the_type_is_named(event: type[msgspec.Struct], data: st.DataObject) -> None:
    """A default that is left out of the bytes could change under an old log."""
    (raw,) = msgspec.json.decode(encode_events([data.draw(any_of(event))]))
    assert raw["type"] == event.__name__
    assert set(raw) == {"type", *event.__struct_fields__}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_no_event_has_a_default(event: type[msgspec.Struct]) -> None:
    assert all(field.required for field in msgspec.structs.fields(event))


def test_bytes_that_were_stored_are_read_and_written_alike() -> None:
    """One line has the form of today. An older one has less, and keeps what it has."""
    lines = STORED.read_bytes().splitlines()
    current = [event for line in lines if is_current(line) for event in decode(stored(line)).events]
    assert {type(event) for event in current} == set(EVENTS)
    for line in lines:
        written = encode_events(decode(stored(line)).events)
        assert _without(msgspec.json.decode(written), msgspec.json.decode(line)) == msgspec.json.decode(line)


def _without(form: object, older: object) -> object:
    """`form`, less the fields that `older` does not have."""
    if isinstance(form, dict) and isinstance(older, dict):
        return {name: _without(value, older[name]) for name, value in form.items() if name in older}
    if isinstance(form, list) and isinstance(older, list):
        return [_without(*pair) for pair in zip(form, older, strict=True)]
    return form


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@settings(max_examples=5)
@given(data=st.data())
def test_a_field_of_newer_code_is_passed_over(event: type[msgspec.Struct], data: st.DataObject) -> None:
    written = [data.draw(any_of(event))]
    (raw,) = msgspec.json.decode(encode_events(written))
    header = msgspec.json.encode(msgspec.to_builtins(HEADER) | {"invented": 1})
    commit = decode(stored(msgspec.json.encode([raw | {"invented": {"a": 1}}]), header))
    assert (commit.events, commit.header) == (written, HEADER)


def test_a_policy_from_before_a_field_reads_as_if_that_were_off() -> None:
    (line,) = [
        line for line in STORED.read_bytes().splitlines() if b"PolicyAdopted" in line and b"lookahead_pods" not in line
    ]
    (adopted,) = decode(stored(line)).events
    assert isinstance(adopted, PolicyAdopted)
    policy = adopted.policy
    assert (policy.lookahead_pods, policy.nominate_after_refusals, policy.nomination_hold_ms) == (0, 0, 0)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"hello", "malformed"),
        (b"", "truncated"),
        (b"{}", "Expected `array`"),
        (b'[{"type":"PodTeleported"}]', "PodTeleported"),
        (b'[{"type":"Ticked","time_ns":"noon","jumped_ns":0}]', r"time_ns"),
        (b'[{"type":"Ticked","jumped_ns":0}]', "time_ns"),
        (b'[{"time_ns":1,"jumped_ns":0}]', "type"),
        (b'["\xff\xfe"]', "commit 42"),
    ],
)
def test_a_payload_that_is_none_names_place_and_field(payload: bytes, told: str) -> None:
    with pytest.raises(MalformedCommit, match=told) as error:
        decode(stored(payload))
    assert "commit 42 on muster.c.binder" in str(error.value)


@pytest.mark.parametrize("header", [b"", b"hello", b"{}", b'{"writer":1}', b"\xff"])
def test_a_header_that_is_none_names_its_place(header: bytes) -> None:
    with pytest.raises(MalformedCommit, match=r"commit 42 on muster\.c\.binder: header"):
        decode(stored(b"[]", header))


@given(st.binary())
def test_any_other_bytes_are_malformed_and_nothing_worse(noise: bytes) -> None:
    try:
        decode(stored(noise))
    except MalformedCommit:
        return
    assert msgspec.json.decode(noise) == []


@given(st.text(), st.integers(0), st.binary(), st.text(), st.integers(0), st.binary())
def test_an_id_is_its_commits_own(
    subject: str, expected: int, payload: bytes, subject_: str, expected_: int, payload_: bytes
) -> None:
    same = (subject, expected, payload) == (subject_, expected_, payload_)
    assert (message_id(subject, expected, payload) == message_id(subject_, expected_, payload_)) is same
