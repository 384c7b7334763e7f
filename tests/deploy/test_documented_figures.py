"""`make bench` runs the commands that benchmarks/README.md gives for its figures."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.__main__ import RUNS

README = Path(__file__).resolve().parents[2] / "benchmarks" / "README.md"


def test_the_command_of_each_section_is_run() -> None:
    """As it was: five gave other figures than stand there, or less of them."""
    sections = re.split(r"^#+ ", README.read_text(), flags=re.MULTILINE)
    headed = [re.match(r"[^\n]*\n\n`python (-m benchmarks\.[^`]+)`", section) for section in sections]
    commands = [re.sub(r" --plot \S+", "", found[1]) for found in headed if found is not None]
    assert len(commands) > 10
    run = [" ".join(command) for _, command in RUNS]
    assert [command for command in commands if command not in run] == []
    assert {command.split()[1] for command in run} == {command.split()[1] for command in commands}
