"""The second act on a terminal: what is happening, and which cluster won and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.console import show, timeline
from services.console.demo.federation import GUARD_MINUTES, JOB, PRIORITIES, QUEUES_MS, SCALE_MINUTES, Outcome, Progress
from services.console.timeline import WIDEST
from services.federator.explain import Line

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

DECISIONS = frozenset(("accepted", "scheduled", "to be stopped", "placed", "settled"))


def opening() -> None:
    """What is at stake."""
    from rich.rule import Rule

    out = show.console()
    out.print()
    out.print(Rule("one job, three clusters"), width=min(out.width, WIDEST))
    queues = ", ".join(
        f"{alias} (priority {PRIORITIES[alias]}) {QUEUES_MS[alias] / 1000:g} s" for alias in reversed(PRIORITIES)
    )
    out.print(
        f"Job {JOB!r} goes to all of them. Their queues: {queues}. It counts as scheduled once it ran for "
        f"{GUARD_MINUTES * 60:g} s; each point of priority is worth {SCALE_MINUTES * 60:g} s of waiting."
    )


def picture(progress: Progress) -> Text:
    """The timeline so far."""
    from rich.text import Text

    line = progress.line()
    return Text("the federator starts …", style="dim") if line is None else timeline.picture(line, show.console().width)


def outcome(found: Outcome) -> None:
    """The timeline, the decisions with their reasons, and who won."""
    out = show.console()
    if found.line is not None:
        out.print()
        out.print(timeline.picture(found.line, out.width))
    out.print()
    out.print(decisions(found.story))
    out.print()
    out.print(show.headed(*won(found)))
    if not found.settled:
        out.print("ended before everything was settled", style="yellow")
    for name, status in found.unclean.items():
        out.print(f"{name} ended with status {status}", style="yellow")
    out.print()
    show.report(found.report)
    out.print(f"log kept in {found.log}: muster job explain {JOB} --nats {found.log}", soft_wrap=True)


def decisions(story: list[Line]) -> Table:
    """What the federator decided, by seconds from the job's acceptance."""
    begin_ns = story[0].time_ns if story else 0
    decided = (line for line in story if line.what in DECISIONS)
    return timeline.told(decided, lambda line: f"{(line.time_ns - begin_ns) / 1e9:5.2f} s")


def won(found: Outcome) -> tuple[str, str, str]:
    """Which cluster, its style, and why, in the log's own words."""
    if not found.cluster:
        return "no cluster", "yellow", " keeps the job"
    scheduled = [line.reason for line in found.story if (line.cluster, line.what) == (found.cluster, "scheduled")]
    placed = [line.reason for line in found.story if line.what == "placed"]
    stopped = [f"{line.cluster} ({line.reason})" for line in found.story if line.what == "to be stopped"]
    why = ", and ".join([*(reason.partition(";")[0] for reason in scheduled[-1:]), *placed])
    return found.cluster, "bold green", f" keeps the job: {why}. Stopped: {'; '.join(stopped)}."
