"""What users do in a federated history: to the federator, to federated jobs where they run, and to the clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.federator.backends import gangs
from tests.simulation import turnover
from tests.simulation.told import Object
from tests.simulation.workload import WEIGHTS, Workload

NAMESPACE = "training"
"""Where federated jobs are made, on each member; everything else there is in other namespaces."""
OF_FEDERATION = {"submit": 6, "cancel": 1, "look": 1, "retention": 1}
"""Steps that go to the federation, and how often they come against the rest."""
OF_OPERATORS = {"rush": 1.0, "unlisted": 2.0, "impatient": 2.0}
"""And those of its operators, and of a user who cancels at once, in later histories."""
OF_MEMBERS = {"training_ends": 4, "training_fails": 1.5, "training_pod": 1.5, "training_deleted": 1}
"""Steps about federated jobs on one member."""
DELETED = 0.8
"""How many of the runs, between two phases of a long history."""
USUAL = ("pod", "burst", "gang", "declared_gang", "node", "node_gone", "node_changed", "delete", "fail", "stolen")


class Training(Workload):
    weights: Mapping[str, float] = {**{what: WEIGHTS[what] for what in USUAL}, **OF_FEDERATION, **OF_MEMBERS}
    of_others = NAMESPACE

    def race(self, kind: str, name: str) -> None:
        """Nobody makes a pod of a Job's by hand: it would be nobody's, and the run's for all that anybody knows."""
        is_training = (NAMESPACE, name) in self.api.pods.entries
        super().race("pod deleted" if is_training and kind == "pod made anew" else kind, name)

    def training_ends(self) -> None:
        """All pods of a Job that run succeed."""
        pods = self._running()
        if pods:
            job = _job(self.random.choice(pods))
            for pod in pods:
                if _job(pod) == job:
                    self._end_pod(pod, "Succeeded")

    def training_fails(self) -> None:
        if pods := self._running():
            self._end_pod(self.random.choice(pods), "Failed")

    def training_pod(self) -> None:
        """One is deleted; its Job makes another."""
        if pods := self._of_training():
            self.api.delete(self.api.pods, NAMESPACE, self.random.choice(pods)["metadata"]["name"])

    def training_deleted(self) -> None:
        """Somebody deletes a run by hand: its first Job, with all that belongs to it."""
        if firsts := self._firsts():
            self.api.delete(self._jobs, *self.random.choice(firsts))

    def turnover(self) -> None:
        """Most runs are deleted, too."""
        turnover.turnover(self)
        for key in self._firsts():
            if self.random.random() < DELETED:
                self.attempt(self.api.delete, self._jobs, *key)

    @property
    def _jobs(self) -> Any:
        return self.api.by_path["batch", "v1", "jobs"]

    def _firsts(self) -> list[tuple[str, str]]:
        """Of each run the first Job."""
        jobs = self._jobs.entries.items()
        return [key for key, entry in jobs if gangs.FIRST not in entry.object["metadata"]["labels"]]

    def _of_training(self) -> list[Object]:
        return [entry.object for key, entry in self.api.pods.entries.items() if key[0] == NAMESPACE]

    def _running(self) -> list[Object]:
        return [pod for pod in self._of_training() if pod["status"]["phase"] == "Running"]

    def _end_pod(self, pod: Object, phase: str) -> None:
        self.patch(self.api.pods, NAMESPACE, pod["metadata"]["name"], {"status": {"phase": phase}}, "status")


def _job(pod: Object) -> str:
    """Whose it is; empty of one whose labels somebody changed."""
    return str(pod["metadata"]["labels"].get("job-name", ""))
