"""The commands: exit codes, one JSON object on the last line, errors in one line."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import typer.main
from typer.testing import CliRunner

from services.cli.muster import app, asked_for

runner = CliRunner()


def test_the_version_is_told() -> None:
    said = runner.invoke(app, ["--version"])
    assert (said.exit_code, said.stdout.split()[0]) == (0, "muster")


def test_every_command_has_json() -> None:
    def without(command: Any, name: str) -> list[str]:
        if hasattr(command, "commands"):
            return [one for each in command.commands.items() for one in without(each[1], f"{name} {each[0]}")]
        return [] if any("--json" in option.opts for option in command.params) else [name]

    assert without(typer.main.get_command(app), "muster") == []


def test_the_shell_completes_commands() -> None:
    words = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster re", "COMP_CWORD": "1"}
    said = runner.invoke(app, [], env=words, prog_name="muster")
    assert said.stdout.split() == ["replay", "retention"]


def test_a_command_is_the_same_where_it_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is all that a process builds of the command line: what it does not begin with, it does not need."""
    monkeypatch.setenv("COLUMNS", "80")
    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    for name, command in whole.commands.items():
        alone = typer.main.get_command(asked_for([name, "--json"]))
        assert isinstance(alone, typer.core.TyperGroup)
        assert list(alone.commands) == [name]
        names = [*getattr(command, "commands", ())]
        assert names == [*getattr(alone.commands[name], "commands", ())]
        for path in ([name], *([name, one] for one in names)):
            said = runner.invoke(asked_for(path), [*path, "--help"], prog_name="muster")
            assert (said.exit_code, said.stdout) == (
                0,
                runner.invoke(app, [*path, "--help"], prog_name="muster").stdout,
            )


