"""Where the shared folder is: seeds, oracle, manifests, traces. Beside the repository, or where MUSTER_SHARED says.

Nothing of it is repeated in the repository, and without it the tests that read it are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("MUSTER_SHARED") or Path(__file__).parents[2] / "shared")
