"""Which kind a log is: its first writer says so, and no message that is nobody's."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import decode_header
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.memory import MemoryLog
from services.console import launch
from services.console.verify import verify
from tests.console.test_verify import altered, find, world
from tests.waiting import answered
from tests.world import World

__all__ = ["world"]


def with_one_more(log: MemoryLog, writer: str, header: bytes) -> MemoryLog:
    other = MemoryLog(log.cluster)
    stray = msgspec.structs.replace(
        log.commits[-1], sequence=len(log.commits) + 1, subject=f"muster.test.{writer}", header=header, payload=b"[]"
    )
    other.commits = [*log.commits, stray]
    return other


async def test_a_message_on_the_federators_subject_makes_it_no_log_of_a_federation(world: World) -> None:
    """As it was: `verified`, of nothing, whatever stood in the log; its snapshots were a federation's, and no service
    started any more."""
    sequence, events = find(world.log, ev.GangPermitted)
    for index, event in enumerate(events):
        if isinstance(event, ev.GangPermitted):
            events[index] = msgspec.structs.replace(event, bindings=event.bindings[:-1])
    for log, code in ((world.log, 0), (altered(world.log, sequence, payload=envelope.encode_events(events)), 1)):
        report = await verify(with_one_more(log, "federator", b""))
        assert (report.exit_code, report.causes["foreign"]) == (code, 1)
        assert report.decided > 0


async def test_what_a_writer_of_the_other_kind_committed_is_a_difference(world: World) -> None:
    header = msgspec.structs.replace(decode_header(world.log.commits[0]), writer="federator", cause="decide")
    report = await verify(with_one_more(world.log, "federator", envelope.encode_header(header)))
    assert report.difference is not None
    assert report.difference.what == "a decision of a federator, where binder, planner may decide"


@pytest.mark.parametrize(
    ("role", "cluster", "astray"),
    [("planner", "prod", "federator"), ("feed", "prod", "federator"), ("federator", "federation", "ingest")],
)
async def test_what_nobody_known_wrote_makes_it_no_log_of_the_other_kind(
    nats: str, role: str, cluster: str, astray: str
) -> None:
    """As it was: no service started any more. JetStream answers a subscriber of the feed on the subject that it names."""
    log = await open_log(nats, cluster, create=True)
    assert isinstance(log, JetStreamLog)
    await log.connection.client.publish(f"$JS.API.STREAM.INFO.muster-{cluster}", reply=f"muster.{cluster}.{astray}")
    await answered(log.end, "the answer in the log")
    await launch._check_kind(role, log)
    await log.close()
