"""The console's commands, from arguments to an exit code: what `services.cli` hands on to.

Exit codes: 0 done; 1 the answer is no (a difference, a demo that was not verified); 2 usage, or something cannot be read;
5 a log that is not verifiable by this version.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from events.homes import SUFFIX, copy, is_server, side_by_side, split, without_credentials
from events.log import EventLog, LogError
from events.subjects import FEDERATION
from services.console import show
from services.console.counted import counted
from services.console.errors import Unusable, told
from services.console.location import open_location
from services.console.printed import until_nobody_reads
from services.telemetry.logs import printable

T = TypeVar("T")
NICER = 10
"""What takes a snapshot works when nobody else wants to."""


@contextlib.contextmanager
def told_errors(*kinds: type[Exception]) -> Iterator[None]:
    """What is the user's to mend, as one line and exit code 2."""
    from services.settings import InvalidSetting
    from services.state.form import UnknownCommit

    told_of = (LogError, InvalidSetting, UnknownCommit, Unusable, OSError, UnicodeEncodeError)
    expected: tuple[type[Exception], ...] = (*told_of, *kinds)
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except expected as error:
        sys.stderr.write(f"error: {told(error)}\n")
        raise SystemExit(2) from error


def run(work: Coroutine[Any, Any, T]) -> T:
    with contextlib.closing(work), told_errors():
        return finish(work)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run it. If Ctrl-C comes before it has begun, it is closed, as Python warns of a coroutine that nobody awaited."""
    with contextlib.closing(work):
        return asyncio.run(work)


GIVE_BACK_S = 10.0
"""How long what was told to end may take: twice what a connection to a server that hangs takes to close."""


def end_when_told() -> None:
    """Let SIGTERM cancel this task, as Ctrl-C does, so that it gives back what it has at a server or beside a file.

    A process that is held up in a write, because nobody reads what it prints, is ended after `GIVE_BACK_S`.
    """
    task = asyncio.current_task()
    assert task is not None

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, GIVE_BACK_S)
        loop.call_soon_threadsafe(task.cancel)

    loop = asyncio.get_running_loop()
    with contextlib.suppress(ValueError):  # in a thread
        signal.signal(signal.SIGTERM, end)


async def _with_log(location: str | None, cluster: str | None, work: Any) -> Any:
    log: EventLog = await open_location(location, cluster)
    try:
        return await work(log)
    finally:
        await log.close()


# ---------------------------------------------------------------------------------------------------------- verify


def verify(location: str | None, cluster: str | None, *, strict: int = 0, as_json: bool = False) -> int:
    """`muster verify`. `strict`: the state is validated every so many commits; 0: at the end alone."""
    from services.console import verify as verifying

    async def work(log: EventLog) -> verifying.Report:
        with show.progress("deciding again", shown=not as_json) as moved:
            return await verifying.verify(log, validate_every=strict, progress=moved)

    found: verifying.Report = run(_with_log(location, cluster, work))
    if as_json:
        show.json_line({"verified": found.verified, **msgspec.to_builtins(found)})
    else:
        show.report(found)
    return found.exit_code


# ---------------------------------------------------------------------------------------------------------- replay


def replay(location: str | None, cluster: str | None, *, at: str | None = None, as_json: bool = False) -> int:
    """`muster replay`. `at`: a sequence or a time in RFC 3339; None: the log's end."""
    from services.console import replay as replaying
    from services.console.kinds import Kind, kind_of

    async def work(log: EventLog) -> tuple[Kind, Any, dict[str, Any]]:
        kind = await kind_of(log)
        state = await replaying.replay(log, at, kind.form)
        place = {"sequence": state.sequence, "time": await replaying.when(log, state.sequence), "end": await log.end()}
        return kind, state, place

    kind, state, place = run(_with_log(location, cluster, work))
    summed_up = {**place, **kind.summary(state), "digest": kind.form.digest(state)}
    what, waiting = kind.waiting(state)
    if as_json:
        show.json_line({**summed_up, what: waiting})
        return 0
    show.facts_of(f"State at {state.sequence}", {**summed_up, "time": place["time"] or _no_time(state.sequence)})
    if waiting:
        rows = [(name, *found.values()) for name, found in waiting.items()]
        columns = (kind.one, *next(iter(waiting.values())))
        show.console().print(show.table("Waiting", columns, rows))
    return 0


def _no_time(sequence: int) -> str:
    return "that of nobody's commit, or of one that was purged" if sequence else "before the first commit"


# --------------------------------------------------------------------------------------------------------- explain


