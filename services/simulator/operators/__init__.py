"""What other projects' controllers make of their objects, so that their manifests can be tried without them.

Volcano's Job, Kubeflow's training jobs, TrainJob and JobSet become the PodGroups, batch Jobs and pods that their
controllers would make first, with the names, labels and annotations by which a scheduler knows them. Pure functions of
the object, like `services.simulator.workloads`, which makes the pods of what is left. An object that its project's
admission webhook would refuse is refused in the webhook's words.

What is made of an object may be an object of this kind again: a TrainJob makes a JobSet, a CronJob a Job. Behind them all
comes Volcano's PodGroup controller, which looks at owners of pods (`pod_groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from services.simulator.errors import ApiError
from services.simulator.forms import FORMS
from services.simulator.nulls import without_nulls
from services.simulator.operators import jobset, kubeflow, trainer, volcano
from services.simulator.operators.making import Make, Object, invalid
from services.simulator.operators.pod_groups import grouped
from services.simulator.workloads import flatten, namespace_of

MAKES: dict[tuple[str, str], Make] = {
    ("batch.volcano.sh", "Job"): volcano.of_job,
    ("batch.volcano.sh", "CronJob"): volcano.of_cron_job,
    **{("kubeflow.org", kind): kubeflow.of_training_job for kind in kubeflow.REPLICA_SPECS},
    ("trainer.kubeflow.org", "TrainJob"): trainer.of_train_job,
    ("jobset.x-k8s.io", "JobSet"): jobset.of_job_set,
}
"""(API group, kind) → what its controller makes."""


def group_and_kind(obj: Object) -> tuple[str, str]:
    """Of an object; the core group is empty."""
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))


def admitted(objects: Iterable[Object]) -> tuple[list[Object], list[ApiError]]:
    """The objects, each followed by what its controller makes of it; and what webhooks say of those that they refuse.

    A PodGroup that is given is not made: of what a cluster has, a job that waits may be listed with its own.
    """
    given = list(flatten(objects))
    taken: list[Object] = []
    refused: list[ApiError] = []
    for obj in given:
        try:
            taken += list(_with_made(obj, given))
        except ApiError as error:
            refused.append(error.of(obj))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a schema would have refused it
            refused.append(invalid(obj, f"it cannot be read: {type(error).__name__}: {error}").of(obj))
    theirs = {id(obj) for obj in given}
    listed = {_named(obj) for obj in given if obj.get("kind") == "PodGroup"}
    return [obj for obj in grouped(taken) if id(obj) in theirs or _named(obj) not in listed], refused


def _named(obj: Object) -> tuple[str, ...]:
    return str(obj.get("apiVersion")), str(obj.get("kind")), namespace_of(obj), str(obj["metadata"].get("name"))


def _with_made(obj: Object, given: Sequence[Object]) -> Iterator[Object]:
    yield obj
    make = MAKES.get(group_and_kind(obj))
    if make is not None:
        for made in make(obj, given):
            built_in = (made["apiVersion"], made["kind"]) in FORMS
            yield from _with_made(without_nulls(made) if built_in else made, given)
