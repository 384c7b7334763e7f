"""The first act on a terminal: what is happening, and what came of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from services.console import show
from services.console.counted import counted
from services.console.demo.cluster import Outcome, Progress
from services.console.summary import bound_pods, gangs, waiting_groups, waiting_pods

if TYPE_CHECKING:
    from rich.console import Group

GANGS_SHOWN = 8
BAR = 24


def picture(progress: Progress) -> Group:
    """The state in a few lines: pods, gangs, and who waits."""
    from rich.console import Group
    from rich.text import Text

    state = progress.state
    bound, waiting = len(bound_pods(state)), len(waiting_pods(state))
    statuses = Counter(pod.status for pod in state.pods.values())
    nodes = sum(node.fact is not None for node in state.nodes.values())
    pods = (
        f"{counted(nodes, 'node')}, {counted(len(state.pods), 'pod')}: "
        f"{bound} bound ({statuses['succeeded']} finished), {waiting} waiting"
    )
    events = counted(progress.events, "event")
    log = f"log: commit {state.sequence}, {events}, {progress.events_per_second():.0f} events/s"
    lines = [Text(pods, style="bold"), Text(bar(bound, bound + waiting)), Text(log, style="dim")]
    why = waiting_groups(state)
    rows = [
        (key, f"{gang['bound']}/{gang['min_member'] or '?'}", gang["phase"], why[key][1] if key in why else "")
        for key, gang in largest(gangs(state))
    ]
    return Group(*lines, *([show.table("", ("gang", "bound", "phase", "why it waits"), rows)] if rows else []))


def largest(found: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(found.items(), key=lambda item: (-item[1]["members"], item[0]))[:GANGS_SHOWN]


def bar(done: int, total: int) -> str:
    filled = BAR * done // total if total else 0
    return "█" * filled + "░" * (BAR - filled) + f" {done}/{total}"


def outcome(found: Outcome) -> None:
    """What was bound, what waits and why, and what `verify` says."""
    out = show.console()
    rows = [
        (key, *("–" if gang[of] is None else gang[of] for of in ("dialect", "min_member", "bound", "phase")))
        for key, gang in found.gangs.items()
    ]
    if rows:
        out.print(show.table("Gangs", ("gang", "dialect", "min", "bound", "phase"), rows))
    if found.waiting_groups:
        waiting = [(group, pods, why) for group, (pods, why) in found.waiting_groups.items()]
        out.print(show.table("Waiting", ("group", "pods", "why"), waiting))
    if found.rejected:
        out.print(show.table("Rejected", ("object",), [(rejected,) for rejected in found.rejected]))
    show.remarks(out, *found.remarks)
    pods = f"{counted(found.pods_bound, 'pod')} bound, {counted(found.gangs_bound, 'gang')}, {found.waiting} waiting"
    best = counted(found.peak_pods_per_second, "binding")
    speed = f"; last binding after {found.seconds:.1f} s, {best} in the best second"
    out.print(show.headed(pods, "bold", speed))
    if not found.settled:
        out.print("ended before everything had come to rest", style="yellow")
    for name, status in found.unclean.items():
        out.print(f"{name} ended with status {status}", style="yellow")
    show.report(found.report)
    out.print(f"log kept in {found.log}: muster replay {found.log}", soft_wrap=True)
