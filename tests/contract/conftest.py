"""Assertions of the suite tell what they saw, although its module is not called test_*."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.suite", "tests.contract.workloads")
