"""What tests of the running federator share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.simulator.openpai.server import OpenPai
from tests.federator.field import Field


@pytest.fixture
async def field(tmp_path: Path) -> AsyncIterator[Field]:
    async with OpenPai() as pai:
        made = Field(pai, tmp_path)
        yield made
        await made.kill()
