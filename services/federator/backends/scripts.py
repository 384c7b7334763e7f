"""What a task role of an OpenPAI job runs, and what its tasks are told: as OpenPAI's server and runtime have it. Pure.

The server (rest-server's ``protocol.js``) joins a role's commands, the default deployment's around them, to one text and
fills in its references; the runtime (openpai-runtime's ``user.sh``) runs that in bash, so that the first command that
fails ends the task. Anything else would end otherwise on one cluster than on another, and a false success wins (R10).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from services.federator.backends.protocol import Unsupported

Mapped = dict[str, Any]

SHELL = ("/bin/bash", "-c")
OPTIONS = "set -o errexit\nset -o nounset\nset -o pipefail\n"
"""In front of the script."""
MOST = 1 << 19
"""Characters of a task role's commands, with what they refer to: a parameter repeated fills the memory. Linux takes a
quarter of it as one argument."""
_EXPANDED = re.compile(r"\$(?=[$(])")
_OTHER = "#^/>{&=!"
"""With one of these mustache begins what is no reference; that is left as it is."""
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
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    least = Decimal(repr(value)).normalize()
    return f"{least:f}" if 1e-6 <= abs(value) < 1e21 else f"{least:e}"


def _script(job: Mapped, role: str, spec: Mapped) -> str:
    chosen = (job.get("defaults") or {}).get("deployment")
    deployments = [one for one in job.get("deployments") or () if one["name"] == chosen]
    around = deployments[0]["taskRoles"].get(role, {}) if deployments else {}
    commands = [*around.get("preCommands", ()), *spec["commands"], *around.get("postCommands", ())]
    known = {"$parameters": job.get("parameters")}
    for field in ("data", "script", "output"):
        known[f"${field}"] = prerequisite(job, field, spec.get(field))
    script = _filled("\n".join(command.strip() for command in commands), known)
    if script is None:
        raise Unsupported(f"taskRoles.{role}.commands: expected at most {MOST} characters, all written out")
    return script.strip()


def _filled(text: str, known: Mapped) -> str | None:
    """With what its references refer to, as the server's mustache reads them; None where that is too long."""
    parts, at, left = list[str](), 0, MOST - len(text)
    while (opened := text.find("<%", at)) >= 0 and (closed := text.find("%>", opened + 2)) >= 0:
        reference = text[opened + 2 : closed].strip()
        plain = not reference or reference[0] in _OTHER
        value = text[opened : closed + 2] if plain else _looked_up(known, reference)
        left -= len(value) - (closed + 2 - opened)
        if left < 0:
            return None
        parts += [text[at:opened], value]
        at = closed + 2
    return "".join([*parts, text[at:]])


def _looked_up(known: Mapped, reference: str) -> str:
    """The value at ``$data.uri[0]``. Without one it stays a reference, as the server writes it."""
    path = _INDEX.sub(r".\1", reference)
    value: Any = known
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and len(part) < 10:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = None
    return f"<% {path} %>" if value is None else written(value)
