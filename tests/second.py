"""A second version of rules and state, as the code will have one: other rules, another fold, a line in each table.

By the second rules a planner proposes the last of the queue first; by the second fold a renewal counts as ignored.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import events as ev
from services.binder import core as binder
from services.planner import core as planner
from services.state.fold import APPLY, FOLDS, State

BOTH = ev.VersionsAnnounced(rules=(1, 2), state=(1, 2))


def _last_first(state: State, shard: str) -> Generator[None, None, list[Any]]:
    decided: list[Any] = yield from planner.RULES[1](state, shard)
    return decided[::-1]


@contextmanager
def second(*, rules: bool = True, state: bool = True) -> Iterator[None]:
    """Code that has it, or has one half of it."""
    with (
        patch.dict(planner.RULES, {2: _last_first} if rules else {}),
        patch.dict(binder.RULES, {2: binder.RULES[1]} if rules else {}),
        patch.dict(FOLDS, {2: {**APPLY, ev.Renewed: State.ignore}} if state else {}),
    ):
        yield
