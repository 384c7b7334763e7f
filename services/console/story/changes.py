"""What the state behind a commit says of a pod or a gang whose story is told, whatever brought it about: another
declaration or group, and what concerns everybody who waits. Each is a look or two at the state, as it is asked of every
commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from events.objects import Declaration
from services.console.counted import counted
from services.console.story.followed import GANG, Everybody, Followed
from services.console.story.steps import MS_PER_S, Step, standing
from services.state.records import Gang


def changes(of: Followed) -> Iterator[Step]:
    for uid in of.newcomers:  # of another gang until now, it may have more than its fact says: a node, from its binding
        of.sync(uid)
    of.newcomers.clear()
    if of.kind == GANG and of.state.moved:
        yield from _moved(of)
    of.look()
    gang = of.its_gang()
    if (gang.declaration if gang is not None else None) is not of.declaration:
        yield from _declared(of, gang)
    if of.rejections:
        yield from _mended(of)
    if of.timed_out or gang is not None:
        yield from _timed_out(of)
    if of.waits:
        yield from _grouped(of)
        yield from _everybody(of)
    else:
        of.everybody = None


def _moved(of: Followed) -> Iterator[Step]:
    """Pods that are of another gang now: their labels said so before, and what was intended for them is settled."""
    for uid in of.state.moved:
        pod = of.state.pods.get(uid)
        if (uid in of.members) != (pod is not None and pod.gang == of.name):
            what = "a pod left" if uid in of.members else "a pod joined"
            of.sync(uid)
            yield standing(of, what, f"its label names another gang; {counted(len(of.members), 'pod')} now")


def _declared(of: Followed, gang: Gang | None) -> Iterator[Step]:
    before, now = of.declaration, gang.declaration if gang is not None else None
    of.declaration = now
    if gang is None or now == before:
        return
    if now is None:
        why = "there is no PodGroup of its gang, nor a pod that declares it"
        yield Step("declared no more", why, "declared no more", counts=True)
    elif before is None:
        yield Step("declared", _said(now), f"declared {_said(now)}")
    else:
        changed = _differences(before, now)
        if changed:
            yield Step("declared anew", changed, f"declared anew {changed}", counts=True)


def _said(found: Declaration) -> str:
    parts = [f"minimum {found.min_member}"]
    if found.mode != "Strict":
        parts.append(found.mode)
    if found.task_minimums:
        parts.append(f"of its tasks {_shown(found.task_minimums)}")
    if found.groups:
        parts.append(f"its group is {_shown(found.groups)}")
    if found.waiting_time_ms:
        parts.append(f"waiting time {found.waiting_time_ms / MS_PER_S:g} s")
    if found.priority is not None:
        parts.append(f"priority {found.priority}")
    return ", ".join(parts)


def _mended(of: Followed) -> Iterator[Step]:
    for key in [key for key in of.rejections if key not in of.state.rejections]:
        del of.rejections[key]
        yield Step("not rejected", f"{key.replace('/', ' ', 1)} is gone, or was mended", f"mended {key}", counts=True)


def _timed_out(of: Followed) -> Iterator[Step]:
    now = of.says_timed_out()
    if now == of.timed_out:
        return
    of.timed_out = now
    if now:
        yield Step("timed out", "its pods say so: it is not tried until its user acts", "timed out", counts=True)
    elif of.waits:
        yield Step("may be tried", "nothing says any more that it ran out of waiting time", "may be tried", counts=True)


def _grouped(of: Followed) -> Iterator[Step]:
    group = of.its_group()
    now = group.gangs if group is not None else ()
    before, of.gangs = of.gangs, now
    if now != before and (len(now) > 1 or len(before) > 1):
        others = ", ".join(key for key in now if key != of.gang)
        yield Step("gang group", f"planned together with {others}" if others else "planned by itself", "gang group")


def _everybody(of: Followed) -> Iterator[Step]:
    before, now = of.everybody, of.concerns()
    of.everybody = now
    if now is None or now == before:
        return
    if before is None:  # it begins to wait: as all is there that it needs, as a rule
        if not now.planner:
            yield _planned("", now.planner)
        return
    if now.synced != before.synced:
        yield _synced(now)
    if now.planner != before.planner:
        yield _planned("" if before.planner in of.state.shards else before.planner, now.planner)
    if now.policy is not before.policy:
        yield _policy(before.policy, now.policy)
    if now.versions != before.versions:
        rules, state = now.versions
        yield Step("versions switched", f"to rules version {rules}, state version {state}")


def _synced(now: Everybody) -> Step:
    if now.synced:
        return Step("cluster read", "ingest has read the cluster: it may be tried", "cluster read", counts=True)
    return Step("ingest starts", "nobody decides until it has read the cluster", "ingest starts", counts=True)


def _planned(before: str, now: str) -> Step:
    """`before`: who is gone; empty for none that was told of."""
    if now:
        return Step("planner", f"planner.{now} plans it", "planner", counts=True)
    gone = f"planner.{before} is gone: " if before else ""
    return Step("no planner", f"{gone}no planner that lives owns its partition", "no planner", counts=True)


def _policy(before: Any, now: Any) -> Step:
    if before is None:
        return Step("policy", f"that of profile {now.profile.name}; there was none")
    changed = _differences(before, now)
    return Step("policy changed", changed, f"policy changed {changed}", counts=True)


WORDS = {"min_member": "minimum", "task_minimums": "minimums of tasks", "groups": "its group"}
"""Field → what people call it, where that is something else."""


def _differences(before: Any, now: Any) -> str:
    """Field by field what is otherwise."""
    old, new = _flat(before), _flat(now)
    named = ((name, WORDS.get(name) or name.replace("_", " ")) for name in new if new[name] != old[name])
    return "; ".join(f"{word} {_shown(new[name])}, it was {_shown(old[name])}" for name, word in named)


def _flat(value: Any) -> dict[str, Any]:
    found = msgspec.to_builtins(value)
    found.pop("said", None)  # who says it, not what
    return {**{f"profile {name}": part for name, part in found.pop("profile", {}).items()}, **found}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name} {part}" for name, part in value.items()]
    several = isinstance(value, list | tuple)
    return (", ".join(value) if several else "" if value is None else str(value)) or "none"