@pytest.mark.parametrize("columns", ["50", "60", "79", "80"])
@pytest.mark.parametrize("path", [["policy", "set"], ["job", "explain"], ["demo"]])
def test_a_terminal_may_be_narrow(path: list[str], columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: names of options broke off, as ``--permit-waiting-…``."""
    monkeypatch.setenv("COLUMNS", columns)
    command: Any = typer.main.get_command(app)
    for word in path:
        command = command.commands[word]
    width = {"terminal_width": int(columns)}  # click's runner looks at no terminal
    said = runner.invoke(asked_for(path), [*path, "--help"], prog_name="muster", **width).stdout
    words = said.replace(",", " ").split()
    assert [one for option in command.params for one in option.opts if one.startswith("-") and one not in words] == []
    assert max(map(len, said.splitlines())) <= int(columns)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version", "planner"], ["plan"], ["_name"]])
def test_what_begins_with_no_command_sees_all_of_them(arguments: list[str]) -> None:
    assert asked_for(arguments) is app


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


def test_a_snapshot_gives_way_to_everything_else_on_the_machine(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the binder's child, beside services whose decisions people wait for."""
    nicer: list[int] = []
    monkeypatch.setattr(os, "nice", nicer.append)
    said = runner.invoke(app, ["snapshot", str(log), "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["sequence"] > 0
    assert [by > 0 for by in nicer] == [True]


def test_replay_at_a_place(log: Path) -> None:
    found = json.loads(runner.invoke(app, ["replay", str(log), "--at", "3", "--json"]).stdout)
    assert (found["sequence"], found["pods"]) == (3, {})
    assert found["time"].endswith("Z")
    end = found["end"]
    found = json.loads(runner.invoke(app, ["replay", str(log), "--json"]).stdout)
    assert found["sequence"] == found["end"] == end > 3
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
        (["simulate", "-f", "", "-f", "{log}"], "'': expected the path of a file or directory, found nothing"),
        (["simulate", "-f", "{directory}"], "expected a file of it to be called *.yaml, *.yml, *.json"),
        (["export", "{log}", "there.txt"], "expected a NATS URL"),
        (["export", "{log}", "{directory}/no/where.db"], "there is no directory {directory}/no"),
        (
            ["import", "{log}", "nats://127.0.0.1:1/prod"],
            "a copy keeps its cluster's name, expected 'simulated' behind",
        ),
        (["export", "{log}", "nats://"], "nats://: expected a NATS URL such as nats://127.0.0.1:4222"),
        (["verify", "nats://[::1/prod"], "nats://[::1/prod: expected a NATS URL"),
        (["status", "nats://user:pass/word@host/prod"], "error: nats://host/prod: expected a NATS URL"),
        (["replay", "nats://user:secret@host/a.b"], "error: nats://host/a.b: a log in NATS needs"),
        (["replay", "http://user:secret@host/a"], "error: http://host/a: expected a NATS URL"),
        (["replay", "user:secret@host:4222"], "error: host:4222: expected a NATS URL"),
        (["replay", "user:secret,secret@host"], "error: host: expected a NATS URL"),
        (["replay", "nats://user:secret/a@h"], "expected a NATS URL such as nats://127.0.0.1:4222; a password with /"),
        (["replay", "nats://user:secret,secret@h"], "error: nats://h: expected a NATS URL"),
        (["replay", "at@home.db"], "error: at@home.db: no such log"),
        (["subscribe", ">", "--nats", "user:secret@host"], "error: host: expected a NATS URL"),
        (["import", "{log}", "nats://user:secret@host/other"], "error: nats://host/other: a copy keeps"),
        (["import", "{log}", "another.db"], "error: another.db: expected a NATS URL"),
        (["retention", "{log}", "--archive", "nats://u:secret@host/a"], "--archive nats://host/a: expected the path"),
        (["retention", "{log}", "--archive", "there.txt"], "--archive there.txt: expected the path of a file *.db"),
        (["verify", ""], "'': expected a NATS URL"),
        (["status", "--nats", ""], "'': expected a NATS URL"),
        (["status", "{log}", "--nats", "nats://127.0.0.1:1"], "expected LOG or --nats, not both"),
        (["export", "{log}", ""], "'': expected a NATS URL"),
        (["job", "explain", "a", "--nats", ""], "'': expected a NATS URL"),
        (
            ["job", "explain", "a", "--nats", "{log}", "--federation", "simulated"],
            "error: this is the log of the cluster 'simulated', not of a federation",
        ),
        (["job", "list", "--federation", "a b"], "--federation 'a b': expected letters, digits, '-' and '_'"),
        (["job", "list", "--nats", "nats://u:secret@host/a.db"], "error: --nats, behind the URL: expected letters"),
        (["simulate", "-f", "{log}", "--log", "nats://host/a"], "expected the path of a file *.db"),
        (["simulate", "-f", "/dev/zero"], "error: /dev/zero: expected at most 1 MiB of text"),
        (["verify", "{directory}/nothing.db"], "nothing.db: an empty file; expected"),
        (["job", "list", "--nats", "nats://[::1"], "expected a NATS URL"),
        (["subscribe", "PodBound", "--nats", "http://127.0.0.1:4222"], "expected a NATS URL"),
        (["demo", "--trace", "borg", "--dir", "."], "--trace borg: expected openb or dlrm"),
        (["subscribe", "PodBound", "--nats", "{log}"], "log.db: expected a NATS URL"),
        (
            ["subscribe", ">", "--cluster", "federation"],
            "error: a federation's log has no feed; `muster job list` tells",
        ),
        (["job", "list", "--nats", "host"], "error: host: expected a NATS URL"),
        (["demo", "--keep", "README.md"], "README.md: File exists"),
        (["demo", "--at-most", "nan"], "--at-most nan: expected a number of seconds"),
        (
            ["job", "give-up", "a", "--cluster", "c", "--reason", " "],
            "--reason: expected why nothing of it can be there",
        ),
        (["job", "specialize", "nowhere.yaml", "--cluster", "a"], "nowhere.yaml: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    log: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.documents.MOST_BYTES", 1 << 20)
    (log.parent / "empty").mkdir()
    (log.parent / "empty" / "nothing.db").touch()
    result = runner.invoke(app, [argument.format(log=log, directory=log.parent / "empty") for argument in arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said.format(directory=log.parent / "empty") in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "secret" not in result.stderr


def test_a_log_that_holds_something_else_is_named(log: Path) -> None:
    other = log.parent / "other.json"
    other.write_text((log.parent / "all.json").read_text().replace("n1", "n2"))
    said = runner.invoke(app, ["simulate", "-f", str(other), "--log", str(log)])
    assert said.exit_code == 2
    assert said.stderr == f"error: --log {log}: expected a new file, found another log\n"


def test_a_simulation_that_differs_in_its_middle_alone_is_another(log: Path) -> None:
    """Times are fixed there, and the last commits alike. As it was: the old log stayed, or was gone on with."""
    same = runner.invoke(app, ["simulate", "-f", str(log.parent / "all.json"), "--log", str(log)])
    assert same.exit_code == 0
    node, *pods = (log.parent / "all.json").read_text().split("\n---\n")
    larger = json.loads(node)
    larger["status"]["allocatable"]["memory"] = "77Gi"
    (log.parent / "other.json").write_text("\n---\n".join([json.dumps(larger), *pods]))
    said = runner.invoke(app, ["simulate", "-f", str(log.parent / "other.json"), "--log", str(log)])
    assert said.stderr == f"error: --log {log}: expected a new file, found another log\n"


def test_an_empty_place_is_no_place(log: Path) -> None:
    """``--at "$PLACE"`` of a script that knows none would show the end of the log instead."""
    said = runner.invoke(app, ["replay", str(log), "--at", ""])
    assert (said.exit_code, said.stderr.strip()) == (
        2,
        "error: --at '': expected a sequence, or a time such as 2026-11-21T19:05:00Z",
    )


@pytest.mark.parametrize(
    "archive", ["{log}", "{directory}/../{name}/log.db", "{directory}/link.db", "nats://127.0.0.1:4222/prod"]
)
def test_a_log_is_not_its_own_archive(log: Path, archive: str) -> None:
    """As it was: what was to be archived stood in the archive already, and was purged."""
    (log.parent / "link.db").hardlink_to(log)
    archive = archive.format(log=log, directory=log.parent, name=log.parent.name)
    said = runner.invoke(app, ["retention", str(log), "--archive", archive, "--days", "1"])
    assert said.exit_code == 2
    assert said.stderr.startswith(f"error: --archive {archive}: ")


def test_files_that_are_no_jobs_are_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    said = []
    for content in (b"\x88\x00", b"a: b: c", b""):
        file.write_bytes(content)
        found = runner.invoke(app, ["job", "submit", str(file), "--nats", "nats://127.0.0.1:1"])
        assert (found.exit_code, found.stderr.count("\n")) == (2, 1)
        said.append(found.stderr.removeprefix(f"error: {file}: ").split(":")[0].strip())
    assert said == [
        "expected text in UTF-8, found the byte 0x88 at 0",
        "expected YAML",
        "expected one YAML document, found 0",
    ]


def test_what_asks_a_federator_does_not_take_a_file(log: Path) -> None:
    """It waited ten seconds for a server of that name."""
    said = runner.invoke(app, ["job", "list", "--nats", str(log)])
    assert said.exit_code == 2
    assert "this is asked of a federator: expected a NATS URL" in said.stderr


def _options(command: Any) -> Iterator[Any]:
    """Of a command and of all below it."""
    yield from command.params
    for one in getattr(command, "commands", {}).values():
        yield from _options(one)


def test_the_help_says_of_each_option_what_it_is_and_what_it_takes() -> None:
    options = [option for option in _options(typer.main.get_command(app)) if "completion" not in option.name]
    assert len(options) > 100
    for option in options:
        assert option.help, option.name
        assert getattr(option, "is_flag", False) or option.metavar, option.name


@pytest.mark.parametrize("name", ["nats", "cluster", "kubeconfig", "scheduler_names", "shard"])
def test_the_help_names_the_variable_that_an_option_goes_before(name: str) -> None:
    command: Any = typer.main.get_command(app)
    (option,) = [option for option in command.commands["run"].params if option.name == name]
    assert f"$MUSTER_{'NATS_URL' if name == 'nats' else name.upper()}" in option.help


def _muster(arguments: str, log: Path | str = "", **streams: Any) -> subprocess.Popen[bytes]:
    """By a shell. `log` stands for ``{log}``; like the clone, it may lie below a directory with blanks in its name."""
    command = arguments.format(log=shlex.quote(str(log)))
    return subprocess.Popen(f"exec {shlex.quote(sys.executable)} -m services {command}", shell=True, **streams)


@pytest.mark.parametrize(
    "arguments", ["verify {log}", "replay {log} --json", "explain {log} default/b", "status {log}", "--help"]
)
def test_of_a_reader_that_went_away_the_exit_code_is_that_of_a_broken_pipe(log: Path, arguments: str) -> None:
    """1 would say that a decision was not reproduced."""
    reading, writing = os.pipe()
    os.close(reading)
    process = _muster(arguments, log, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (141, b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--version >&-", 0), ("verify {log} >&-", 0), ("verify {log} --json >&-", 0), ("verify nowhere.db 2>&-", 2)],
)
def test_who_closes_the_output_hears_nothing(log: Path, arguments: str, code: int) -> None:
    process = _muster(arguments, log, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (code, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["verify {log}", "replay {log} --json"])
def test_a_full_disk_is_one_line(log: Path, arguments: str) -> None:
    process = _muster(f"{arguments} > /dev/full", log, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (2, b"error: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", ["verify {log} > /dev/full", "verify nowhere.db", "verify --no-such-option", "planner --nats host"]
)
def test_what_cannot_be_told_either_keeps_its_exit_code(log: Path, arguments: str) -> None:
    """As it was: 1, which says that the answer is no."""
    process = _muster(f"{arguments} 2> /dev/full", log)
    assert process.wait(timeout=120) == 2


def test_who_closes_the_input_gives_none() -> None:
    """As it was: a traceback."""
    process = _muster("simulate -f - <&-", stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (2, b"error: stdin: expected Kubernetes objects, found none\n")


def test_what_an_encoding_lacks_is_replaced(log: Path) -> None:
    """As it was: a traceback, and exit code 1, which says that the answer is no."""
    process = _muster(
        f"export {{log}} {shlex.quote(str(log.parent / 'ä.db'))}",
        log,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
    )
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert b"?.db" in said


def test_an_argument_that_is_no_text_is_named(nats: str) -> None:
    """As it was: a traceback."""
    process = _muster(f"job status $'\\xff' --nats {nats}", stderr=subprocess.PIPE, executable="/bin/bash")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.endswith(b"expected text in UTF-8\n")


def test_what_is_watched_through_a_pipe_comes_as_it_is_seen(log: Path) -> None:
    """As it was: nothing before the end. And as `status` shows it, without blanks at the ends of its lines."""
    process = _muster("status {log} --watch", log, stdout=subprocess.PIPE, env=os.environ | {"COLUMNS": "0"})
    assert process.stdout is not None
    lines = list(_lines(process.stdout))
    process.stdout.close()
    heads = [line for line in lines if line.startswith(b"simulated: commit ")]
    assert (len(heads), process.wait(timeout=120)) == (2, 0)
    assert [line for line in lines if line.endswith(b" \n")] == []


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Up to the second picture."""
    seen = 0
    for line in stream:
        yield line
        seen += line.startswith(b"simulated: commit ")
        if seen == 2:
            return


def test_a_planner_that_waits_for_nats_ends_when_it_is_told_to() -> None:
    """As it was: it was given time to say in the log that it leaves, and ended with 4 when NATS was given up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = _muster(f"planner --nats nats://127.0.0.1:{silent.getsockname()[1]}", stderr=subprocess.PIPE)
        connection, _ = silent.accept()
        with connection:
            process.terminate()
            _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert b'"error"' not in said


@pytest.mark.parametrize("command", ["status --watch", "subscribe PodBound"])
def test_what_is_watched_ends_with_0_while_it_waits_for_nats(command: str) -> None:
    """As it was: a status that was watched ended by the signal, with 143, before it had the log."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = _muster(f"{command} --nats nats://127.0.0.1:{silent.getsockname()[1]}")
        connection, _ = silent.accept()
        with connection:
            process.terminate()
            assert process.wait(timeout=120) == 0


def test_who_is_told_to_end_ends_although_nobody_reads_what_it_prints() -> None:
    program = """
import asyncio, sys
from services.console import commands
commands.GIVE_BACK_S = 0.2
async def work():
    commands.end_when_told()
    print("ready", file=sys.stderr, flush=True)
    while True:
        print("x" * 65536, flush=True)
asyncio.run(work())
"""
    held_up = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with held_up:
        assert held_up.stderr is not None
        assert held_up.stderr.readline() == b"ready\n"
        held_up.terminate()
        assert held_up.wait(timeout=60) == -signal.SIGALRM


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ("planner --nats host", {}, b"--nats, MUSTER_NATS_URL: host: expected a NATS URL such as"),
        (
            "feed",
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            b"OTEL_TRACES_EXPORTER: expected otlp (over http), console or none",
        ),
        (
            "feed",
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "0"},
            b"OTEL_BSP_MAX_QUEUE_SIZE: expected a whole number of at least 1",
        ),
    ],
)
def test_a_service_names_a_setting_that_is_wrong(arguments: str, environment: dict[str, str], said: bytes) -> None:
    process = _muster(arguments, stderr=subprocess.PIPE, env=os.environ | environment)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("service", ["ingest", "planner", "binder", "feed"])
def test_every_service_of_a_cluster_takes_the_same_flags(service: str) -> None:
    """As it was: two of them refused the one flag that they do not need, and a script for all had to know which."""
    flags = ["--nats", "nats://127.0.0.1:9", "--cluster", "no name", "--kubeconfig", "file"]
    given = runner.invoke(app, [service, *flags])
    assert given.exit_code == 2
    assert given.stderr.startswith("error: --cluster: expected ")


def test_interrupted_while_it_is_imported_it_ends_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join((str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])))
    process = _muster("--version", stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path})
    assert process.communicate(timeout=120)[1] == b""
    assert process.returncode == -signal.SIGINT
