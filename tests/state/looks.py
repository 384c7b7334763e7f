"""How often somebody looks something up."""

from __future__ import annotations

from typing import Any


class Counting(dict[str, Any]):
    """Counts how often somebody looks at an entry, or whether it is there."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)
