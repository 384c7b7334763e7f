"""A job of OpenPAI's protocol 2, as far as a gang on Kubernetes is made of it: what is of another type, and where.

OpenPAI's server says so of a job by itself; here a command that is no list would be a script of its letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from services import misfits


class Unsupported(ValueError):
    """What a job asks for and a gang here cannot be; names the fields. Shows no value: there may be secrets."""


class _Form(msgspec.Struct, rename="camel"):
    """What must be there has no default; everything else that a job says is not looked at."""


class _Prerequisite(_Form):
    type: str
    name: str
    uri: str | list[str] | None = None


class _Around(_Form):
    pre_commands: list[str] = []
    post_commands: list[str] = []


class _Deployment(_Form):
    name: str
    task_roles: dict[str, _Around]


class _Defaults(_Form):
    deployment: str | None = None


class _Job(_Form):
    name: str
    prerequisites: list[_Prerequisite] | None = None
    parameters: dict[str, Any] | None = None
    deployments: list[_Deployment] | None = None
    defaults: _Defaults | None = None
    extras: dict[str, Any] | None = None


class _Resources(_Form):
    cpu: float
    memory_mb: float = msgspec.field(name="memoryMB")
    gpu: float | None = None


class _Completion(_Form):
    min_failed_instances: int | None = None
    min_succeeded_instances: int | None = None


class _Options(_Form):
    shm_mb: float | None = msgspec.field(default=None, name="shmMB")


class _Role(_Form):
    commands: list[str]
    resource_per_instance: _Resources
    instances: Annotated[int, Meta(ge=1)] = 1
    completion: _Completion | None = None
    prerequisites: list[str] | None = None
    extra_container_options: _Options | None = None


def odd(job: dict[str, Any], roles: dict[str, Any]) -> Iterator[str]:
    """The first of the job's own fields, and of each role's. Shows no value: there may be secrets."""
    for where, part, form in [("", job, _Job), *((f"taskRoles.{role}", roles[role], _Role) for role in roles)]:
        try:
            msgspec.convert(part, form)
        except msgspec.ValidationError as error:
            path, said = misfits.told(error)
            yield f"{'.'.join(filter(None, (where, path)))}: {said[0].lower()}{said[1:]}"
