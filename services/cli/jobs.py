"""``muster job``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from services.cli.options import FEDERATION_HELP, Json, Nats, federation_named

app = typer.Typer(help="Jobs that are described once for many clusters (docs/federation.md).")

Federation = Annotated[str | None, typer.Option("--federation", "--cluster", help=FEDERATION_HELP, metavar="NAME")]
JobFile = Annotated[Path, typer.Argument(help="a multi-cluster job (protocolVersion: super-2)", metavar="FILE")]
JobName = Annotated[str, typer.Argument(help="the job's name, as it was submitted", metavar="NAME")]
Watch = Annotated[bool, typer.Option("--watch", help="wait until it is settled, and show each change")]
Alias = Annotated[str, typer.Option("--cluster", help="the cluster's alias in the job", metavar="ALIAS")]


@app.command()
def submit(
    file: JobFile,
    nats: Nats = None,
    federation: Federation = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Hand a job to the federator.

    Exit code 0: it is accepted; with --watch: it is kept on a cluster.
    """
    from services.console import jobs

    raise typer.Exit(jobs.submit(file, nats, federation_named(nats, federation), watch=watch, as_json=as_json))


@app.command()
def status(
    name: JobName, nats: Nats = None, federation: Federation = None, watch: Watch = False, as_json: Json = False
) -> None:
    """The state of a job on each of its clusters.

    Exit code 2: there is none of this name, or it is forgotten; with --watch as that of `submit`.
    """
    from services.console import jobs

    shown = jobs.watched if watch else jobs.status
    raise typer.Exit(shown(name, nats, federation_named(nats, federation), as_json=as_json))


@app.command("list")
def listed(nats: Nats = None, federation: Federation = None, as_json: Json = False) -> None:
    """All jobs that are not over yet, and the last 1,024 that are."""
    from services.console import jobs

    raise typer.Exit(jobs.listed(nats, federation_named(nats, federation), as_json=as_json))


@app.command()
def cancel(name: JobName, nats: Nats = None, federation: Federation = None, as_json: Json = False) -> None:
    """End a job on every cluster.

    Exit code 1: nothing of it was left.
    """
    from services.console import jobs

    raise typer.Exit(jobs.cancel(name, nats, federation_named(nats, federation), as_json=as_json))


@app.command()
def give_up(
    name: JobName,
    alias: Alias,
    reason: Annotated[str, typer.Option(help="why nothing of it can be there, for the log", metavar="TEXT")],
    by: Annotated[str | None, typer.Option(help="who says so (default: you)", metavar="NAME")] = None,
    nats: Nats = None,
    federation: Annotated[str | None, typer.Option("--federation", help=FEDERATION_HELP, metavar="NAME")] = None,
    as_json: Json = False,
) -> None:
    """Declare that nothing of a job runs on a cluster, or ever will: for a cluster that cannot say so itself.

    Ends nothing: look first, and end by hand what is left. Exit code 2: the cluster answers and shows the run.
    """
    from services.console import jobs

    said_by = by or _user()
    raise typer.Exit(
        jobs.give_up(name, alias, nats, federation_named(nats, federation), by=said_by, reason=reason, as_json=as_json)
    )


def _user() -> str:
    """Whoever runs this: by number where the user has no name, as in Muster's own image."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@app.command()
def explain(
    name: JobName,
    nats: Nats = None,
    federation: Federation = None,
    at: Annotated[
        str | None,
        typer.Option(help="as of a sequence, or a time in RFC 3339 (default: the log's end)", metavar="SEQ|TIME"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Why this cluster, and which were cancelled when and why: from the log, whether a federator runs or not."""
    from services.console import jobs

    raise typer.Exit(jobs.explain(name, nats, federation_named(nats, federation), at=at, as_json=as_json))


@app.command()
def specialize(file: JobFile, alias: Alias, as_json: Json = False) -> None:
    """The job as it would be submitted to one of its clusters. Submits nothing."""
    from services.console import jobs

    raise typer.Exit(jobs.show_special(file, alias, as_json=as_json))
