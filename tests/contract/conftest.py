"""Assertions of the suite tell what they saw, although its modules are not called test_*."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.client", "tests.contract.suite", "tests.contract.workloads")
