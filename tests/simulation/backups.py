"""Etcd is restored from a backup: what the API server says is of before, and what came behind that never was.

The server is away meanwhile; who waits for an answer gets none, and what is under way is lost. Versions come a second
time: whoever watches from one that is yet to come hears nothing. As operations.md says, the binder is started again once
the server is back, and ingest behind it; the binder alone where the versions are raised beyond all that were. Until then
what the binder heard before may land behind the start of an ingest that died meanwhile, and stand. In histories before
`BINDER_FIRST_FROM` the binder comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from services.simulator.resources import Resource
from services.simulator.store import Collection, Entry, Key
from tests.simulation import edits
from tests.simulation.planting import BINDER_FIRST_FROM
from tests.simulation.told import GANG, MINIMUM, pending, uid_of

if TYPE_CHECKING:
    from services.simulator.api import Api
    from services.state.fold import State
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

AWAY_S, SOON_S, BEHIND_S, LOOK_S = (0.2, 4.0), (0.0, 4.0), (4.0, 8.0), 0.5
"""How long the server is away; when, behind that, somebody is started again, and somebody else behind him; how often
it is looked whether he is there."""
RAISED = 1_000_000_000
"""`etcdutl snapshot restore --bump-revision … --mark-compacted`: all watches end with a 410."""
UNGATED = "ungated"
TOLD = {"": "", "raised": ", and raised", UNGATED: ", and raised, to before gates fell"}
"""How a run names them."""
WRITES = (0, 20, 400)
"""What the server writes as it starts."""


class Backup(NamedTuple):
    """What etcd holds at one moment."""

    revision: int
    kept: dict[Resource, tuple[Collection, dict[Key, Entry]]]
    by_path: dict[tuple[str, str, str], Collection]
    defined: dict[str, list[Resource]]


def back_up(api: Api) -> Backup:
    kept = {resource: (one, dict(one.entries)) for resource, one in api.store.collections.items()}
    return Backup(api.store.revision, kept, dict(api.by_path), dict(api._defined))


def restore(api: Api, backup: Backup, writes: int) -> None:
    """Nobody who watched can go on from where he was, but for those who ask for what is yet to come."""
    store = api.store
    for resource in [one for one in store.collections if one not in backup.kept]:
        store.withdraw(resource)
    store.revision = backup.revision + writes
    for resource, (collection, entries) in backup.kept.items():
        store.collections[resource], collection.withdrawn = collection, False
        collection.drop_history(store.revision)
        collection.trimmed += 1  # nor who had read all of it
        collection.entries = dict(entries)
    api.by_path = dict(backup.by_path)
    api._defined = dict(backup.defined)
    store.grown.set()


def strike(world: World, fault: Fault) -> None:
    """The backup is made now; if nothing is calm by then, it is restored."""
    if fault.what == UNGATED:
        _gated(world)
    world.loop.after(fault.for_s, _restored, world, back_up(world.kube.api), fault.what)
    if fault.what == UNGATED:
        _ungated(world, fault.for_s)


def _gated(world: World) -> None:
    """A gang and a pod that may not be scheduled yet."""
    pods = world.kube.source.randint(1, 3)
    for labels in ({}, *[{GANG: "gated", MINIMUM: str(pods)}] * pods):
        world.workload.attempt(lambda: world.workload.pod(labels, of=0, schedulingGates=[{"name": "wait"}]))  # noqa: B023


def _ungated(world: World, for_s: float) -> None:
    """All that may not; whoever is proposed until the restore is judged behind it."""
    for entry in list(world.kube.api.pods.entries.values()):
        if pending(entry.object) and entry.object["spec"].get("schedulingGates"):
            world.workload.patch(world.kube.api.pods, *entry.key, {"spec": {"schedulingGates": None}})
    world.supervisor.stay_down("binder", for_s + AWAY_S[1])


def _restored(world: World, backup: Backup, what: str) -> None:
    if world.calm or not world.kube.up:
        return
    source, loop, raised = world.kube.source, world.loop, bool(what)
    away_s = source.uniform(*AWAY_S)
    world.kube.restart(away_s)
    undone = max(0, world.kube.api.store.revision - backup.revision)
    raised_by = RAISED * (1 + undone // RAISED)  # beyond what another did
    restore(world.kube.api, backup, source.choice(WRITES) + (raised_by if raised else 0))
    world.kube.set_back()
    world.witness.set_back()
    _controllers_look_again(world)
    world.tried[f"restored from a backup{TOLD[what]}"] += 1
    soon_s, behind_s = away_s + source.uniform(*SOON_S), away_s + source.uniform(*BEHIND_S)
    if world.plan.seed < BINDER_FIRST_FROM:
        loop.after(soon_s, _again, world, "ingest")
        loop.after(behind_s, _again, world, "binder")
        return
    loop.after(soon_s, _again, world, "binder")
    if not raised or _heard_of_by_the_binder_alone(world.witness.state):
        world.witness.lives.to_be_listed = True
        loop.after(behind_s, _behind, world, _binder(world.witness.state))


def _heard_of_by_the_binder_alone(state: State) -> bool:
    """Whether it binds pods, or has bound or marked some of which no fact says so: an ingest that runs on does not learn
    what became of that."""
    return bool(state.permitted or state.marks) or any(pod.node != pod.observed_node for pod in state.pods.values())


def _binder(state: State) -> int:
    """Which process the log says is binder: those that are started later have higher numbers."""
    return int(state.holders.get("binder", "binder-0").rpartition("-")[2])


def _behind(world: World, before: int) -> None:
    """Once a later binder has its subject: what the one `before` heard is in the log by then, or never will be. A log
    that was set back meanwhile may say that an earlier one has it."""
    if _binder(world.witness.state) <= before:
        world.loop.after(LOOK_S, _behind, world, before)
    else:
        world.witness.lives.to_be_listed = False
        _again(world, "ingest")


def _controllers_look_again(world: World) -> None:
    """What they did since is undone: pods that wait to be counted, and pods of nodes that are not there."""
    api, workload = world.kube.api, world.workload
    for key, entry in list(api.pods.entries.items()):
        pod, after_s = entry.object, world.kube.source.uniform(1.0, 6.0)
        node = pod["spec"].get("nodeName")
        if pod["metadata"].get("finalizers"):
            world.loop.after(after_s, workload.attempt, edits.counted, workload, key, uid_of(pod))
        if node and ("", node) not in api.nodes.entries:
            world.loop.after(after_s, workload.attempt, workload.collect, key, uid_of(pod))


def _again(world: World, slot: str) -> None:
    """Whoever has the role, or waits for it."""
    for process in list(world.supervisor.slots[slot]):
        world.kill(process)
