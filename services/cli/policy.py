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
    profile: Annotated[str | None, typer.Option(help=PROFILE, metavar="NAME")] = None,
    queue_order: Annotated[
        str | None, typer.Option(help="coscheduling, koordinator or kube-batch", metavar="NAME")
    ] = None,
    node_score: Annotated[str | None, typer.Option(help="least-allocated or binpack", metavar="NAME")] = None,
    permit_waiting_ms: Annotated[int | None, typer.Option(help="how long an assignment waits for its gang")] = None,
    backoff_initial_ms: Annotated[int | None, typer.Option(help="first backoff of a refused group")] = None,
    backoff_max_ms: Annotated[int | None, typer.Option(help="largest backoff")] = None,
    retry_ms: Annotated[int | None, typer.Option(help="a refused group is tried again after that in any case")] = None,
    cycle_pods: Annotated[int | None, typer.Option(help="pods that one planning cycle considers")] = None,
    gang_pods: Annotated[int | None, typer.Option(help="pods that a gang may have")] = None,
    replacement_hold_ms: Annotated[int | None, typer.Option(help="how long a failed member's room is kept")] = None,
    replacement_policy: Annotated[
        str | None, typer.Option(help="after that: keep the gang's other pods, or evict them", metavar="NAME")
    ] = None,
    lookahead_pods: Annotated[int | None, typer.Option(help="other shards' pods that a cycle leaves room for")] = None,
    nominate_after_refusals: Annotated[
        int | None, typer.Option(help="refused proposals in a row after which a gang's room is kept; 0: never")
    ] = None,
    nomination_hold_ms: Annotated[int | None, typer.Option(help="how long that room is kept")] = None,
    reserve_after_refusals: Annotated[
        int | None, typer.Option(help="refusals in a row after which a gang starves and gets room reserved; 0: never")
    ] = None,
    reservation_hold_ms: Annotated[int | None, typer.Option(help="how long that room is kept")] = None,
    reservations: Annotated[int | None, typer.Option(help="gangs that may have room reserved at a time")] = None,
    as_json: Json = False,
) -> None:
    """Change the policy from here on; what is not named stays as it is."""
    from services.console import commands

    changes = {name: value for name, value in context.params.items() if name not in NO_CHANGES}
    raise typer.Exit(commands.set_policy(log, cluster, changes, as_json=as_json))
