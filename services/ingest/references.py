"""Which object names which other: what is said of the one changes when the other appears, changes or goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Reference(NamedTuple):
    """An object, by the name of its kind and its own: (``PodGroup``, ``ml/train``), (``Pod``, a UID)."""

    kind: str
    name: str


@dataclass
class References:
    """Both ways. An object names one other at most."""

    _named: dict[Reference, Reference] = field(default_factory=dict)
    _naming: dict[Reference, dict[Reference, None]] = field(default_factory=dict)

    def put(self, who: Reference, whom: Reference | None) -> None:
        """From now on `who` names `whom`; None: nobody."""
        before = self._named.get(who)
        if before == whom:
            return
        if before is not None:
            del self._named[who]
            del self._naming[before][who]
            if not self._naming[before]:
                del self._naming[before]
        if whom is not None:
            self._named[who] = whom
            self._naming.setdefault(whom, {})[who] = None

    def named_by(self, who: Reference) -> Reference | None:
        return self._named.get(who)

    def naming(self, whom: Reference) -> list[Reference]:
        """Those that name it, sorted: who came first is not in the log's state."""
        return sorted(self._naming.get(whom, ()), key=_name)

    def named(self, kind: str) -> list[Reference]:
        """Everything of a kind that is named, there or not; sorted, too."""
        return sorted((whom for whom in self._naming if whom.kind == kind), key=_name)


def _name(one: Reference) -> str:
    return one.name
