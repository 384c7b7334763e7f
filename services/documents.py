"""YAML from files that anybody may have written, within bounds that PyYAML leaves to whoever calls it.

libyaml's composer recurses on the C stack, so a file of brackets crashes the process. A few lines of anchors may fill
the memory once they are written out as JSON, or contain themselves; merges of merges multiply while they are read. So
what is nested deeper than `DEEPEST`, or repeats itself more than `MOST_REPEATED` times, is refused.

As Kubernetes reads YAML, a timestamp is a string, and so is every key; in manifests (`load_each`) numbers and booleans
are those that `kubectl` finds, too. What is JSON is read as JSON: of a large cluster that is seconds instead of minutes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import yaml

DEEPEST = 100
"""Levels of lists and mappings in a document. Kubernetes' own types have about twenty."""
MOST_REPEATED = 1_000_000
"""Values that anchors may add to those that are written."""
MOST_BYTES = 1 << 28
"""Of one file: what has no end, as ``/dev/zero``, must not fill the memory."""
LONGEST_INTEGER = 1_000
"""Characters. YAML 1.1 has numbers to the base of 60, which PyYAML reads in the square of their length."""
_SHALLOW = 5_000
"""Levels that the C stack bears, with room to spare."""
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_MERGE, _STRING, _VALUE, _TIME, _BOOL, _INTEGER, _FLOAT = (
    f"tag:yaml.org,2002:{kind}" for kind in ("merge", "str", "value", "timestamp", "bool", "int", "float")
)
_START = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
"""Where a document starts: nothing else may stand so at the beginning of a line."""
_WORD = re.compile(r"\S")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_DIGITS = 20
"""Characters of an integer of 64 bits, at most."""
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
"""What stands in front of a start, and belongs to it."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half a character, if the other half is not there."""
_UNNAMED = 'in "<unicode string>",'
"""Whoever reads a file names it."""


class NotYaml(ValueError):
    """What is wrong, in one line; and the number of the line where, if that is known."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.line = line


class Unreadable(ValueError):
    """Names the file, and says why its text cannot be had."""


def read(path: Path) -> str:
    """A file's text. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            return taken(file, path)
    except Unreadable:
        raise
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a NUL
        raise Unreadable(f"{str(path)!r}: {error}") from error


