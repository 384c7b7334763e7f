"""Each cell of the matrix in ``docs/dialects.md`` is what its scenario finds."""

from __future__ import annotations

import pytest

from tests.dialects import matrix
from tests.dialects.behaviours import BEHAVIOURS
from tests.dialects.declare import DIALECTS, Dialect


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_cell_says_what_its_scenario_finds(dialect: Dialect, behaviour: str) -> None:
    """Stale? `python -m tests.dialects.matrix` writes the table anew; read the difference before you commit it."""
    assert matrix.committed()[dialect.name][behaviour] == BEHAVIOURS[behaviour](dialect)


def test_the_table_has_these_cells_and_no_others() -> None:
    cells = matrix.committed()
    assert [*cells] == [dialect.name for dialect in DIALECTS]
    assert matrix.written(cells) == matrix.DOCUMENT.read_text(encoding="utf-8")
