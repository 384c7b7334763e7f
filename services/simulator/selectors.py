"""Label and field selectors of requests, parsed once and then asked of each object; and label selectors in objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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
_KEY = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")


def predicate(resource: Resource, label_selector: str, field_selector: str) -> Predicate | None:
    """What both selectors ask, as one function; None when they ask nothing. Raises ApiError 400."""
    labels = [_label_requirement(part, label_selector) for part in _split(label_selector)]
    fields = [_field_requirement(part, resource, field_selector) for part in _split(field_selector)]
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
    """At commas that stand outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", selector) if part.strip()]


def _label_requirement(part: str, whole: str) -> Predicate:
    if found := _SET.match(part):
        key, operator = found[1], found[2]
        values = {value.strip() for value in found[3].split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    for operator in ("!=", "==", "="):
        if operator in part:
            key, _, value = (piece.strip() for piece in part.partition(operator))
            _check_key(key, whole)
            if operator == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    key = part.removeprefix("!").strip()
    _check_key(key, whole)
    if part.startswith("!"):
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _check_key(key: str, whole: str) -> None:
    if not _KEY.match(key):
        raise bad_request(f"unable to parse requirement: found '{key}', expected: a label's key, in \"{whole}\"")


def _field_requirement(part: str, resource: Resource, whole: str) -> Predicate:
    operator = next((o for o in ("!=", "==", "=") if o in part), None)
    if operator is None:
        raise bad_request(f"invalid selector: '{whole}'; can't understand '{part}'")
    field, _, value = (piece.strip() for piece in part.partition(operator))
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
