"""For all tests."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# No test times a machine.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

# Tests, and what they start, hear what tests say, not what the shell is set up for: a cluster, a collector, a proxy,
# another kind of output, written at once or when a buffer is full.
OF_THE_SHELL = re.compile(
    r"MUSTER_(?!SHARED|FUZZ_FACTOR).*|OTEL_.*|KUBECONFIG|KUBERNETES_SERVICE_.*"
    r"|(HTTP|HTTPS|ALL|NO)_PROXY|COLUMNS|FORCE_COLOR|PYTHONUNBUFFERED",
    re.IGNORECASE,
)
for name in [name for name in os.environ if OF_THE_SHELL.fullmatch(name)]:
    del os.environ[name]

# A shell has what it runs in the background ignore SIGINT, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Of several workers one rewrites the assertions of all tests, and the others read what it wrote: in a fresh clone
    each did the same six seconds' work at the same time. Where a file cannot be locked, as on NFS, each does."""
    with open(__file__) as ours:
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                fcntl.flock(ours, fcntl.LOCK_EX)
        gc.disable()  # what is collected stays: looking for garbage in it took a fifth of the time
        try:
            return (yield)
        finally:
            gc.enable()


def pytest_collection_finish() -> None:
    """As services do (`services.console.launch`): looking for garbage among all tests took a sixth of their time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LEVEL = logging.getLogger().level


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """`muster snapshot` gives way to everything else: run within a test it made a whole worker do so, and on two cores
    what that worker had to do took ten times as long, until one test's time was over. A command that is run within a
    test chooses what is logged, and the next test would see it.
    """
    logging.getLogger().setLevel(LEVEL)
    assert os.getpriority(os.PRIO_PROCESS, 0) == PRIORITY, f"{item.nodeid} changed this process's priority for good"
