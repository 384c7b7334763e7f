"""The table of settings in docs/operations.md says what services/settings.py says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from services.settings import PREFIX, Settings

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(rf"^\| `({PREFIX}\w+)` \|([^|]*)\|[^|]+\|$", re.MULTILINE)


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: default.strip() for name, default in ROW.findall(OPERATIONS.read_text())}
    assert documented == {PREFIX + field.name.upper(): _default(field) for field in msgspec.structs.fields(Settings)}


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "*host, process, random*"
    shown = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
    return f"`{shown}`" if shown else ""
