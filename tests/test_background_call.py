"""A call that hangs keeps neither who asks nor the process."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest

from services.background_call import BackgroundCall
from services.kubernetes.access import Access, AccessError
from services.kubernetes.client import Client
from services.kubernetes.errors import NoCredentials
from services.simulator.cluster import SimulatedCluster
from tests.waiting import until

PROGRAM = """
import asyncio, threading
from services.background_call import BackgroundCall
try:
    asyncio.run(BackgroundCall(threading.Event().wait)(0.05))
except TimeoutError:
    print("goes on")
"""


async def test_where_no_thread_can_be_had_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what had never begun was waited for, for good."""
    ask = BackgroundCall(lambda: "said")
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(TimeoutError):
            await ask(60.0)
    assert await ask(60.0) == "said"


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


async def test_who_asks_again_before_others_have_heard_begins_one_call_for_all() -> None:
    """As it was: the others, when they heard of the first, forgot the second, and the next to ask began a third."""
    running: list[threading.Event] = []
    most = 0

    def call() -> None:
        nonlocal most
        over = threading.Event()
        running.append(over)
        most = max(most, len(running))
        assert over.wait(60)
        running.remove(over)

    async def twice() -> None:
        await ask(60)
        await ask(60)

    ask = BackgroundCall(call)
    first, other = asyncio.create_task(twice()), asyncio.create_task(ask(60))
    await until(lambda: running)
    running[0].set()
    await other
    await until(lambda: running)
    with pytest.raises(TimeoutError):
        await ask(0.05)
    assert most == 1
    running[0].set()
    await first


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


async def test_files_about_tls_that_cannot_be_looked_at_count_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: they were looked at in the event loop, and a disk that was lost kept all of the process."""
    monkeypatch.setattr("services.kubernetes.transport.TOKEN_LIFE_S", 0.0)
    begun, disk_is_there = [], threading.Event()

    def context() -> ssl.SSLContext:
        begun.append(1)
        assert disk_is_there.wait(60)
        return ssl.create_default_context()

    def patience(within_s: float) -> None:
        monkeypatch.setattr("services.kubernetes.transport.FILES_WITHIN_S", within_s)

    async with (
        SimulatedCluster(kubelet=False) as cluster,
        Client(Access(base_url=cluster.url, ssl_context=context)) as client,
    ):
        patience(0.05)
        with pytest.raises(NoCredentials, match=r"no word of the files about TLS within 0\.05 s"):
            await client.get_pod("default", "p")
        disk_is_there.set()
        patience(60.0)
        assert await client.get_pod("default", "p") is None
        disk_is_there.clear()
        patience(0.05)
        for _ in range(3):
            assert await client.get_pod("default", "p") is None
        disk_is_there.set()
    assert len(begun) == 2
