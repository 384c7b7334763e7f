"""Warnings that may be due many times a second, as one server or one permission fails thousands of writes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from logging import Logger

TOLD_S = 10.0
"""How often such a warning is told at most."""


class Repeated:
    """Told with how often it was due since it was told last, and with the words of the last."""

    def __init__(self, logger: Logger, text: str) -> None:
        """`text`: with a place for the number before those for the words: ``"refused: %d, the last: %s"``."""
        self._logger, self._text = logger, text
        self._told_s = -TOLD_S
        self._untold = 0

    def warn(self, *words: object, extra: Mapping[str, object] | None = None) -> None:
        self._untold += 1
        now_s = time.monotonic()
        if now_s - self._told_s >= TOLD_S:
            self._logger.warning(self._text, self._untold, *words, extra=extra)
            self._told_s, self._untold = now_s, 0
