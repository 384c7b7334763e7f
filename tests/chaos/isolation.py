"""Namespaces of its own for a run: network, mounts, processes. Root only.

The run is started again below ``unshare``, as the first process of a process namespace: when it ends, however it ends,
the kernel ends whatever it started; mounts and packet rules are gone with the last of them. Its loopback is its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from events.children import PR_SET_PDEATHSIG

INSIDE = "MUSTER_CHAOS_NAMESPACES"
TOOLS = ("unshare", "ip", "iptables", "mount")
SETRESGID = {"x86_64": 119, "aarch64": 149}
"""The system call's number. Called directly it changes the calling thread alone, and what that thread starts."""
UNCHANGED = -1


def possible() -> bool:
    """Whether this process may make namespaces and has what it takes."""
    if os.geteuid() != 0 or platform.machine() not in SETRESGID or not all(map(shutil.which, TOOLS)):
        return False
    tried = "ip link set lo up && iptables -A OUTPUT -m owner --gid-owner 1 -j CONNMARK --set-mark 1"
    return (
        subprocess.run([*_unshare(), "sh", "-c", tried], capture_output=True, timeout=30, check=False).returncode == 0
    )


def inside() -> bool:
    return INSIDE in os.environ


def enter(module: str, arguments: Sequence[str]) -> None:
    """Starts ``python -m module`` again, in namespaces; does not return."""
    os.environ[INSIDE] = "1"
    command = [*_unshare(), sys.executable, "-m", module, *arguments]
    os.execvp(command[0], command)


def prepare() -> None:
    """The first thing to do inside. Raises CalledProcessError."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=30)


def small_disk(directory: Path, megabytes: int) -> None:
    """Makes the directory a file system of its own, in memory, that can be full. Raises CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "muster-chaos", str(directory)]
    subprocess.run(command, check=True, timeout=30)


@contextmanager
def group(number: int) -> Iterator[None]:
    """What this thread starts meanwhile has this group, by which its packets are known."""
    _set_group(number)
    try:
        yield
    finally:
        _set_group(0)


def _set_group(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SETRESGID[platform.machine()], number, number, UNCHANGED):
        raise OSError(ctypes.get_errno(), f"setresgid {number}")
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of group forgets what `unshare` had asked for


def _unshare() -> list[str]:
    return ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
