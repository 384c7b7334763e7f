"""`muster job`: multi-cluster jobs."""

from __future__ import annotations

import sys
from pathlib import Path

from services.console import show
from services.console.commands import told_errors
from services.federator.backends import Owner
from services.federator.mcc import InvalidJob, load
from services.federator.specialize import specialize, to_yaml

NOT_SUBMITTED = "not-submitted"
"""Stands where the marker has the job's UID, which is made when it is submitted."""


def show_special(file: Path, alias: str, *, as_json: bool = False) -> int:
    """The job for one cluster, on stdout. Exit code 0, or 2 with what is wrong."""
    with told_errors(InvalidJob):
        job = load(file.read_text(encoding="utf-8"))
        owner = Owner(federation=NOT_SUBMITTED, job=NOT_SUBMITTED, cluster=alias)
        special = specialize(job, alias, owner)
    if as_json:
        show.json_line(special)
    else:
        sys.stdout.write(to_yaml(special))
    return 0
