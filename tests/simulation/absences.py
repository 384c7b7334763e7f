"""Who is away for long while the cluster and all others live on, and an ingest that comes back to look for other pods.

An ingest is *down* when nobody starts it, and then lists everything against what the log says. It is *deaf* when it runs
and does not reach the API server: its watches say nothing and end with a 410, and each kind is listed when its turn
comes, while others go on deciding. Scheduler names are a setting (`--scheduler-names`): ingest is started again with
others, and pods that waited are nobody's, or pods are candidates that were not. While a binder is down planners go on
proposing: what it comes back to are proposals behind which many facts have come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.simulator import errors
from tests.simulation.told import OURS

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.workload import Step
    from tests.simulation.world import World

STEPS_A_SECOND = 1.0
"""What users do meanwhile, besides what they do anyway."""
WHO = "ingest"


def strike(world: World, fault: Fault) -> None:
    loop, kube = world.loop, world.kube
    if fault.what == "down":
        world.supervisor.stay_down(fault.slot, fault.for_s)
    else:
        kube.turn_away(WHO, "", 503, fault.for_s)
        for watch in [one for one in kube.watches if one.process.slot == WHO]:
            watch.lag_s = 2 * fault.for_s
            loop.after(fault.for_s, watch.end, errors.expired("too old resource version"))
    for step in world.more_steps(kube.source, int(fault.for_s * STEPS_A_SECOND), fault.for_s):
        loop.after(step.at_s, _meanwhile, world, step)
    if fault.slot == WHO:
        loop.after(fault.for_s, _compacted, world)
    world.tried[f"{fault.slot} away, {fault.what}"] += 1


def _meanwhile(world: World, step: Step) -> None:
    if not world.calm:
        world.take(step)


def _compacted(world: World) -> None:
    """Whoever lists or watches from before begins anew."""
    if not world.calm:
        world.kube.drop_history()


def rename(world: World, fault: Fault) -> None:
    """For some time."""
    _named(world, tuple(fault.what.split(",")))
    world.loop.after(fault.for_s, _named, world, OURS)
    world.tried["scheduler names changed"] += 1


def _named(world: World, names: tuple[str, ...]) -> None:
    world.launch.names = names
    for process in list(world.supervisor.slots[WHO]):
        world.kill(process)
