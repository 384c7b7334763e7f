"""A minute of chaos, as `make chaos` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_minute_of_chaos(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "0.8", "--seed", "20", "--keep", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "seed-20" / "report.json").read_bytes())
    assert sum(report["kills"].values()) > 5
    assert report["seen"]["pods bound"] > 20
    assert report["acknowledged"] > 50
    assert report["reproduced"] == report["decided"] > 5
