"""Planted bugs of an API server that is upgraded: what pods request is counted as it was, or half as it is."""

from __future__ import annotations

from tests.simulation.planting import UPGRADED_FROM, Plant, plants_from

SERVICE, REQUESTS = "services.ingest.service", "services.ingest.requests"


_plant = plants_from(UPGRADED_FROM)

UPGRADES: dict[str, Plant] = {
    "not listed anew": _plant(
        "behind an upgrade only what changes is counted anew",
        SERVICE,
        ('            raise Expired(request, 0, "Upgraded"', '            Expired(request, 0, "Upgraded"'),
    ),
    "asked at the start alone": _plant(
        "who goes on with a watch does not ask again what the server is",
        SERVICE,
        ("if kind is POD and await", "if kind is POD and not self._versions and await"),
    ),
    "init containers not told of": _plant(
        "of an init container only what it asks for counts",
        REQUESTS,
        (
            'spec.initContainers[{index}]", statuses.get(container.name), infeasible',
            'spec.initContainers[{index}]", None, infeasible',
        ),
    ),
    "asked for in vain": _plant(
        "what a kubelet can never give counts all the same",
        REQUESTS,
        ("    asked = allocated = {} if infeasible else _requests", "    asked = allocated = _requests"),
    ),
    "parts for the whole": _plant(
        "what a kubelet says of its containers counts for what it says of the pod",
        REQUESTS,
        ("    whole = told is not None and status.allocated_resources is not None\n", "    whole = False\n"),
    ),
}
