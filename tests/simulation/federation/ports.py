"""A member cluster as the federator's process reaches it: the backend for Kubernetes over the simulated API server, and
the cluster's log over a connection of its own.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from services.federator.backends import Reach
from services.federator.backends.gangs import Placing
from services.federator.backends.kubernetes import Kubernetes
from services.federator.backends.leaf import Leaf
from services.kubernetes.access import direct
from services.kubernetes.gang_jobs import GangJobs
from services.kubernetes.resources import Resource
from tests.simulation.federation.training import NAMESPACE
from tests.simulation.kube import ApiServer
from tests.simulation.launch import CLUSTER
from tests.simulation.processes import Process
from tests.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.simulation.federation.member import Member

POLL_S = 2.0
ASKED = {"POST": "make", "PATCH": "change", "DELETE": "remove"}
"""How faults name what the federator does to Jobs and PodGroups."""


class SimulatedJobs(GangJobs, Wire):
    """The federator's client of a member's API server, for one process."""

    def __init__(self, server: ApiServer, process: Process) -> None:
        super().__init__(direct("http://simulated"), NAMESPACE)
        self.server, self.process = server, process

    def asked(self, verb: str, path: str) -> tuple[str, str]:
        return (ASKED[verb], path.rpartition("/")[2]) if verb in ASKED else super().asked(verb, path)


class SimulatedKubernetes(Kubernetes):
    def __init__(self, server: ApiServer, process: Process) -> None:
        self._placing = Placing()
        self._jobs = SimulatedJobs(server, process)
        self._groups = Resource.custom("scheduling.x-k8s.io/v1alpha1", "podgroups")


async def reach(member: Member, process: Process) -> Reach:
    log = None
    if member.is_heard:
        link = member.broker.link(process, random.Random(f"{process.name}/{member.alias}/{member.plan.seed}"))
        process.elsewhere.append(link)
        log = Leaf(await link.open(), "", CLUSTER, NAMESPACE)
    return Reach(SimulatedKubernetes(member.kube, process), POLL_S, log)
