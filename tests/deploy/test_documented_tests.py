"""The tests that docs/dialects.md names for its answers exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_table_of_contradictions_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "dialects.md").read_text()))
    assert len(named) > 10
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    assert {name for name in named if not any(f"def {name}(" in text for text in texts)} == set()
