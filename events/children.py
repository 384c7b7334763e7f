"""A child process that does not outlive its parent, however that ends: the kernel's PR_SET_PDEATHSIG, on Linux."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def dying_with_its_parent() -> Callable[[], None] | None:
    """Popen's `preexec_fn`: SIGKILL for the child when the thread that starts it ends. None where the kernel cannot.

    Between fork and exec it makes two system calls and takes no lock: harmless beside other threads.
    """
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
