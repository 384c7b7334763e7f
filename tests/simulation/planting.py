"""How a bug is planted: replacements in a module's source, made while that is imported in a process of its own.

Each text stands there exactly once, or planting fails loudly: the code has moved on.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import NamedTuple

MIXED, DLRM, FEDERATED = "mixed", "dlrm", "federated"
LONG, LONG_FEDERATED = "long", "long-federated"
DENSE, DENSE_FEDERATED = "dense", "dense-federated"
LOSSY, LOSSY_FEDERATED = "lossy", "lossy-federated"
"""What histories are about (`plan.WORKLOADS`), those of many phases (`plan.PHASES_OF`), those with more faults of one
kind, and those whose logs lose what they had."""
FEDERATIONS = (FEDERATED, LONG_FEDERATED, DENSE_FEDERATED, LOSSY_FEDERATED)
COMPARED = 16
WIDER_FROM = 1_000
"""The first seed of those that may be cramped or one-sided, have PodGroups in use that cannot be read, and an autoscaler
(`cramped`, which imports what plants change; `swarm`; `workload`)."""
NEWEST_FROM = 360_000
"""The first seed of those with users who come from elsewhere and change what is there (`newcomers`, `edits`), and with an
etcd that is restored (`backups`)."""
BINDER_FIRST_FROM = 384_000
"""The first seed with restores behind which the binder is started first (`backups`)."""
LATEST_FROM = 420_000
"""The first seed with an ingest that is away for long or looks for pods of other schedulers (`absences`), rollouts that
open ports (`openings`), 429s of the API server's own (`kube`), and, over the DLRM trace, what came from `NEWEST_FROM`
on."""
FURTHER_FROM = 520_000
"""The first seed of those with device plugins (`devices`), with what newer releases of Kubernetes let users say
(`releases`), with webhooks that answer 404 and 409 or keep a pod as it is, a storage that fails as a binding is written,
an admin who tries out policies (`faults`), and a day of the retention's that is as short as what it keeps (`stead`)."""
BEYOND_FROM = 540_000
"""The first seed of those with policies that turn when it matters (`turns`), watches that say nothing for longer than
ingest believes them (`stead`), a binder that is away for long (`absences`), restores that give pods their gates back
(`backups`), resources that are asked for before they are offered (`foretold`), and, of federated ones, with operators,
users of Koordinator and kinds that go (`federation`, `plan`)."""

SET_BACK_FROM = 600_000
"""The first seed of those with a log that ends where it ended before (`set_back`)."""
UNDONE_FROM = 620_000
"""The first seed of federated histories in which that is the federation's own (`federation.set_back`)."""
FED_FROM = 640_000
"""The first seed of those with a feed (`feeds`), and with watches of one kind that lag behind the others'."""
LEASED_FROM = 660_000
"""The first seed of those, but for federated ones, whose processes have their leases as in earnest (`leases`)."""
DENSE_FROM = 680_000
"""The first seed of those of which one in three is dense (`plan`), and of federated ones whose members' processes have
their leases as in earnest."""
PARTED_FROM = 684_000
"""The first seed of those with a server of NATS' that is cut off from the other two (`parted`)."""
AGAIN_FROM = 712_000
"""The first seed of those with a log that is set back again and again."""
UPGRADED_FROM = 750_000
"""The first seed of those with an API server that is upgraded (`upgrades`)."""


class Plant(NamedTuple):
    """One planted bug."""

    what: str
    """What is wrong, in the design's words."""
    module: str
    changes: tuple[tuple[str, str], ...]
    elsewhere: tuple[tuple[str, str, str], ...] = ()
    """(module, old, new): a second line of defence that has to go as well."""
    first: int = 0
    """The seed to begin with: what comes later is about what earlier ones have not."""
    compared: int = COMPARED
    """Every so many seeds, one is run by all processes."""
    workload: str = MIXED

    def changes_of(self, module: str) -> tuple[tuple[str, str], ...]:
        own = self.changes if module == self.module else ()
        return own + tuple((old, new) for other, old, new in self.elsewhere if other == module)

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys([self.module, *(module for module, _, _ in self.elsewhere)]))


def plants_from(first: int) -> Callable[..., Plant]:
    """For those that no seed before this one can show: what is wrong, the module, the changes."""

    def plant(what: str, module: str, *changes: tuple[str, str]) -> Plant:
        return Plant(what, module, changes, first=first)

    return plant


class NotPlanted(Exception):
    """The text to replace is not in the module exactly once."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the changed source; nothing of it is cached."""

    changes: tuple[tuple[str, str], ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        for old, new in self.changes:
            if source.count(old) != 1:
                raise NotPlanted(f"{fullname} has {source.count(old)} times, not once: {old}")
            source = source.replace(old, new)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._plant.modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            raise NotPlanted(f"there is no module {fullname}")
        loader = _Loader(fullname, spec.origin)
        loader.changes = self._plant.changes_of(fullname)
        spec.loader = loader
        return spec


def install(plant: Plant) -> None:
    """From here on its modules are imported with this bug. Raises NotPlanted if one was imported before."""
    for module in plant.modules:
        if module in sys.modules:
            raise NotPlanted(f"{module} is imported already")
    sys.meta_path.insert(0, _Finder(plant))
