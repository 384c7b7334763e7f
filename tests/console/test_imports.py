"""What a service imports at its start, and leaves out, as its start is part of its latency."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import events as ev
from deploy.certificates import Authority
from events.envelope import decode
from events.homes import open_log
from services.console.processes import Child, stop


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_numpy_starts_no_threads() -> None:
    """One for each core, if it may; with a single core there is none to start."""
    program = """
import os, sys
from services.__main__ import main
sys.argv = ["muster", "--version"]
try:
    main()
except SystemExit:
    import services.state.nodes
    print(len(os.listdir("/proc/self/task")))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split()[-1] == "1"


ALL, OWN, NONE = "all of it", "without certificates", "none"
STARTED = """
import ssl, sys
from services.console import http_imports
system = ssl.create_default_context().get_ca_certs()
role, url = sys.argv[1:]
if role == "run":  # nats-py does without; then those are made who do not
    http_imports.import_nats(url)
    assert ("aiohttp" in sys.modules) == ("ws" in url.lower())
    http_imports.import_own_tls()
else:
    http_imports.prepare(role, url)
assert ssl.create_default_context().get_ca_certs() == system
import events.jetstream
if "aiohttp" not in sys.modules:
    print("none")
else:
    from aiohttp.connector import _SSL_CONTEXT_VERIFIED
    print("all of it" if _SSL_CONTEXT_VERIFIED.get_ca_certs() else "without certificates")
"""


@pytest.mark.parametrize(
    ("role", "url", "has"),
    [
        ("planner", "nats://a:4222,tls://b:4222", NONE),
        ("feed", "nats://ws:4222", NONE),
        ("planner", "ws://a", ALL),
        ("feed", "nats://a,WSS://b", ALL),
        ("ingest", "nats://a", OWN),
        ("binder", "wss://a", ALL),
        ("federator", "nats://a", ALL),
        ("run", "nats://a", OWN),
        ("run", "wss://a", ALL),
    ],
)
def test_how_much_of_aiohttp_a_service_starts_with(role: str, url: str, has: str, tmp_path: Path) -> None:
    """And the system's certificates are there as before for who wants them, whatever the service has."""
    authority = tmp_path / "system.pem"
    authority.write_text(Authority("system").certificate)
    environment = {**os.environ, "SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": str(tmp_path / "none")}
    command = [sys.executable, "-c", STARTED, role, url]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == (has, "")


async def test_a_planner_reaches_its_log_over_websockets(urls: tuple[str, str], tmp_path: Path) -> None:
    """Where the URL is another one it starts without the library for these."""
    url, websocket = urls
    log = await open_log(url, "test", create=True)
    child = Child(
        "planner", ["services", "planner", "--nats", websocket, "--cluster", "test"], tmp_path / "planner.log"
    )
    try:
        async with asyncio.timeout(60):
            first = await anext(log.follow())
    finally:
        stop([child])
        await log.close()
    assert isinstance(decode(first[0]).events[0], ev.PlannerTaken)
