"""A drawn trace in the form of the DLRM trace: services of two roles, for where ../shared is not there."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Row = Mapping[str, object]
COLUMNS = (
    *("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "rdma_request", "memory_request"),
    *("disk_request", "max_instance_per_node"),
)
CN = {"cpu_request": 64, "gpu_request": 0, "rdma_request": 1, "memory_request": 320, "disk_request": 640}
HN = {"cpu_request": 12, "gpu_request": 1, "rdma_request": 25, "memory_request": 120, "disk_request": 640}


def drawn(services: int, seed: int = 5) -> Iterator[Row]:
    """Many small services, a few large ones, most CN pods for a third of a node."""
    source = random.Random(seed)
    number = 0
    for service in range(services):
        scale = source.choice([1, 1, 1, 4])
        for role, asked in (("HN", HN), ("CN", CN)):
            shape = asked | {"cpu_request": asked["cpu_request"] - source.choice([0, 0, 4])}
            for _ in range(scale * source.randint(1, 6)):
                app = {"instance_sn": f"i_{number}", "role": role, "app_name": f"app_{service}"}
                yield app | shape | {"max_instance_per_node": -1}
                number += 1


def write(path: Path, rows: Iterable[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path
