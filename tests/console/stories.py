"""Stories of a world's pods and gangs."""

from __future__ import annotations

import msgspec

from events.memory import MemoryLog
from services.console.story import GANG, Line, Story
from services.console.story.followed import Followed, Seen
from services.state.fold import State
from services.state.records import BOUND_CLAIM
from tests.world import SECOND_NS, World


def story_of(log: MemoryLog, name: str, kind: str = GANG) -> Story:
    """The writers' clocks say the commit's sequence, in seconds."""
    state = State()
    story = Story(state, kind, name)
    for stored in log.commits:
        commit = state.apply_stored(stored)
        if commit is not None:
            header = msgspec.structs.replace(commit.header, time_ns=commit.sequence * SECOND_NS)
            story.add(msgspec.structs.replace(commit, header=header))
            assert story.followed.members == members(state, story.followed), commit
    return story


def members(state: State, of: Followed) -> dict[str, Seen]:
    """What the story should know of its pods."""
    if of.kind == GANG:
        uids = list(state.gangs[of.name].members) if of.name in state.gangs else []
    else:
        uids = [uid for uid, pod in state.pods.items() if f"{pod.fact.namespace}/{pod.fact.name}" == of.name]
    found = {}
    for uid in uids:
        pod, claim = state.pods[uid], state.claims.get(uid)
        stage = ("", "") if claim is None or claim.stage == BOUND_CLAIM else (claim.stage, claim.node)
        found[uid] = Seen(pod.fact, pod.status, pod.node, *stage)
    return found


def told(world: World, name: str, kind: str = GANG) -> list[str]:
    """The lines, as ``what: reason``; ``(n times)`` behind those that repeat."""
    return [said(line) for line in story_of(world.log, name, kind).lines]


def said(line: Line) -> str:
    return f"{line.what}: {line.reason}{f' ({line.times} times)' * (line.times > 1)}"


def stands(world: World, name: str, kind: str = GANG) -> str:
    return story_of(world.log, name, kind).followed.stands()
