"""``muster versions``."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.options import Cluster, Json, Log

app = typer.Typer(help="Versions of the rules and of the state: what is in force, who has the code for what.")


@app.command()
def show(log: Log, cluster: Cluster = None, as_json: Json = False) -> None:
    """What is in force at the log's end, and what each writer supports."""
    from services.console import commands

    raise typer.Exit(commands.show_versions(log, cluster, as_json=as_json))


@app.command()
def switch(
    log: Log,
    cluster: Cluster = None,
    rules: Annotated[
        int | None, typer.Option(help="version of the rules (default: as it is)", min=1, metavar="N")
    ] = None,
    state: Annotated[
        int | None,
        typer.Option(help="version of the state, one further at a time (default: as it is)", min=1, metavar="N"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Switch to another version from here on. Refused while some writer lacks it, and says which."""
    from services.console import commands

    raise typer.Exit(commands.switch_versions(log, cluster, rules, state, as_json=as_json))
