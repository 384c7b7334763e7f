"""Services of two roles that are useless without each other, as GangGroups, on a cluster that just fits them.

Each service is bound whole or not at all, and who waits is told why: for the trace of a real cluster, where it is there,
and always for a small one that is drawn here.
"""

from __future__ import annotations

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
from tests.dialects.trace import drawn, write
from tests.manifests import Object
from tests.shared import SHARED

TRACE = SHARED / "traces" / DLRM
REASONS = ("nodes are available", "the waiting time is over")
"""Why a service may wait: there is no room, or, for the first of a role, the rest did not come in time."""


def run(path: Path, mode: str, score: str = "default", limit: int | None = None) -> tuple[Simulation, list[Object]]:
    objects = list(dlrm(path, limit, gang_groups=mode))
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
    simulation, objects = run(write(tmp_path / DLRM, drawn(24, seed)), mode)
    fates = check(simulation, objects)
    assert fates["bound"] >= 16
    assert (await verify(simulation.log)).verified


@pytest.mark.skipif(not TRACE.is_file(), reason="../shared is not there")
@pytest.mark.parametrize(
    ("mode", "limit", "services", "bound"), [("strict", None, 156, 150), ("nonstrict", 5_000, 17, 13)]
)
async def test_the_services_of_a_real_cluster(mode: str, limit: int | None, services: int, bound: int) -> None:
    """All of them in one mode; in the other the first, of which one is the largest: the rest takes as long again."""
    simulation, objects = run(TRACE, mode, "binpack", limit)
    fates = check(simulation, objects)
    assert fates.total() == services
    assert fates["bound"] >= bound
    assert (await verify(simulation.log)).verified
