"""What a pod that is not bound is told."""

from __future__ import annotations

from services.console.summary import why_each_waits
from services.state.fold import State
from services.state.records import Pod


def why_waiting(state: State, pod: Pod) -> str:
    return next(why for each, why in why_each_waits(state) if each is pod)
