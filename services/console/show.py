"""What the console prints for people. `--json` prints one object instead, always the last line of stdout."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import msgspec

from services.console.counted import counted
from services.telemetry.logs import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from events.cloudevents import FeedMessage
    from services.console.explain import Explained, Told
    from services.console.retention import Retained
    from services.console.story import Line
    from services.console.verify import Report

LONGEST = 100
"""Rows of a table at most; --json has all."""
SHOWN_EVENTS, SHOWN_LINES = 3, 30
"""Of a difference."""
UNFOLDED = 10_000
"""Columns of what is no terminal."""
FILLED = re.compile(r"(?<! ) +$", re.MULTILINE)
"""At a line's end. Each run of blanks is looked at once, from its first."""
SHOWN_PODS = 4
"""Lines for pods that wait for the same reason."""


def json_line(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def console() -> Console:
    """One that takes nothing for markup: a label or a quantity may say ``[/]``, or ``:boom:``.

    In a file or a pipe nothing is folded: who looks for a digest or for a reason finds it in one line. Nor is anything
    filled up with blanks there.
    """
    from rich.console import Console

    plain = partial(Console, highlight=False, markup=False, emoji=False)
    if sys.stdout.isatty():
        return plain()
    columns = os.environ.get("COLUMNS", "")
    width = None if columns.isdecimal() and int(columns) else UNFOLDED
    return plain(width=width, file=_Unfilled())  # type: ignore[arg-type]


class _Unfilled(io.TextIOBase):
    """Stdout, without the blanks at lines' ends: rich makes each cell, and a title, as wide as its column or table."""

    def write(self, text: str) -> int:
        return sys.stdout.write(FILLED.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()


def headed(head: str, style: str, rest: str) -> Text:
    """A line that begins in colour."""
    from rich.text import Text

    return Text.assemble((head, style), rest)


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[object]], *, low: bool = False, longest: int = LONGEST
) -> Table:
    """`low`: without the frame, where lines are few. `longest`: so many rows at most."""
    from rich import box
    from rich.table import Table

    frame = box.SIMPLE_HEAD if low else box.HEAVY_HEAD
    styles = {"title_justify": "left", "title_style": "bold", "header_style": "bold"}
    shown = Table(title=printable(title), box=frame, show_edge=not low, **styles)  # type: ignore[arg-type]
    for column in columns:
        shown.add_column(column, overflow="fold")
    rows = list(rows)
    for row in rows[:longest]:
        shown.add_row(*("\n".join(map(printable, str(cell).split("\n"))) for cell in row))
    if len(rows) > longest:
        shown.add_row(f"… {len(rows) - longest} more")
    return shown


