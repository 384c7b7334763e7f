"""A call that hangs keeps neither who asks nor the process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from services.background_call import BackgroundCall
from services.kubernetes.access import Access, AccessError
from services.kubernetes.client import Client
from services.kubernetes.errors import NoCredentials
from services.simulator.cluster import SimulatedCluster

PROGRAM = """
import asyncio, threading
from services.background_call import BackgroundCall
try:
    asyncio.run(BackgroundCall(threading.Event().wait)(0.05))
except TimeoutError:
    print("goes on")
"""


async def test_what_hangs_is_asked_of_again_and_not_begun_again() -> None:
    begun, over = [], threading.Event()

    def call() -> str:
        begun.append(1)
        assert over.wait(60)
        return "said"

    ask = BackgroundCall(call)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await ask(0.01)
    over.set()
    assert (await ask(60), len(begun)) == ("said", 1)
    assert (await ask(60), len(begun)) == ("said", 2)


async def test_what_it_raises_is_raised() -> None:
    def call() -> str:
        raise AccessError("no token")

    for _ in range(2):
        with pytest.raises(AccessError, match="no token"):
            await BackgroundCall(call)(60)


def test_a_process_ends_whatever_hangs() -> None:
    """As it was: one that was told to end joined the thread."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "goes on\n"


async def test_requests_are_refused_while_a_plugin_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: they waited for ever, and nothing said so."""
    monkeypatch.setattr("services.kubernetes.transport.CREDENTIALS_WITHIN_S", 0.05)
    over = threading.Event()

    def plugin() -> str:
        assert over.wait(60)
        return "Bearer t"

    async with (
        SimulatedCluster(kubelet=False) as cluster,
        Client(Access(base_url=cluster.url, authorization=plugin, refreshed=True)) as client,
    ):
        with pytest.raises(NoCredentials, match=r"no bearer token within 0\.05 s"):
            await client.get_pod("default", "p")
        over.set()
        monkeypatch.undo()
        assert await client.get_pod("default", "p") is None
