"""Label and field selectors of requests, parsed once and then asked of each object; and label selectors in objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from services.simulator import names
from services.simulator.errors import bad_request
from services.simulator.resources import Resource

Predicate = Callable[[dict[str, Any]], bool]

COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
FIELDS: dict[str, frozenset[str]] = {
    "pods": frozenset(
        f"{part}.{field}"
        for part, fields in {
            "spec": ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName", "hostNetwork"),
            "status": ("phase", "podIP", "nominatedNodeName"),
        }.items()
        for field in fields
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "jobs": frozenset({"status.successful"}),
    "events": frozenset(
        f"involvedObject.{field}"
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    )
    | {"reason", "reportingComponent", "source", "type"},
}
"""The fields that the API server indexes, by plural; every other field is an error."""
UNSAID = {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.successful": "0"}
"""What is found where an object does not say them; of every other field nothing."""
CALLED = {"status.successful": "status.succeeded"}
"""Where a field stands that selectors call by another name."""

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^()]*)\)$")
_TERM = re.compile(r"([^=!]*)(!=|==?)((?:[^=\\]|\\[\\,=])*)")
_ESCAPED = re.compile(r"\\([\\,=])")
"""Of field selectors."""
_INTEGER = re.compile(r"[0-9]{1,18}", re.ASCII)
"""That may be compared."""


def predicate(resource: Resource, label_selector: str, field_selector: str) -> Predicate | None:
    """What both selectors ask, as one function; None when they ask nothing. Raises ApiError 400."""
    labels = [_label_requirement(part, label_selector) for part in _split(label_selector)]
    terms = filter(None, re.split(r"(?<!\\),", field_selector))  # empty ones are taken here
    fields = [_field_requirement(term, resource, field_selector) for term in terms]
    if not labels and not fields:
        return None

    def matches(obj: dict[str, Any]) -> bool:
        own = obj["metadata"].get("labels") or {}
        return all(asked(own) for asked in labels) and all(asked(obj) for asked in fields)

    return matches


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether what has these labels is meant."""
    if (selector.get("matchLabels") or {}).items() - labels.items():
        return False
    return all(holds(one, labels.get(one["key"])) for one in selector.get("matchExpressions") or ())


def holds(requirement: dict[str, Any], value: str | None) -> bool:
    """Whether a label's value is as it is asked for; None: there is no such label."""
    values = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def _split(selector: str) -> list[str]:
    """At commas that stand outside parentheses; nothing if nothing is asked. Raises ApiError 400 for an empty part."""
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", selector)] if selector.strip() else []
    if not all(parts):
        raise bad_request(f"unable to parse requirement: found ',', expected: identifier after ',', in \"{selector}\"")
    return parts


def _label_requirement(part: str, whole: str) -> Predicate:
    if found := _SET.match(part):
        key, values = _spelt(names.key, found[1], whole), {value.strip() for value in found[3].split(",")}
        for value in values:
            _spelt(names.value, value, whole)
        if found[2] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for operator in ("!=", "==", "=", ">", "<"):
        if operator in part:
            key, _, value = (piece.strip() for piece in part.partition(operator))
            return _compared(_spelt(names.key, key, whole), operator, _spelt(names.value, value, whole), whole)
    key = _spelt(names.key, part.removeprefix("!").strip(), whole)
    if part.startswith("!"):
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _compared(key: str, operator: str, value: str, whole: str) -> Predicate:
    if operator in ("==", "="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if not _INTEGER.fullmatch(value):
        raise bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer: '{value}' in \"{whole}\"")
    sign, bound = (1 if operator == ">" else -1), int(value)
    return lambda labels: bool(_INTEGER.fullmatch(labels.get(key, ""))) and sign * (int(labels[key]) - bound) > 0


def _spelt(rule: Callable[[str], str], text: str, whole: str) -> str:
    """The text, if it is as the rule of `names` says."""
    if why := rule(text):
        raise bad_request(f"unable to parse requirement: found '{text}', in \"{whole}\": {why}")
    return text


def _field_requirement(part: str, resource: Resource, whole: str) -> Predicate:
    found = _TERM.fullmatch(part)
    if found is None:
        raise bad_request(f"invalid selector: '{whole}'; can't understand '{part}'")
    field, operator, value = found[1], found[2], _ESCAPED.sub(r"\1", found[3])
    if field not in COMMON_FIELDS and (resource.custom or field not in FIELDS.get(resource.plural, frozenset())):
        raise bad_request(f"field label not supported: {field}")
    path, unsaid = tuple(CALLED.get(field, field).split(".")), UNSAID.get(field, "")
    wanted = operator != "!="
    return lambda obj: ((_field(obj, path) or unsaid) == value) is wanted


def _field(obj: dict[str, Any], path: tuple[str, ...]) -> str:
    here: Any = obj
    for step in path:
        if not isinstance(here, dict):
            break
        here = here.get(step)
    if isinstance(here, dict):  # an event's source is told by its component
        here = here.get("component")
    return str(here).lower() if isinstance(here, bool) else str(here or "")
