"""Services of two roles that are useless without each other, as GangGroups, on a cluster that just fits them.

Each service is bound whole or not at all, and who waits is told why: for the trace of a real cluster, where it is there,
and always for a small one that is drawn here.
"""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest

from events.policy import DEFAULT_POLICY
from services.console.profiles import profile
from services.console.simulate import Simulation, simulate
from services.console.verify import verify
from services.simulator.traces import DLRM, KOORDINATORS_LABEL, MODES, dlrm
from services.state.validate import validate_state
from tests.manifests import Object

SHARED = Path(__file__).parents[3] / "shared" / "traces" / DLRM
COLUMNS = (
    *("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "rdma_request", "memory_request"),
    *("disk_request", "max_instance_per_node"),
)
REASONS = ("nodes are available", "the waiting time is over")
"""Why a service may wait: there is no room, or, for the first of a role, the rest did not come in time."""
CN = {"cpu_request": 64, "gpu_request": 0, "rdma_request": 1, "memory_request": 320, "disk_request": 640}
HN = {"cpu_request": 12, "gpu_request": 1, "rdma_request": 25, "memory_request": 120, "disk_request": 640}


def drawn(path: Path, services: int, seed: int = 5) -> Path:
    """A trace of the same form: many small services, a few large ones, most CN pods for a third of a node."""
    source = random.Random(seed)
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        number = 0
        for service in range(services):
            scale = source.choice([1, 1, 1, 4])
            for role, asked in (("HN", HN), ("CN", CN)):
                shape = asked | {"cpu_request": asked["cpu_request"] - source.choice([0, 0, 4])}
                for _ in range(scale * source.randint(1, 6)):
                    app = {"instance_sn": f"i_{number}", "role": role, "app_name": f"app_{service}"}
                    rows.writerow(app | shape | {"max_instance_per_node": -1})
                    number += 1
    return path


def run(path: Path, mode: str, score: str = "default") -> tuple[Simulation, list[Object]]:
    objects = list(dlrm(path, gang_groups=mode))
    policy = msgspec.structs.replace(DEFAULT_POLICY, profile=profile(score))
    return simulate(objects, policy), objects


def check(simulation: Simulation, objects: list[Object]) -> Counter[str]:
    """No service is half bound, none holds room at the end, each that waits has a reason. Counts services by fate."""
    validate_state(simulation.state)
    answer = simulation.answer()
    pods: dict[str, list[str]] = defaultdict(list)
    for obj in objects:
        if obj["kind"] == "Pod":
            service = obj["metadata"]["labels"][KOORDINATORS_LABEL].rpartition("-")[0]
            pods[service].append(f"dlrm/{obj['metadata']['name']}")
    fates: Counter[str] = Counter()
    for service, members in pods.items():
        bound = sum(pod in answer["bound"] for pod in members)
        assert bound in (0, len(members)), f"{service} is half bound: {bound} of {len(members)}"
        fates["bound" if bound else "waiting"] += 1
        reasons = {answer["waiting"][pod] for pod in members if pod in answer["waiting"]}
        told = [any(words in reason for words in REASONS) for reason in reasons]
        assert all(told), f"{service} waits for {reasons}"
    stages = Counter(claim.stage for claim in simulation.state.claims.values())
    assert set(stages) <= {"bound"}, f"room is held for nobody: {stages}"
    return fates


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
async def test_services_of_two_roles_are_placed_whole_or_wait_for_a_reason(
    mode: str, seed: int, tmp_path: Path
) -> None:
    simulation, objects = run(drawn(tmp_path / DLRM, 24, seed), mode)
    fates = check(simulation, objects)
    assert fates["bound"] >= 16
    assert (await verify(simulation.log)).verified


@pytest.mark.skipif(not SHARED.is_file(), reason="../shared is not there")
@pytest.mark.parametrize("mode", MODES)
def test_the_services_of_a_real_cluster(mode: str) -> None:
    fates = check(*run(SHARED, mode, "binpack"))
    assert fates.total() == 156
    assert fates["bound"] >= 150
