"""Child processes of a command: each ended by its own pid, none left behind.

A child has a session of its own, so that an interrupt at the terminal is its parent's alone; on Linux it dies with its
parent, however that ends. What it prints goes to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from events.children import dying_with_its_parent

STOPPED_WITHIN_S = 10.0


class ChildFailed(Exception):
    """A child ended before its time. Carries the end of what it printed."""


class Child:
    """``python -m …`` as a process of its own, started at once."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are MUSTER_ variables; those of this process's own environment are not handed on."""
        self.name, self.log = name, log
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
        environment |= settings or {}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=dying_with_its_parent(),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ChildFailed when it has ended."""
        status = self._process.poll()
        if status is not None:
            raise ChildFailed(f"{self.name} ended with status {status}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def terminate(self) -> None:
        """SIGTERM; `wait` for what comes of it."""
        if self._process.poll() is None:
            self._process.terminate()

    def wait(self) -> int:
        """Its exit status; SIGKILL when it does not end by itself."""
        try:
            return self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def stop(children: Iterable[Child]) -> dict[str, int]:
    """End them all together; their exit statuses by name."""
    ending = list(children)
    for child in ending:
        child.terminate()
    return {child.name: child.wait() for child in ending}