def explain(
    location: str | None, cluster: str | None, name: str, *, at: str | None = None, as_json: bool = False
) -> int:
    """`muster explain`. Exit code 1: the log says nothing of a pod or gang of this name."""
    from services.console import explain as explaining

    async def work(log: EventLog) -> tuple[str, explaining.Explained]:
        with show.progress("reading", shown=not as_json) as moved:
            return log.cluster, await explaining.explain(log, name, at, moved)

    of, found = run(_with_log(location, cluster, work))
    if as_json:
        show.json_line(
            {"sequence": found.sequence, "time_ns": found.time_ns, "stories": [one._asdict() for one in found.stories]}
        )
    else:
        show.stories(found)
    if found.stories:
        return 0
    place = f" up to {at}" if at is not None else ""
    near = f"; there is {', '.join(found.near)}" if found.near else ""
    sys.stderr.write(printable(f"error: there is no pod or gang {name} in the log of {of!r}{place}{near}") + "\n")
    return 1


# ------------------------------------------------------------------------------------------------------- snapshots


def take_snapshot(location: str | None, cluster: str | None, *, as_json: bool = False) -> int:
    """`muster snapshot`, of lower priority than everything else on the machine."""
    import os

    from services import settings, snapshots
    from services.console.kinds import kind_of
    from services.telemetry import logs

    async def work(log: EventLog) -> Any:
        return await snapshots.take(log, (await kind_of(log)).form)

    with told_errors():
        chosen = settings.read({"cluster": cluster})
    logs.configure("snapshot", chosen.cluster, chosen.log_level, chosen.log_format)
    os.nice(NICER)
    kept = run(_with_log(location, cluster, work))
    found = msgspec.to_builtins(kept)
    if as_json:
        show.json_line(found)
    else:
        show.facts_of(f"Snapshot of {kept.sequence}", found)
    return 0


# --------------------------------------------------------------------------------------------------------- copies


def copy_log(source: str, target: str, cluster: str | None, *, into_nats: bool = False, as_json: bool = False) -> int:
    """Export and import, which is `into_nats`: all commits of one home into another, at their own sequences."""
    shown = without_credentials(target)

    async def work(log: EventLog) -> dict[str, Any]:
        if (into_nats or is_server(target)) and split(target)[1] not in ("", log.cluster):
            raise Unusable(f"{shown}: a copy keeps its cluster's name, expected {log.cluster!r} behind the URL")
        into = await open_location(target, log.cluster, create=True)
        try:
            copied = await copy(log, into)
            return {"cluster": log.cluster, "copied": copied, "end": await into.end()}
        finally:
            await into.close()

    found = run(_with_log(source, cluster, work))
    if as_json:
        show.json_line(found)
    else:
        show.console().print(
            f"{counted(found['copied'], 'commit')} of {found['cluster']!r} copied; {shown} ends at {found['end']}"
        )
    return 0


def retain(
    location: str | None,
    cluster: str | None,
    *,
    archive: str | None,
    no_archive: bool,
    days: int | None,
    as_json: bool = False,
) -> int:
    """`muster retention`. `archive`: a file *.db; None with `no_archive`. `days`: kept at least; None: the setting."""
    from services import settings
    from services.console import retention

    with told_errors():
        if (archive is None) != no_archive:
            raise Unusable("expected --archive FILE.db, where what is purged is kept, or else --no-archive")
        chosen = settings.read({"cluster": cluster, "retention_days": days})
        if archive is not None:
            retention.check_archive(location, archive)

    async def work(log: EventLog) -> retention.Retained:
        into = await open_location(archive, log.cluster, create=True) if archive is not None else None
        try:
            return await retention.retain(log, into, days=chosen.retention_days, now_ns=chosen.now_ns())
        finally:
            if into is not None:
                await into.close()

    found: retention.Retained = run(_with_log(location, cluster, work))
    if as_json:
        show.json_line(msgspec.to_builtins(found))
    else:
        show.retained(found)
    return 0


# -------------------------------------------------------------------------------------------------------- simulate


def simulate(files: Sequence[str], *, profile: str, log: Path | None = None, as_json: bool = False) -> int:
    """`muster simulate`. `log`: a new file *.db that keeps what the simulation appended."""
    from events.policy import DEFAULT_POLICY
    from services.console import simulate as simulating
    from services.console.profiles import profile as named
    from services.simulator.manifests import ManifestError, read_yaml

    with told_errors(ManifestError):
        if log is not None and log.suffix != SUFFIX:
            raise Unusable(f"--log {without_credentials(str(log))}: expected the path of a file *{SUFFIX}")
        policy = msgspec.structs.replace(DEFAULT_POLICY, profile=named(profile))
        objects, misfits = read_yaml(files)
        simulation = simulating.simulate(objects, policy, misfits)
    if log is not None:
        run(_keep(simulation.log, log))
    found = simulation.answer()
    if as_json:
        show.json_line(found)
    else:
        show.answer(found)
    return 0


