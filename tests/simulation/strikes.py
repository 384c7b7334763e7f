"""What faults do that wait for no request: they strike processes, servers and watches when their time comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from events import lease, subjects
from services.simulator import errors
from tests.simulation import absences, backups, set_back, turns, upgrades
from tests.simulation.answers import GATEWAY_404
from tests.simulation.faults import Fault
from tests.simulation.kube import Watch
from tests.simulation.launch import CLUSTER
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

PING_S = 3.0
"""After so long without an answer to its pings, nats-py gives up a connection."""
WATCHED = frozenset({"watch cut", "watch expired", "watch lag", "kind lags", "stale and twice"})


def strike(world: World, fault: Fault) -> bool:
    """Whether there was anything to strike."""
    if once := ONCE.get(fault.kind):
        return once(world, fault) is not False
    if fault.kind in WATCHED:
        of_kind = fault.what  # empty: of all
        watches = [one for one in world.kube.watches if of_kind in ("", one.collection.resource.kind)]
        for watch in watches:
            _strike_watch(world, fault, watch)
        return bool(watches)
    struck = [one for one in world.supervisor.alive() if one.slot == fault.slot]
    for process in struck:
        _strike_process(world, fault, process)
    return bool(struck)


def _strike_watch(world: World, fault: Fault, watch: Watch) -> None:
    match fault.kind:
        case "watch cut":
            watch.end()
        case "watch expired":  # behind what it did not tell any more
            watch.lag_s = 2 * fault.for_s
            world.loop.after(fault.for_s, watch.end, errors.expired("too old resource version"))
        case "watch lag" | "kind lags":
            watch.lag_s = fault.for_s
            world.loop.after(fault.for_s * 2, setattr, watch, "lag_s", 0.0)
        case _:
            watch.again = 3


def _strike_process(world: World, fault: Fault, process: Process) -> None:
    link, loop, supervisor = process.link, world.loop, world.supervisor
    until_s = loop.now_s + fault.for_s
    match fault.kind:
        case "crash":
            supervisor.kill(process)
        case "stop":
            supervisor.stop(process, fault.for_s)
        case "restart":
            supervisor.tell_to_stop(process)
        case "clock jump":
            process.skew_ns += round(fault.for_s * 1e9)
        case "lag":
            link.lag_s = fault.for_s / 4
            loop.at(until_s, setattr, link, "lag_s", 0.0)
        case "disconnect":
            link.break_until(until_s)
        case "partition":
            link.silent_until_s = until_s
            if fault.for_s > PING_S:
                loop.after(PING_S, link.break_until, until_s)
            supervisor.cut_off(process, until_s)
        case "consumer lost":
            world.broker.forget(link)
        case "older version":
            supervisor.kill(process)
            loop.after(0.01, lambda: supervisor.start(process.slot, lacks=fault.what))
        case _:
            raise NotImplementedError(fault)


def _log_down(world: World, fault: Fault) -> None:
    world.broker.stop(world.loop.now_s + fault.for_s)


def _power_loss(world: World, fault: Fault) -> None:
    _log_down(world, fault)
    world.supervisor.kill_all()
    if world.broker.feed is not None:
        world.broker.feed.loses_power(world.broker.source)


def _snapshot_damaged(world: World, _: Fault) -> bool:
    """The newest: now if another is left then, else whenever the log is purged, which has to leave two."""
    struck = world.broker.bucket.damage(world.source)
    if not struck:
        world.broker.purged = lambda: world.broker.bucket.damage(world.source, least=1)
    return struck


def _policies_tried(world: World, fault: Fault) -> None:
    """One after the other."""
    for number in range(fault.times):
        world.loop.after(number * fault.for_s / fault.times, _policy_tried, world)


def _policy_tried(world: World) -> None:
    if not world.calm:
        world.set_policy(world.any_policy())


def _misrouted(world: World, fault: Fault) -> None:
    """Who lists or watches what somebody defined comes to a server that does not know of it."""
    for what in ("list", "watch"):
        world.kube.turn_away(fault.slot, what, GATEWAY_404, fault.for_s)
    for watch in [
        one for one in world.kube.watches if one.process.slot == fault.slot and one.collection.resource.custom
    ]:
        watch.end()


def _watch_silent(world: World, fault: Fault) -> None:
    """All end, and those that follow say nothing for so long."""
    world.kube.silent_until_s = world.loop.now_s + fault.for_s
    for watch in list(world.kube.watches):
        watch.end()


def _message_of_nobody(world: World, fault: Fault) -> None:
    world.broker.inject(subjects.subject(CLUSTER, fault.slot), {}, b"hello?")


def _lease_kept(world: World, fault: Fault) -> None:
    leases = world.broker.leases
    leases.kept_until_s = max(leases.kept_until_s, world.loop.now_s + fault.for_s)


ONCE: dict[str, Callable[[World, Fault], object]] = {
    "crash of all": lambda world, _: world.supervisor.kill_all(),
    "log down": _log_down,
    "power loss": _power_loss,
    "foreign message": _message_of_nobody,
    "policy changed": lambda world, _: world.set_policy(world.any_policy()),
    "policies tried": _policies_tried,
    "misrouted": _misrouted,
    "double": lambda world, fault: world.supervisor.double(fault.slot, fault.for_s),
    "join": lambda world, fault: world.supervisor.join(fault.what, fault.for_s),
    "unwelcome": lambda world, fault: world.kube.turn_away(fault.slot, fault.what, fault.code, fault.for_s),
    "API server restart": lambda world, fault: world.kube.restart(fault.for_s),
    "upgraded": upgrades.strike,
    "etcd restored": backups.strike,
    "log set back": set_back.strike,
    "lease kept": _lease_kept,
    "servers parted": lambda world, fault: world.has_leases and world.broker.part(world.loop.now_s + fault.for_s),
    "lease gone": lambda world, fault: world.broker.leases.forget(lease.subject(CLUSTER, fault.slot)),
    "leases deleted": lambda world, _: world.broker.leases.delete(),
    "feed struck": lambda world, fault: world.feeds.strike(fault),
    "away": absences.strike,
    "names changed": absences.rename,
    "policy turned": turns.strike,
    "watch silent": _watch_silent,
    "history dropped": lambda world, _: world.kube.drop_history(),
    "snapshot damaged": _snapshot_damaged,
    "snapshot altered": lambda world, _: world.broker.bucket.alter(world.source, world.witness.state.snapshots),
}
"""Faults that are not one process's; False: there was nothing to strike."""
