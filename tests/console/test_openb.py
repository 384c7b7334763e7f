"""The tasks of a GPU cluster, as `muster simulate` would place them: where there is room and the GPU is of a model that
they ask for; who waits has a reason, and every decision is reproduced."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.console.simulate import simulate
from services.console.verify import verify
from services.simulator.traces import GPU_PRODUCT, OPENB_NODES, OPENB_PODS, load
from services.state.validate import validate_state
from tests.shared import SHARED

TRACE = SHARED / "traces"
NODES = """sn,cpu_milli,memory_mib,gpu,model
plain,32000,262144,0,
old,96000,393216,2,V100M16
new,96000,393216,2,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
half,6000,12288,1,500,V100M16|V100M32,BE
other-half,6000,12288,1,500,V100M16,BE
third,6000,12288,1,460,V100M32|V100M16,LS
whole,2000,1024,1,1000,V100M16,LS
both,2000,1024,2,1000,G2,LS
none,2000,1024,0,0,,BE
"""


async def placed(directory: Path, tasks: int) -> dict[str, str]:
    """The first so many tasks → the model of each one's GPUs, empty for none; without those that wait, for room alone."""
    objects = list(load("openb", directory, limit=tasks))
    simulation = simulate(objects)
    validate_state(simulation.state)
    answer = simulation.answer()
    assert len(answer["bound"]) + len(answer["waiting"]) == tasks
    assert all("Insufficient" in reason for reason in answer["waiting"].values())
    found = await verify(simulation.log)
    assert found.verified
    assert found.decisions >= tasks
    nodes = [obj["metadata"] for obj in objects if obj["kind"] == "Node"]
    models = {node["name"]: node["labels"].get(GPU_PRODUCT, "") for node in nodes}
    return {task.partition("/")[2]: models[node] for task, node in answer["bound"].items()}


async def test_shares_of_gpus_and_whole_ones_of_the_models_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / OPENB_NODES).write_text(NODES)
    (tmp_path / OPENB_PODS).write_text(PODS)
    models = await placed(tmp_path, 6)
    model = models.pop("none")
    assert model in ("", "V100M16", "G2")
    assert models == {"half": "V100M16", "other-half": "V100M16", "third": "V100M16", "both": "G2"}


@pytest.mark.skipif(not (TRACE / OPENB_PODS).is_file(), reason="../shared is not there")
async def test_the_tasks_of_a_real_cluster() -> None:
    """The first of them: with all 8,152 it takes five times as long, and 48 wait."""
    assert len(await placed(TRACE, 2000)) == 1998
