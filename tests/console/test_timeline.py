"""A federated job's story, drawn."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from services.console.timeline import MARKS, axis, kinds, picture, told
from services.federator.explain import Line
from services.federator.timeline import GUARDED, HOLDS, KEPT, OVER, SENT, STOPS, WAITS, Stretch, Timeline

KINDS = (SENT, WAITS, GUARDED, HOLDS, KEPT, STOPS, OVER)
S = 1_000_000_000
FROM_NS = 1_796_000_000 * S


def timeline(until_s: int, **stretches: list[tuple[float, str]]) -> Timeline:
    return Timeline(
        name="train",
        from_ns=FROM_NS,
        until_ns=FROM_NS + until_s * S,
        priorities=dict.fromkeys(stretches, 50000),
        stretches={
            alias: tuple(Stretch(FROM_NS + int(from_s * S), kind) for from_s, kind in found)
            for alias, found in stretches.items()
        },
    )


def printed(what: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get().splitlines()


def test_a_line_for_each_cluster_with_a_mark_for_each_cell() -> None:
    line = timeline(9, a=[(0, SENT), (2, WAITS), (4, GUARDED), (6, HOLDS), (8, KEPT)], bcd=[(0, SENT), (9, STOPS)])
    first, second, ticks, _ = printed(picture(line, 80), 80)
    assert ticks.split() == ["0", "s", "2", "s", "4", "s", "6", "s", "8", "s"]
    first, second, *_ = printed(picture(line, 27), 27)
    assert first.split(" ", 2)[0] == "a"
    assert first[7:].count(MARKS[HOLDS]) > 1
    assert second.startswith("bcd 50 ·")
    assert second.endswith(MARKS[STOPS])


def test_what_lasts_a_moment_has_its_cell() -> None:
    line = timeline(100, a=[(0, SENT), (0.001, WAITS), (0.002, GUARDED), (99.999, HOLDS), (100, KEPT)])
    assert [*dict.fromkeys(kinds(line, "a", 40))] == [SENT, WAITS, GUARDED, HOLDS, KEPT]


moments = st.lists(st.tuples(st.integers(0, 1_000), st.sampled_from(KINDS)), min_size=1, max_size=12)


@given(moments, st.integers(12, 120))
@example([(91, SENT)] * 12, 12)
def test_every_stretch_is_there_in_its_order(found: list[tuple[int, str]], cells: int) -> None:
    ordered = sorted(found, key=lambda moment: moment[0])
    shown = kinds(timeline(1_000, a=[(float(s), kind) for s, kind in ordered]), "a", cells)
    assert len(shown) == cells
    changes = [kind for index, kind in enumerate(shown) if index == 0 or shown[index - 1] != kind]
    wanted = [kind for index, (_, kind) in enumerate(ordered) if index == 0 or ordered[index - 1][1] != kind]
    begins = min(ordered[0][0] * (cells - 1) // 1_000, cells - len(ordered))  # all of them have room
    assert changes == (wanted if begins == 0 or wanted[0] == OVER else [OVER, *wanted])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, ["0 s"]),
        (3.5, ["0 s", "1 s", "2 s", "3 s"]),
        (0.5, ["0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s"]),
        (1_500, ["0 min", "5 min", "10 min", "15 min", "20 min"]),
        (40_000, ["0 h", "2 h", "4 h", "6 h", "8 h", "10 h"]),
        (864_000, ["0 d", "2 d", "4 d", "6 d", "8 d"]),
    ],
)
def test_the_axis_has_round_times(seconds: float, said: list[str]) -> None:
    assert axis(seconds, 60).split("  ")[0] == said[0]
    assert [word.strip() for word in axis(seconds, 60).split("  ") if word.strip()] == said


@given(st.integers(0, 10_000_000), st.integers(20, 100))
def test_the_axis_stays_under_its_cells(milliseconds: int, cells: int) -> None:
    assert len(axis(milliseconds / 1_000, cells)) <= cells


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_nothing_is_wider_than_the_terminal(columns: int) -> None:
    line = timeline(5, **{"https://pai-with-a-long-name.example": [(0, SENT), (2, KEPT)], "b": [(0, SENT)]})
    drawn = printed(picture(line, columns), columns)
    assert max(map(len, drawn)) <= columns
    assert drawn[0].startswith("https://pai-with-a-long…")
    step = Line(1, 0, "https://pai-with-a-long-name.example", "scheduled", "R2", "it ran for " + "a while " * 40)
    assert max(map(len, printed(told([step], lambda _: "now"), columns))) <= columns


def test_a_wide_alias_does_not_shift_its_line() -> None:
    """As it was: characters were counted, and its marks stood too far right, out of step with the axis."""
    line = timeline(5, **{alias: [(0, WAITS), (2, KEPT)] for alias in ("北京-h100", "lab", "北京" * 12)})
    *rows, _, _ = printed(picture(line, 80), 80)
    assert {cell_len(row.partition(MARKS[WAITS])[0]) for row in rows} == {28}
    assert {cell_len(row) for row in rows} == {79}
    assert rows[2].startswith("北京" * 5 + "北… ")


def test_what_a_terminal_would_obey_is_shown_as_it_is_written() -> None:
    """An alias is what a job's user thought of; whoever explains the job may be somebody else."""
    alias = "a\x1b[2J\n"
    step = Line(1, 0, alias, "given up", "R21", "ann declared: \x1b[31mred\nand more")
    drawn = printed(picture(timeline(5, **{alias: [(0, SENT), (2, KEPT)], "b": [(0, SENT)]}), 80), 80)
    (row,) = printed(told([step], lambda _: "now"), 120)
    assert all(line.isprintable() for line in (*drawn, row))
    assert drawn[0].startswith(r"a\x1b[2J\n 50 ·")
    assert row.rstrip() == r"now R21 a\x1b[2J\n given up: ann declared: \x1b[31mred\nand more"
