"""A federated job's story, drawn from the log alone: a line for each cluster, and what was decided, when and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from services.federator.explain import Line
from services.federator.timeline import GUARDED, HOLDS, KEPT, OVER, SENT, STOPS, WAITS, Timeline
from services.telemetry.logs import printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

MARKS = {SENT: "·", WAITS: "░", GUARDED: "▒", HOLDS: "▓", KEPT: "█", STOPS: "×", OVER: " "}
STYLES = {SENT: "dim", WAITS: "dim", GUARDED: "yellow", HOLDS: "cyan", KEPT: "green", STOPS: "red", OVER: ""}
LEGEND = {
    SENT: "submitted",
    WAITS: "waiting",
    GUARDED: "guard time",
    HOLDS: "holds it",
    KEPT: "kept",
    STOPS: "stopping",
}
WIDEST, NARROWEST = 100, 20
"""Cells of a line."""
LONGEST_ALIAS = 24
TICKS = 6
NS_PER_S = 1_000_000_000
UNITS = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "d"))
STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
"""Between two ticks; then whole days."""


def picture(line: Timeline, columns: int) -> Text:
    """A line for each cluster, the axis and the legend, at most `columns` wide."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    priorities = {alias: f"{priority / 1000:g}" for alias, priority in line.priorities.items()}
    longest = min(LONGEST_ALIAS, max(map(cell_len, map(printable, priorities))))
    wide = longest + 1 + max(map(len, priorities.values()))
    cells = max(NARROWEST, min(WIDEST, columns - wide - 2))
    text = Text(no_wrap=True, overflow="ellipsis")
    for alias, priority in priorities.items():
        text.append(f"{set_cell_size(cut(alias), longest)} {priority:>{wide - longest - 1}} ", "bold")
        for kind in kinds(line, alias, cells):
            text.append(MARKS[kind], STYLES[kind])
        text.append("\n")
    text.append(f"{'':{wide}} {axis((line.until_ns - line.from_ns) / NS_PER_S, cells)}\n", "dim")
    legend = Text("  ").join(
        Text.assemble((MARKS[kind], STYLES[kind]), (f" {word}", "dim")) for kind, word in LEGEND.items()
    )
    return text.append(" " * max(0, min(wide + 1, columns - len(legend)))).append(legend)


def told(story: Iterable[Line], when: Callable[[Line], str]) -> Table:
    """A row for each step: `when`, the rule, the cluster, what happened and why."""
    from rich.table import Table

    shown = Table.grid(padding=(0, 1))
    for style in ("dim", "dim", "bold"):
        shown.add_column(style=style, no_wrap=True)
    shown.add_column(overflow="fold")
    for line in story:
        shown.add_row(when(line), line.rule, cut(line.cluster), printable(f"{line.what}: {line.reason}"))
    return shown


def cut(alias: str) -> str:
    """To `LONGEST_ALIAS` cells, of which a wide character takes two. An alias may be what somebody thought of."""
    from rich.cells import cell_len, set_cell_size

    alias = printable(alias)
    return alias if cell_len(alias) <= LONGEST_ALIAS else f"{set_cell_size(alias, LONGEST_ALIAS - 1).rstrip()}…"


def kinds(line: Timeline, alias: str, cells: int) -> list[str]:
    """What each cell shows. Nothing that happened is left out: a stretch has one cell at least, while there is room."""
    span_ns = max(1, line.until_ns - line.from_ns)
    stretches = line.stretches[alias]
    begins: list[int] = []
    for number, stretch in enumerate(stretches):
        at = (stretch.from_ns - line.from_ns) * (cells - 1) // span_ns
        left = len(stretches) - 1 - number
        begins.append(min(max(at, begins[-1] + 1 if begins else 0), max(0, cells - 1 - left)))
    shown = [OVER] * cells
    for begin, stretch in zip(begins, stretches, strict=True):
        shown[begin:] = [stretch.kind] * (cells - begin)
    return shown


def axis(seconds: float, cells: int) -> str:
    """Round times under the cells where they are."""
    days = 86_400 * max(1, -(-int(seconds) // (86_400 * TICKS)))
    step = next((step for step in STEPS_S if seconds / step <= TICKS), days)
    per, unit = next((per, unit) for per, unit in reversed(UNITS) if per <= max(1, step))
    ticks = ""
    tick = 0
    while tick * step <= seconds:
        at = int(tick * step * (cells - 1) / seconds) if seconds else 0
        label = f"{round(tick * step / per, 1):g} {unit}"
        if (tick and at < len(ticks) + 2) or at + len(label) > cells:
            break
        ticks = f"{ticks:<{at}}{label}"
        tick += 1
    return ticks
