"""What a command tells its user instead of a traceback."""

from __future__ import annotations


class Unusable(ValueError):
    """The command cannot do what it was asked; the message says what was expected."""
