"""A federator as it runs over clusters of OpenPAI: its log in memory, the clusters over real HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.federator.backends import Reach
from services.federator.backends.credentials import Secret
from services.federator.backends.openpai import OpenPai as Backend
from services.federator.clusters import Limits
from services.federator.records import Job, account_of
from services.federator.service import Federator
from services.federator.specialize import to_yaml
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.server import OpenPai, Served
from tests.federator.backends.sites import UNLIMITED
from tests.federator.jobs import document, plugin
from tests.federator.processes import Processes

GUARD = 0.002
"""Minutes: 120 ms."""
POLL_S = 0.02
NO_LIMITS = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)
NAMES = ("a", "b", "c")


class Field(Processes):
    """Three clusters of OpenPAI."""

    def __init__(self, pai: OpenPai, directory: Path) -> None:
        super().__init__()
        token = directory / "token"
        token.write_text("secret")
        self.secret = Secret(file=str(token))
        self.pai = pai

    def cluster(self, alias: str, **life: Any) -> Served:
        return self.pai.add(alias, tokens={"secret": "alice"}, limits=UNLIMITED, life=Life(**life))

    async def start(self) -> Federator:
        reaches = {}
        for cluster in self.pai.clusters.values():
            backend = Backend(cluster.url, "alice", self.secret, limits=NO_LIMITS, timeout_s=2.0)
            reaches[account_of("alice", cluster.url)] = Reach(backend=backend, poll_s=POLL_S)
        return await self.begin(reaches)

    def text(self, name: str, **priorities: int) -> str:
        made = document()
        del made["secrets"]
        made["name"] = name
        plugin(made).update(
            guardTimeRunning=GUARD,
            timeScale=0.001,
            clusters={
                alias: {"uri": self.pai.clusters[alias].url, "user": "alice", "priority": priority}
                for alias, priority in priorities.items()
            },
            params={name: dict.fromkeys(priorities, 1) for name in ("gpuNum", "storageConfigs")},
        )
        made["extra"]["com.microsoft.pai.runtimeplugin"] = made["extra"]["com.microsoft.pai.runtimeplugin"][-1:]
        plugin(made)["params"].pop("storageConfigs")
        return to_yaml(made)

    async def federate(self, name: str, **priorities: int) -> Job:
        uid = await self.federator.federate(self.text(name, **priorities))
        return self.federator.state.jobs[uid]

    def alive(self) -> dict[str, list[str]]:
        """By federated job: on which clusters something of it runs, or still may."""
        found: dict[str, list[str]] = {}
        for alias, cluster in self.pai.clusters.items():
            for (_, name), one in cluster.jobs.items():
                if one.now(cluster.clock()).sub_state != "Completed":
                    found.setdefault(name.removesuffix(f"-{alias}").removesuffix(f"-{alias}-2"), []).append(alias)
        return found
