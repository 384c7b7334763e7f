"""One line for each record."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.telemetry import logs


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger, which is put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_with_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod")
    logging.getLogger("services.feed").warning("set aside %s", "it", extra={"place": 17, "subject": "muster.prod.x"})
    line = json.loads(capsys.readouterr().err)
    assert re.fullmatch(r"....-..-..T..:..:..\....\+00:00", line.pop("time"))
    assert line == {
        "level": "warning",
        "service": "feed",
        "cluster": "prod",
        "message": "set aside it",
        "logger": "services.feed",
        "place": 17,
        "subject": "muster.prod.x",
    }


def test_no_call_passes_a_field_that_each_line_has() -> None:
    """As it was: of a job that could not be submitted the line named its cluster for that of the federation's log."""
    own = {"time", "level", "service", "cluster", "message", "logger", "error"}
    for package in ("services", "events"):
        for file in (Path(__file__).parents[2] / package).rglob("*.py"):
            for call in ast.walk(ast.parse(file.read_text())):
                if isinstance(call, ast.keyword) and call.arg == "extra" and isinstance(call.value, ast.Dict):
                    names = {key.value for key in call.value.keys if isinstance(key, ast.Constant)}
                    assert not names & own, f"{file}:{call.lineno}"


def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: two\nlines" in json.loads(line)["error"]


def test_what_is_no_json_is_written_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", style="json")
    logging.warning("odd", extra={"thing": object, "names": {"a"}})
    assert json.loads(capsys.readouterr().err)["thing"] == "<class 'object'>"


def test_a_name_that_is_not_utf_8_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As it was: a traceback of the encoder, and nothing of why the service ended."""
    name = os.fsdecode(b"\xff.pem")
    logs.configure("feed", "prod", style="json")
    logging.error("%s: expected certificates", name, extra={"thing": object})
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == f"{name}: expected certificates"
    assert json.loads(line)["thing"] == "<class 'object'>"


def test_text_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    logs.configure("feed", "prod")
    logging.warning("set aside", extra={"place": 17, "why": r"no \d"})
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} feed WARNING set aside place=17 why=no \\d\n", line)


def test_what_another_handler_made_of_a_record_is_no_field() -> None:
    record = logging.makeLogRecord({"msg": "set aside %s", "args": ("it",), "place": 17})
    logging.Formatter("%(asctime)s %(message)s").format(record)
    line = json.loads(logs.JsonFormatter("feed", "prod").format(record))
    assert line.keys() == {"time", "level", "service", "cluster", "message", "logger", "place"}
    assert logs.TextFormatter("feed").format(record).endswith(" set aside it place=17")


def test_text_escapes_what_a_terminal_would_act_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", style="text")
    logging.warning("written behind, and refused: %s\nand more", "403 Forbidden: no\x1b[2J", extra={"name_": "a\x07"})
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(r"403 Forbidden: no\x1b[2J")
    assert second == r"and more name_=a\x07"


def test_text_escapes_it_in_an_exception_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", style="text")
    try:
        raise ValueError("no\x1b[2J\nand more")
    except ValueError:
        logging.exception("failed")
    *_, one, other = capsys.readouterr().err.splitlines()
    assert (one, other) == (r"ValueError: no\x1b[2J", "and more")


def test_text_where_it_is_asked_for_with_an_exception_below(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", style="text")
    try:
        raise ValueError("bad")
    except ValueError:
        logging.exception("failed")
    first, *traceback = capsys.readouterr().err.splitlines()
    assert first.endswith(" feed ERROR failed")
    assert (traceback[0], traceback[-1]) == ("Traceback (most recent call last):", "ValueError: bad")


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", level="error")
    logging.warning("quiet")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_is_hidden_stands_in_no_line(
    style: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_hidden", [])
    logs.configure("feed", "prod", style=style)
    logs.hide(["", "a", 'hunter"2', "hunter", "prod", "20"])
    try:
        raise ValueError('hunter"2')
    except ValueError:
        logging.exception("failed at hunter", extra={"url": "http://hunter", "place": 2020})
    told = capsys.readouterr().err
    assert "hunter" not in told
    if style == "json":
        assert (json.loads(told)["cluster"], json.loads(told)["place"]) == ("prod", 2020), "what is no text of a call"
    assert "failed at ***" in told
    assert "http://***" in told


def test_of_what_is_hidden_the_longest_goes_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the rest of it would stand there. Three characters may be a common word."""
    monkeypatch.setattr(logs, "_hidden", [])
    logs.configure("feed", "prod", style="text")
    logs.hide(["word", "password", "wordpass", "abc"])
    logging.warning("password wordpass word abc")
    assert capsys.readouterr().err.endswith(" *** *** *** abc\n")


def test_warnings_are_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("feed", "prod", style="json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logs.configure("feed", "prod", style="json")
        warnings.warn("it is old", DeprecationWarning, stacklevel=1)
    logging.captureWarnings(False)
    (line,) = capsys.readouterr().err.splitlines()
    assert "DeprecationWarning: it is old" in json.loads(line)["message"]
