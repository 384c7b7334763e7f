"""What the log says of each pod and node in full: something new each time, and of none an older version than before.

Once etcd is restored from a backup, versions and whole lives come a second time: what ended in the log begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev

if TYPE_CHECKING:
    from services.simulator.api import Api

Full = ev.PodObserved | ev.NodeObserved


class Lives:
    def __init__(self) -> None:
        self.undone: dict[str, list[str]] = {}
        """UID → the nodes to which it was bound before etcd was restored, each time."""
        self.to_be_listed = False
        """Whether etcd was restored, and ingest is yet to be started again behind the binder."""
        self._listed_too_soon = False
        self._intended: set[tuple[str, str]] = set()
        """UID and node of each binding and, without one, of each eviction that was ever intended."""
        self._stale: set[tuple[str, str]] = set()
        """Those of before the log knew that etcd was restored."""
        self._forgotten: set[tuple[str, str]] = set()
        """Those of a log before, which was set back."""
        self._over: set[str] | None = set()
        """Of which it said that they are gone; None: etcd was restored, and whoever is may come again."""
        self._said: dict[str, Full] = {}
        """UID → what the log said of it last in full, but for what it says by other facts."""
        self._versions: dict[str, int] = {}
        """UID → the newest resourceVersion at which the log observed the object."""

    def repeated(self, uid: str, fact: Full) -> str:
        """An object is written again only if something of it changed. A pod's gang may have to be said again: whether
        it says that it timed out is news, too, where it did before and did in between. Empty: it is new."""
        again = self._said.get(uid) == fact and (isinstance(fact, ev.NodeObserved) or fact.gang is None)
        self._said[uid] = fact
        return f"{fact.name} is observed again, and nothing of it changed" if again else ""

    def older(self, uid: str, version: str) -> str:
        """Of an object, the log's last full observation is its newest. Empty: it is."""
        newest, found = self._versions.get(uid, 0), int(version)
        self._versions[uid] = found
        return f"{uid} is as of {found}, and was as of {newest}" if found < newest else ""

    def node_ended(self, uid: str) -> None:
        """One that could not be read for a while may say what it said before."""
        self._said.pop(uid, None)
        self.ended(uid)

    def ended(self, uid: str) -> None:
        if self._over is not None:
            self._over.add(uid)
        else:
            self._said.pop(uid, None)
            self._versions.pop(uid, None)

    def intends(self, uid: str, node: str = "") -> None:
        self._intended.add((uid, node))

    def stale(self, uid: str, node: str = "") -> bool:
        """Whether this was intended before the log knew that etcd was restored, or in a log that was set back since: who
        has not read more of it may do it yet, as the versions that would keep him from it are those of before, too."""
        return (uid, node) in self._stale or self.forgotten(uid, node)

    def forgotten(self, uid: str, node: str) -> bool:
        """Whether it was intended, and may have taken hold, in a log of which what came behind this one is lost."""
        return (uid, node) in self._forgotten

    @property
    def may_come_again(self) -> bool:
        """Whether etcd was restored, and what is gone may be there again."""
        return self._over is None

    def begins_to_list(self) -> None:
        self._listed_too_soon = self.to_be_listed

    def stands(self, uid: str) -> str | None:
        """The node on which it may stand in the log though that was undone: the last ingest began too soon."""
        return self.undone[uid][-1] if self._listed_too_soon and uid in self.undone else None

    def follows(self, before: Lives) -> None:
        """It is about another log over the same cluster. What was intended in the one before may take hold yet, as it
        is on its way."""
        self.undone, self._forgotten = before.undone, {*before._intended, *before._forgotten}
        self._stale = {*before._stale}
        if before.may_come_again:
            self._over = None

    def known(self) -> None:
        """The log has what an ingest found that was started behind it."""
        if self._stale is self._intended:
            self._stale = set(self._intended)

    def restored(self, api: Api, bound: dict[str, str]) -> None:
        """Of those that were `bound`, some are not bound any more."""
        self._stale = self._intended  # and what is intended until it is known
        over, self._over = self._over or (), None
        for uid in over:
            self.ended(uid)
        for entry in api.pods.entries.values():
            uid = entry.object["metadata"]["uid"]
            if uid in bound and not entry.object["spec"].get("nodeName"):
                self.undone.setdefault(uid, []).append(bound.pop(uid))
