"""Planted bugs of what stands between the federator and its clusters: found by federated histories alone."""

from __future__ import annotations

from tests.simulation.planting import BEYOND_FROM, FEDERATED, UNDONE_FROM, Plant

KUBERNETES, GANG_JOBS = "services.federator.backends.kubernetes", "services.kubernetes.gang_jobs"
GANGS, LEAF = "services.federator.backends.gangs", "services.federator.backends.leaf"
RETURNED, GONE = "services.federator.rules.returned", "services.federator.rules.gone"
OBSERVING = "services.federator.observing"


def _plant(what: str, module: str, *changes: tuple[str, str], first: int = 0) -> Plant:
    return Plant(what, module, changes, workload=FEDERATED, first=first)


PLANTS: dict[str, Plant] = {
    "made to run": _plant(
        "a submission is not held, so that it runs before its UID is in the log",
        GANGS,
        ('        "suspend": True,\n', '        "suspend": False,\n'),
    ),
    "release whatever it is": _plant(
        "a release lets a Job go whatever stands in it: also one that was stopped meanwhile, or another of its name",
        GANG_JOBS,
        (
            "        job = await self._patch(name, [*tests, told, run], JSON_PATCH)",
            "        job = await self._patch(name, [told, run], JSON_PATCH)",
        ),
    ),
    "stop whoever has the name": _plant(
        "a stop ends whatever run has the name by now",
        GANG_JOBS,
        (
            '        metadata = {"uid": uid, "annotations": annotations}\n',
            '        metadata = {"annotations": annotations}\n',
        ),
    ),
    "late and unseen": _plant(
        "a list does not show what is held, so that what came late stays",
        KUBERNETES,
        ("clock_ms=clock_ms(date), held=tuple(held))", "clock_ms=clock_ms(date))"),
    ),
    "stop of the first alone": _plant(
        "of a run of several Jobs the others are not stopped",
        KUBERNETES,
        ("            await self._suspend(await self._others(uid))\n", ""),
    ),
    "rest of a run that is over": _plant(
        "when one of several Jobs has ended the run, nobody ends the rest",
        KUBERNETES,
        ("            await self._conclude(one)\n", "            pass\n"),
    ),
    "nobody's group": _plant(
        "what a release makes does not belong to the first Job, and stays when that goes",
        GANGS,
        ('metadata | {"labels": labels, "ownerReferences": [reference]}', 'metadata | {"labels": labels}'),
        ('    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": first, "uid": uid}\n', ""),
    ),
    "vouched for unseen": _plant(
        "a cluster's log vouches for the last list, whatever it has told since",
        LEAF,
        ("and not runs_of(self._told, watched)", ""),
    ),
    "vouched for in passing": _plant(
        "a cluster's log vouches for a list that showed a run on its way",
        LEAF,
        ("        return self._unsettled.isdisjoint(watched.values()) and", "        return"),
    ),
    "runs again": _plant(
        "what had ended, and runs on a restored cluster again, is not stopped a second time",
        RETURNED,
        ("    return run.uid == place.uid and not run.held", "    return place.uid == '' and not run.held"),
    ),
    "given up in sight": _plant(
        "an operator may give up what its cluster shows",
        GONE,
        ("    if is_seen(place, cluster):\n", "    if False:\n"),
        first=BEYOND_FROM,
    ),
    "forgotten and late": _plant(
        "what lands of a job that is forgotten stays, held",
        OBSERVING,
        ("        and state.is_forgotten(owner.job)\n", "        and False\n"),
        first=BEYOND_FROM,
    ),
    "stopped for its body": _plant(
        "what the log has as held, and runs, is stopped as nobody has its body any more",
        "services.federator.core",
        ("    if isinstance(described, Absent) or described.run.held or", "    if True or"),
        first=UNDONE_FROM,
    ),
    "denied is gone": _plant(
        "what a webhook says of a deletion, that it found nothing, is taken for the API server's word",
        KUBERNETES,
        (
            "        if isinstance(error, NotFound | Conflict):\n",
            "        if isinstance(error, NotFound):\n            return Absent()\n"
            "        if isinstance(error, Conflict):\n",
        ),
        first=BEYOND_FROM,
    ),
}
