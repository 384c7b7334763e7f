"""Coscheduling (SIG Scheduling), in all generations: a label names the gang.

Up to v0.18 a second label holds the minimum; from v0.19 on a PodGroup does, since v0.25 under another API group.
"""

from __future__ import annotations

from typing import NamedTuple

from events.objects import Declaration, Membership
from services.ingest.dialects.reading import gang_key, label, of_label
from services.ingest.rejection import Rejection, integer
from services.kubernetes.objects import Pod, PodGroup


class Generation(NamedTuple):
    """Where one generation writes what on the pod."""

    dialect: str
    gang: str
    minimum: str

    def membership(self, pod: Pod) -> Membership | Rejection | None:
        name = label(pod.metadata, self.gang)
        if not name:
            return None
        gang = gang_key(self.dialect, pod.metadata, name, of_label(self.gang))
        if isinstance(gang, Rejection):
            return gang
        declared = None
        if self.minimum:
            minimum = integer((pod.metadata.labels or {}).get(self.minimum), of_label(self.minimum))
            if isinstance(minimum, Rejection):
                return minimum
            declared = Declaration(min_member=minimum, waiting_time_ms=0)
        return Membership(gang=gang, dialect=self.dialect, declared=declared)


V1ALPHA1 = Generation("coscheduling/v1alpha1", "scheduling.x-k8s.io/pod-group", "")
KEP_2 = Generation(
    "coscheduling/kep-2", "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
)
V0_19 = Generation("coscheduling/v0.19", "pod-group.scheduling.sigs.k8s.io", "")
V0_18 = Generation(
    "coscheduling/v0.18", "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
)
PROPOSAL_2020 = Generation("coscheduling/2020", "pod-group/name", "pod-group/min-available")
GENERATIONS = (V1ALPHA1, KEP_2, V0_19, V0_18, PROPOSAL_2020)


def declaration(seen: PodGroup) -> Declaration | Rejection:
    """A PodGroup's; without a timeout of its own the policy's waiting time applies."""
    minimum = integer(seen.spec.min_member, "spec.minMember")
    if isinstance(minimum, Rejection):
        return minimum
    timeout_s: int | Rejection = 0
    if seen.spec.schedule_timeout_seconds is not None:
        timeout_s = integer(seen.spec.schedule_timeout_seconds, "spec.scheduleTimeoutSeconds", least=0)
    if isinstance(timeout_s, Rejection):
        return timeout_s
    return Declaration(min_member=minimum, waiting_time_ms=timeout_s * 1_000)
