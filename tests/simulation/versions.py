"""Two versions of the rules and of the fold in one history: an admin switches, and some processes lack the second.

While one that lacks them may write, a switch is inert; one that begins behind it ends before it writes again. Seeds
before `FROM` are without all this. Who is older lacks the second rules, but an ingest, which decides nothing, the second
fold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import events as ev
from services.binder import core as binder
from services.ingest import service as ingest
from services.planner import core as planner
from services.state import fold
from tests.second import second
from tests.simulation.loop import PROCESS
from tests.simulation.planting import BEYOND_FROM
from tests.simulation.supervisor import SLOTS

if TYPE_CHECKING:
    from tests.simulation.world import World

FROM = 400
"""The first seed with a switch: plants are looked for before it."""
SWITCHED, OLDER = 0.3, 0.6
"""In how many histories an admin switches, and in how many of those there is an older process about that time."""
AGAIN_S = (2.0, 7.0)
LACKS, LACKS_FOLD = "the second rules", "the second fold"


class _Known(dict[int, Any]):
    """A table of versions, as the process that reads it has it."""

    def __init__(self, table: Mapping[int, Any], lacks: str) -> None:
        super().__init__(table)
        self._lacks = lacks

    def __iter__(self) -> Iterator[int]:
        process = PROCESS.get()
        return iter((1,) if process is not None and process.lacks == self._lacks else (1, 2))

    def __contains__(self, version: object) -> bool:
        return version in tuple(self)


@contextmanager
def two_versions() -> Iterator[None]:
    with second(), ExitStack() as stack:
        for core in (planner, binder):
            stack.enter_context(patch.object(core, "RULES", _Known(core.RULES, LACKS)))
        folds = _Known(fold.FOLDS, LACKS_FOLD)
        for reader in (fold, ingest):
            stack.enter_context(patch.object(reader, "FOLDS", folds))
        yield


def begin(world: World) -> None:
    """Draw whether there is a switch, and when."""
    source = random.Random(f"{world.plan.seed}/versions")
    if world.plan.seed < FROM or source.random() >= SWITCHED:
        return
    at_s = source.uniform(3.0, 15.0)
    if source.random() < OLDER:
        slot = source.choice(SLOTS if world.plan.seed >= BEYOND_FROM else SLOTS[1:])
        world.loop.after(max(0.0, at_s + source.uniform(-6.0, 6.0)), _older, world, slot)
    world.loop.after(at_s, _switch, world, source)


def _switch(world: World, source: random.Random) -> None:
    """As often as it takes; or not at all."""
    if not world.calm and world.witness.state.rules_version == 1:
        world.admin(ev.VersionsSwitched(rules=2, state=2))
        world.loop.after(source.uniform(*AGAIN_S), _switch, world, source)


def _older(world: World, slot: str) -> None:
    """Somebody takes the older image out again."""
    if world.calm:
        return
    for process in [one for one in world.supervisor.alive() if one.slot == slot]:
        world.kill(process)
    world.loop.after(0.01, lambda: world.supervisor.start(slot, lacks=LACKS_FOLD if slot == "ingest" else LACKS))
