"""`muster explain`: which stories a name has in a cluster's log, told up to a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import events as ev
from events.envelope import Commit
from events.log import EventLog
from services.console.errors import Unusable
from services.console.kinds import check_of_a_cluster
from services.console.replay import Reading, check_place, read_place
from services.console.story import GANG, POD, Line, Story
from services.state.fold import State
from services.state.snapshot import FORM

ALONE = "pod/"
"""Before the name of a pod without a gang, where `muster replay` names groups."""
MOST_NEAR = 3
MOVED_EVERY = 100
"""Commits between two looks at the progress."""


class Told(NamedTuple):
    """One object's story."""

    kind: str
    """pod or gang."""
    name: str
    lines: list[Line]
    stands: str
    """How it stands at the end."""


class Explained(NamedTuple):
    sequence: int
    time_ns: int
    """Of that commit, by its writer's clock; 0 for none."""
    stories: list[Told]
    near: list[str]
    """Names that may have been meant, if there is no story."""


def read_name(text: str) -> str:
    """``namespace/name`` of a pod, or a gang's key, as `muster replay` has them. Raises Unusable."""
    name = text.removeprefix(ALONE) if text.count("/") > 1 else text
    namespace, _, rest = name.partition("/")
    if not namespace or not rest:
        raise Unusable(f"{text!r}: expected NAMESPACE/NAME, of a pod or of a gang as `muster replay` names it")
    return name


async def explain(
    log: EventLog, text: str, at: str | None = None, moved: Callable[[int, int], None] = lambda done, total: None
) -> Explained:
    """What the log says of whoever has the name, up to `at` (as `muster replay` takes it). Raises Unusable, LogError,
    UnknownCommit."""
    name = read_name(text)
    sequence, at_ns = read_place(at) if at is not None else (None, None)
    await check_of_a_cluster(log, "`muster job explain NAME` tells a job's story")
    reading = await Reading.of(log, FORM)
    check_place(sequence, reading.end)
    stories = [Story(reading.state, GANG, name), Story(reading.state, POD, name)]
    near, time_ns = Near(name, reading.state), 0
    async for commit in reading.up_to(sequence, at_ns):
        if reading.state.sequence % MOVED_EVERY == 0:
            moved(reading.state.sequence, sequence or reading.end)
        if commit is None:
            time_ns = 0
            continue
        time_ns = commit.header.time_ns
        near.look(commit)
        for story in stories:
            story.add(commit)
    told = [
        Told(of.kind, of.name, story.lines, of.stands()) for story in stories if story.lines for of in [story.followed]
    ]
    return Explained(reading.state.sequence, time_ns, told, [] if told else list(near.found))


class Near:
    """Names like the one that is looked for: the same in another namespace, those of a gang's pods, or with what is
    behind the name of a gang of another project."""

    def __init__(self, name: str, state: State) -> None:
        self.found: dict[str, None] = {}
        self._name = name
        self._namespace, _, self._rest = name.partition("@")[0].partition("/")
        self._before = f"{self._rest}-"
        for pod in state.pods.values():
            self._see(pod.fact)
        for key in state.gangs:
            self._see_gang(key)

    def look(self, commit: Commit) -> None:
        if len(self.found) < MOST_NEAR:
            for event in commit.events:
                if type(event) is ev.PodObserved:
                    self._see(event)

    def _see(self, pod: ev.PodObserved) -> None:
        of_gang = pod.name.startswith(self._before) and pod.namespace == self._namespace
        if of_gang or pod.name == self._rest:
            self._add(f"{pod.namespace}/{pod.name}")
        if pod.gang is not None:
            self._see_gang(pod.gang.gang)

    def _see_gang(self, key: str) -> None:
        if self._rest in key and key.partition("@")[0].partition("/")[2] == self._rest:
            self._add(key)

    def _add(self, name: str) -> None:
        if name != self._name and len(self.found) < MOST_NEAR:
            self.found[name] = None
