"""What an admin says of a cluster: one event, decided by the state at the log's end, behind the admin's last commit.

So of two admins at the same moment one is refused, and looks again.
"""

from __future__ import annotations

from events import Event
from events.log import EventLog
from services.console.errors import Unusable
from services.console.replay import replay
from services.state.fold import State
from services.writer import SteppedDown, Writer


async def look(log: EventLog) -> tuple[Writer, State]:
    """The state at the log's end, and who writes behind the last commit of before. Raises LogError, UnknownCommit."""
    writer = Writer(log, "admin")
    last = await log.last(writer.subject)  # before the log is read: whoever writes from here on is faster
    writer.last = last.sequence if last is not None else 0
    state = await replay(log)
    writer.rules, writer.state = state.rules_version, state.state_version
    return writer, state


async def write(writer: Writer, state: State, event: Event) -> int:
    """The event's place. Raises Unusable when another admin was faster, LogError."""
    try:
        return await writer.append([event], basis=state.sequence, cause="admin")
    except SteppedDown as error:
        raise Unusable("another admin wrote just now: look at it again") from error
