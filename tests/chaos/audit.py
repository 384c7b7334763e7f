"""Bindings as the API server itself recorded them, against what the log had permitted.

Its audit log has a line for each Binding that was answered: who asked, for which pod and node, and the answer. A line is
missing only where the API server was killed between writing the binding and saying so; the witness sees those.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "None"},
    ],
}
CREATED = 201


class Asked(NamedTuple):
    """One Binding that somebody asked for, and the answer's code."""

    user: str
    uid: str
    node: str
    code: int
    at_ns: int


def flags(directory: Path) -> tuple[str, ...]:
    """Of a kube-apiserver that writes the audit log into this directory."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={path(directory)}", "--audit-log-maxsize=1000")


def path(directory: Path) -> Path:
    return directory / "audit.log"


def read(file: Path) -> Iterator[Asked]:
    """A line that was cut off by a kill is none."""
    for line in file.read_text(errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            binding = said["requestObject"]
            yield Asked(
                user=said["user"]["username"].rpartition(":")[2],
                uid=binding["metadata"].get("uid", ""),
                node=binding["target"]["name"],
                code=said["responseStatus"]["code"],
                at_ns=int(datetime.fromisoformat(said["requestReceivedTimestamp"]).timestamp() * 1e9),
            )


def violations(asked: Iterable[Asked], permitted_ns: Mapping[tuple[str, str], int]) -> list[str]:
    """`permitted_ns`: (UID, node) → when the binder decided so, since 1970 by the API server's clock."""
    found = []
    took_hold: Counter[str] = Counter()
    for one in asked:
        since_ns = permitted_ns.get((one.uid, one.node))
        if since_ns is None:
            found.append(f"{one.user} asked for {one.uid} on {one.node}, which the log never permitted (rule 5)")
        elif one.at_ns < since_ns:
            found.append(f"{one.user} asked for {one.uid} on {one.node} before that was in the log (rule 5)")
        took_hold[one.uid] += one.code == CREATED
    found += [f"{uid} was bound {times} times (7.1)" for uid, times in took_hold.items() if times > 1]
    return found
