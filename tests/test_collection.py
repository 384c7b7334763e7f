"""Tests are collected wherever the clone lies."""

from __future__ import annotations

import errno
import sys
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
