"""What people and NATS say in a few words: settings, policies, places, patterns, headers, answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from events import answers, client, cloudevents, consumer, feed, object_store, subscription
from events.answers import Unanswered
from events.cloudevents import FeedMessage, NoCloudEvent, PatternError
from events.policy import DEFAULT_POLICY
from services import settings
from services.console import show
from services.console.policy import MOST, InvalidPolicy, changed
from services.console.profiles import UnknownProfile
from services.console.replay import BadPlace, read_place
from services.ingest.normalise import _nanoseconds
from services.settings import InvalidSetting, Settings
from tests.fuzz import examples
from tests.fuzz.generate import RAW, SCALARS, TEXTS, texts

VARIABLES = [settings.PREFIX + field.name.upper() for field in msgspec.structs.fields(Settings)]
words = (
    texts | st.sampled_from([str(scalar) for scalar in SCALARS]) | st.sampled_from(["a,b", ",", "on", "json", "debug"])
)


@examples(200)
@given(st.dictionaries(st.sampled_from(VARIABLES), words, max_size=4))
def test_an_environment_is_settings_or_names_the_variable(environment: dict[str, str]) -> None:
    try:
        found = settings.read({}, environment)
    except InvalidSetting as error:
        assert any(str(error).startswith(f"{name}: expected ") for name in environment)
        return
    assert isinstance(found.now_ns(), int)
    assert "nats_password='***'" in repr(found)


POLICY = [field.name for field in msgspec.structs.fields(type(DEFAULT_POLICY)) if field.type is int]
numbers = st.integers() | st.sampled_from([0, 1, MOST, MOST + 1, 2**63])
policies = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(POLICY, numbers),
        "profile": texts | st.sampled_from(["default", "binpack"]),
        "queue_order": texts | st.sampled_from(["coscheduling", "koordinator", "kube-batch"]),
        "node_score": texts | st.sampled_from(["binpack", "least-allocated"]),
        "replacement_policy": texts | st.sampled_from(["keep", "evict"]),
    },
)


@examples(100)
@given(policies)
def test_a_policy_is_within_its_bounds_or_names_the_flag(changes: dict[str, Any]) -> None:
    try:
        found = changed(DEFAULT_POLICY, changes)
    except (InvalidPolicy, UnknownProfile) as error:
        assert "expected" in str(error)
        return
    assert all(0 <= getattr(found, name) <= MOST for name in POLICY)
    assert found.backoff_initial_ms <= found.backoff_max_ms


@given(st.datetimes(timezones=st.timezones()), st.booleans())
def test_a_moment_is_a_place_to_the_microsecond(moment: Any, rounded: bool) -> None:
    moment = moment.replace(microsecond=0) if rounded else moment
    try:
        text = moment.isoformat()
        _, time_ns = read_place(text)
    except BadPlace:
        return  # an offset with seconds or a year that UTC does not have
    assert time_ns == _nanoseconds(moment)
    assert time_ns is not None
    assert time_ns % 1_000_000_000 == moment.microsecond * 1_000


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("1970-01-01T00:00:01.123456789Z", 1_123_456_789),
        ("1970-01-01t00:00:01.1234567z", 1_123_456_700),
        ("1970-01-01T01:00:00,000000001+01:00", 1),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999_000),
        ("0001-01-01T00:00:00-00:01", -62_135_596_740_000_000_000),
    ],
)
def test_moments_that_a_float_rounds(text: str, time_ns: int) -> None:
    assert read_place(text) == (None, time_ns)


def test_a_sequence_of_thousands_of_digits_is_no_place() -> None:
    with pytest.raises(BadPlace, match="expected a sequence"):
        read_place("9" * 5_000)


@pytest.mark.parametrize("pattern", ["\udcff", "GangPermitted.\udcff", "GangPermitted.a\udcff.>"])
def test_a_pattern_that_is_not_utf_8_is_told_as_one(pattern: str) -> None:
    with pytest.raises(PatternError, match="pattern "):
        cloudevents.pattern_subject("c", pattern)


@pytest.mark.parametrize(
    "body", [bytes(raw) for raw in RAW] + [text.encode() for text in TEXTS[:8]], ids=range(len(RAW) + 8)
)
def test_a_message_that_is_no_cloud_event_is_named(body: bytes) -> None:
    """`muster subscribe` ended with it."""
    for told in (show.cloud_event, show.json_event):
        with pytest.raises(NoCloudEvent, match=re.escape("message '7.0' on muster-feed.c.x")):
            told(FeedMessage(id="7.0", subject="muster-feed.c.x", body=body))


# --------------------------------------------------------------------------------------------------------------- NATS

lines = st.lists(st.tuples(texts, texts), max_size=5)


@given(lines)
def test_headers_are_the_last_of_each_name(said: list[tuple[str, str]]) -> None:
    text = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in said) + "\r\n"
    naive: dict[str, str] = {}
    for line in text.split("\r\n"):
        if ":" in line:
            naive[line[: line.index(":")].strip()] = line[line.index(":") + 1 :].strip()
    assert client.parse_headers(text.encode("utf-8", "surrogatepass")) == naive


ANSWERS = (answers.decode_message, answers.decode_published, answers.decode_stream, feed._decode_info)
ANSWERS += (object_store._decode_info, subscription._decode_info)


@pytest.mark.parametrize("decode", ANSWERS)
@pytest.mark.parametrize("answer", [bytes(raw) for raw in RAW], ids=range(len(RAW)))
def test_an_answer_that_is_none_is_no_answer(decode: Any, answer: bytes) -> None:
    with pytest.raises(Unanswered, match="muster-c: expected JetStream's answer"):
        answers.decoded(decode, "muster-c", answer)


REPLY = "$JS.ACK.muster-c.consumer.1.{}.7.1767225600123456789.0"
replies = st.sampled_from([REPLY, "$JS.ACK.domain.HASH.muster-c.consumer.1.{}.7.1767225600123456789.0.x"])


@given(replies, st.integers(1, 2**63))
def test_a_delivery_names_its_sequence(reply: str, sequence: int) -> None:
    assert consumer._sequence(reply.format(sequence)) == sequence


class NoConnection:
    """What a consumer asks of a connection before it is opened."""

    generation = 0

    class client:
        @staticmethod
        def new_inbox() -> str:
            return "_INBOX.x"


@examples(60)
@given(
    replies.map(lambda reply: reply.format("")) | texts.filter(bool), texts, st.dictionaries(texts, texts, max_size=2)
)
async def test_a_stranger_s_message_in_a_consumer_s_inbox_is_passed_over(
    reply: str, subject: str, headers: dict[str, str]
) -> None:
    reader = consumer.Consumer(NoConnection(), "muster-c", 1)  # type: ignore[arg-type]
    await reader._on_message(Msg(None, subject=subject, reply=reply, data=b"", headers=headers))  # type: ignore[arg-type]
    assert (reader._lost, reader._arrived) == (None, [])
    await reader._on_message(Msg(None, subject="s", reply=REPLY.format(1), data=b"[]"))  # type: ignore[arg-type]
    assert [commit.sequence for commit in reader._arrived] == [1]


@pytest.mark.parametrize("pending", ["", "x", "-1", "9" * 5_000, "²"])
async def test_a_status_that_does_not_count_ends_the_consumer(pending: str) -> None:
    reader = consumer.Consumer(NoConnection(), "muster-c", 1)  # type: ignore[arg-type]
    headers = {"Status": "408", "Nats-Pending-Messages": pending}
    await reader._on_message(Msg(None, subject="s", reply="", data=b"", headers=headers))  # type: ignore[arg-type]
    assert isinstance(reader._lost, Unanswered)
