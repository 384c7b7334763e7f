"""Stories of a world's pods and gangs."""

from __future__ import annotations

import msgspec

from events.memory import MemoryLog
from services.console.story import GANG, Line, Story
from services.state.fold import State
from tests.world import SECOND_NS, World


def story_of(log: MemoryLog, name: str, kind: str = GANG, *, until: int = 0) -> Story:
    """Up to commit `until`; 0: the end. The writers' clocks say the commit's sequence, in seconds."""
    state = State()
    story = Story(state, kind, name)
    for stored in log.commits[: until or None]:
        commit = state.apply_stored(stored)
        if commit is not None:
            header = msgspec.structs.replace(commit.header, time_ns=commit.sequence * SECOND_NS)
            story.add(msgspec.structs.replace(commit, header=header))
    return story


def told(world: World, name: str, kind: str = GANG) -> list[str]:
    """The lines, as ``what: reason``; ``(n times)`` behind those that repeat."""
    return [said(line) for line in story_of(world.log, name, kind).lines]


def said(line: Line) -> str:
    return f"{line.what}: {line.reason}{f' ({line.times} times)' * (line.times > 1)}"


def stands(world: World, name: str, kind: str = GANG) -> str:
    return story_of(world.log, name, kind).followed.stands()
