"""Seed 001, "Describing a multi-cluster job": the Multiple-Cluster-Configuration (MCC), read and validated.

    protocolVersion: super-2        a multi-cluster job
    extra (or extras):
      com.microsoft.pai.runtimeplugin:
        - plugin: super_scheduler
          parameters:
            clusters:               alias → uri, user, gpuType, priority
            guardTimeRunning: 10    minutes
            timeScale: 1            minutes
            params:                 name → alias → value

All mistakes are reported at once, each with its path in the document and, where there is one, parameter and alias.
Where the text is silent, or says what the server does not take:

- The text's ``extra`` is the server's ``extras``; either is read, both at once is a contradiction.
- Its example has no place for the table's GPU type and priority: ``gpuType`` and ``priority`` of each cluster. Without
  one the priority is 0: clusters of equal priority are what plain FAC has.
- A priority is a "number in the range of 0 and 100": with up to three decimals, so that it stays exact. Minutes likewise
  may be fractions, exact to the millisecond. Without ``guardTimeRunning`` and ``timeScale`` those of the example hold.
- An alias is "unique for each cluster (default is the URI)": clusters may be a list, whose entries have an ``alias`` or
  go by their URI. An alias ends up in a job's name, where only letters, digits, '-' and '_' may stand: whatever else is
  in it becomes '-', and two aliases that become the same are refused.
- Secrets ``token-…`` are for whoever submits: they are never part of a job and go nowhere.
- A parameter that no ``<% $mcc.… %>`` uses is superfluous, like a value for an alias that is no cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from services.documents import NotYaml, load_all

PROTOCOL = "super-2"
PLUGINS = "com.microsoft.pai.runtimeplugin"
PLUGIN = "super_scheduler"
TOKEN = "token-"
GUARD_MINUTES, SCALE_MINUTES = 10, 1
"""As in the text's example."""
MOST_PRIORITY = 100
MOST_MINUTES = 60 * 24 * 365
LONGEST_NAME = 255
"""Characters of a job's name on a cluster."""
MOST_CLUSTERS = 100
LONGEST_TEXT = 255
"""Characters of an alias, a user and a GPU type; they stand in every commit about the job."""
LONGEST_URI = 2_048
MOST_CHARACTERS = 1 << 19
"""Of the job as one of its clusters gets it, roughly. OpenPAI takes 100 KiB; anchors and parameters repeat a little text
until it fills the memory."""
MOST_TOLD = 100
"""Problems of one job that are told one by one."""
MOST_FOUND = 10_000
"""Problems of one job that are looked for: each place of each parameter may have one for each cluster."""
LONGEST_TOLD = 1_000
"""Characters of one of them: names that stand in a job may be longer."""

PLACEHOLDER = re.compile(r"<%\s*\$mcc\.([A-Za-z0-9_-]+)\s*%>")
_MENTION = re.compile(r"<%\s*\$mcc\b")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")

Mapped = dict[str, Any]
Path = tuple[str | int, ...]


class InvalidJob(ValueError):
    """What is wrong with a multi-cluster job: one line each, with its place in the document."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = len(problems) - MOST_TOLD
        told = map(_fitting, problems[:MOST_TOLD])
        self.problems = (*told, *([f"and {more} more"] if more > 0 else ()))
        super().__init__("; ".join(self.problems))


class _Problems(list[str]):
    """What is wrong so far. Raises InvalidJob where that is enough."""

    def append(self, problem: str) -> None:
        super().append(_fitting(problem))
        if len(self) >= MOST_FOUND:
            raise InvalidJob(self)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the text's table: a cluster that may run the job."""

    alias: str
    uri: str
    user: str
    gpu_type: str
    """Empty where the job does not say."""
    priority_milli: int
    """0 to 100,000."""

    @property
    def slug(self) -> str:
        """The alias as it may stand in a job's name."""
        return slug(self.alias)


class MultiClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A valid multi-cluster job."""

    name: str
    clusters: tuple[Choice, ...]
    """In the document's order."""
    guard_ms: int
    scale_ms: int
    """Extra time for each point of priority."""
    parameters: dict[str, dict[str, Any]]
    """name → alias → value."""
    document: Mapped
    """As it was written."""

    def choice(self, alias: str) -> Choice:
        """Raises InvalidJob."""
        for choice in self.clusters:
            if choice.alias == alias:
                return choice
        raise InvalidJob([f"no cluster {alias!r}; there are {', '.join(choice.alias for choice in self.clusters)}"])

    def tokens(self) -> list[str]:
        """The names of the secrets that are tokens."""
        return [name for name in self.document.get("secrets") or {} if name.startswith(TOKEN)]

    def token_problems(self) -> list[str]:
        """What is wrong with them: what is submitted to the federator must have none."""
        return [f"secrets.{name}: tokens are the federator's to have, not a job's" for name in self.tokens()]


