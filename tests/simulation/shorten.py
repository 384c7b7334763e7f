"""The shortest history that still fails in the same way, as far as a bounded number of tries finds it."""

from __future__ import annotations

import re
from math import inf

import msgspec

from tests.simulation.history import History, history
from tests.simulation.plan import Plan
from tests.simulation.planting import MIXED

TRIES = 200
_SECTION = re.compile(r"\(((?:7\.\d+|rule \d|section \d)[^()]*)\)")
Items = list[tuple[str, int]]
"""("step" or "fault", its index in the seed's plan)."""


def kind_of(violation: str) -> str:
    """What of a violation stays the same when places and names change: the invariant, or the exception."""
    sections = _SECTION.findall(violation)
    return str(sections[-1]) if sections else violation.partition(":")[0]


def only(plan: Plan, items: Items) -> Plan:
    """The plan with these items and no others."""
    steps = [plan.steps[index] for kind, index in items if kind == "step"]
    faults = [plan.faults[index] for kind, index in items if kind == "fault"]
    return Plan(plan.seed, steps, faults, plan.workload, exact=True)


def items_until(plan: Plan, end_s: float) -> Items:
    return [
        (kind, index)
        for kind, items in (("step", plan.steps), ("fault", plan.faults))
        for index, item in enumerate(items)
        if item.at_s <= end_s
    ]


def shorten(plan: Plan, violation: str, end_s: float, tries: int = TRIES) -> tuple[Items | None, History]:
    """Leave out halves, quarters, … and single items, as long as the rest fails alike; the items and their history.

    None: no choice of them does, as what came behind the end had decided when trouble ended; the history is the whole
    one, which passes here if it depends on PYTHONHASHSEED.
    """
    wanted = kind_of(violation)

    def fails(items: Items) -> History | None:
        nonlocal tries
        tries -= 1
        world = history(only(plan, items))
        found = world.run().violation
        return world if found and kind_of(found) == wanted else None

    for items in (items_until(plan, end_s), items_until(plan, inf)):
        if (shortest := fails(items)) is not None:
            break
    else:
        whole = history(plan)
        whole.run()
        return None, whole
    size = len(items) // 2
    while size and tries > 0:
        start = 0
        while start < len(items) and tries > 0:
            rest = items[:start] + items[start + size :]
            world = fails(rest)
            if world is None:
                start += size
            else:
                items, shortest = rest, world
        size //= 2
    return items, shortest


def described(world: History, commits: int = 12) -> str:
    """The history in words: its items, its last commits, how it ends."""
    plan = world.plan
    lines = [f"seed {plan.seed}: {len(plan.steps)} steps, {len(plan.faults)} faults"]
    for item in sorted((*plan.steps, *plan.faults), key=lambda one: one.at_s):
        told = {
            name: value for name, value in msgspec.to_builtins(item).items() if value and name not in ("at_s", "number")
        }
        lines.append(f"  {item.at_s:7.3f} s  {' '.join(f'{name}={value}' for name, value in told.items())}")
    lines += ["the end of its log:", *world.last_commits(commits)]
    return "\n".join(lines)


def command(plan: Plan, items: Items | None) -> str:
    """What replays these of its items; None: all of it, as the seed says."""
    which = "" if plan.workload == MIXED else f" --workload {plan.workload}"
    told = "" if items is None else f" --steps {_told(items, 'step')} --faults {_told(items, 'fault')}"
    return f".venv/bin/python -m tests.simulation replay {plan.seed}{which}{told}"


def _told(items: Items, kind: str) -> str:
    return ",".join(str(index) for other, index in items if other == kind) or "none"
