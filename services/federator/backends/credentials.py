"""Secrets from where a cluster's entry says: an environment variable or a file, read anew as files are rotated (`Token`).

What was read is shown by nothing here: not by an error, not by `repr`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from services.background_call import BackgroundCall

SECRET_LIFE_S = 60.0
"""How long a secret that can change is used before it is read again."""
SECRET_WITHIN_S = 10.0
"""A file may be on a disk that is away."""


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


class Token:
    """The secret as it was read last."""

    def __init__(self, secret: Secret) -> None:
        self._secret, self._reading = secret, BackgroundCall(secret.read)
        self._fresh_until_s = float("-inf")
        self._value = self._before = ""

    async def read(self) -> str:
        """Raises NoSecret."""
        if time.monotonic() >= self._fresh_until_s:
            try:
                value = await self._reading(SECRET_WITHIN_S)
            except TimeoutError as error:
                raise NoSecret(f"{self._secret}: nothing within {SECRET_WITHIN_S:g} s") from error
            if value != self._value:
                self._value, self._before = value, self._value
            self._fresh_until_s = time.monotonic() + (SECRET_LIFE_S if self._secret.rotates else float("inf"))
        return self._value

    def hidden(self, text: str) -> str:
        """Without it, and without the one before: what was asked with that may be answered now."""
        for value in filter(None, (self._value, self._before)):
            text = text.replace(value, "***")
        return text

    def forget(self) -> bool:
        """Read it anew next time; whether that can make a difference."""
        self._fresh_until_s = float("-inf")
        return self._secret.rotates
