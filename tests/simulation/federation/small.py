"""A small federated history: one job, of which each request of the federator's and each commit of its log is a place."""

from __future__ import annotations

import msgspec

from events.envelope import Stored
from tests.federator.served.process import FEDERATOR
from tests.simulation.federation.history import Federation
from tests.simulation.federation.member import Member
from tests.simulation.loop import START_S
from tests.simulation.plan import Outcome, Plan
from tests.simulation.planting import FEDERATED
from tests.simulation.processes import Process
from tests.simulation.small import SCRIPTS, Place, Recorder, script_of, tried


class SmallMember(Member):
    faults_type = Recorder
    faults: Recorder


class SmallFederation(Federation):
    """One small history, with the faults that its plan has: of a member's the time says which member (`part`)."""

    faults_type, member_type = Recorder, SmallMember
    faults: Recorder
    members: list[SmallMember]

    def __init__(self, plan: Plan) -> None:
        self.name = script_of(plan.workload)
        super().__init__(msgspec.structs.replace(plan, seed=SCRIPTS[self.name].seed, workload=FEDERATED))
        self.outcome.seed = plan.seed
        self.moments: list[float] = []
        """When something landed in the federation's log, seconds from the start."""

    @property
    def places(self) -> list[Place]:
        """Requests of the federator's; of its own log's only what `is_of_federation` takes for such."""
        own = [place for place in self.faults.places if place.on != "ask" and place.slot == FEDERATOR]
        for number, member in enumerate(self.members):
            theirs = [place for place in member.faults.places if place.slot == FEDERATOR]
            own += [place._replace(armed_s=number / 1_000) for place in theirs]
        return own

    @property
    def struck_s(self) -> float:
        return max(one.faults.struck_s for one in (self, *self.members))

    def run(self) -> Outcome:
        return tried(super().run(), self.name, self.plan)

    def _landed(self, stored: Stored, process: Process | None) -> None:
        super()._landed(stored, process)
        if not self._calm_s:
            self.moments.append(self.loop.now_s - START_S)
