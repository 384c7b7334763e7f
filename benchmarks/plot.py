"""Small plots as SVG, without a library: panels side by side, each with its own axis, both axes from 0."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 240, 60, 40, 90
COLOURS = ("#1f77b4", "#d62728", "#2ca02c")


class Series(NamedTuple):
    label: str
    x: list[float]
    y: list[float]


class Panel(NamedTuple):
    title: str
    unit: str
    series: list[Series]
    asked: tuple[float, float, str]
    """A point with a label: what was to be reached."""


def write(path: Path, panels: list[Panel], x_label: str = "pods") -> None:
    width = LEFT + len(panels) * (WIDTH + GAP)
    parts = [_panel(panel, LEFT + number * (WIDTH + GAP), x_label) for number, panel in enumerate(panels)]
    style = "font: 12px sans-serif; fill: #222"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 60}" style="{style}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel, left: int, x_label: str) -> str:
    most_x = max(x for series in panel.series for x in series.x)
    step = _step(max([panel.asked[1], *(y for series in panel.series for y in series.y)]))
    most_y = step * math.ceil(max(panel.asked[1], *(max(series.y) for series in panel.series)) / step)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(left + x / most_x * WIDTH, 1), round(TOP + HEIGHT - y / most_y * HEIGHT, 1)

    lines = [f'<text x="{left}" y="{TOP - 18}" font-weight="bold">{escape(panel.title)}</text>\n']
    for tick in range(round(most_y / step) + 1):
        _, y = at(0, tick * step)
        lines.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y}" y2="{y}" stroke="#ddd"/>\n')
        lines.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick * step:,g}</text>\n')
    for fraction in range(5):
        x, y = at(most_x * fraction / 4, 0)
        lines.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{most_x * fraction / 4:,.0f}</text>\n')
    lines.append(f'<text x="{left}" y="{TOP + HEIGHT + 38}">{escape(panel.unit)}, over {escape(x_label)}</text>\n')
    x, y = at(panel.asked[0], panel.asked[1])
    lines.append(f'<path d="M{x - 5},{y} h10 M{x},{y - 5} v10" stroke="#222" stroke-width="2"/>\n')
    lines.append(f'<text x="{x - 5}" y="{y - 24}">{escape(panel.asked[2])}</text>\n')
    for number, (series, colour) in enumerate(zip(panel.series, COLOURS, strict=False)):
        points = [at(*point) for point in zip(series.x, series.y, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>\n')
        lines += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>\n' for x, y in points]
        x = left + WIDTH - 130
        lines.append(
            f'<text x="{x}" y="{TOP + HEIGHT - 12 - 18 * number}" fill="{colour}">{escape(series.label)}</text>\n'
        )
    return "".join(lines)


def _step(most: float) -> float:
    """A round distance between about five ticks."""
    rough = most / 5
    power = 10 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
