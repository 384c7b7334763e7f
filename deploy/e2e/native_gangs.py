"""What Kubernetes' own gangs (KEP-4671) ask of the control plane that is there, by its version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from deploy.e2e.release import installed_minor

JOB_GATES = ("GenericWorkload", "WorkloadWithJob")
"""With which the Job controller makes PodGroups, and the apiserver keeps what Jobs say of it."""


class NativeGangs(NamedTuple):
    """How a version has them."""

    api_version: str
    """Of its PodGroups and Workloads."""
    scheduled: str
    """The condition of a PodGroup that says whether it is."""
    gates: tuple[str, ...]
    as_one: bool
    """Whether its kube-scheduler has a gang wait for members with a gate, and refuses it if one has a priority other than
    the PodGroup's."""

    @property
    def scheduler_flags(self) -> tuple[str, ...]:
        return (opened(self.gates),)

    @property
    def apiserver_flags(self) -> tuple[str, ...]:
        return opened(dict.fromkeys((*self.gates, *JOB_GATES))), f"--runtime-config={self.api_version}=true"


def opened(gates: Iterable[str]) -> str:
    """The flag that opens these gates."""
    return f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}"


BY_MINOR = {
    36: NativeGangs(
        "scheduling.k8s.io/v1alpha2",
        "PodGroupScheduled",
        ("GenericWorkload", "GangScheduling"),
        as_one=False,
    ),
    37: NativeGangs(
        "scheduling.k8s.io/v1beta1",
        "PodGroupInitiallyScheduled",
        ("GenericWorkload",),
        as_one=True,
    ),
}


def native_gangs() -> NativeGangs:
    """Those of the control plane; raises LookupError where its version has none, or is not known."""
    minor = installed_minor()
    if minor not in BY_MINOR:
        known = ", ".join(f"1.{number}" for number in BY_MINOR)
        raise LookupError(f"Kubernetes 1.{minor} is none of the versions whose gangs are known: {known}")
    return BY_MINOR[minor]