def taken(file: IO[bytes], name: object) -> str:
    """The text of what is open; `name`: where it comes from. Raises Unreadable, OSError."""
    text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise Unreadable(f"{name}: expected at most {MOST_BYTES >> 20} MiB of text")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{name}: expected text in UTF-8, found the byte {text[error.start]:#04x} at {error.start}"
        ) from error


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Timestamps, keys and ``=`` are strings, no key stands twice, and merges are counted."""

    merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if "named" not in vars(node):
            vars(node)["named"] = True  # what is merged into it comes before its own keys, and gives way to them
            self._name_keys(node)
        merges = [value for key, value in node.value if key.tag == _MERGE]
        for source in (source for value in merges for source in _sources(value)):
            self.flatten_mapping(source)
            self.merged += len(source.value)
            if self.merged > MOST_REPEATED:
                raise NotYaml("merges of merges that are too large")
        super().flatten_mapping(node)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > LONGEST_INTEGER:
            raise NotYaml(f"expected integers of 64 bits, found one of {len(node.value)} characters")
        return int(self.construct_yaml_int(node))

    def _name_keys(self, node: yaml.MappingNode) -> None:
        """A key that comes twice is a mistake, as for OpenPAI. `kubectl` takes the last, perhaps not what was meant."""
        seen = set()
        for index, (key, value) in enumerate(node.value):
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            is_text = key.tag == _STRING
            name = key.value if is_text else _name(self.construct_object(key))
            if name in seen:
                raise yaml.MarkedYAMLError(None, None, f"{name!r} appears twice in one mapping, again", key.start_mark)
            seen.add(name)
            if not is_text:
                node.value[index] = yaml.ScalarNode(_STRING, name, key.start_mark, key.end_mark), value


def _without(tags: tuple[str, ...]) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """By first character: what YAML finds in a scalar without quotes, but these."""
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    return {first: [one for one in found if one[0] not in tags] for first, found in resolvers.items()}


class _ManifestLoader(_Loader):
    """Numbers as `kubectl` reads them: ``1e+06`` is one, as Helm writes a million, and ``1:30`` is none. So is ``y`` no
    letter, but true."""

    bool_values = yaml.SafeLoader.bool_values | {"y": True, "n": False}

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        return _number(node.value.replace("_", ""))

    def construct_integer(self, node: yaml.ScalarNode) -> Any:
        decimal = _DECIMAL.fullmatch(node.value)
        return _integer(node.value.replace("_", "")) if decimal else self.construct_yaml_int(node)


_Loader.yaml_implicit_resolvers = _without((_TIME, _VALUE))
_Loader.add_constructor(_INTEGER, _Loader.construct_integer)
_ManifestLoader.yaml_implicit_resolvers = _without((_TIME, _VALUE, _INTEGER, _FLOAT))
for _tag, _pattern in (
    (_INTEGER, r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$|-?0o[0-7]+$"),
    (_FLOAT, r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$"),
):
    _ManifestLoader.add_implicit_resolver(_tag, re.compile(_pattern), list("-+.0123456789"))
_ManifestLoader.add_implicit_resolver(_BOOL, re.compile(r"[yYnN]$"), list("yYnN"))
_ManifestLoader.add_constructor(_FLOAT, _ManifestLoader.construct_number)
_ManifestLoader.add_constructor(_INTEGER, _ManifestLoader.construct_integer)


def _number(text: str) -> float | str:
    """Without a fraction it is an integer, as in the JSON that `kubectl` makes of it; what no float holds is a string."""
    value = float(text)
    if math.isinf(value):
        return text
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _integer(text: str) -> float | str:
    """Of more than 64 bits it is a float there, so that it costs its field and not the whole document."""
    value = int(text) if len(text) <= _DIGITS else None
    return value if value is not None and -(1 << 63) <= value < 1 << 64 else _number(text)


def _sources(value: yaml.Node) -> Iterator[yaml.MappingNode]:
    for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
        if isinstance(source, yaml.MappingNode):
            yield source


def load_each(text: str) -> Iterator[Any | NotYaml]:
    """As `load_all`, but a document that cannot be read costs itself only: what is wrong with it stands in its place."""
    starts = [] if _DIRECTIVE.search(text) else [found.start() for found in _START.finditer(text)]
    line = 0
    for start, end in pairwise([0, *starts, len(text)]):
        document = text[start:end]
        found = _loaded(document, line)
        values = _json_values(document) if found and isinstance(found[0], NotYaml) else []
        if len(values) > 1:
            found = [one for before, value in values for one in _loaded(value, line + before)]
        yield from found
        line += document.count("\n")


def _loaded(text: str, behind: int) -> list[Any]:
    try:
        return load_all(text, behind, _ManifestLoader)
    except NotYaml as error:
        return [error]


def _json_values(text: str) -> list[tuple[int, str]]:
    """The JSON values that stand in it one behind the other, as `jq` writes them and `cat` joins them, each with the
    number of lines before it; nothing if there is anything else."""
    decoder, values, end, lines = json.JSONDecoder(), [], 0, 0
    try:
        while found := _WORD.search(text, end):
            lines += text.count("\n", end, found.start())
            _, end = decoder.raw_decode(text, found.start())
            values.append((lines, text[found.start() : end]))
            lines += text.count("\n", found.start(), end)
    except (ValueError, RecursionError):
        return []
    return values


def load_all(text: str, behind: int = 0, loader: type[_Loader] = _Loader) -> list[Any]:
    """The documents, as JSON could say them: all keys are strings. `behind`: lines in front of the text, for what is said
    of a mistake. Raises NotYaml."""
    try:
        found = _as_json(text, *((_number, _integer) if loader is _ManifestLoader else (float, int)))
        if found is None:
            _check_levels(text)
            found = list(yaml.load_all(text, loader))
    except NotYaml:
        raise
    except yaml.YAMLError as error:
        line = _counted(error, behind) if isinstance(error, yaml.MarkedYAMLError) else None
        raise NotYaml(" ".join(str(error).replace(_UNNAMED, "at").split()), line) from error
    except Exception as error:  # PyYAML lets through what int() or a dict say of a scalar
        raise NotYaml(f"{type(error).__name__}: {error}") from error
    for document in found:
        _measure(document, 1, {})
    return found


def _as_json(
    text: str, number: Callable[[str], float | str], integer: Callable[[str], float | str]
) -> list[Any] | None:
    """The document of a text that is JSON, read many times faster; None: it has to be read as YAML, which says what is
    wrong with it."""
    if not text[:1_000].lstrip().startswith("{"):
        return None
    try:
        found = json.loads(
            text, object_pairs_hook=_said_once, parse_float=number, parse_int=integer, parse_constant=_no_number
        )
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()  # half a character is none
        return [found]
    except (ValueError, RecursionError):
        return None


def _said_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(fields)
    if len(mapping) < len(fields):
        raise ValueError("a key stands twice")
    return mapping


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON's")


def _counted(error: yaml.MarkedYAMLError, behind: int) -> int | None:
    """Has the error name its lines as those of the whole; the one where it is, from 1."""
    for field in ("context_mark", "problem_mark"):
        mark = getattr(error, field)
        if mark is not None:
            setattr(error, field, yaml.Mark(mark.name, mark.index, mark.line + behind, mark.column, None, 0))
    return None if error.problem_mark is None else error.problem_mark.line + 1


def _check_levels(text: str) -> None:
    """Exactly, where brackets and the width of the lines leave it open."""
    if text.count("[") + text.count("{") + 2 * max(map(len, text.split("\n"))) < _SHALLOW:
        return
    level = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
            if level > DEEPEST:
                raise NotYaml(_TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1


def _measure(value: Any, level: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values it would be without anchors, and how many levels."""
    if not isinstance(value, (dict, list)):
        _check_scalar(value)
        return 1, 0
    if level > DEEPEST:  # before it goes on: from 3.12 on Python decodes more levels than it can call functions
        raise NotYaml(_TOO_DEEP)
    measured = known.get(id(value))
    if measured is None:
        known[id(value)] = (0, DEEPEST)  # until it is measured: what contains itself has no end
        size = 1
        levels = 0
        for part in value.values() if isinstance(value, dict) else value:
            more, deeper = _measure(part, level + 1, known)
            size, levels = size + more, max(levels, deeper)
        measured = known[id(value)] = size, levels + 1
    if level + measured[1] > DEEPEST + 1:
        raise NotYaml(_TOO_DEEP)
    if measured[0] > MOST_REPEATED and measured[0] > 100 * len(known):
        raise NotYaml("anchors that repeat too much")
    return measured


def _check_scalar(value: Any) -> None:
    is_no_number = type(value) is float and not math.isfinite(value)
    if is_no_number or (value is not None and type(value) not in (str, int, float, bool)):
        raise NotYaml(f"expected what JSON can say, found {type(value).__name__} {str(value)[:60]!r}")
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        raise NotYaml(f"expected integers of 64 bits, found one of {value.bit_length()}")


def _name(key: Any) -> str:
    """A key as Kubernetes has it: a number or a boolean as it is written in JSON."""
    if type(key) not in (bool, int, float):
        raise NotYaml(f"expected a string as a key, found {type(key).__name__} {str(key)[:60]!r}")
    return str(key).lower()
