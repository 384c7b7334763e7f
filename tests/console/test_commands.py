"""The commands: exit codes, one JSON object on the last line, errors in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.__main__ import app

runner = CliRunner()


def test_the_version_is_told() -> None:
    said = runner.invoke(app, ["--version"])
    assert (said.exit_code, said.stdout.split()[0]) == (0, "muster")


def test_verify_says_yes(log: Path) -> None:
    said = runner.invoke(app, ["verify", str(log), "--json"])
    found = json.loads(said.stdout.splitlines()[-1])
    assert said.exit_code == 0
    assert found["verified"] is True
    assert found["decided"] == found["reproduced"] > 0


def test_verify_for_people_says_yes_as_well(log: Path) -> None:
    said = runner.invoke(app, ["verify", str(log)])
    assert said.exit_code == 0
    assert "verified: every decision is reproduced" in said.output


def test_verify_shows_both_sides_of_a_difference(log: Path) -> None:
    import sqlite3

    with sqlite3.connect(log) as connection:
        connection.execute("update commits set payload = replace(payload, 'n1', 'n2') where subject like '%planner%'")
    said = runner.invoke(app, ["verify", str(log)])
    assert said.exit_code == 1
    assert "in the log" in said.output
    assert '"n2"' in said.output
    assert '"n1"' in said.output


def test_replay_at_a_place(log: Path) -> None:
    found = json.loads(runner.invoke(app, ["replay", str(log), "--at", "3", "--json"]).stdout)
    assert (found["sequence"], found["pods"]) == (3, {})
    found = json.loads(runner.invoke(app, ["replay", str(log), "--json"]).stdout)
    assert found["pods"] == {"bound": 1, "pending": 1}
    assert found["waiting_groups"]["pod/default/b"]["why"].startswith("0/1 nodes are available: 1 Insufficient cpu")


def test_export_copies_and_takes_up_where_it_ended(log: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "copy.db")
    first = json.loads(runner.invoke(app, ["export", str(log), target, "--json"]).stdout)
    again = json.loads(runner.invoke(app, ["export", str(log), target, "--json"]).stdout)
    assert first["copied"] == first["end"] > 0
    assert (again["copied"], again["end"]) == (0, first["end"])
    digests = [
        json.loads(runner.invoke(app, ["verify", where, "--json"]).stdout)["digest"] for where in (str(log), target)
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "nowhere.db"], "no such log"),
        (["verify", "README.md"], "expected a NATS URL"),
        (["replay", "{log}", "--at", "soon"], "expected a sequence, or a time"),
        (["replay", "{log}", "--cluster", "other"], "simulated"),
        (["simulate", "-f", "nowhere.yaml"], "nowhere.yaml"),
        (
            ["simulate", "-f", "{log}", "--profile", "best"],
            "expected one of default, binpack, coscheduling, koordinator, kube-batch",
        ),
        (["export", "{log}", "there.txt"], "expected a NATS URL"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(log: Path, arguments: list[str], said: str) -> None:
    result = runner.invoke(app, [argument.format(log=log) for argument in arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
