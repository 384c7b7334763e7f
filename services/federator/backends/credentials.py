"""Secrets from where a cluster's entry says: an environment variable or a file, read anew as files are rotated.

What was read is shown by nothing here: not by an error, not by `repr`.
"""

from __future__ import annotations

import os
from pathlib import Path


class NoSecret(Exception):
    """Names where the secret was looked for, and never what stood there."""


class Secret:
    """A word from an environment variable or a file; exactly one of both is named."""

    def __init__(self, *, variable: str = "", file: str = "") -> None:
        if bool(variable) == bool(file):
            raise ValueError("expected a variable or a file")
        self._variable, self._file = variable, file

    @property
    def rotates(self) -> bool:
        """Whether it can change while the process runs."""
        return bool(self._file)

    def read(self) -> str:
        """Raises NoSecret."""
        found = os.environ.get(self._variable, "") if self._variable else self._from_file()
        word = found.strip()
        if not word:
            raise NoSecret(f"{self}: expected a secret, found nothing")
        if not (word.isascii() and word.isprintable() and " " not in word):
            raise NoSecret(f"{self}: expected one word without spaces or line ends")
        return word

    def _from_file(self) -> str:
        try:
            return Path(os.path.expanduser(self._file)).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise NoSecret(f"{self}: {getattr(error, 'strerror', None) or 'expected text'}") from None

    def __str__(self) -> str:
        return f"${self._variable}" if self._variable else self._file
