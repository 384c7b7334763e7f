"""A log for the commands to look at, and a NATS server to keep it in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from events.server import EmbeddedServer
from services.cli.muster import app
from tests.console.manifests import node, pod

runner = CliRunner()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[str]:
    with EmbeddedServer(tmp_path / "nats") as running:
        yield running.url


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that `simulate` left behind."""
    manifests = tmp_path / "all.json"
    manifests.write_text("\n---\n".join(map(json.dumps, [node("n1"), pod("a"), pod("b", "99")])))
    path = tmp_path / "log.db"
    said = runner.invoke(app, ["simulate", "-f", str(manifests), "--log", str(path), "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["bound"] == {"default/a": "n1"}
    return path
