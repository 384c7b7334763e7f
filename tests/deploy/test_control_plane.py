"""The control plane of the end-to-end tests, as far as it can be tested without its binaries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deploy.e2e.control_plane import ControlPlane
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


async def test_no_proxy_is_asked_for_what_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: with a proxy in the environment etcd never became ready, and no `make e2e` began."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with SimulatedCluster() as cluster:
        assert await asyncio.to_thread(answers, f"{cluster.url}/api/v1/namespaces")
