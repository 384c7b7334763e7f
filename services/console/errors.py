"""What a command tells its user instead of a traceback."""

from __future__ import annotations


class Unusable(ValueError):
    """The command cannot do what it was asked; the message says what was expected."""


def told(error: BaseException) -> str:
    """For people: of a file what it is called and what is wrong with it, without the number of the error."""
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!r}: expected text in UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
