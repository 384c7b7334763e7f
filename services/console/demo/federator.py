"""The files of a federator over simulated OpenPAI clusters, for whoever starts one as a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from services.federator.bodies import Cipher


def write_files(directory: Path, uris: Mapping[str, str], *, user: str, token: str, poll_ms: int) -> list[str]:
    """The clusters, all without limits and with one user's token, and a new key; the flags that name them.

    `uris`: alias → where the cluster serves.
    """
    limits = {"requests_per_minute": 0, "lists_per_minute": 0, "submissions_per_hour": 0}
    common = {"user": user, "token": {"file": "token"}, "poll_ms": poll_ms, "limits": limits}
    entries = {alias: {"uri": uri, **common} for alias, uri in uris.items()}
    texts = {"clusters.yaml": json.dumps({"clusters": entries}), "token": token, "keys": Cipher.new_key()}
    for name, text in texts.items():
        (directory / name).write_text(text)
    return ["--clusters", str(directory / "clusters.yaml"), "--keys", str(directory / "keys")]
