"""Tests are collected wherever the clone lies, and run from any shell."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests import conftest


def test_where_files_cannot_be_locked_tests_are_collected_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS locks no file that was opened for reading (flock(2)), other file systems none at all."""

    def refused(*_: object) -> NoReturn:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(conftest.fcntl, "flock", refused)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    collecting = conftest.pytest_collection()
    next(collecting)
    with pytest.raises(StopIteration):
        collecting.send(None)


def test_what_the_shell_is_set_up_for_is_not_heard(tmp_path: Path) -> None:
    """With a proxy in the environment seven tests failed, and no control plane became ready; a shell for a cluster of
    one's own broke dozens. Five failed where output is buffered, and passed in a shell that says otherwise."""
    shell = {"MUSTER_NATS_URL": "nats://prod:4222", "KUBECONFIG": "/prod", "OTEL_TRACES_EXPORTER": "console"}
    shell |= {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "example", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    shell |= {"COLUMNS": "20", "FORCE_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    kept = {"MUSTER_SHARED": str(tmp_path), "MUSTER_FUZZ_FACTOR": "2"}
    program = "import os; before = {*os.environ}; import tests.conftest; print(*sorted(before - {*os.environ}))"
    environment = os.environ | shell | kept
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == sorted(shell)
