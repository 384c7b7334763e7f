"""The command line: ``muster``.

Commands import what they need when they run, because the start-up time of a service is part of its latency.
"""

from __future__ import annotations

import copy
import gc
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command_name

from services.cli import jobs, policy, versions
from services.cli.options import (
    FEDERATION_HELP,
    PROFILE,
    Cluster,
    Json,
    JsonLines,
    Kubeconfig,
    Log,
    Nats,
    OptionalLog,
    Schedulers,
    Shard,
    UnusedKubeconfig,
    federation_named,
)

app = typer.Typer(
    name="muster",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

TRYING, SERVICES, LOGS, FEDERATION = "Try it", "Services", "A cluster's log", "Many clusters"
"""Where a command stands in the help."""
NARROW = 80
"""Terminals with fewer columns get the help of a command as plain text: the frames cut names of options short, and who
must type them has to read them. A list of commands keeps its frames, as plain text cuts what each of them does."""

app.add_typer(policy.app, name="policy", no_args_is_help=True, rich_help_panel=LOGS)
app.add_typer(versions.app, name="versions", no_args_is_help=True, rich_help_panel=LOGS)
app.add_typer(jobs.app, name="job", no_args_is_help=True, rich_help_panel=FEDERATION)


def asked_for(arguments: Sequence[str]) -> typer.Typer:
    """The app, with no other command than the one that `arguments` begin with: to build all of them takes typer 12 ms of
    CPU, a twentieth of a service's start. Whole where they begin otherwise: help, completion and what is misspelt name
    all of them."""
    first = arguments[0] if arguments else ""
    commands = [one for one in app.registered_commands if (one.name or _name(one.callback)) == first]
    groups = [one for one in app.registered_groups if one.name == first]
    if not commands and not groups:
        return app
    only = copy.copy(app)
    only.registered_commands, only.registered_groups = commands, groups
    names_all = bool(groups) and all(one.startswith("-") for one in arguments[1:2])
    if not names_all and shutil.get_terminal_size().columns < NARROW:
        only.rich_markup_mode = None
    return only


def _name(command: Any) -> str:
    return get_command_name(command.__name__)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"muster {version('muster')}")
        raise typer.Exit


