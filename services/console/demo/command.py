"""`muster demo`: which acts, and what comes of them for people and for machines."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from services.console import show
from services.console.commands import finish, told_errors
from services.console.demo import cluster, cluster_view, federation, federation_view
from services.console.errors import Unusable
from services.console.processes import ChildFailed

T = TypeVar("T")
FIRST, SECOND = 1, 2
LOGS = (cluster.DATABASE, federation.DATABASE)


def demo(
    *,
    nodes: Sequence[Path],
    workload: Sequence[Path],
    trace: str | None,
    trace_directory: Path | None,
    limit: int | None,
    gang_groups: str | None,
    act: int | None,
    keep: Path | None,
    at_most_s: float,
    as_json: bool,
) -> int:
    """Everything but the logs goes away afterwards, unless it is to be kept."""
    from events.server import ServerError
    from services.simulator.errors import ApiError
    from services.simulator.manifests import ManifestError

    with told_errors(ManifestError, ApiError, ChildFailed, ServerError):
        own_work = bool(trace or nodes or workload)
        if math.isnan(at_most_s):  # every bound lets it through
            raise Unusable("--at-most nan: expected a number of seconds")
        _check(nodes, workload, trace, trace_directory, limit)
        _check_trace(trace, gang_groups)
        acts = acts_of(act, own_work)
        options = cluster.Options(
            directory=keep or Path(tempfile.mkdtemp(prefix="muster-demo-")),
            nodes=tuple(nodes),
            workload=tuple(workload),
            trace=trace or "",
            trace_directory=trace_directory or Path(),
            limit=limit,
            gang_groups=gang_groups or "",
            at_most_s=at_most_s,
        )
        _prepare(options.directory)
        said: dict[str, Any] = {}
        try:
            good = [_ACTS[one](options, said, as_json) for one in acts]
        finally:
            if keep is None:
                clear(options.directory)
    if as_json:
        show.json_line(said)
    return 0 if all(good) else 1


def _first(options: cluster.Options, said: dict[str, Any], as_json: bool) -> bool:
    """Whether it came to rest, and its log verifies."""
    with _live(cluster_view.picture, as_json) as shown:
        found = _until_done(cluster.run(options, shown))
    said |= cluster.in_one_line(found)
    if not as_json:
        cluster_view.outcome(found)
    return found.report.verified and found.settled and not found.unclean


def _second(options: cluster.Options, said: dict[str, Any], as_json: bool) -> bool:
    """Whether the job was settled on a cluster, and the log verifies."""
    if not as_json:
        federation_view.opening()
    with _live(federation_view.picture, as_json) as shown:
        found = _until_done(federation.run(options.directory, options.at_most_s, shown))
    said["federation"] = federation.in_one_line(found)
    if not as_json:
        federation_view.outcome(found)
    return found.report.verified and found.settled and bool(found.cluster) and not found.unclean


_ACTS = {FIRST: _first, SECOND: _second}


def acts_of(act: int | None, own_work: bool) -> tuple[int, ...]:
    """Both, unless there are nodes and pods of the user's own. Raises Unusable."""
    if act is None:
        return (FIRST,) if own_work else (FIRST, SECOND)
    if act not in _ACTS:
        raise Unusable(f"--act {act}: expected {FIRST} or {SECOND}")
    if act == SECOND and own_work:
        raise Unusable("--nodes, --workload and --trace belong to --act 1")
    return (act,)


def _check(
    nodes: Sequence[Path], workload: Sequence[Path], trace: str | None, directory: Path | None, limit: int | None
) -> None:
    if trace and (nodes or workload):
        raise Unusable("--trace brings its own nodes and pods: leave --nodes and --workload out")
    if trace and directory is None:
        raise Unusable("--trace: expected --dir DIR, where the trace's CSV files are")
    if not trace and (directory is not None or limit is not None):
        raise Unusable("--dir and --limit belong to --trace openb|dlrm")
    if bool(nodes) != bool(workload):
        raise Unusable("expected both --nodes and --workload, or neither")


def _check_trace(trace: str | None, mode: str | None) -> None:
    from services.simulator.traces import MODES, TRACES

    if trace is not None and trace not in TRACES:
        raise Unusable(f"--trace {trace or repr(trace)}: expected {' or '.join(TRACES)}")
    if mode is not None and trace != "dlrm":
        raise Unusable("--gang-groups belongs to --trace dlrm")
    if mode is not None and mode not in MODES:
        raise Unusable(f"--gang-groups {mode}: expected {' or '.join(MODES)}")


@contextlib.contextmanager
def _live(picture: Callable[[Any], Any], as_json: bool) -> Any:
    """Called with every look at the log, it redraws in place; on a terminal, that is."""
    if as_json or not sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.live import Live

    with Live(console=show.console(), auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(picture(progress), refresh=True)


def _until_done(act: Coroutine[Any, Any, T]) -> T:
    """Interrupted, it ends what it started, and then this process as the signal would have."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await act

    try:
        with contextlib.closing(act):
            return finish(cancellable())
    except asyncio.CancelledError as error:
        raise SystemExit(128 + signal.SIGTERM) from error
    except KeyboardInterrupt as error:
        raise SystemExit(128 + signal.SIGINT) from error


def _prepare(directory: Path) -> None:
    """Raises Unusable, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    for found in [*(directory / name for name in LOGS), *sorted(directory.glob("nats*"))]:
        if found.exists():
            what = "a log" if found.name in LOGS else "a NATS server's store, of a demo that did not end by itself,"
            raise Unusable(f"{found}: there is {what} already; give another directory")


def clear(directory: Path) -> None:
    """No interrupt ends it: who presses Ctrl-C twice is left with nothing either."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in LOGS:
                path.unlink()
        if not any(directory.iterdir()):
            directory.rmdir()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
