"""The command line: ``muster``.

Commands import what they need when they run, because the start-up time of a service is part of its latency.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="muster",
    help="A gang scheduler for Kubernetes whose every decision is an event in a replayable log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Nats = Annotated[str | None, typer.Option("--nats", help="NATS URL", metavar="URL")]
Cluster = Annotated[str | None, typer.Option(help="name of the cluster in the log", metavar="NAME")]
Kubeconfig = Annotated[
    str | None, typer.Option(help="default: the service account, else $KUBECONFIG", metavar="FILE")
]
Schedulers = Annotated[
    str | None, typer.Option("--scheduler-names", help="schedulerNames to serve, comma separated", metavar="NAMES")
]
Shard = Annotated[str | None, typer.Option(help="the planner's shard", metavar="NAME")]


def _serve(role: str, **flags: Any) -> None:
    from services import settings
    from services.console.launch import serve

    try:
        chosen = settings.read(flags)
    except settings.InvalidSetting as error:
        _fail(str(error))
    raise typer.Exit(serve(role, chosen))


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


@app.command()
def ingest(
    nats: Nats = None, cluster: Cluster = None, kubeconfig: Kubeconfig = None, scheduler_names: Schedulers = None
) -> None:
    """Watch a cluster and write its facts into the log."""
    _serve("ingest", nats_url=nats, cluster=cluster, kubeconfig=kubeconfig, scheduler_names=scheduler_names)


@app.command()
def planner(nats: Nats = None, cluster: Cluster = None, shard: Shard = None) -> None:
    """Plan: propose nodes for gangs and pods. Talks to nothing but the log."""
    _serve("planner", nats_url=nats, cluster=cluster, shard=shard)


@app.command()
def binder(nats: Nats = None, cluster: Cluster = None, kubeconfig: Kubeconfig = None) -> None:
    """Judge proposals, permit, bind, and tell users."""
    _serve("binder", nats_url=nats, cluster=cluster, kubeconfig=kubeconfig)


@app.command()
def feed(nats: Nats = None, cluster: Cluster = None) -> None:
    """Publish every event of the log as a CloudEvent for outsiders."""
    _serve("feed", nats_url=nats, cluster=cluster)


def main() -> None:
    """The entry point of the ``muster`` command."""
    app()


if __name__ == "__main__":
    sys.exit(main())
