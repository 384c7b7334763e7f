"""What a task role of an OpenPAI job runs, and what its tasks are told: as OpenPAI's server and runtime have it. Pure.

The server (rest-server's ``protocol.js``) joins a role's commands, the default deployment's around them, to one text and
fills in its references; the runtime (openpai-runtime's ``user.sh``) runs that in bash, so that the first command that
fails ends the task. Anything else would end otherwise on one cluster than on another, and a false success wins (R10).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from services.federator.backends.protocol import Unsupported, odd

Mapped = dict[str, Any]

SHELL = ("/bin/bash", "-c")
OPTIONS = "set -o errexit\nset -o nounset\nset -o pipefail\n"
"""In front of the script."""
MOST = 1 << 19
"""Characters of a task role's commands, with what they refer to: a parameter repeated fills the memory. Linux takes a
quarter of it as one argument."""
ITEM = 100
"""As how many characters an item of a list counts: lists of lists of lists are little text and much work."""
_EXPANDED = re.compile(r"\$(?=[$(])")
REFERRED = ("script", "output", "data")
"""Fields of a role by which it names a prerequisite of that type."""
_OTHER = "#^/>{&=!"
"""With one of these mustache begins what is no reference; the server leaves that out."""
_INDEX = re.compile(r"\[(\d+)\]", re.ASCII)


def command(job: Mapped, role: str, spec: Mapped) -> list[str]:
    """As a container has it: there Kubernetes itself makes one ``$`` of two, and a value of ``$(NAME)``. Raises
    Unsupported."""
    return [*SHELL, OPTIONS + _EXPANDED.sub("$$", _script(job, role, spec))]


def told(job: Mapped, role: str, spec: Mapped, user: str) -> dict[str, str]:
    """The variables that OpenPAI documents for each task, but for its index, and the addresses and ports of others. With
    `nounset` a script that finds one missing ends."""
    roles = job["taskRoles"]
    found = {
        "PAI_JOB_NAME": job["name"],
        "PAI_USER_NAME": user,
        "PAI_DEFAULT_FS_URI": "",
        "PAI_TASK_ROLE_COUNT": str(len(roles)),
        "PAI_TASK_ROLE_LIST": ",".join(roles),
        "PAI_CURRENT_TASK_ROLE_NAME": role,
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT": str(spec.get("instances", 1)),
    }
    for name, other in roles.items():
        completion, asked = other.get("completion") or {}, other["resourcePerInstance"]
        instances = other.get("instances", 1)
        shared = (other.get("extraContainerOptions") or {}).get("shmMB", 0)
        amounts = [asked.get("gpu"), asked["cpu"], asked["memoryMB"], shared]
        found[f"PAI_TASK_ROLE_TASK_COUNT_{name}"] = str(instances)
        found[f"PAI_RESOURCE_{name}"] = written(amounts)
        found[f"PAI_MIN_FAILED_TASK_COUNT_{name}"] = str(completion.get("minFailedInstances") or 1)
        found[f"PAI_MIN_SUCCEEDED_TASK_COUNT_{name}"] = str(completion.get("minSucceededInstances") or instances)
    return found


def prerequisite(job: Mapped, kind: str, name: Any) -> Mapped | None:
    found = [one for one in job.get("prerequisites") or () if one.get("type") == kind and one.get("name") == name]
    return found[0] if found else None


def deployment(job: Mapped) -> Mapped | None:
    """The default one."""
    chosen = (job.get("defaults") or {}).get("deployment")
    return next((one for one in job.get("deployments") or () if one["name"] == chosen), None)


def unreadable(job: Mapped) -> str:
    """What of a job's commands the server's mustache cannot read: it would answer 500, as if it were in trouble. Empty
    also where a job is of another shape, which the server says by itself."""
    roles = job.get("taskRoles")
    if not isinstance(roles, dict) or any(odd(job, roles)):
        return ""
    for role, spec in roles.items():
        if wrong := _unclosed(_commands(job, role, spec)):
            return f"taskRoles.{role}.commands: expected every {wrong} to be closed"
    return ""


def written(value: Any) -> str:
    """A value as JavaScript makes a text of it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(written, value))
    return "[object Object]" if isinstance(value, dict) else _number(float(value))


def _number(value: float) -> str:
    """The fewest digits that tell it from every other, with an exponent only below a millionth and from 1e21 on."""
    if value == 0:
        return "0"
    least = Decimal(repr(value)).normalize()
    return f"{least:f}" if 1e-6 <= abs(value) < 1e21 else f"{least:e}"


def _script(job: Mapped, role: str, spec: Mapped) -> str:
    text, where = _commands(job, role, spec), f"taskRoles.{role}.commands"
    if wrong := _unclosed(text):
        raise Unsupported(f"{where}: expected every {wrong} to be closed")
    known = {"$parameters": job.get("parameters")}
    for field in REFERRED:
        known[f"${field}"] = prerequisite(job, field, spec.get(field))
    parts, at, left = list[str](), 0, MOST - len(text)
    for opened, closed, reference in _tags(text):
        if reference[:1] and reference[0] in _OTHER:
            raise Unsupported(f"{where}: expected nothing but references between <% and %>")
        value, items = _looked_up(known, reference) if reference else (text[opened:closed], 0)
        left -= len(value) - (closed - opened) + ITEM * items
        if left < 0:
            raise Unsupported(
                f"{where}: expected at most {MOST} characters, all written out, an item of a list as {ITEM}"
            )
        parts += [text[at:opened], value]
        at = closed
    return "".join([*parts, text[at:]]).strip()


def _commands(job: Mapped, role: str, spec: Mapped) -> str:
    """As the server gives them to mustache: with those of the default deployment around them."""
    around = (deployment(job) or {"taskRoles": {}})["taskRoles"].get(role, {})
    commands = [*around.get("preCommands", ()), *spec["commands"], *around.get("postCommands", ())]
    return "\n".join(command.strip() for command in commands)


def _tags(text: str) -> Iterator[tuple[int, int, str]]:
    """From where to where each is, and what stands in it; the last may be without an end, which is before its start."""
    at = 0
    while (opened := text.find("<%", at)) >= 0:
        closed = text.find("%>", opened + 2)
        at = closed + 2 if closed >= 0 else len(text)
        yield opened, closed + 2 if closed >= 0 else -1, text[opened + 2 : closed].strip()


def _unclosed(text: str) -> str:
    """What of it mustache would look for the end of in vain; empty: nothing."""
    sections = list[str]()
    for _, closed, said in _tags(text):
        if closed < 0:
            return "<%"
        if said[:1] in ("#", "^"):
            sections.append(said[1:].strip())
        elif said[:1] == "/" and (not sections or sections.pop() != said[1:].strip()):
            return "section"
    return "section" if sections else ""


def _looked_up(known: Mapped, reference: str) -> tuple[str, int]:
    """The value at ``$data.uri[0]``, and how many items its lists have. Without one it stays a reference, as the server
    writes it."""
    path = _INDEX.sub(r".\1", reference)
    value: Any = known
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and len(part) < 10:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = None
    return (f"<% {path} %>", 0) if value is None else (written(value), _items(value))


def _items(value: Any) -> int:
    return len(value) + sum(map(_items, value)) if isinstance(value, list) else 0
