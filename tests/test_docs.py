"""What the documents name is there: files, modules, `make` targets, muster's commands and their options, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import msgspec
import pytest
import typer.main

from services.cli.muster import app
from services.federator import rules
from services.federator import snapshot as federation
from services.state import State
from services.state.reasons import REASONS

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for top in ROOT.iterdir()
    if not top.name.startswith(".") and top.name != "out"
    for path in (top.rglob("*") if top.is_dir() else [top])
)
DOCUMENTS = [ROOT / name for name in FILES if name.endswith(".md")]
TOP = {name.partition("/")[0] for name in FILES}
COMMAND: Any = typer.main.get_command(app)
MADE = re.compile(r"^([a-z0-9]+):", re.MULTILINE)
END = re.compile(r"\s[&|>]+(\s|$)|\s#\s|…|`")


def _read(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def _spans(text: str) -> list[str]:
    """What stands in backticks, and the lines of blocks."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    indented = [line.strip() for line in rest.splitlines() if line.startswith("    ")]
    return [*lines, *indented, *(" ".join(span.split()) for span in re.findall(r"`([^`]+)`", rest))]


def _files(document: Path) -> Iterator[str]:
    """What looks like one of ours: a path below the root, or a file of code or text by its last names."""
    for span in _spans(_read(document)):
        if re.fullmatch(r"(?:[\w.-]+/)+[\w.-]*", span) and (
            span.partition("/")[0] in TOP or re.search(r"\.(py|md)$", span)
        ):
            yield span.rstrip("/")
        elif re.fullmatch(r"[\w-]+\.(py|md|json)", span):
            yield span


def _is_there(name: str, document: Path) -> bool:
    return any(f"/{path}".endswith(f"/{name}") for path in FILES) or (document.parent / name).exists()


def _anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", _read(document), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


def documents(function: Any) -> Any:
    return pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))(function)


@documents
def test_files_that_are_named_are_there(document: Path) -> None:
    assert [name for name in _files(document) if not _is_there(name, document)] == []


@documents
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", _read(document)):
        path, _, anchor = link.partition("#")
        target = (document.parent / path) if path else document
        if "://" not in link and not (target.exists() and (not anchor or anchor in _anchors(target))):
            broken.append(link)
    assert broken == []


@documents
def test_modules_that_are_run_are_there(document: Path) -> None:
    named = re.findall(r"python -m (\w+(?:\.\w+)*)", _read(document))
    lost = {name for name in named if name.partition(".")[0] in TOP and not _module(name)}
    assert lost == set()


def _module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@documents
def test_targets_that_are_made_are_there(document: Path) -> None:
    targets = set(MADE.findall((ROOT / "Makefile").read_text()))
    named = {span.split()[1] for span in _spans(_read(document)) if re.match(r"make [a-z]", span)}
    assert named - targets == set()


@documents
def test_commands_that_are_shown_can_be_given(document: Path) -> None:
    """Their names and their options' names."""
    wrong = []
    for span in _spans(_read(document)):
        found = re.match(r"(?:docker run .*|\.venv/bin/)?\bmuster ([a-z].*)", span)
        if found and (said := _misfit(found[1])):
            wrong.append(f"{span}: {said}")
    assert wrong == []


def _misfit(line: str) -> str:
    """What is wrong with the command, without its arguments' values."""
    words = shlex.split(END.split(line)[0].replace("'", "")) if "[" not in line else re.split(r"[\s\[\]]+", line)
    command: Any = COMMAND
    for word in words:
        if not hasattr(command, "commands"):
            break
        each = [command.commands.get(name) for name in re.split(r"[|\\]+", word)]
        if None in each:
            return f"no command {word!r}"
        command = each[0]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0].rstrip(",;)") for word in words if word.startswith("--")}
    return ", ".join(sorted(given - options - {"--help"}))


def _parameters(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        yield f"{name} {parameter.opts[0]}", parameter
    for each, below in getattr(command, "commands", {}).items():
        yield from _parameters(below, f"{name} {each}")


def test_each_argument_and_option_says_what_it_is() -> None:
    known = dict(_parameters(COMMAND, "muster"))
    assert len(known) > 100
    assert [name for name, parameter in known.items() if not getattr(parameter, "help", "")] == []


def test_a_list_of_commands_says_what_each_does_and_leaves_the_rest_to_its_own_help() -> None:
    lists = [COMMAND, *(group for group in COMMAND.commands.values() if hasattr(group, "commands"))]
    said = {name: command.help.partition("\n\n")[0] for group in lists for name, command in group.commands.items()}
    assert [name for name, first in said.items() if "\n" in first or "Exit code" in first] == []


def test_decisions_are_numbered_and_those_that_are_named_are_there() -> None:
    numbers = [int(number) for number in re.findall(r"^\*\*D(\d+)\. ", _read(ROOT / "ARCHITECTURE.md"), re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    named = {int(number) for document in DOCUMENTS for number in re.findall(r"\bD(\d+)\b", _read(document))}
    assert named - set(numbers) == set()


def test_the_rules_of_a_federation_read_alike_beside_their_code_and_for_users() -> None:
    numbered = re.compile(r"^\W*R(\d+)\. (.*?)(?=^\W*R\d+\. |\n\n)", re.DOTALL | re.MULTILINE)
    beside_the_code, for_users = (
        {number: " ".join(rule.replace("**", "").split()) for number, rule in numbered.findall(text)}
        for text in (rules.__doc__ or "", _read(ROOT / "docs/federation.md"))
    )
    assert len(for_users) == 22
    assert beside_the_code == for_users


def test_the_table_of_themes_has_each_decision() -> None:
    text = _read(ROOT / "ARCHITECTURE.md")
    table = text[text.index("| theme | decisions |") : text.index("**D1. ")]
    assert set(re.findall(r"\bD\d+\b", table)) == set(re.findall(r"^\*\*(D\d+)\. ", text, re.MULTILINE))


def test_what_bounds_each_attribute_of_a_state_is_told() -> None:
    """Of all that is recorded or derived, but for single values; D63 has a cluster's, D65 a federation's."""
    text = _read(ROOT / "ARCHITECTURE.md")
    of_one_commit = {"moved", "regrouped"}
    empty = State()
    attributes = {name for name in State.__slots__ if not isinstance(getattr(empty, name), str | int | None)}
    recorded = {field.name for field in msgspec.structs.fields(federation.Snapshot) if get_origin(field.type) is dict}
    assert _bounded(text, "D63") == attributes - of_one_commit | {"resources"}
    assert _bounded(text, "D65") == recorded | {"origin"}


def _bounded(text: str, decision: str) -> set[str]:
    """The attributes that the decision's table names."""
    after = text[text.index(f"**{decision}. ") :]
    table = after[after.index("| attributes | bounded by |") :].partition("\n\n")[0]
    return set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines())))


def test_each_reason_of_a_refusal_stands_beside_what_users_are_told() -> None:
    """Whoever sees `TooFewPods` in `muster status` finds what it waits for."""
    rows = re.findall(r"^\| (\S.*?) \| (`.*?`) \| .* \|$", _read(ROOT / "docs/operations.md"), re.MULTILINE)
    told = {reason: word.strip("`*") for word, reasons in rows for reason in re.findall(r"`(\w+)`", reasons)}
    assert {name: told.get(name) for name in REASONS} == {name: r.word or "as it was" for name, r in REASONS.items()}
