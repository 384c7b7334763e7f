"""Starvation: the nodes that will be free first.

    durations unknown: most room soonest

Nobody says how long pods run. So what counts is how much a node has to give back before one more pod of the gang goes
there, as a part of the whole node: the *level* of the k-th pod on it, in 1/1024, of the resource that lacks most. The
gang's pods take the places of the lowest levels; what is free now has level 0. Equal levels are ordered by a bijection of
the nodes' `rank`, as in `services.planner.placement`.

What a node can give back: the room of pods on their way out counts as free now; that of pods of the gang's own or a
lower priority comes next; where those do not suffice, that of pods of a higher priority, too, although their like will
pass. What stays, with its host ports: the gang's own pods, pods of one node alone and those that are not Muster's to
schedule (nobody knows that they ever end: DaemonSets, other schedulers'), and room that is nominated or reserved for
others, or that others asked for before: in this cycle, or without an answer yet. A gang that does not fit the cluster
without all that could leave gets nothing, and is told so.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, cast

import numpy as np

from events import RoomRequested
from events.objects import ClassRoom
from services.planner.placement import Placed, Room
from services.planner.rules.starvation.occupants import Occupants
from services.state import fits, queueing, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints, NodeTable
from services.state.open_ports import OpenPorts, bits_of, rows_of
from services.state.records import Group

LEVEL_BITS = 10
"""A whole node is 2^10 levels."""
BEYOND = (1 << LEVEL_BITS) + 1
"""Where a node has less than nothing: all that goes there once whatever could leave has left."""
HOPELESS = " No room is kept for it: it would not fit if every pod that could leave were gone."

Part = tuple[ClassInfo, int]
"""Pods of one gang and one class: how many may be placed."""
Need = tuple[tuple[int, ...], int]
"""Of one gang or one of its tasks, which come first: parts, by index, and how many of their pods must start together."""


class Prospect(NamedTuple):
    """What each node has for a group, by when: rows × resources, each holding the one before."""

    now: Ints
    soon: Ints
    """Once pods of its own or a lower priority left."""
    ever: Ints
    opened: OpenPorts
    """Host ports that stay open there, or are promised."""


def prospect(
    state: State, group: Group, room: Room, asked: Iterable[RoomRequested], there: Occupants
) -> Generator[None, None, Prospect]:
    """What the nodes have for the group. What this cycle placed may leave one day, as what runs may. In slices.

    `room`: the cycle's, as the group sees it. `asked`: the requests that the cycle made before. `there`: who is on the
    nodes.
    """
    table, priority = state.table, queueing.priority(state, group)
    before = reservations.asked_before(state, group, asked)
    promised = reservations.rows(table, (*reservations.against(state, group), *before))
    with_ports = {info.number: info for info in table.classes.values() if info.ports}
    stays = there.opened(group, with_ports) if with_ports else ()
    opened = _opened(chain(((row, info) for info, row, _ in promised), stays))
    taken = yield from there.sums(group, priority)
    reserved = 0 if room.reserved is None else room.reserved
    placed = table.allocatable - table.held - table.proposed - reserved - room.free
    now = cast(Ints, room.free + taken.leaving - _promised(table, before))
    soon = cast(Ints, now + placed + taken.lower)
    return Prospect(now, soon, cast(Ints, soon + taken.higher), opened)


def could_hold(table: NodeTable, parts: Sequence[Part], needs: Sequence[Need]) -> bool:
    """Whether the nodes, were they empty, have as many places as each need lacks, each class by itself: without so many
    there is nothing to look for."""
    places = [min(pods, int(fits.places(table, table.allocatable, info, pods).sum())) for info, pods in parts]
    return all(sum(places[index] for index in of_need) >= pods for of_need, pods in needs)


def _promised(table: NodeTable, asked: Iterable[reservations.Reserved]) -> Ints:
    """What these requests are for: rows × resources."""
    taken = np.zeros_like(table.allocatable)
    for info, row, pods in reservations.rows(table, asked):
        taken[row] += pods * table.requests[info.number]
    return taken


def _opened(places: Iterable[tuple[int, ClassInfo]]) -> OpenPorts:
    """The host ports of these classes, on these rows."""
    rows: dict[ClassInfo, list[int]] = {}
    for row, info in places:
        if info.ports:
            rows.setdefault(info, []).append(row)
    opened = OpenPorts()
    for info, of_class in rows.items():
        opened.open(info, bits_of(of_class))
    return opened


def choose(
    table: NodeTable,
    found: Prospect,
    parts: Sequence[Part],
    needs: Sequence[Need],
    orders: Sequence[Sequence[int]],
    seed: int,
) -> Generator[None, None, tuple[ClassRoom, ...] | None]:
    """Room for all that the gangs of a group need, parts in one of the orders; None: it would never fit. In slices."""
    nobody_higher = np.array_equal(found.soon, found.ever)
    for limit in (found.soon,) if nobody_higher else (found.soon, found.ever):
        for order in orders:
            left = found._replace(ever=limit.copy(), now=found.now.copy(), opened=found.opened.copy())
            chosen = yield from _place(table, left, parts, needs, order, seed)
            if chosen is not None:
                return tuple(ClassRoom(digest, dict(sorted(nodes.items()))) for digest, nodes in chosen.items())
    return None


def _place(
    table: NodeTable,
    found: Prospect,
    parts: Sequence[Part],
    needs: Sequence[Need],
    order: Sequence[int],
    seed: int,
) -> Generator[None, None, dict[str, dict[str, int]] | None]:
    """class → node → pods; None when a need is not met. What is placed is taken off what there is `ever` and `now`, and
    its ports are `opened`."""
    limit, now, opened = found.ever, found.now, found.opened
    chosen: dict[str, dict[str, int]] = {}
    used = [0] * len(parts)
    for of_need, needed in needs:
        left, meant = max(0, needed - sum(used[index] for index in of_need)), set(of_need)
        for index in (index for index in order if index in meant):
            info, pods = parts[index]
            within = _where_ports_are(info, limit, opened)
            places = nearest(table, info, within, now, min(pods - used[index], left), seed)
            if info.ports:
                opened.open(info, bits_of([row for row, _ in places]))
            for row, count in places:
                left -= count
                used[index] += count
                nodes = chosen.setdefault(info.fact.digest, {})
                nodes[table.names[row]] = nodes.get(table.names[row], 0) + count
                for column, amount in info.columns:
                    limit[row, column] -= count * amount
                    now[row, column] -= count * amount
            yield
        if left > 0:
            return None
    return chosen


def _where_ports_are(info: ClassInfo, limit: Ints, opened: OpenPorts) -> Ints:
    """`limit`, but nothing where a port of the class is open, or promised to others."""
    taken = rows_of(opened.where(info))
    if not taken:
        return limit
    within = limit.copy()
    within[taken] = 0
    return within


def nearest(table: NodeTable, info: ClassInfo, limit: Ints, now: Ints, pods: int, seed: int) -> Placed:
    """The places of the lowest levels for up to `pods` pods of the class, within `limit`."""
    deep = fits.places(table, limit, info, pods)
    pods = min(pods, int(deep.sum()))
    if not pods:
        return []
    low, high = 0, BEYOND
    while low < high:
        middle = (low + high) // 2
        if int(_within(table, info, now, deep, middle).sum()) >= pods:
            high = middle
        else:
            low = middle + 1
    counts = _within(table, info, now, deep, low - 1) if low else np.zeros_like(deep)
    more = _within(table, info, now, deep, low) - counts
    last = np.flatnonzero(more)
    last = last[np.argsort(table.rank()[last] * np.uint32(seed | 1), kind="stable")]
    before = np.cumsum(more[last]) - more[last]
    counts[last] += np.clip(pods - int(counts.sum()) - before, 0, more[last])
    rows = np.flatnonzero(counts)
    return list(zip(rows.tolist(), counts[rows].tolist(), strict=True))


def _within(table: NodeTable, info: ClassInfo, now: Ints, deep: Ints, level: int) -> Ints:
    """How many pods each row takes once it gave so much of itself back."""
    if level == BEYOND:
        return deep.copy()
    given = (table.allocatable * level) >> LEVEL_BITS
    return np.minimum(deep, fits.capacity(now + given, info))
