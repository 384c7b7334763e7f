"""The control plane of the end-to-end tests, as far as it can be tested without its binaries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.e2e import control_plane
from deploy.e2e.control_plane import ROOM_BYTES, ControlPlane, in_memory
from deploy.e2e.processes import answers
from services.simulator.cluster import SimulatedCluster


@pytest.mark.parametrize("written", [None, "", "-----BEGIN CERTIFICATE-----\n"], ids=["not there", "empty", "begun"])
def test_an_apiserver_whose_certificate_is_not_written_yet_is_not_ready(tmp_path: Path, written: str | None) -> None:
    """It was asked between its creation and its first byte, and four tests ended with an SSLError."""
    plane = ControlPlane(tmp_path, durable=True)
    if written is not None:
        plane.certificate.parent.mkdir()
        plane.certificate.write_text(written)
    assert not plane.ready()


def test_an_apiserver_needs_no_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: on a machine without a network it ended, as it found no address of its own to tell of."""
    given: list[str] = []
    monkeypatch.setattr(ControlPlane, "run", lambda _, *command: given.extend(command))
    monkeypatch.setattr(control_plane, "wait_until", lambda *_: None)
    ControlPlane(tmp_path, durable=True).start_apiserver()
    assert "--advertise-address=127.0.0.1" in given


async def test_no_proxy_is_asked_for_what_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: with a proxy in the environment etcd never became ready, and no `make e2e` began."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with SimulatedCluster() as cluster:
        assert await asyncio.to_thread(answers, f"{cluster.url}/api/v1/namespaces")


@pytest.mark.parametrize(("free", "writable", "taken"), [(0, True, True), (-1, True, False), (0, False, False)])
def test_etcd_lies_in_memory_where_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, writable: bool, taken: bool
) -> None:
    """As it was: in a container, which has 64 MB there, etcd was full after two tests; and one that cannot be written to
    ended all of them."""
    monkeypatch.setattr(control_plane, "TMPFS", tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=ROOM_BYTES + free))
    monkeypatch.setattr("os.access", lambda *_: writable)
    assert in_memory() == (tmp_path if taken else None)


def test_without_anything_in_memory_etcd_lies_where_temporary_files_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_plane, "TMPFS", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ControlPlane(tmp_path / "plane").data.parent == tmp_path