def slug(alias: str) -> str:
    return _NOT_IN_NAMES.sub("-", alias).strip("-")


def load(text: str) -> MultiClusterJob:
    """The job that a YAML document describes. Raises InvalidJob."""
    try:
        documents = load_all(text)
    except NotYaml as error:
        raise InvalidJob([f"expected YAML: {error}"]) from error
    if len(documents) != 1:
        raise InvalidJob([f"expected one YAML document, found {len(documents)}"])
    return parse(documents[0])


def parse(document: Any) -> MultiClusterJob:
    """The job that a document, as `services.documents` reads it, describes. Raises InvalidJob with all that is wrong."""
    if not isinstance(document, dict):
        raise InvalidJob([f"expected a mapping, found {_kind(document)}"])
    problems = _Problems()
    if document.get("protocolVersion") != PROTOCOL:
        problems.append(f"protocolVersion: expected {PROTOCOL!r}, found {_said(document.get('protocolVersion'))}")
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(f"name: expected letters, digits, '-' and '_', found {_said(name)}")
        name = ""
    secrets = document.get("secrets")
    if secrets is not None and not isinstance(secrets, dict):
        problems.append(f"secrets: expected a mapping, found {_kind(secrets)}")
    found = _plugin(document, problems)
    if found is None:
        raise InvalidJob(problems)
    path, given = found
    _only(path, given, ("clusters", "guardTimeRunning", "timeScale", "params"), problems)
    clusters = _clusters((*path, "clusters"), given.get("clusters"), name, problems)
    guard_ms = _minutes((*path, "guardTimeRunning"), given.get("guardTimeRunning", GUARD_MINUTES), problems)
    scale_ms = _minutes((*path, "timeScale"), given.get("timeScale", SCALE_MINUTES), problems)
    parameters = _parameters((*path, "params"), given.get("params"), clusters, document, problems)
    if not problems and _too_long(document, parameters):
        problems.append(f"expected less than {MOST_CHARACTERS} characters, anchors and parameters written out")
    if problems:
        raise InvalidJob(problems)
    return MultiClusterJob(
        name=name, clusters=clusters, guard_ms=guard_ms, scale_ms=scale_ms, parameters=parameters, document=document
    )


