"""Processes that a test or a benchmark starts, watches, hurts and ends: each by its own pid, each with its own log."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from events.children import dying_with_its_parent
from events.server import reserve_port

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_WITHIN_S = 60
_RESERVED: list[socket.socket] = []
_HERE = urllib.request.ProxyHandler({})
"""What is asked runs on this machine, where no proxy of the environment's finds it: `urlopen` knows no loopback."""


class Process:
    """One operating system process, with its output in `log`. It dies with the thread that started it."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.log = name, log
        self.spent_s = 0.0
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | (environment or {}),
                preexec_fn=dying_with_its_parent(),  # noqa: PLW1509
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """kill -9, and reaps it."""
        self.cpu_s()
        self.popen.kill()
        self.popen.wait()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and does nothing."""
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 20) -> int:
        """SIGTERM and its exit code; SIGKILL if it does not end. Ending what has ended changes nothing."""
        if self.alive:
            self.cpu_s()
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
            try:
                self.popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.popen.returncode

    def cpu_s(self) -> float:
        """CPU seconds that it and its children have spent so far, user and system; after its end what they had spent when
        last asked."""
        try:
            self.spent_s = sum(_ticks(pid) for pid in (self.pid, *self._children())) / TICKS_PER_SECOND
        except OSError:  # it has ended
            pass
        return self.spent_s

    def peak_memory_bytes(self) -> int:
        """The most memory that it ever held, and each of its children; what they share counts for each. 0 after its
        end."""
        try:
            return sum(_peak_memory_bytes(pid) for pid in (self.pid, *self._children()))
        except OSError:
            return 0

    def _children(self) -> list[int]:
        """Those that run."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def tail(self, lines: int = 30) -> str:
        """The end of its log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _ticks(pid: int) -> int:
    """Of CPU, of the process and those of its children that have ended."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))


def _peak_memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def wait_until(condition: Callable[[], object], what: str, process: Process) -> None:
    """Polls until the condition holds. TimeoutError names `what`; a `process` that ends first is an error at once."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not condition():
        if not process.alive:
            raise RuntimeError(f"{process.name} ended before {what}:\n{process.tail()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {READY_WITHIN_S} s\n{process.tail()}")
        time.sleep(0.05)


def free_port() -> int:
    """A TCP port on 127.0.0.1 for a server. The kernel gives it to nobody else while this process lives: not to a client
    that connects while the server is down either, who might be connected to himself."""
    _RESERVED.append(reserve_port())
    return int(_RESERVED[-1].getsockname()[1])


def answers(url: str, token: str = "", context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET is answered with success."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        opener = urllib.request.build_opener(_HERE, urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
