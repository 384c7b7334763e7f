"""What stands in the place of the federator's own chance and times while a history runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from services.federator import service
from services.federator.rules import forgotten
from services.federator.service import agenda, polling


@contextmanager
def drawn(seed: int, kept: int, sweep_s: float, *others: tuple[Any, str, object]) -> Iterator[None]:
    """All chance comes from the seed. `kept`: jobs that are over and still known; `sweep_s`: instead of an hour, between
    two looks at clusters where no job is open, and of a minute, at bodies; `others`: what else is replaced, by what."""
    chance, uids = random.Random(f"{seed}/service"), random.Random(f"{seed}/uids")
    new_uid = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{uids.getrandbits(128):032x}"))
    with ExitStack() as stack:
        for module, name, other in (
            (forgotten, "KEPT", kept),
            (polling, "SWEEP_S", sweep_s),
            (polling, "random", chance),
            (agenda, "random", chance),
            (service, "CLEARS_AFTER_S", sweep_s),
            (service, "uuid", new_uid),
            *others,
        ):
            stack.enter_context(patch.object(module, name, other))
        yield
