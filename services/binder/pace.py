"""When judging pauses: by counts, so that what is judged does not depend on it.

A gang may have 50,000 pods, and each may be of another class, which is compared with every node.
"""

from __future__ import annotations

SLICE_CLASSES = 64
"""Compared with the nodes between two yields, which takes milliseconds."""
SLICE_PODS = 8_192
"""Of proposals, or their host ports, looked at between two yields: some 10 ms."""
MANY = 512
"""Pods. A verdict about so many pauses between its steps."""


class Pace:
    """What was done of one decision, whichever proposals it was about."""

    def __init__(self) -> None:
        self._classes = 0
        """Compared with the nodes."""
        self._pods = 0
        """Looked at, in this slice."""

    def over_before_class(self) -> bool:
        """Before a class is compared: whether enough were in this slice."""
        self._classes += 1
        return self._classes % SLICE_CLASSES == 0

    def over_before_pods(self, pods: int) -> bool:
        """Before so many pods, or host ports, are looked at: whether that are enough with those of this slice; if so, the
        next begins."""
        self._pods += pods
        if self._pods < SLICE_PODS:
            return False
        self._pods = 0
        return True
