"""No case is lost on its way from the suite's files to those who collect them."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from tests.contract import suite


@pytest.mark.parametrize("file", [file.name for file in pkgutil.iter_modules(suite.__path__)])
def test_every_case_of_the_file_is_the_suites(file: str) -> None:
    module = importlib.import_module(f"{suite.__name__}.{file}")
    cases = {name: case for name, case in vars(module).items() if name.startswith("test_")}
    assert cases
    assert {name: getattr(suite, name, None) for name in cases} == cases
