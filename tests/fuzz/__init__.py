"""What decoders and parsers do with whatever anybody may send them.

`generate` makes it: good documents with something wrong in them, and bytes that are no documents. `targets` has one
function for each decoder of bytes, which holds it to what must be true of any bytes: it ends, in time; it raises what its
docstring names and nothing else; what it reads can be used. The properties in `test_targets` run them under hypothesis,
`python -m tests.fuzz` (`make fuzz`) guided by coverage, for as long as it is told. The other properties here are about
documents rather than bytes.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FACTOR = float(os.environ.get("MUSTER_FUZZ_FACTOR", "1"))
"""How many times the usual number of examples; `make fuzz` sets it."""


def examples(count: int) -> settings:
    """The same `count` examples on every run; as many times more as the factor says, other ones on every run."""
    return settings(
        max_examples=max(1, int(count * FACTOR)),
        deadline=None,
        derandomize=FACTOR == 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
