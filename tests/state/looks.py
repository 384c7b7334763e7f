"""How often somebody looks something up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Counting(dict[str, Any]):
    """Counts how often somebody looks at an entry, or whether it is there, one by one or as all are gone through."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        return self._through(super().__iter__())

    def values(self) -> Any:
        return self._through(super().values())

    def items(self) -> Any:
        return self._through(super().items())

    def _through(self, entries: Any) -> Any:
        for one in entries:
            self.looks += 1
            yield one
