"""Options and arguments that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Nats = Annotated[str | None, typer.Option("--nats", help="NATS URL", metavar="URL")]
Cluster = Annotated[str | None, typer.Option(help="name of the cluster in the log", metavar="NAME")]
Kubeconfig = Annotated[str | None, typer.Option(help="default: the service account, else $KUBECONFIG", metavar="FILE")]
Schedulers = Annotated[
    str | None, typer.Option("--scheduler-names", help="schedulerNames to serve, comma separated", metavar="NAMES")
]
Log = Annotated[str, typer.Argument(help="a NATS URL, or an exported log (*.db)", metavar="LOG")]
JsonLines = Annotated[bool, typer.Option("--json", help="log lines as JSON")]
Json = Annotated[bool, typer.Option("--json", help="JSON, on the last line of stdout")]
PROFILE = "default, binpack, coscheduling, koordinator or kube-batch"
Shard = Annotated[str | None, typer.Option(help="the planner's shard; auto: the first free one", metavar="NAME|auto")]
