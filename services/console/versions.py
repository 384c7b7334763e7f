"""Which version of the rules and of the state is in force, who has the code for which, and the admin's switch.

A switch is one event, `VersionsSwitched`. It is refused while a process that writes lacks what it names. One that joins
in between makes it inert (`services.state.versions`): so the log is read up to the event before it is said to hold.
"""

from __future__ import annotations

from typing import Any

import events as ev
from events.log import EventLog
from services.console import admin
from services.console.errors import Unusable
from services.console.kinds import check_of_a_cluster
from services.console.replay import replay
from services.planner.core import RULES
from services.start import fold
from services.state import versions
from services.state.fold import FOLDS, State
from services.state.form import listed

ONE_VERSION = "it has one version of rules and state, and there is nothing to switch"


async def current(log: EventLog) -> dict[str, Any]:
    """What is in force at the log's end, and who supports what. Raises Unusable, LogError, UnknownCommit."""
    await check_of_a_cluster(log, ONE_VERSION)
    return described(await replay(log))


def described(state: State) -> dict[str, Any]:
    """Ready for JSON."""
    return {
        "sequence": state.sequence,
        "rules": state.rules_version,
        "state": state.state_version,
        "supports": {writer: supported(has) for writer, has in versions.writers(state).items()},
    }


async def switch(log: EventLog, rules: int | None, version: int | None) -> dict[str, Any]:
    """Switch to these versions, what is not named stays; what is in force then, and whether that was ``switched``. What
    is in force already is written by nobody: to say so twice is no error.

    Raises Unusable when a writer lacks what is asked for, or when another admin was faster; LogError, UnknownCommit.
    """
    await check_of_a_cluster(log, ONE_VERSION)
    writer, state = await admin.look(log)
    asked = ev.VersionsSwitched(rules=rules or state.rules_version, state=version or state.state_version)
    if (asked.rules, asked.state) == (state.rules_version, state.state_version):
        return {"switched": False, **described(state)}
    _check(state, asked)
    await fold(log, state, await admin.write(writer, state, asked))
    if (state.rules_version, state.state_version) != (asked.rules, asked.state):
        raise Unusable(f"nothing was switched, since somebody joined meanwhile: {_those(state, asked)}")
    return {"switched": True, **described(state)}


def _check(state: State, asked: ev.VersionsSwitched) -> None:
    """Raises Unusable."""
    if asked.state not in FOLDS:
        raise Unusable(f"--state {asked.state}: this muster has {listed(FOLDS)}")
    if versions.lacking(state, asked.rules, asked.state):
        raise Unusable(f"nothing was written: {_those(state, asked)}")
    if asked.rules not in RULES:  # where nobody is there who could lack it
        raise Unusable(f"--rules {asked.rules}: this muster has {listed(RULES)}")
    if not versions.may_follow(state, asked):
        raise Unusable(f"--state {asked.state}: expected {state.state_version} or {state.state_version + 1}")


def _those(state: State, asked: ev.VersionsSwitched) -> str:
    """Who lacks what is asked for."""
    lacking = versions.lacking(state, asked.rules, asked.state)
    each = [f"{writer} ({state.holders[writer]}) has {said(has)}" for writer, has in lacking.items()]
    return f"rules version {asked.rules}, state version {asked.state} are not everybody's; " + "; ".join(each)


def said(has: ev.VersionsAnnounced) -> str:
    """For people."""
    rules = f"rules {_numbers(has.rules)}, " if has.rules else ""
    return f"{rules}state {_numbers(has.state)}"


def supported(has: ev.VersionsAnnounced) -> dict[str, list[int]]:
    """Ready for JSON."""
    return {"rules": list(has.rules), "state": list(has.state)}


def _numbers(found: tuple[int, ...]) -> str:
    return " and ".join(map(str, found))