async def _keep(log: EventLog, path: Path) -> None:
    """What another simulation kept there may differ in its middle alone, and no copy would see it."""
    target = await open_location(str(path), log.cluster, create=True)
    try:
        if await target.end() and not await _are_alike(log, target):
            raise Unusable(f"--log {path}: expected a new file, found another log")
        await copy(log, target)
    except LogError as error:
        raise Unusable(f"--log {path}: {error}") from error
    finally:
        await target.close()


async def _are_alike(log: EventLog, other: EventLog) -> bool:
    """Either may be too large to be held."""
    if await log.bounds() != await other.bounds():
        return False
    async with contextlib.aclosing(side_by_side(log, other)) as batches:
        async for ours, theirs in batches:
            if ours != theirs:
                return False
    return True


# ---------------------------------------------------------------------------------------------------------- policy


def show_policy(location: str | None, cluster: str | None, *, as_json: bool = False) -> int:
    from services.console import policy as policies

    sequence, found = run(_with_log(location, cluster, policies.current))
    if as_json:
        show.json_line({"sequence": sequence, "policy": msgspec.to_builtins(found)})
    elif found is None:
        show.console().print(f"the log has no policy at {sequence}: the first binder adopts the defaults")
    else:
        show.facts_of(f"Policy at {sequence}", msgspec.to_builtins(found))
    return 0


def set_policy(location: str | None, cluster: str | None, changes: Mapping[str, Any], *, as_json: bool = False) -> int:
    """`muster policy set`. `changes`: field → value."""
    from services.console import policy as policies

    async def work(log: EventLog) -> Any:
        return await policies.change(log, changes)

    sequence, new, written = run(_with_log(location, cluster, work))
    if as_json:
        show.json_line({"sequence": sequence, "policy": msgspec.to_builtins(new)})
    else:
        title = f"Policy from {sequence} on" if written else f"Policy at {sequence}, as it was: nothing was written"
        show.facts_of(title, msgspec.to_builtins(new))
    return 0


# -------------------------------------------------------------------------------------------------------- versions


def show_versions(location: str | None, cluster: str | None, *, as_json: bool = False) -> int:
    from services.console import versions

    return _versions(run(_with_log(location, cluster, versions.current)), as_json=as_json)


def switch_versions(
    location: str | None, cluster: str | None, rules: int | None, state: int | None, *, as_json: bool = False
) -> int:
    from services.console import versions

    with told_errors():
        if rules is None and state is None:
            raise Unusable(
                "expected --rules N or --state N, what to switch to; `muster versions show` says what there is"
            )

    async def work(log: EventLog) -> dict[str, Any]:
        return await versions.switch(log, rules, state)

    return _versions(run(_with_log(location, cluster, work)), as_json=as_json)


def _versions(found: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        show.json_line(found)
    else:
        show.versions(found)
    return 0


# ---------------------------------------------------------------------------------------------------------- status


def status(location: str | None, cluster: str | None, *, watch: bool = False, as_json: bool = False) -> int:
    """Once, or every second until interrupted; as JSON one object a line."""
    from services.console import status as looking

    async def once(log: EventLog) -> dict[str, Any]:
        return await (await looking.Observer.of(log)).status(log.cluster)

    async def again(log: EventLog) -> None:
        with contextlib.nullcontext(show.json_line) if as_json else looking.shown() as tell:
            async with contextlib.aclosing(looking.watch(log)) as looks:
                async for found in looks:
                    tell(found)

    async def watched() -> None:
        end_when_told()
        await _with_log(location, cluster, again)

    if watch:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError), until_nobody_reads():
            run(watched())
        return 0
    found = run(_with_log(location, cluster, once))
    if as_json:
        show.json_line(found)
    else:
        show.console().print(looking.picture(found))
    return 0


# ------------------------------------------------------------------------------------------------------- subscribe


def subscribe(
    pattern: str,
    *,
    nats: str | None,
    cluster: str | None,
    durable: str | None,
    history: bool,
    as_json: bool = False,
) -> int:
    """Print the feed's messages until interrupted, or until nobody reads them any more."""
    from events.cloudevents import NoCloudEvent, PatternError
    from services import settings

    async def work() -> None:
        from events.subscription import subscribe as messages

        end_when_told()
        chosen = settings.read({"nats_url": nats, "cluster": cluster})
        if chosen.cluster == FEDERATION:
            raise Unusable("a federation's log has no feed; `muster job list` tells of its jobs")
        servers, _ = split(chosen.nats_url)
        found = messages(servers, chosen.cluster, pattern, durable, history=history, **chosen.nats_options())
        async with contextlib.aclosing(found):
            async for message in found:
                try:
                    line = show.json_event(message) if as_json else show.cloud_event(message)
                except NoCloudEvent as error:
                    sys.stderr.write(f"set aside: {error}\n")
                    continue
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    ended = contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError)
    with told_errors(PatternError), ended, until_nobody_reads():
        finish(work())
    return 0
