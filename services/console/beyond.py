"""Whether a group that found no room waits in vain: whether it would find none if nothing else ran.

No pod that ends helps such a group, only another node or another request does. The refusal in the log does not tell it
from one that has to wait for its turn, and neither do the kube-scheduler's words. Derived from the nodes as they are in
the state, not decided.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from services.state import tallies
from services.state.class_info import ClassInfo
from services.state.fits import capacity, feasible
from services.state.fold import State
from services.state.membership import census, lacks, members, rules_off
from services.state.nodes import Ints, NodeTable
from services.state.records import Gang, Group
from services.state.resources import NOWHERE

GI = 1 << 30
BYTES = {"memory_bytes": "memory", "ephemeral_storage_bytes": "ephemeral-storage"}


def beyond(state: State, group: Group) -> str:
    """What there would be too little of even on empty nodes, in a sentence; "" where there would be enough.

    It says nothing of a group that no node takes whatever it has: that is what the refusal says. Each class of pods is
    given all nodes for itself, beside the group's own pods that have a node: so there may be less than it says, never
    more, and who waits in vain is not always told.

    Where the rules of some gangs are off the group was refused twice, as a whole and for these alone. The refusal is of
    these; in vain it waits if the whole would find no room either.
    """
    gangs = [state.gangs[key] for key in group.gangs]
    free = [gang for gang in gangs if rules_off(gang) and tallies.of(state, gang).placeable]
    if free and _sought(state, group, gangs).is_there:
        return ""
    pods, needed, places, lacking = sought = _sought(state, group, free or gangs)
    if sought.is_there or pods < needed:  # pods are missing since it was refused
        return ""
    if lacking:
        return lacking
    return f"If nothing else ran, at most {places} of these {needed} would have one." if places else ""


class _Sought(NamedTuple):
    """What pods that are tried together would find if nothing else ran."""

    pods: int
    needed: int
    """How many of them must start together."""
    places: int
    """How many of them have a node at most."""
    lacking: str
    """As `_Empty` has it, of the first class that has any."""

    @property
    def is_there(self) -> bool:
        return self.places >= self.needed


def _sought(state: State, group: Group, gangs: list[Gang]) -> _Sought:
    """Of these gangs of the group; of none: of the group's one pod."""
    pods = census(state, [uid for gang in gangs for uid in gang.members] or members(state, group)).placeable
    empty = [_on_empty_nodes(state.table, state.table.classes[of]) for of in pods]
    return _Sought(
        pods=sum(map(len, pods.values())),
        needed=max(1, sum(lacks(state, gang) for gang in gangs)),
        places=sum(min(len(uids), found.places) for uids, found in zip(pods.values(), empty, strict=True)),
        lacking=next((found.lacking for found in empty if found.lacking), ""),
    )


class _Empty(NamedTuple):
    """What a class would find if nothing else ran."""

    places: int
    """How many of its pods have a node."""
    lacking: str
    """What one of its pods asks for and none of the nodes has that take it otherwise."""


def _on_empty_nodes(table: NodeTable, info: ClassInfo) -> _Empty:
    """Found once for all groups."""
    known = table.cache.setdefault(_Empty, {})
    if info.fact.digest not in known:
        offers = _offers(table)
        nodes = np.bincount(offers.of_row[feasible(table, info)], minlength=len(offers.distinct))
        pods = capacity(offers.distinct, info)
        if info.fact.host_ports:  # no two pods of one class have a port of the same node
            np.minimum(pods, 1, out=pods)
        places = int(pods @ nodes)
        lacking = _lacking(table, info, offers.distinct[nodes > 0]) if nodes.any() and not places else ""
        known[info.fact.digest] = _Empty(places, lacking)
    return cast(_Empty, known[info.fact.digest])


class _Offers(NamedTuple):
    """What nodes have, each different offer once: there are far fewer of them than nodes."""

    distinct: Ints
    """Offers × resources."""
    of_row: npt.NDArray[np.intp]
    """For each row of the table the offer that it makes."""


def _offers(table: NodeTable) -> _Offers:
    if _Offers not in table.cache:
        _, first, of_row = np.unique(table.shape_codes, return_index=True, return_inverse=True)
        table.cache[_Offers] = _Offers(table.allocatable[first], of_row)
    return cast(_Offers, table.cache[_Offers])


def _lacking(table: NodeTable, info: ClassInfo, offered: Ints) -> str:
    of_each = offered.max(axis=0).tolist()
    for name in sorted(info.asked, key=table.resources.places.__getitem__):
        most, amount = of_each[table.resources.columns.get(name, NOWHERE)], info.asked[name]
        if amount > most:
            unit, has, asks = _as_people_write(name, most, amount)
            offers = f"{asks} {unit}; the most is {has}" if most else unit
            return f"No node that takes such a pod offers {offers}."
    return "No node that takes such a pod offers all that it asks for."


def _as_people_write(name: str, most: int, amount: int) -> tuple[str, ...]:
    """The resource, and two different amounts of it."""
    if name == "cpu_milli":
        return "cpu", *(f"{amount / 1000:.3f}".rstrip("0").rstrip(".") for amount in (most, amount))
    if name in BYTES:
        told = [f"{amount / GI:.6g}Gi" for amount in (most, amount)]
        return (BYTES[name], *told) if told[0] != told[1] else (f"bytes of {BYTES[name]}", str(most), str(amount))
    return name, str(most), str(amount)
