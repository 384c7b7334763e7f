"""The story of a pod or of a gang: why it waited, when, and what became of it, told from a cluster's log alone.

The log is folded commit by commit. Of each commit `table` says what its events mean to what is followed, and `changes`
what the state behind it says: another declaration, nobody who plans, another policy. Of a long log nothing is kept but
the lines; what repeats but for its numbers is one of them, so that days of waiting can be read.
"""

from __future__ import annotations

import msgspec

from events import subjects
from events.envelope import Commit
from services.console.story.changes import changes
from services.console.story.followed import GANG, POD, Followed
from services.console.story.steps import Step
from services.console.story.table import OF_A_POD, TELLINGS
from services.state.fold import State
from services.state.records import INDEX_BITS

LONGEST_TURN = 12
"""Steps at most that are looked at as one turn, which may repeat: proposed, held, given back, refused, and again; or
the whole life of a pod that is made anew each time."""


class Line(msgspec.Struct, frozen=True):
    """One step of the story, or several in a row that are alike."""

    sequence: int
    time_ns: int
    """Its writer's clock; 0 for none."""
    writer: str
    what: str
    reason: str
    """Of the last of them."""
    times: int
    until: int
    """The sequence of the last of them."""
    until_ns: int


class Story:
    """Of one pod or gang: `add` each commit behind its fold."""

    def __init__(self, state: State, kind: str, name: str) -> None:
        """`state`: that of an empty log, or of a snapshot, where what was before is purged."""
        self.followed = Followed(state, kind, name)
        self.lines: list[Line] = []
        self._steps: list[Step] = []
        """Of each line one."""
        if state.sequence and self.followed.is_there:
            stood = f"everything before was purged; it stood: {self.followed.stands()}"
            self._add(Step("as of a snapshot", stood), state.sequence, 0, "")

    def add(self, commit: Commit) -> None:
        header, of = commit.header, self.followed
        allowed = subjects.WRITES[subjects.role_of(header.writer)]
        for index, event in enumerate(commit.events):
            kind: type = type(event)
            telling = OF_A_POD.get(kind)
            if telling is not None:
                if event.uid not in of.members:  # type: ignore[union-attr]
                    continue
            elif (telling := TELLINGS.get(kind)) is None:
                continue
            if kind in allowed:
                of.time_ns, of.place = header.time_ns, commit.sequence << INDEX_BITS | index
                for step in telling(of, event):
                    self._add(step, commit.sequence, header.time_ns, header.writer)
        for step in changes(of):
            self._add(step, commit.sequence, header.time_ns, header.writer)

    def _add(self, step: Step, sequence: int, time_ns: int, writer: str) -> None:
        if self.lines and self.lines[-1].until == sequence and step.alike and step.alike == self._steps[-1].alike:
            self.lines[-1] = msgspec.structs.replace(self.lines[-1], reason=step.reason)  # about pods of one commit
            return
        line = Line(sequence, time_ns, writer, step.what, step.reason, 1, sequence, time_ns)
        if (same := self._said_before(step)) is not None:
            self.lines[same] = _one(self.lines[same], line, step)
            return
        self.lines.append(line)
        self._steps.append(step)
        self._fold_turns()

    def _said_before(self, step: Step) -> int | None:
        """The line of a step like this, if it is the last one, or one of the refusals in a row that are."""
        for at in range(len(self._steps) - 1, max(-1, len(self._steps) - 1 - LONGEST_TURN), -1):
            if step.alike and self._steps[at].alike == step.alike:
                return at
            if not (step.is_refusal and self._steps[at].is_refusal):
                return None
        return None

    def _fold_turns(self) -> None:
        """If the last steps are a turn like that before them, they become one with it."""
        lines, steps = self.lines, self._steps
        for length in range(2, min(LONGEST_TURN, len(steps) // 2) + 1):
            turn = [step.turn for step in steps[-length:]]
            if not turn[0]:
                return
            if turn == [step.turn for step in steps[-2 * length : -length]] and len(set(turn)) > 1:
                for at in range(-length, 0):
                    lines[at - length] = _one(lines[at - length], lines[at], steps[at])
                del lines[-length:], steps[-length:]
                return


def _one(first: Line, last: Line, step: Step) -> Line:
    return msgspec.structs.replace(
        first,
        writer=last.writer,
        reason=last.reason,
        times=first.times + last.times if step.counts else 1,
        until=last.until,
        until_ns=last.until_ns,
    )


__all__ = ["GANG", "POD", "Line", "Story"]
