"""Several services from one command, each a process of its own: ``muster run``.

What they all import is imported once; then this process forks for each of them, and they share nothing but that memory.
Who speaks no HTTP is made first, and starts on another core while this process imports what the others need besides.
Where one ends the others are told to end, and the command ends with the exit code of the first: whoever runs it starts it
again, as he would a single service. On Linux they die with this process, however that ends.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from events.children import dying_with_its_parent
from services import settings
from services.console import http_imports
from services.console.http_imports import ASK_KUBERNETES
from services.console.launch import ENDING, no_log, serve
from services.settings import InvalidSetting, Settings
from services.telemetry import logs

logger = logging.getLogger("muster")
ROLES = ("ingest", "planner", "binder", "feed")
"""All that serve one cluster."""
HEARD = {*ENDING, signal.SIGCHLD}
LAST_PORT = 65535


def of_each(roles: Sequence[str], flags: Mapping[str, Any]) -> list[Settings]:
    """The settings of each role: with probes, one port behind the other. Raises InvalidSetting."""
    first = settings.read(flags)
    if wrong := no_log(first.nats_url):
        raise InvalidSetting(wrong)
    port = first.health_port
    if port and port + len(roles) - 1 > LAST_PORT:
        most = LAST_PORT + 1 - len(roles)
        raise InvalidSetting(f"MUSTER_HEALTH_PORT: expected {most} at most, as each service has a port, not '{port}'")
    ports = [{**os.environ, "MUSTER_HEALTH_PORT": str(port + at)} if port else os.environ for at in range(len(roles))]
    return [settings.read(flags, environment) for environment in ports]


def run(roles: Sequence[str], chosen: Sequence[Settings]) -> int:
    """Serve all of them until one ends, or a signal comes. The exit code: in this process, and in each that it makes."""
    import_module("services.start")
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some parents hand it on, it would tell of no end
    die = dying_with_its_parent()
    running: dict[int, str] = {}
    for role, own in sorted(zip(roles, chosen, strict=True), key=lambda one: one[0] in ASK_KUBERNETES):
        if role in ASK_KUBERNETES:
            http_imports.import_own_tls()
            import_module("services.kubernetes.client")
        pid = os.fork()
        if pid == 0:
            if die is not None:
                die()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD - ENDING)  # these once it can end cleanly
            return serve(role, own)
        running[pid] = role
    logs.configure("run", chosen[0].cluster, chosen[0].log_level, chosen[0].log_format)
    return _watch(running)


def _watch(running: dict[int, str]) -> int:
    """Until none is left."""
    code, told = 0, False
    while running:
        number = signal.sigwait(HEARD)
        for role, ended in _reaped(running):
            if not told:
                logger.warning("%s ended with %s: the others end, too", role, ended)
            code = code or ended
            told = told or _end(running)
        told = told or (number in ENDING and _end(running))
    return code


def _reaped(running: dict[int, str]) -> Iterator[tuple[str, int]]:
    """Those that have ended, each with its exit code: of a signal's 128 and its number, as a shell's. As process 1 of a
    container this one inherits whoever lost his parent there; these are nobody's but have to be reaped."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        if pid in running:
            yield running.pop(pid), code if code >= 0 else 128 - code


def _end(running: Mapping[int, str]) -> bool:
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    return True