@app.callback()
def muster(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """A gang scheduler for Kubernetes whose every decision is an event in a replayable log."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # until here: `services.__main__`
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _serve(role: str, as_json: bool, **flags: Any) -> None:
    gc.disable()  # until `serve` has imported everything: there is nothing to collect
    from services import settings

    try:
        chosen = settings.read({**flags, "log_format": "json" if as_json else None})
    except settings.InvalidSetting as error:
        _fail(str(error))
    from services.console import http_imports

    http_imports.prepare(role, chosen.nats_url)
    from services.console.launch import serve

    raise typer.Exit(serve(role, chosen))


def _serve_together(services: Sequence[str] | None, as_json: bool, **flags: Any) -> None:
    gc.disable()  # as above
    from services import settings
    from services.console import http_imports

    given = {**flags, "log_format": "json" if as_json else None}
    try:
        http_imports.import_nats(settings.read(given).nats_url)  # as the planner has it
        from services.console import together

        roles = services or together.ROLES
        if unknown := [role for role in roles if role not in together.ROLES]:
            _fail(f"SERVICE: expected some of {', '.join(together.ROLES)}, not {unknown[0]!r}")
        chosen = together.of_each(roles, given)
    except settings.InvalidSetting as error:
        _fail(str(error))
    raise typer.Exit(together.run(roles, chosen))


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


@app.command(rich_help_panel=SERVICES)
def ingest(
    nats: Nats = None,
    cluster: Cluster = None,
    kubeconfig: Kubeconfig = None,
    scheduler_names: Schedulers = None,
    as_json: JsonLines = False,
) -> None:
    """Watch a cluster and write its facts into the log."""
    _serve("ingest", as_json, nats_url=nats, cluster=cluster, kubeconfig=kubeconfig, scheduler_names=scheduler_names)


@app.command(rich_help_panel=SERVICES)
def planner(
    nats: Nats = None,
    cluster: Cluster = None,
    kubeconfig: UnusedKubeconfig = None,
    shard: Shard = None,
    as_json: JsonLines = False,
) -> None:
    """Plan: propose nodes for gangs and pods. Talks to nothing but the log."""
    _serve("planner", as_json, nats_url=nats, cluster=cluster, shard=shard)


@app.command(rich_help_panel=SERVICES)
def binder(
    nats: Nats = None, cluster: Cluster = None, kubeconfig: Kubeconfig = None, as_json: JsonLines = False
) -> None:
    """Judge proposals, permit, bind, and tell users."""
    _serve("binder", as_json, nats_url=nats, cluster=cluster, kubeconfig=kubeconfig)


@app.command(rich_help_panel=SERVICES)
def feed(
    nats: Nats = None,
    cluster: Cluster = None,
    kubeconfig: UnusedKubeconfig = None,
    as_json: JsonLines = False,
) -> None:
    """Publish every event of the log as a CloudEvent for outsiders."""
    _serve("feed", as_json, nats_url=nats, cluster=cluster)


@app.command(rich_help_panel=SERVICES)
def federator(
    nats: Nats = None,
    cluster: Annotated[str | None, typer.Option(help=FEDERATION_HELP, metavar="NAME")] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            help="which clusters there are (docs/federation.md; default: $MUSTER_CLUSTERS_FILE)", metavar="FILE"
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            help="Fernet keys, one a line, with which jobs' bodies are kept (default: $MUSTER_BODY_KEYS_FILE)",
            metavar="FILE",
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Submit multi-cluster jobs to all of their clusters, and keep each on the best one that starts it."""
    named = federation_named(nats, cluster)
    _serve("federator", as_json, nats_url=nats, cluster=named, clusters_file=clusters, body_keys_file=keys)


def _together() -> list[str]:
    from services.console import together

    return list(together.ROLES)


@app.command("run", rich_help_panel=SERVICES)
def run_together(
    services: Annotated[
        list[str] | None,
        typer.Argument(
            help="which (default: ingest planner binder feed)", metavar="[SERVICE]...", autocompletion=_together
        ),
    ] = None,
    nats: Nats = None,
    cluster: Cluster = None,
    kubeconfig: Kubeconfig = None,
    scheduler_names: Schedulers = None,
    shard: Shard = None,
    as_json: JsonLines = False,
) -> None:
    """Several services at once, each a process of its own; where one ends, all do."""
    _serve_together(
        services,
        as_json,
        nats_url=nats,
        cluster=cluster,
        kubeconfig=kubeconfig,
        scheduler_names=scheduler_names,
        shard=shard,
    )


@app.command(rich_help_panel=LOGS)
def replay(
    log: Log,
    at: Annotated[
        str | None, typer.Option(help="a sequence, or a time in RFC 3339 (default: the log's end)", metavar="SEQ|TIME")
    ] = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """The state of the cluster at a place of its log, and its digest."""
    from services.console import commands

    raise typer.Exit(commands.replay(log, cluster, at=at, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def explain(
    log: Log,
    name: Annotated[
        str,
        typer.Argument(
            help="a pod's namespace and name, or a gang as `muster replay` names it", metavar="NAMESPACE/NAME"
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(help="up to a sequence, or a time in RFC 3339 (default: the log's end)", metavar="SEQ|TIME"),
    ] = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """The story of a pod or of a gang: why it waited, when, and what became of it.

    Exit code 1: the log says nothing of such a pod or gang.
    """
    from services.console import commands

    raise typer.Exit(commands.explain(log, cluster, name, at=at, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def verify(
    log: Log,
    cluster: Cluster = None,
    strict: Annotated[
        int, typer.Option(help="check the whole state every so many commits; 0: at the end", min=0, metavar="COMMITS")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Make every decision of a log again, and compare it with the logged one.

    Exit code 0: every decision is reproduced; 1: a difference, or not sound; 2: cannot be read; 5: not verifiable here.
    """
    from services.console import commands

    raise typer.Exit(commands.verify(log, cluster, strict=strict, as_json=as_json))


@app.command("export", rich_help_panel=LOGS)
def export_log(
    log: Log,
    target: Annotated[str, typer.Argument(help="where the copy goes", metavar="FILE.db|URL")],
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Copy a log, commit by commit, keeping its sequences, into a file; or from a file into NATS."""
    from services.console import commands

    raise typer.Exit(commands.copy_log(log, target, cluster, as_json=as_json))


@app.command("import", rich_help_panel=LOGS)
def import_log(
    file: Annotated[str, typer.Argument(help="what `muster export` wrote", metavar="FILE.db")],
    target: Annotated[str, typer.Argument(help="NATS URL; the log keeps its cluster's name", metavar="URL")],
    as_json: Json = False,
) -> None:
    """Copy an exported log into NATS: the inverse of export."""
    from services.console import commands

    raise typer.Exit(commands.copy_log(file, target, None, into_nats=True, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def snapshot(
    log: OptionalLog = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Keep the state at the log's end beside the log, and read it back; services start from there.

    The binder runs it by itself, now and then. It gives way to everything else on the machine.
    """
    from services.console import commands

    raise typer.Exit(commands.take_snapshot(log, cluster, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def retention(
    log: Log,
    cluster: Cluster = None,
    archive: Annotated[
        str | None, typer.Option(help="everything goes there first; it grows with each run", metavar="FILE.db")
    ] = None,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="purge without: what goes is gone")] = False,
    days: Annotated[
        int | None,
        typer.Option(
            help="keep so many at least; 0: all, for ever (default: $MUSTER_RETENTION_DAYS)", min=0, metavar="DAYS"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Archive a log, and purge what is old enough and no snapshot needs.

    Keeps what the last two snapshots need, what is younger than --days (0: all), and what is not archived.
    """
    from services.console import commands

    raise typer.Exit(commands.retain(log, cluster, archive=archive, no_archive=no_archive, days=days, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def status(
    log: OptionalLog = None,
    nats: Nats = None,
    cluster: Cluster = None,
    watch: Annotated[bool, typer.Option("--watch", help="every second, until interrupted")] = False,
    as_json: Json = False,
) -> None:
    """Who holds what, how far behind, decisions and conflicts a second, and how many wait. Writes nothing."""
    from services.console import commands

    if log is not None and nats is not None:
        _fail("expected LOG or --nats, not both")
    location = nats if log is None else log
    raise typer.Exit(commands.status(location, cluster, watch=watch, as_json=as_json))


@app.command(rich_help_panel=LOGS)
def subscribe(
    pattern: Annotated[str, typer.Argument(help="EventType.namespace.name, with * and >", metavar="PATTERN")],
    nats: Nats = None,
    cluster: Cluster = None,
    durable: Annotated[
        str | None, typer.Option(help="go on after the last event that was taken under this name", metavar="NAME")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="begin with the next event, not with the oldest")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="each message as it is: a CloudEvent a line")] = False,
) -> None:
    """Events of the feed as they come, e.g. GangPermitted, 'PodBound.team-a.*', '>'. Needs `muster feed` to run."""
    from services.console import commands

    raise typer.Exit(
        commands.subscribe(pattern, nats=nats, cluster=cluster, durable=durable, history=not new, as_json=as_json)
    )


@app.command(rich_help_panel=TRYING)
def simulate(
    files: Annotated[
        list[str],
        typer.Option(
            "-f", "--file", help="Kubernetes YAML or JSON; a directory of it; -: stdin; may be repeated", metavar="FILE"
        ),
    ],
    profile: Annotated[str, typer.Option(help=PROFILE, metavar="NAME")] = "default",
    keep: Annotated[Path | None, typer.Option("--log", help="keep the log there", metavar="FILE.db")] = None,
    as_json: Json = False,
) -> None:
    """What would be placed where, and what would wait and why: no cluster, no network, no clock.

    Pods of every schedulerName are placed, so that manifests for another scheduler can be tried as they are.
    """
    from services.console import commands

    raise typer.Exit(commands.simulate(files, profile=profile, log=keep, as_json=as_json))


@app.command(rich_help_panel=TRYING)
def demo(
    nodes: Annotated[
        list[str] | None, typer.Option(help="Kubernetes YAML or JSON with nodes; may be repeated", metavar="FILE")
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Kubernetes YAML or JSON with pods; may be repeated", metavar="FILE")
    ] = None,
    trace: Annotated[str | None, typer.Option(help="a public trace instead: openb or dlrm", metavar="NAME")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="where the trace's CSV files are", metavar="DIR")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="pods of the trace at most (dlrm: whole services, at least one)", min=1, metavar="PODS"),
    ] = None,
    gang_groups: Annotated[
        str | None,
        typer.Option(help="both roles of a dlrm service wait for each other: strict, nonstrict", metavar="MODE"),
    ] = None,
    act: Annotated[
        int | None, typer.Option(help="1: a cluster's gangs, 2: a job for three clusters; default: both", metavar="1|2")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="keep the logs and every process's output there (default: the logs alone, in a new one in /tmp)",
            metavar="DIR",
        ),
    ] = None,
    at_most: Annotated[float, typer.Option(help="after so long it ends in any case", min=1, metavar="SECONDS")] = 600,
    as_json: Json = False,
) -> None:
    """Everything on this machine: NATS, simulated clusters and all services, each a process of its own; in two acts.

    Ends by itself when nothing can change any more, and verifies its own log. Exit code 0: verified, and settled.
    With your own nodes and pods, or a trace, only the first act runs.
    """
    from services.console.demo import command

    given = [
        *(("--nodes", one) for one in nodes or ()),
        *(("--workload", one) for one in workload or ()),
        ("--keep", keep),
    ]
    for flag, path in given:
        if path == "":  # a path without a word is the directory in which this runs
            _fail(f"{flag} '': expected a {'directory' if flag == '--keep' else 'file or directory'}")
    status = command.demo(
        nodes=[Path(one) for one in nodes or ()],
        workload=[Path(one) for one in workload or ()],
        trace=trace,
        trace_directory=directory,
        limit=limit,
        gang_groups=gang_groups,
        act=act,
        keep=None if keep is None else Path(keep),
        at_most_s=at_most,
        as_json=as_json,
    )
    raise typer.Exit(status)