@contextlib.contextmanager
def progress(what: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, gone when it is done; call it with (done, in all)."""
    if not (shown and sys.stdout.isatty()):
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("commits"))
    with Progress(*columns, console=console(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items()) or "none"


# ---------------------------------------------------------------------------------------------------------------- verify


def report(found: Report) -> None:
    """What `muster verify` found."""
    out = console()
    commits = sum(found.causes.values())
    folded = f"commits {found.first} to {found.last}" if found.folded else "none that could be folded"
    if found.folded < commits:
        folded = f"{counted(commits, 'commit')}, {folded} of these"
    held = f"{folded} ({counts(found.causes)})" if commits else folded
    out.print(f"log of {found.cluster!r}: {held}")
    if found.start:
        gone = (
            f"no snapshot is left for the {found.unfolded} before" if found.unfolded else "everything before was purged"
        )
        out.print(
            f"{gone}: folded from the snapshot of {found.start}, digest {found.start_digest}; "
            f"{found.before} decisions and outcomes depend on what is gone",
            soft_wrap=True,
        )
    out.print(
        f"decided again: {found.reproduced} of {counted(found.decided, 'commit')} reproduced, "
        f"{counted(found.decisions, 'decision')}; "
        f"{counted(found.outcomes, 'intended outcome')}; "
        + (f"{counted(found.snapshots, 'snapshot')} reproduced; " if found.snapshots else "")
        + f"{counted(found.folded, 'commit')} folded"
    )
    out.print(f"digest {found.digest}", soft_wrap=True)
    if found.difference is not None:
        _difference(out, found)
    if found.violation:
        out.print(headed("not sound", "red", f": {found.violation}"), soft_wrap=True)
    if found.unverifiable:
        why = f": {counted(found.unverifiable, 'commit')}; {found.why_unverifiable}"
        out.print(headed("not verifiable here", "yellow", why))
    if found.verified:
        out.print(headed("verified", "green", ": every decision is reproduced"))


def retained(found: Retained) -> None:
    out = console()
    if found.archive_end is not None:
        out.print(f"{counted(found.archived, 'commit')} archived; the archive ends at {found.archive_end}")
    out.print(
        f"{counted(found.purged, 'commit')} purged; the log of {found.cluster!r} holds {found.first} to {found.last}"
    )
    out.print(f"nothing more goes: {found.because}", soft_wrap=True)
    if found.emptied:
        out.print(f"without a commit now; they begin anew when they come back: {', '.join(found.emptied)}")


def _difference(out: Console, found: Report) -> None:
    from rich.table import Table

    first = found.difference
    if first is None:
        return
    where = f"; the first at commit {first.sequence} of {first.writer}, basis {first.basis}: {first.what}"
    out.print(headed(counted(found.differences, "difference"), "red", where))
    sides = Table("#", "in the log", "decided again", show_lines=True)
    for index in range(max(len(first.logged), len(first.decided))):
        logged, decided = (_event(side, index) for side in (first.logged, first.decided))
        if logged != decided and sides.row_count < SHOWN_EVENTS:
            sides.add_row(str(index), *_cropped(logged, decided))
    out.print(sides)


def _event(side: list[Any], index: int) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(side[index])).decode().splitlines() if index < len(side) else ["—"]


def _cropped(logged: list[str], decided: list[str]) -> tuple[str, str]:
    """Both around their first line that differs."""
    pairs = zip(logged, decided, strict=False)
    first = next((n for n, (left, right) in enumerate(pairs) if left != right), min(len(logged), len(decided)))
    start = max(0, first - SHOWN_LINES // 2)
    return _lines(logged, start), _lines(decided, start)


def _lines(lines: list[str], start: int) -> str:
    shown = lines[start : start + SHOWN_LINES]
    before = ["…"] if start else []
    after = ["…"] if start + SHOWN_LINES < len(lines) else []
    return "\n".join([*before, *shown, *after])


# ------------------------------------------------------------------------------------------------------- replay, policy


def facts_of(title: str, found: Mapping[str, Any]) -> None:
    """A table of names and values; behind it the digest, if there is one, in a line of its own."""
    out = console()
    named = [(name.replace("_", " "), value) for name, value in found.items() if name != "digest"]
    rows = list(chain.from_iterable(_rows(name, value) for name, value in named))
    shown = table(title, ("", ""), rows, longest=len(rows))
    shown.show_header = False
    out.print(shown)
    if "digest" in found:
        out.print(f"digest {found['digest']}", soft_wrap=True)


def _rows(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A list has a row for each of its values: rich copies the rest of a cell for each line of it."""
    if isinstance(value, Mapping):
        yield name, ", ".join(f"{key} {count}" for key, count in value.items()) or "none"
    elif isinstance(value, list):
        yield from zip(chain((name,), repeat("")), map(str, value or ("none",)), strict=False)
    else:
        yield name, str(value)


def cloud_event(message: FeedMessage) -> str:
    """A message of the feed in one line: when, what, about what, and what it says. Raises NoCloudEvent."""
    event = message.event()
    kind = event.type.rpartition(".")[2]
    said = bytes(msgspec.json.decode(message.body, type=_Data).data).decode(errors="replace")
    line = f"{event.time} {event.id} {kind} {event.subject or '-'} {said}"
    return printable(line)


class _Data(msgspec.Struct):
    """As it stands in the message: not every number that JSON can say can be written again."""

    data: msgspec.Raw


def json_event(message: FeedMessage) -> str:
    """The message as it is, on one line. Raises NoCloudEvent."""
    message.event()
    return message.body.decode(errors="replace").replace("\n", " ")


def versions(found: Mapping[str, Any]) -> None:
    """What is in force, and who has the code for what; of a switch, whether there was anything to switch."""
    out = console()
    already = "" if found.get("switched", True) else "already "
    out.print(
        f"{already}in force at {found['sequence']}: rules version {found['rules']}, state version {found['state']}"
    )
    rows = [
        (writer, *(_numbers(has[name]) for name in ("rules", "state"))) for writer, has in found["supports"].items()
    ]
    out.print(table("Who has the code for what", ("writer", "rules", "state"), rows))


def _numbers(found: Iterable[int]) -> str:
    return ", ".join(map(str, found)) or "–"


# -------------------------------------------------------------------------------------------------------------- explain


def stories(found: Explained) -> None:
    """What `muster explain` tells: of each object its lines, and how it stands."""
    out = console()
    for number, one in enumerate(found.stories):
        out.print("\n" * bool(number), end="")
        since = next((line.time_ns for line in one.lines if line.time_ns), 0)
        when = f", since {clock(since, '%Y-%m-%d %H:%M:%S')}Z" if since else ""
        out.print(headed(f"{one.kind} {printable(one.name)}", "bold", when))
        out.print(_told(one, found))


def _told(one: Told, found: Explained) -> Table:
    from rich.table import Table

    shown = Table.grid(padding=(0, 1))
    for style in ("dim", "dim", "cyan"):
        shown.add_column(style=style, no_wrap=True)
    shown.add_column(overflow="fold")
    for line in one.lines:
        said = f"{line.what}: {line.reason}{_repeated(line)}"
        shown.add_row(f"{line.sequence:>6}", clock(line.time_ns), printable(line.writer), printable(said))
    shown.add_row(f"{found.sequence:>6}", clock(found.time_ns), "", printable(f"stands: {one.stands}"), style="bold")
    return shown


def _repeated(line: Line) -> str:
    if line.until == line.sequence:
        return ""
    times = f"{line.times} times, " if line.times > 1 else ""
    return f" ({times}until {line.until}, {clock(line.until_ns)})"


def clock(time_ns: int, form: str = "%m-%d %H:%M:%S") -> str:
    """A commit's time, to tenths of a second, in UTC; "–" for none."""
    if not time_ns:
        return "–"
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{time.strftime(form, time.gmtime(seconds))}.{rest // 100_000_000}"


# -------------------------------------------------------------------------------------------------------------- placing


def answer(found: Mapping[str, Any]) -> None:
    """What `simulate` found."""
    out = console()
    rows = [
        (gang, *("–" if value is None else value for value in shown.values())) for gang, shown in found["gangs"].items()
    ]
    if rows:
        out.print(table("Gangs", ("gang", "dialect", "min", "pods", "bound", "waiting", "phase"), rows))
    if found["bound"]:
        out.print(table("Bound", ("pod", "node"), found["bound"].items()))
    if found["waiting"]:
        out.print(table("Waiting", ("pod", "why"), _alike(found["waiting"])))
    if found["evicted"]:
        out.print(table("Evicted", ("pod",), [(pod,) for pod in found["evicted"]]))
    if found["rejected"]:
        out.print(table("Rejected", ("object",), [(rejected,) for rejected in found["rejected"]]))
    remarks(out, found["unread"], found["warnings"])
    out.print(f"{len(found['bound'])} bound, {len(found['waiting'])} waiting; digest {found['digest']}", soft_wrap=True)


def remarks(out: Console, unread: Mapping[str, int], warnings: Iterable[str]) -> None:
    """As `services.console.remarks` has them."""
    if warnings:
        out.print(table("Warnings", ("object",), [(warning,) for warning in warnings]))
    if unread:
        out.print(f"not read, and without effect: {counts(unread)}", style="yellow", soft_wrap=True)


def _alike(waiting: Mapping[str, str]) -> list[tuple[str, str]]:
    """One row for all pods that wait for the same reason."""
    pods: dict[str, list[str]] = {}
    for pod, why in waiting.items():
        pods.setdefault(why, []).append(pod)
    return [(_shortened(named), why) for why, named in pods.items()]


def _shortened(names: list[str]) -> str:
    more = len(names) - SHOWN_PODS
    return "\n".join(names if more <= 0 else [*names[: SHOWN_PODS - 1], f"… {more + 1} more"])
