"""What is deleted in the log is gone in the cluster, is over, or cannot be read any more, as ingest says in the same
commit or at the beginning of its next. Where etcd was restored it may be there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from tests.simulation import truth

if TYPE_CHECKING:
    from events.envelope import Commit
    from services.simulator.store import Collection
    from services.state.fold import State


DELETED = (ev.NodeDeleted, ev.PodDeleted, ev.PodGroupDeleted)


class Gone:
    def __init__(self) -> None:
        self._said: dict[str, Collection] = {}
        """UID of what was deleted in ingest's last commit → where it would be."""

    def says(self, uid: str, among: Collection) -> None:
        self._said[uid] = among

    def wrongly(self, commit: Commit, state: State, names: tuple[str, ...]) -> str:
        """Behind ingest's next commit: what it said is gone and is there; empty: nothing. A new one has yet to list; and
        of what came and goes again in this commit, the next may begin with why."""
        said, self._said = self._said, {}
        if isinstance(commit.events[0], ev.IngestTaken):
            return ""
        rejected = {one.uid for one in state.rejections.values()}
        there = [uid for uid, among in said.items() if uid not in rejected and truth.is_there(uid, among, names)]
        nodes = {node.fact.uid for node in state.nodes.values() if node.fact is not None}
        known = {*state.pods, *nodes, *(group.uid for group in state.pod_groups.values())}
        known.update(event.uid for event in commit.events if isinstance(event, DELETED))
        return ", ".join(uid for uid in there if uid not in known)
