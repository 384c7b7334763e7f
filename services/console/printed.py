"""How a command ends when its output cannot be written: the reader is gone (``muster … | head``), or the disk is full.

Where the reader has gone it ends with the exit code of a broken pipe, as other programs do, so that 1 still means that
the answer is no. Output that was closed (``>&-``) is not wanted, and goes nowhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from services.console.errors import told

BROKEN_PIPE = 141
"""128 + SIGPIPE. The signal itself stays ignored: it would end a process for a connection that broke, too."""
UNWRITTEN = 2


def ending(command: Callable[[], Any]) -> int:
    """Run a command that ends with SystemExit; its exit code, once what it printed was taken."""
    code: Any = 0
    _open_what_is_closed()
    _take_any_character()
    try:
        try:
            command()
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # typer and rich make it 1
                return _closed(BROKEN_PIPE)
            code = ended.code
        sys.stdout.flush()
    except BrokenPipeError:
        return _closed(BROKEN_PIPE)
    except OSError as error:
        with contextlib.suppress(OSError):  # stderr may be on the same full disk
            sys.stderr.write(f"error: {told(error)}\n")
        return _closed(UNWRITTEN)
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _drop(sys.stderr)
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def until_nobody_reads() -> Iterator[None]:
    """For what is watched until its reader goes, which is no failure then."""
    try:
        yield
    except BrokenPipeError:
        _drop(sys.stdout)


def _open_what_is_closed() -> None:
    """Open /dev/null where stdin, stdout or stderr was closed. Python has None there, and the free file descriptor would
    go to the next file or connection: what is printed would end up in it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as the process is


def _take_any_character() -> None:
    """What the encoding lacks becomes a ``?``: Latin-1 has no ``…``, and no encoding has every byte of a file's name."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _closed(code: int) -> int:
    _drop(sys.stdout)
    return code


def _drop(stream: TextIO) -> None:
    """What is still in the buffer goes nowhere: the interpreter would try once more, and end with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
