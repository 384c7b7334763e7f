"""Commits as the log holds them."""

from __future__ import annotations

from collections.abc import Sequence

from events import Event, envelope, subjects
from events.envelope import Header, Stored
from events.log import EventLog

TIME_NS = 1_767_225_600_123_456_789
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def header(writer: str, time_ns: int = TIME_NS) -> Header:
    return Header(writer=writer, epoch=1, basis=0, time_ns=time_ns, cause="decide")


def stored(writer: str, events: Sequence[Event], sequence: int = 7, traceparent: str = "") -> Stored:
    return Stored(
        sequence=sequence,
        subject=subjects.subject("prod", writer),
        message_id="",
        header=envelope.encode_header(header(writer)),
        payload=envelope.encode_events(events),
        traceparent=traceparent,
    )


async def append(log: EventLog, writer: str, events: Sequence[Event], time_ns: int = TIME_NS) -> int:
    subject = subjects.subject(log.cluster, writer)
    last = await log.last(subject)
    expected = last.sequence if last is not None else 0
    return await log.append(subject, header(writer, time_ns), envelope.encode_events(events), expected)
