"""The matrix of dialects and behaviours in ``docs/dialects.md``, as the scenarios find it.

``python -m tests.dialects.matrix`` writes the table between its markers; a test fails when the committed one is stale.
"""

from __future__ import annotations

from pathlib import Path

from tests.dialects.behaviours import BEHAVIOURS
from tests.dialects.declare import DIALECTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "dialects.md"
BEGIN, END = "<!-- matrix: written by python -m tests.dialects.matrix -->", "<!-- matrix: end -->"


def committed() -> dict[str, dict[str, str]]:
    """Dialect → behaviour → the cell, as the document has it."""
    _, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    lines = [_cells(line) for line in rest.partition(END)[0].strip().splitlines()]
    if len(lines) < 2:
        return {}
    columns = lines[0][1:]
    return {line[0]: dict(zip(columns, line[1:], strict=True)) for line in lines[2:]}


def observed() -> dict[str, dict[str, str]]:
    """The same, from a run."""
    return {dialect.name: {name: run(dialect) for name, run in BEHAVIOURS.items()} for dialect in DIALECTS}


def rendered(cells: dict[str, dict[str, str]]) -> str:
    header = ["", *BEHAVIOURS]
    rows = [[dialect, *(row[name] for name in BEHAVIOURS)] for dialect, row in cells.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))


def written(cells: dict[str, dict[str, str]]) -> str:
    """The document with this table in the place of its own."""
    before, begin, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{DOCUMENT}: expected the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{rendered(cells)}\n{END}{after}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


if __name__ == "__main__":
    DOCUMENT.write_text(written(observed()), encoding="utf-8")
