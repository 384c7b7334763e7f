"""What of the state is said by facts alone is what the facts say, whatever was under way when they came.

A pod is in the gang that it names, unless it is proposed or waits at permit: then once that is settled. A gang is as its
PodGroup and those of its pods declare it that speak for it, at every moment; and of Koordinator's dialect where they
give it what only that has.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from events import dialects
from services.state import declarations
from services.state.records import BOUND_CLAIM

if TYPE_CHECKING:
    from services.state.fold import State


def stale(state: State) -> str:
    """What is not as the facts say; empty: nothing."""
    for uid, pod in state.pods.items():
        named = pod.fact.gang.gang if pod.fact.candidate and pod.fact.gang is not None else ""
        claim = state.claims.get(uid)
        if pod.gang != named and (claim is None or claim.stage == BOUND_CLAIM):
            return f"pod {pod.fact.name} is in gang {pod.gang!r}, and names {named!r}"
    for key, gang in state.gangs.items():
        if not all(_names(state, uid, key) for uid in gang.members):
            continue  # one was edited while it is placed: what it said counts until that is settled
        anew = copy.copy(gang)
        declarations._settle(state, anew)
        declared = gang.declaration
        koordinators = declared is not None and (declared.mode == "NonStrict" or declared.groups)
        if koordinators and dialects.family(gang.dialect) != "koordinator":
            return f"gang {key} has a mode or a gang group, and is of {gang.dialect}"
        if anew != gang:
            return f"gang {key} is declared as {gang.declaration}, and its facts say {anew.declaration}"
        speaks = [uid for uid in gang.members if _declares(state, uid)]
        if gang.declarer != (speaks[0] if speaks else ""):
            return f"of gang {key} {gang.declarer!r} is heard, and {speaks} declare it"
    return ""


def _names(state: State, uid: str, gang: str) -> bool:
    said = state.pods[uid].fact.gang
    return said is not None and said.gang == gang


def _declares(state: State, uid: str) -> bool:
    said = state.pods[uid].fact.gang
    return said is not None and said.declared is not None
