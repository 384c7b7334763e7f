"""``muster policy``."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.options import PROFILE, Cluster, Json, Log

app = typer.Typer(help="The policy in the log: every bound and default that a decision depends on.")

NO_CHANGES = ("log", "cluster", "as_json")
"""Parameters of `change` that are no fields of the policy or of its profile, as all the others are."""


@app.command()
def show(log: Log, cluster: Cluster = None, as_json: Json = False) -> None:
    """The policy as of the log's end."""
    from services.console import commands

    raise typer.Exit(commands.show_policy(log, cluster, as_json=as_json))


@app.command("set")
def change(
    context: typer.Context,
    log: Log,
    cluster: Cluster = None,
    profile: Annotated[str | None, typer.Option(help=f"{PROFILE} (a new log has default)", metavar="NAME")] = None,
    queue_order: Annotated[
        str | None, typer.Option(help="coscheduling (in a new log), koordinator or kube-batch", metavar="NAME")
    ] = None,
    node_score: Annotated[
        str | None, typer.Option(help="least-allocated (in a new log) or binpack", metavar="NAME")
    ] = None,
    permit_waiting_ms: Annotated[
        int | None,
        typer.Option(help="how long a pod that has a node waits for the rest of its gang (10000)", metavar="MS"),
    ] = None,
    backoff_initial_ms: Annotated[
        int | None,
        typer.Option(
            help="how long a refused group is left alone; doubled by each further refusal (1000)", metavar="MS"
        ),
    ] = None,
    backoff_max_ms: Annotated[
        int | None, typer.Option(help="how long a refused group is left alone at most (10000)", metavar="MS")
    ] = None,
    retry_ms: Annotated[
        int | None,
        typer.Option(
            help="after how long a refused group is tried again though nothing has changed (300000)", metavar="MS"
        ),
    ] = None,
    cycle_pods: Annotated[
        int | None, typer.Option(help="how many pods one planning cycle considers at most (4096)", metavar="PODS")
    ] = None,
    gang_pods: Annotated[int | None, typer.Option(help="how many pods a gang may have (50000)", metavar="PODS")] = None,
    replacement_hold_ms: Annotated[
        int | None,
        typer.Option(help="how long the room of a gang's failed pod is kept for its replacement (60000)", metavar="MS"),
    ] = None,
    replacement_policy: Annotated[
        str | None,
        typer.Option(
            help="what becomes of a gang whose replacement did not come in time: keep (in a new log) or evict",
            metavar="keep|evict",
        ),
    ] = None,
    lookahead_pods: Annotated[
        int | None,
        typer.Option(
            help="for how many waiting pods of other shards a shard leaves room in a cycle, and how many that back off "
            "it tries before pods of lower priority have their room; 0: none (1024)",
            metavar="PODS",
        ),
    ] = None,
    nominate_after_refusals: Annotated[
        int | None,
        typer.Option(
            help="after how many refused proposals in a row a gang has room nominated; 0: never (3)", metavar="REFUSALS"
        ),
    ] = None,
    nomination_hold_ms: Annotated[
        int | None, typer.Option(help="how long room that is nominated for a gang is kept (10000)", metavar="MS")
    ] = None,
    reserve_after_refusals: Annotated[
        int | None,
        typer.Option(
            help="after how many refusals in a row for lack of room a gang has room reserved; 0: never (5)",
            metavar="REFUSALS",
        ),
    ] = None,
    reservation_hold_ms: Annotated[
        int | None, typer.Option(help="how long room that is reserved for a gang is kept (600000)", metavar="MS")
    ] = None,
    reservations: Annotated[
        int | None, typer.Option(help="how many gangs may have room reserved at a time (1)", metavar="GANGS")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change the policy from here on; what is not named stays as it is.

    In brackets: what a log has that nobody changed, because its first binder adopted it.
    """
    from services.console import commands

    changes = {name: value for name, value in context.params.items() if name not in NO_CHANGES}
    raise typer.Exit(commands.set_policy(log, cluster, changes, as_json=as_json))
