"""The control plane of the end-to-end tests, as far as it can be tested without its binaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.e2e.control_plane import ControlPlane


@pytest.mark.parametrize("written", [None, "", "-----BEGIN CERTIFICATE-----\n"], ids=["not there", "empty", "begun"])
def test_an_apiserver_whose_certificate_is_not_written_yet_is_not_ready(tmp_path: Path, written: str | None) -> None:
    """It was asked between its creation and its first byte, and four tests ended with an SSLError."""
    plane = ControlPlane(tmp_path, durable=True)
    if written is not None:
        plane.certificate.parent.mkdir()
        plane.certificate.write_text(written)
    assert not plane.ready()
