"""Which shard owns which partition: an even spread over the shards that live, with few moves.

Every shard keeps what it has, up to its share; where the shares cannot be equal, those that have the most get one more.
The rest, and what belonged to shards that are gone, goes to those that have less, in order of their names. With no
shard alive the owners stay as they are: nobody could plan.
"""

from __future__ import annotations

import events as ev
from services.state.fold import State


def assign_partitions(state: State) -> ev.PartitionsAssigned | None:
    """The owners under a new epoch; None when nothing is to change."""
    live = sorted(state.shards)
    if not live or set(live) == set(state.owners):
        return None
    owners = spread(state.owners, live)
    return ev.PartitionsAssigned(epoch=state.epoch + 1, owners=owners) if owners != state.owners else None


def spread(owners: tuple[str, ...], live: list[str]) -> tuple[str, ...]:
    """The owners of the partitions when these shards (sorted, at least one) live; more than 64 leave some without."""
    mine: dict[str, list[int]] = {shard: [] for shard in live}
    for partition, owner in enumerate(owners):
        if owner in mine:
            mine[owner].append(partition)
    least, larger = divmod(len(owners), len(live))
    by_size = sorted(live, key=lambda shard: -len(mine[shard]))  # stable: equal ones by name
    share = {shard: least + (place < larger) for place, shard in enumerate(by_size)}
    kept = {partition for shard in live for partition in mine[shard][: share[shard]]}
    free = iter(partition for partition in range(len(owners)) if partition not in kept)
    assigned = list(owners)
    for shard in live:
        for _ in range(share[shard] - len(mine[shard])):
            assigned[next(free)] = shard
    return tuple(assigned)
