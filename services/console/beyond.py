"""Whether a group that found no room waits in vain: whether it would find none if nothing else ran.

No pod that ends helps such a group, only another node or another request does. The refusal in the log does not tell it
from one that has to wait for its turn, and neither do the kube-scheduler's words. Derived from the nodes as they are in
the state, not decided.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from services.state.fits import capacity, feasible
from services.state.fold import State
from services.state.membership import census, counted, members
from services.state.nodes import ClassInfo, Ints, NodeTable
from services.state.records import Group

GI = 1 << 30


def beyond(state: State, group: Group) -> str:
    """What there would be too little of even on empty nodes, in a sentence; "" where there would be enough.

    It says nothing of a group that no node takes whatever it has: that is what the refusal says.
    """
    pods = census(state, members(state, group)).placeable
    empty = [_on_empty_nodes(state.table, state.table.classes[of]) for of in pods]
    places = sum(min(len(uids), found.places) for uids, found in zip(pods.values(), empty, strict=True))
    needed = _needed(state, group)
    if places >= needed or sum(map(len, pods.values())) < needed:  # pods are missing since it was refused
        return ""
    if lacking := next((found.lacking for found in empty if found.lacking), ""):
        return lacking
    return f"If nothing else ran, only {places} of these {needed} would have one." if places else ""


def _needed(state: State, group: Group) -> int:
    """How many more pods must have a node before the first of them may start."""
    gangs = (state.gangs[key] for key in group.gangs)
    lacks = (
        max(0, gang.declaration.min_member - counted(gang, census(state, gang.members)))
        for gang in gangs
        if gang.declaration is not None
    )
    return max(1, sum(lacks))


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
        offered = table.allocatable[feasible(table, info) & table.present]
        places = int(capacity(offered, info).sum())
        lacking = _lacking(table, info, offered) if len(offered) and not places else ""
        known[info.fact.digest] = _Empty(places, lacking)
    return cast(_Empty, known[info.fact.digest])


def _lacking(table: NodeTable, info: ClassInfo, offered: Ints) -> str:
    most, names = offered.max(axis=0).tolist(), table.columns
    for column, amount in info.columns:
        if amount > most[column]:
            unit, has, asks = _as_people_write(names[column] or "", most[column], amount)
            offers = f"{asks} {unit}; the most is {has}" if most[column] else unit
            return f"No node that takes such a pod offers {offers}."
    return "No node that takes such a pod offers all that it asks for."


def _as_people_write(name: str, *amounts: int) -> tuple[str, ...]:
    """The resource, and amounts of it."""
    if name == "cpu_milli":
        return "cpu", *(f"{amount / 1000:g}" for amount in amounts)
    if name.endswith("_bytes"):
        return name.removesuffix("_bytes").replace("_", "-"), *(f"{amount / GI:.6g}Gi" for amount in amounts)
    return name, *map(str, amounts)
