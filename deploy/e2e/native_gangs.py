"""What Kubernetes' own gangs (KEP-4671) ask of the control plane that is there, by its version."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from deploy.e2e.build import BIN


class NativeGangs(NamedTuple):
    """How a version has them."""

    api_version: str
    """Of its PodGroups and Workloads."""
    scheduled: str
    """The condition of a PodGroup that says whether it is."""
    gates: tuple[str, ...]
    job_gates: tuple[str, ...]
    """With which the Job controller makes PodGroups."""
    one_priority: bool
    """Whether a PodGroup has a priority, and the kube-scheduler refuses its pods if they have another."""

    @property
    def scheduler_flags(self) -> tuple[str, ...]:
        return opened(self.gates)

    @property
    def apiserver_flags(self) -> tuple[str, ...]:
        return *self.scheduler_flags, f"--runtime-config={self.api_version}=true"


def opened(gates: Sequence[str]) -> tuple[str, ...]:
    """The flag that opens these gates; none without any."""
    return (f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}",) if gates else ()


BY_MINOR = {
    36: NativeGangs(
        "scheduling.k8s.io/v1alpha2",
        "PodGroupScheduled",
        ("GenericWorkload", "GangScheduling"),
        ("GenericWorkload", "WorkloadWithJob"),
        one_priority=False,
    ),
    37: NativeGangs(
        "scheduling.k8s.io/v1beta1",
        "PodGroupInitiallyScheduled",
        ("GenericWorkload",),
        ("GenericWorkload", "WorkloadWithJob"),
        one_priority=True,
    ),
}


@cache
def native_gangs() -> NativeGangs:
    """Those of the kube-apiserver in ``.build/bin``; raises LookupError for a version that has none, or is not known."""
    said = subprocess.run([BIN / "kube-apiserver", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"v1\.(\d+)\.", said)
    if found is None or int(found[1]) not in BY_MINOR:
        known = ", ".join(f"1.{minor}" for minor in BY_MINOR)
        raise LookupError(f"{said.strip()} is none of the versions whose gangs are known: {known}")
    return BY_MINOR[int(found[1])]
