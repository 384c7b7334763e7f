"""The server's schema of a job, protocol version 2, and what it checks behind it.

`SCHEMA` says in JSON Schema what microsoft/pai's rest-server compiles (src/config/v2/protocol.js), its oddities included:
``gpu`` is required, a prerequisite of type ``dockerimage`` takes no further keys while the others do, and what
``extraContainerOptions`` holds is nearly free. `validate` adds what the server asks of names that refer to each other
(src/middlewares/v2/protocol.js).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft7Validator, ValidationError

Object = dict[str, Any]

_NAME = {"type": "string", "pattern": r"^[a-zA-Z0-9_-]+\Z", "maxLength": 255}
_VERSION = {"enum": ["2", 2]}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_COMMANDS = _TEXTS | {"minItems": 1}
_INTEGER = {"type": "integer"}
_COUNT = {"type": ["integer", "null"]}
_VARIABLE = r"^[a-zA-Z_][a-zA-Z0-9_]*\Z"
_BASE = {
    "protocolVersion": _VERSION,
    "name": _NAME,
    "version": {"type": ["string", "number"]},
    "contributor": _TEXT,
    "description": _TEXT,
}


def _object(properties: Object, required: tuple[str, ...] = (), *, closed: bool = True) -> Object:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": not closed,
    }


def _each(of: Object) -> Object:
    """An object with a value for each name, which is that of a variable."""
    return {"type": "object", "patternProperties": {_VARIABLE: of}, "minProperties": 1, "additionalProperties": False}


_FILES = {"plugin": _TEXT, "require": _TEXTS}
_AUTH = {"type": "object", "properties": {"username": _TEXT, "password": _TEXT, "registryuri": _TEXT}}
_KINDS = {
    "script": _object(_BASE | _FILES | {"type": {}, "uri": _TEXT}, ("name",), closed=False),
    "output": _object(_BASE | _FILES | {"type": {}, "uri": _TEXT}, ("name",), closed=False),
    "data": _object(_BASE | _FILES | {"type": {}, "uri": _TEXTS}, ("name",), closed=False),
    "dockerimage": _object(_BASE | {"type": {}, "auth": _AUTH, "uri": _TEXT}, ("name", "uri")),
}
"""Prerequisites by their type."""

_PREREQUISITE = {
    "type": "object",
    "properties": {"type": {"enum": list(_KINDS)}},
    "required": ["type"],
    "allOf": [
        {"if": {"properties": {"type": {"const": kind}}, "required": ["type"]}, "then": of}
        for kind, of in _KINDS.items()
    ],
}
_RESOURCES = _object(
    {"cpu": _INTEGER, "memoryMB": _INTEGER, "gpu": _INTEGER, "ports": _each(_INTEGER)}, ("cpu", "memoryMB", "gpu")
)
_TASK_ROLE = _object(
    {
        "protocolVersion": _VERSION,
        "instances": {"type": "integer", "minimum": 1},
        "completion": _object({"minFailedInstances": _COUNT, "minSucceededInstances": _COUNT}),
        "taskRetryCount": _INTEGER,
        "prerequisites": _TEXTS,
        "dockerImage": _TEXT,
        "data": _TEXT,
        "output": _TEXT,
        "script": _TEXT,
        "extraContainerOptions": {"type": "object", "properties": {"shmMB": _INTEGER}},
        "resourcePerInstance": _RESOURCES,
        "commands": _COMMANDS,
    },
    ("dockerImage", "resourcePerInstance", "commands"),
)
_DEPLOYMENT = _object(
    {
        "protocolVersion": _VERSION,
        "name": _NAME,
        "taskRoles": _each(_object({"preCommands": _COMMANDS, "postCommands": _COMMANDS})),
    },
    ("name", "taskRoles"),
    closed=False,
)
SCHEMA: Object = _object(
    _BASE
    | {
        "type": {"enum": ["job"]},
        "prerequisites": {"type": "array", "items": _PREREQUISITE, "minItems": 1},
        "parameters": {"type": "object"},
        "secrets": {"type": "object"},
        "jobRetryCount": {"type": "integer", "minimum": 0},
        "taskRoles": _each(_TASK_ROLE),
        "deployments": {"type": "array", "items": _DEPLOYMENT, "minItems": 1},
        "defaults": {"type": "object", "properties": {"deployment": _TEXT}},
        "extras": {"type": "object"},
    },
    ("protocolVersion", "name", "type", "taskRoles"),
)
_validator = Draft7Validator(SCHEMA)


def validate(job: Any) -> list[str]:
    """What the server has against this job, each with the field it is about; empty: it is accepted."""
    wrong = [_said(error) for error in _validator.iter_errors(job)]
    return sorted(wrong) or list(_references(job))


def _said(error: ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"job{where}: {error.message}"


def _references(job: Object) -> Iterator[str]:
    """Names that refer to nothing, and names that are given twice."""
    prerequisites = job.get("prerequisites", [])
    named: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for at, one in enumerate(prerequisites):
        if one["name"] in named[one["type"]]:
            yield f"job.prerequisites[{at}].name: duplicate {one['type']} prerequisite {one['name']!r}"
        named[one["type"]].append(one["name"])
    deployments = [one["name"] for one in job.get("deployments", [])]
    for at, name in enumerate(deployments):
        if name in deployments[:at]:
            yield f"job.deployments[{at}].name: duplicate deployment {name!r}"
    for role, spec in job["taskRoles"].items():
        for at, name in enumerate(spec.get("prerequisites", [])):
            if not any(name in names for names in named.values()):
                yield f"job.taskRoles.{role}.prerequisites[{at}]: prerequisite {name!r} does not exist"
        for field in ("script", "output", "data", "dockerImage"):
            if field in spec and spec[field] not in named[field.lower()]:
                yield f"job.taskRoles.{role}.{field}: {field.lower()} prerequisite {spec[field]!r} does not exist"
    chosen = job.get("defaults", {}).get("deployment")
    if chosen is not None and chosen not in deployments:
        yield f"job.defaults.deployment: deployment {chosen!r} does not exist"
