"""Options and arguments that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

LOG = "a NATS URL (nats://host:4222/CLUSTER), or an exported log (*.db)"
PROFILE = "rules that run together: default, binpack, coscheduling, koordinator or kube-batch"

Nats = Annotated[
    str | None,
    typer.Option("--nats", help="NATS URL (default: $MUSTER_NATS_URL, else nats://127.0.0.1:4222)", metavar="URL"),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="name of the cluster in the log (default: the URL's, else $MUSTER_CLUSTER)", metavar="NAME"),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        help="default: $MUSTER_KUBECONFIG, else $KUBECONFIG, else the pod's service account, else ~/.kube/config",
        metavar="FILE",
    ),
]
UnusedKubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        help="taken as by the other services, and not read: this one talks to nothing but NATS",
        metavar="FILE",
    ),
]
Schedulers = Annotated[
    str | None,
    typer.Option(
        "--scheduler-names",
        help="schedulerNames to serve, with commas (default: $MUSTER_SCHEDULER_NAMES, else muster)",
        metavar="NAMES",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        help="the planner's shard; auto: the first that is free (default: $MUSTER_SHARD, else 0)", metavar="NAME|auto"
    ),
]
FEDERATION_HELP = "name of the federation's log (default: that behind --nats, else federation)"
Log = Annotated[str, typer.Argument(help=LOG, metavar="LOG")]
OptionalLog = Annotated[str | None, typer.Argument(help=f"{LOG}; default: $MUSTER_NATS_URL", metavar="LOG")]
JsonLines = Annotated[bool, typer.Option("--json", help="log lines as JSON")]
Json = Annotated[bool, typer.Option("--json", help="JSON, on the last line of stdout")]


def federation_named(nats: str | None, flag: str | None) -> str:
    """The federation that the flags mean. What MUSTER_NATS_URL names behind its servers is a cluster."""
    from events.homes import named_behind
    from events.subjects import FEDERATION

    return flag if flag is not None else named_behind(nats) or FEDERATION
