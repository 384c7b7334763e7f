"""docs/telemetry.md names the spans and metrics that the code tells, with their attributes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from services import telemetry

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8").partition("\n## Traces\n")[2]


def _calls() -> Iterator[tuple[str, str, ast.Call]]:
    """(what stands before the dot, the function, the call) of all in services/ that name both."""
    for file in (ROOT / "services").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr, node


def test_every_metric_is_documented_with_its_attributes() -> None:
    given: dict[str, set[str]] = defaultdict(set)
    for on, called, call in _calls():
        if on.startswith("telemetry.") and called in ("add", "set", "record"):
            instrument = getattr(telemetry, on.partition(".")[2])
            given[instrument.name].update(str(keyword.arg) for keyword in call.keywords)
    assert set(given) == {instrument.name for instrument in telemetry.INSTRUMENTS}
    documented: dict[str, set[str]] = {}
    for names, attributes in re.findall(r"^\| (`muster\.[^|]*) \|([^|]*)\|", TABLES, re.MULTILINE):
        named = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", attributes)))  # in brackets: values
        documented |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), named)
    assert documented == given


def test_every_span_of_a_gang_is_documented() -> None:
    told = {
        ast.literal_eval(call.args[0]) for on, called, call in _calls() if (on, called) == ("telemetry", "gang_span")
    }
    assert set(re.findall(r"^\| `(\w+)`[^|]*\| \w+ \|[^|]*\|[^|]*\|$", TABLES, re.MULTILINE)) == told
