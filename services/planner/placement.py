"""The arithmetic of placement: many pods of one scheduling class against all nodes at once.

`Room` is a cycle's working copy of what is free. `Room.place` puts up to `pods` pods where choosing node after node, the
best score first, would put them, without doing it pod by pod: for a score that falls with each pod (spread) the chosen
places are the best of all pairs (node, k-th pod on it), and every node that is used is among the best by its first pod;
for a score that rises (fill) the nodes are filled in order of their first pod.

Equal scores are ordered by a bijection of the nodes' `rank` that the caller's `seed` picks, so that the choice depends on
names alone and differs from group to group. All keys are distinct integers; no sort can see them in two orders.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from services.planner.rules.node_score import SCORES
from services.state import fits
from services.state.nodes import ClassInfo, Ints, Mask, NodeTable

CHUNK_PODS = 256
"""Pods that are spread in one step; bounds the table of pairs."""
SHARE_BITS = 10
_FRACTION_BITS = 30
_BEST = 1 << 20
_TAKEN = np.int64(np.iinfo(np.int64).max)
PREFERENCE_WEIGHT = 1024
"""What a fully preferred node (all of the pod's preferred affinity) is worth: as much as an empty one."""

Placed = list[tuple[int, int]]
"""(row, pods on it), the most attractive node first."""


class Room:
    """What is free in one cycle. `rows_scanned` measures the work in rows, for slicing."""

    def __init__(self, table: NodeTable, score: str) -> None:
        self.table = table
        self.free: Ints = np.asfortranarray(table.allocatable - table.held - table.proposed)
        self.rule = SCORES[score]
        self.rows_scanned = 0
        self._ports: dict[str, Mask] = {}

    def place(self, info: ClassInfo, pods: int, seed: int) -> Placed:
        """Places for up to `pods` pods of the class; takes their room. Fewer (or none) when there is no more room."""
        placed: Placed = []
        while pods > 0:
            wanted = pods if self.rule.FILLS else min(pods, CHUNK_PODS)
            rows, counts = self._step(info, wanted, seed)
            done = int(counts.sum())
            if not done:
                break
            self._take(info, rows, counts)
            placed.extend(zip(rows.tolist(), counts.tolist(), strict=True))
            pods -= done
            if done < wanted:
                break
        return placed

    def undo(self, info: ClassInfo, placed: Placed) -> None:
        """Give the room of `placed` back."""
        for row, pods in placed:
            self.free[row] += info.request * pods
        if info.fact.host_ports:
            mask = self._port_mask(info)
            mask[[row for row, _ in placed]] = True

    def take(self, info: ClassInfo, row: int) -> None:
        """Count one pod on the row."""
        self._take(info, np.array([row]), np.array([1]))

    def _take(self, info: ClassInfo, rows: npt.NDArray[np.intp], counts: Ints) -> None:
        for column, amount in info.columns:
            self.free[rows, column] -= counts * amount
        if info.fact.host_ports:
            self._port_mask(info)[rows] = False

    def _port_mask(self, info: ClassInfo) -> Mask:
        """Rows whose ports are free for the class, also of what this cycle placed of it."""
        mask = self._ports.get(info.fact.digest)
        if mask is None:
            mask = self._ports[info.fact.digest] = cast(Mask, fits.ports_mask(self.table, info))
        return mask

    # ------------------------------------------------------------------------------------------------------------ keys

    def _step(self, info: ClassInfo, pods: int, seed: int) -> tuple[npt.NDArray[np.intp], Ints]:
        self.rows_scanned += self.table.size
        usable = fits.feasible(self.table, info) & fits.has_room(self.free, info)
        if info.fact.host_ports:
            usable = usable & self._port_mask(info)
        keys = np.where(usable, self._keys(info, seed, 1, None), _TAKEN)
        if pods == 1:
            row = int(keys.argmin()) if len(keys) else 0
            found = len(keys) > 0 and bool(usable[row])
            return (np.array([row]), np.ones(1, np.int64)) if found else _nothing()
        rows = _smallest(keys, pods)
        if not len(rows):
            return _nothing()
        deep = np.minimum(fits.capacity(self.free[rows], info), 1 if info.fact.host_ports else pods)
        return self._fill(rows, deep, pods) if self.rule.FILLS else self._spread(info, rows, deep, pods, seed)

    @staticmethod
    def _fill(rows: npt.NDArray[np.intp], deep: Ints, pods: int) -> tuple[npt.NDArray[np.intp], Ints]:
        before = np.cumsum(deep) - deep
        counts = np.clip(pods - before, 0, deep)
        used = counts > 0
        return rows[used], counts[used]

    def _spread(
        self, info: ClassInfo, rows: npt.NDArray[np.intp], deep: Ints, pods: int, seed: int
    ) -> tuple[npt.NDArray[np.intp], Ints]:
        """The best `pods` of all pairs (row, k-th pod on it); looks as many pods deep as it has to."""
        depth, limit = min(2, int(deep.max())), int(deep.max())
        while True:
            steps = np.arange(1, depth + 1)[None, :]
            keys = self._keys(info, seed, steps, rows[:, None])
            keys[steps > deep[:, None]] = _TAKEN
            chosen = np.argsort(keys, axis=None, kind="stable")[:pods]
            values = keys.reshape(-1)[chosen]
            if depth == limit or (len(chosen) == pods and values[-1] < keys[:, -1].min()):
                break
            depth = min(depth * 4, limit)
        counts = np.bincount(chosen[values != _TAKEN] // depth, minlength=len(rows))
        used = counts > 0
        return rows[used], counts[used]

    def _keys(self, info: ClassInfo, seed: int, pod: int | Ints, rows: npt.NDArray[np.intp] | None) -> Ints:
        """Ascending: best first. The score when the `pod`-th pod is on the row, then the seed's order of the nodes.

        `rows` None: all. Shapes broadcast: rows ``n × 1`` and pods ``1 × d`` give ``n × d`` keys.
        """
        every = slice(None) if rows is None else rows
        score = self.rule.score(self._free_share(info, pod, every))
        preference = self._preference(info)
        if preference is not None:
            score = score + preference[every]
        tie = (self.table.rank()[every] * np.uint32(seed | 1)).astype(np.int64)
        return cast(Ints, ((_BEST - score) << 32) | tie)

    def _free_share(self, info: ClassInfo, pod: int | Ints, every: slice | npt.NDArray[np.intp]) -> Ints:
        """What is left free behind the pod, 0 … 1024, averaged over the resources that count for the class."""
        inverse, shifts = self._inverse()
        columns = [0, 1] + [column for column, _ in info.columns if column > 3]
        total: Ints | None = None
        for column in columns:
            left = self.free[every, column] - int(info.request[column]) * pod
            share = (left >> shifts[column]) * inverse[every, column]
            total = share if total is None else np.add(total, share, out=total)
        assert total is not None
        share_bits = _FRACTION_BITS - SHARE_BITS
        return cast(Ints, (total >> share_bits) // len(columns) if len(columns) > 2 else total >> (share_bits + 1))

    def _inverse(self) -> tuple[Ints, list[int]]:
        """2^30 / allocatable for each row and resource, and the right shifts that keep the product below 2^31."""
        found = self.table.cache.get("inverse")
        if found is None:
            largest = self.table.allocatable.max(axis=0, initial=0)
            shifts = [max(0, int(amount).bit_length() - _FRACTION_BITS) for amount in largest]
            scaled = self.table.allocatable >> np.array(shifts)
            inverse = np.where(scaled > 0, (1 << _FRACTION_BITS) // np.maximum(scaled, 1), 0)
            found = self.table.cache["inverse"] = (np.asfortranarray(inverse), shifts)
        return cast("tuple[Ints, list[int]]", found)

    def _preference(self, info: ClassInfo) -> Ints | None:
        """Preferred node affinity and PreferNoSchedule taints, 0 … `PREFERENCE_WEIGHT` or below 0; None: none asked."""
        key = ("preference", info.constraint)
        if key not in self.table.cache:
            self.table.cache[key] = _preference(self.table, info)
        return cast("Ints | None", self.table.cache[key])


def _preference(table: NodeTable, info: ClassInfo) -> Ints | None:
    preferred = info.fact.preferred_affinity
    avoided = [
        sum(
            taint.effect == "PreferNoSchedule" and not any(fits.tolerates(t, taint) for t in info.fact.tolerations)
            for taint in taints
        )
        for taints in table.taint_sets
    ]
    if not preferred and not any(avoided):
        return None
    total = np.zeros(len(table.present), np.int64)
    whole = sum(term.weight for term in preferred) or 1
    for wish in preferred:
        total += fits.term_mask(table, wish.term) * (wish.weight * PREFERENCE_WEIGHT // whole)
    return cast(Ints, total - np.array(avoided, np.int64)[table.taint_codes] * PREFERENCE_WEIGHT)


def _nothing() -> tuple[npt.NDArray[np.intp], Ints]:
    return np.zeros(0, np.intp), np.zeros(0, np.int64)


def _smallest(keys: Ints, wanted: int) -> npt.NDArray[np.intp]:
    """Rows of the `wanted` smallest keys, in order; keys that are taken are left out. All others are distinct."""
    if wanted < len(keys):
        threshold = np.partition(keys, wanted - 1)[wanted - 1]
        rows = np.flatnonzero((keys <= threshold) & (keys != _TAKEN))
    else:
        rows = np.flatnonzero(keys != _TAKEN)
    return rows[np.argsort(keys[rows], kind="stable")]