def _too_long(document: Mapped, parameters: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a cluster's own job would be; with the longest value of each parameter, whichever cluster's that is."""
    measured: dict[int, int] = {}  # by identity: anchors repeat a value

    def length(value: Any) -> int:
        if id(value) not in measured:
            measured[id(value)] = MOST_CHARACTERS - _left(value, {}, MOST_CHARACTERS)
        return measured[id(value)]

    longest = {name: max(map(length, values.values())) for name, values in parameters.items()}
    left = MOST_CHARACTERS
    for key, value in document.items():
        kept = value
        if key in ("extra", "extras"):
            kept = {**value, PLUGINS: [plugin for plugin in value[PLUGINS] if not is_super(plugin)]}
        left = _left(kept, longest, left)
    return left < 0


def _left(value: Any, longest: Mapping[str, int], left: int, levels: int = 0) -> int:
    """Of so many characters, when this is written out, each part in a line of its own, below so many levels; below 0: not
    all of it was looked at."""
    if left < 0:
        return left
    match value:
        case str():
            placed = PLACEHOLDER.findall(value) if longest else ()
            return left - len(value) - sum(longest.get(name, 0) for name in placed)
        case dict():
            for key, part in value.items():
                left = _left(part, longest, left - len(key) - 3 - 2 * levels, levels + 1)
        case list():
            for part in value:
                left = _left(part, longest, left - 3 - 2 * levels, levels + 1)
        case _:
            left -= 4
    return left


def is_super(plugin: Any) -> bool:
    return isinstance(plugin, dict) and plugin.get("plugin") == PLUGIN


def _plugin(document: Mapped, problems: list[str]) -> tuple[Path, Mapped] | None:
    """Where the plugin's parameters stand, and they; None, and told, where that is unclear."""
    spelled = [key for key in ("extra", "extras") if key in document]
    if len(spelled) != 1:
        problems.append("expected 'extra' or 'extras'" + (", found both" if spelled else ""))
        return None
    extras = document[spelled[0]]
    if not isinstance(extras, dict):
        problems.append(f"{spelled[0]}: expected a mapping, found {_kind(extras)}")
        return None
    path: Path = (spelled[0], PLUGINS)
    plugins = extras.get(PLUGINS)
    if not isinstance(plugins, list):
        problems.append(f"{shown(path)}: expected a list of plugins, found {_kind(plugins)}")
        return None
    indices = [index for index, plugin in enumerate(plugins) if is_super(plugin)]
    if len(indices) != 1:
        problems.append(f"{shown(path)}: expected one plugin {PLUGIN}, found {len(indices)}")
        return None
    path = (*path, indices[0], "parameters")
    parameters = plugins[indices[0]].get("parameters")
    if not isinstance(parameters, dict):
        problems.append(f"{shown(path)}: expected a mapping, found {_kind(parameters)}")
        return None
    return path, parameters


# ---------------------------------------------------------------------------------------------------------- clusters


def _clusters(path: Path, given: Any, name: str, problems: list[str]) -> tuple[Choice, ...]:
    if not isinstance(given, dict | list) or not given:
        problems.append(f"{shown(path)}: expected at least one cluster, found {_said(given)}")
        return ()
    if len(given) > MOST_CLUSTERS:
        problems.append(f"{shown(path)}: expected at most {MOST_CLUSTERS} clusters, found {len(given)}")
        return ()
    entries = given.items() if isinstance(given, dict) else enumerate(given)
    found = [choice for key, entry in entries if (choice := _choice((*path, key), key, entry, problems)) is not None]
    seen: dict[str, str] = {}
    for choice in found:
        if choice.slug in seen:
            problems.append(
                f"{shown(path)}: {seen[choice.slug]!r} and {choice.alias!r} are {choice.slug!r} in a job's name"
            )
        seen[choice.slug] = choice.alias
        if not choice.slug:
            problems.append(f"{shown(path)}: {choice.alias!r} has no letter or digit for a job's name")
        if len(name) + 1 + len(choice.slug) > LONGEST_NAME - 4:  # room for another attempt's number
            problems.append(f"name: {name[:20]}…-{choice.slug[:20]}… is longer than a job's name may be")
    return tuple(found)


def _choice(path: Path, key: str | int, entry: Any, problems: list[str]) -> Choice | None:
    if not isinstance(entry, dict):
        problems.append(f"{shown(path)}: expected a mapping, found {_kind(entry)}")
        return None
    listed = isinstance(key, int)
    _only(path, entry, (*(("alias",) if listed else ()), "uri", "user", "gpuType", "priority"), problems)
    uri = _text((*path, "uri"), entry.get("uri"), problems, LONGEST_URI)
    alias = _text((*path, "alias"), entry.get("alias", uri) if listed else key, problems)
    return Choice(
        alias=alias,
        uri=uri,
        user=_text((*path, "user"), entry.get("user"), problems),
        gpu_type=_text((*path, "gpuType"), entry["gpuType"], problems) if "gpuType" in entry else "",
        priority_milli=_thousandths((*path, "priority"), entry.get("priority", 0), MOST_PRIORITY, problems),
    )


def _text(path: Path, given: Any, problems: list[str], most: int = LONGEST_TEXT) -> str:
    if isinstance(given, str) and 0 < len(given) <= most:
        return given
    found = f"one of {len(given)}" if isinstance(given, str) and given else _said(given)
    problems.append(f"{shown(path)}: expected a string of at most {most} characters, found {found}")
    return ""


def _minutes(path: Path, given: Any, problems: list[str]) -> int:
    """In milliseconds."""
    return _thousandths(path, given, MOST_MINUTES, problems, " (minutes)") * 60


def _thousandths(path: Path, given: Any, most: int, problems: list[str], unit: str = "") -> int:
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= most:
        exact = Decimal(repr(given)) * 1000  # as it was written: 0.1 is a tenth
        if exact == int(exact):
            return int(exact)
    problems.append(
        f"{shown(path)}: expected a number from 0 to {most}, at most three decimals{unit}, found {_said(given)}"
    )
    return 0


# -------------------------------------------------------------------------------------------------------- parameters


def _parameters(
    path: Path, given: Any, clusters: Sequence[Choice], document: Mapped, problems: list[str]
) -> dict[str, dict[str, Any]]:
    given = {} if given is None else given
    if not isinstance(given, dict):
        problems.append(f"{shown(path)}: expected a mapping, found {_kind(given)}")
        return {}
    aliases = {choice.alias: None for choice in clusters}
    uses = _uses(document, problems)
    seen: dict[int, Any] = {}
    for name, values in given.items():
        here = (*path, name)
        if not _NAME.fullmatch(name):
            problems.append(f"{shown(here)}: expected letters, digits, '-' and '_' as a parameter's name")
        elif name not in uses:
            problems.append(f"{shown(here)}: superfluous: no <% $mcc.{name} %> uses parameter {name}")
        if not isinstance(values, dict):
            problems.append(f"{shown(here)}: expected a value for each cluster, found {_kind(values)}")
            continue
        for alias in values:
            if alias not in aliases:
                problems.append(
                    f"{shown(here)}: superfluous: parameter {name} has a value for {alias}, which is no cluster"
                )
        for alias in aliases:
            if alias not in values:
                problems.append(f"{shown(here)}: missing: parameter {name} has no value for {alias}")
            elif name in uses:
                _check_value(name, alias, values[alias], uses[name], seen, problems)
    for name, places in uses.items():
        if name not in given:
            for_whom = ", ".join(aliases)
            problems.append(f"{shown(places[0][0])}: missing: parameter {name} has no value for {for_whom}")
    return dict(given)


def _check_value(
    name: str,
    alias: str,
    value: Any,
    places: Sequence[tuple[Path, bool]],
    seen: dict[int, Any],
    problems: list[str],
) -> None:
    if value is None or isinstance(value, dict | list):
        for path, whole in places:
            if not whole:
                problems.append(
                    f"{shown(path)}: parameter {name} stands within a text, and its value for {alias} is {_kind(value)}"
                )
    if any(PLACEHOLDER.search(text) for _, text in scalars(value, seen=seen)):
        problems.append(f"parameter {name}: its value for {alias} has a placeholder of its own")


def _uses(document: Mapped, problems: list[str]) -> dict[str, list[tuple[Path, bool]]]:
    """Parameter → where it is used, and whether it is all that stands there."""
    uses: dict[str, list[tuple[Path, bool]]] = {}
    for path, text in scalars(_without_plugin(without_tokens(document))):
        found = PLACEHOLDER.findall(text)
        if len(_MENTION.findall(text)) != len(found):
            problems.append(f"{shown(path)}: expected <% $mcc.NAME %>, found {_said(text)}")
        if path and path[-1] == text and _MENTION.search(text):
            problems.append(f"{shown(path)}: a placeholder cannot stand in a key")
        for name in dict.fromkeys(found):
            uses.setdefault(name, []).append((path, PLACEHOLDER.fullmatch(text.strip()) is not None))
    return uses


def _without_plugin(document: Mapped) -> Mapped:
    """With nothing in the plugin's place; whatever else looks like it is the job's, and goes to its clusters."""
    return {
        key: {**value, PLUGINS: [None if is_super(plugin) else plugin for plugin in value[PLUGINS]]}
        if key in ("extra", "extras")
        else value
        for key, value in document.items()
    }


def without_tokens(document: Mapped) -> Mapped:
    """Without secrets that are tokens."""
    secrets = document.get("secrets")
    if not isinstance(secrets, dict):
        return document
    kept = {name: secret for name, secret in secrets.items() if not name.startswith(TOKEN)}
    return {key: kept if key == "secrets" else value for key, value in document.items() if key != "secrets" or kept}


def scalars(value: Any, path: Path = (), seen: dict[int, Any] | None = None) -> Iterator[tuple[Path, str]]:
    """Every text in a document, with its path; a key that has a placeholder as its own. What anchors repeat comes once,
    where it stands first: written out, a job of some lines may have millions. `seen`: by identity, what has come."""
    seen = {} if seen is None else seen
    if not isinstance(value, str | list | dict) or id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from scalars(part, (*path, index), seen)
    else:
        for key, part in value.items():
            if _MENTION.search(key):
                yield (*path, key), key
            yield from scalars(part, (*path, key), seen)


# ----------------------------------------------------------------------------------------------------------- wording


def shown(path: Path) -> str:
    """``taskRoles.main.commands[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _fitting(problem: str) -> str:
    """Without its middle where it is too long: it begins with the place, and ends with what is expected there."""
    half = LONGEST_TOLD // 2
    return problem if len(problem) <= LONGEST_TOLD else f"{problem[: half - 1]}…{problem[-half:]}"


def _only(path: Path, given: Mapping[str, Any], known: Sequence[str], problems: list[str]) -> None:
    for key in given:
        if key not in known:
            problems.append(f"{shown((*path, key))}: not known; expected {', '.join(known)}")


def _kind(value: Any) -> str:
    names = {type(None): "nothing", dict: "a mapping", list: "a list", str: "a text", bool: "a boolean"}
    return names.get(type(value), "a number")


def _said(value: Any) -> str:
    """At most a few words of it: what stands in a job may be long, or a secret."""
    return _kind(value) if value is None or isinstance(value, dict | list) else repr(value)[:60]
