"""Our filters against the kube-scheduler's: the same nodes take each pod, and the others are counted alike."""

from __future__ import annotations

from deploy.e2e.api import Api
from deploy.e2e.control_plane import ControlPlane
from tests.e2e.filters import asked_scheduler, differences

SEEDS = range(10)


async def test_every_node_takes_or_refuses_a_pod_as_for_the_kube_scheduler(
    control_plane: ControlPlane, api: Api
) -> None:
    questions = 0
    found: list[str] = []
    async with asked_scheduler(control_plane, api) as asked:
        for seed in SEEDS:
            async for nodes, difference in differences(api, asked, seed):
                questions += nodes
                found += [difference] if difference else []
    print(f"{questions} questions (a pod and a node), {len(found)} pods answered differently")
    assert questions > 3_000
    assert not found, "\n".join(found)
