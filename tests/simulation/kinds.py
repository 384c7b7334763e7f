"""Kinds that are not served for a while: an operator is uninstalled, its CustomResourceDefinition goes with all its
PodGroups, and most come again; a namespace goes in the same way. Seeds before `FROM` are without this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.planting import WIDER_FROM
from tests.simulation.told import ANOTHER_NAMESPACE, Object

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = WIDER_FROM
WEIGHTS = {"kind_goes": 1.0, "namespace_goes": 0.5}
DEFINITIONS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
INSTALLED_AGAIN, WITHIN_S = 0.8, (0.2, 10.0)
"""How many are, and when."""


def kind_goes(workload: Workload) -> None:
    """One that is in use, if any is. Its objects are deleted one by one before, or are gone with it without a word."""
    rnd, api = workload.random, workload.api
    definitions = api.by_path[DEFINITIONS]
    served = {key[1]: _collection(workload, entry.object) for key, entry in sorted(definitions.entries.items())}
    used = [name for name, collection in served.items() if collection.entries]
    if not served:
        return
    name = rnd.choice(used or list(served))
    crd, collection = definitions.entries["", name].object, served[name]
    if rnd.random() < 0.5:
        for key in list(collection.entries):
            api.delete(collection, *key)
    api.delete(definitions, "", name)
    workload.server.withdraw(collection)
    if rnd.random() < INSTALLED_AGAIN:
        new: Object = {"apiVersion": "/".join(DEFINITIONS[:2]), "kind": "CustomResourceDefinition"}
        new |= {"metadata": {"name": name}, "spec": _otherwise(crd["spec"]) if workload.further else crd["spec"]}
        workload.server.loop.after(rnd.uniform(*WITHIN_S), workload.attempt, api.apply_new, new)


def _otherwise(spec: Object) -> Object:
    """As another release of its operator has it: with the subresource for statuses, if it had none, and without it."""
    first, *others = spec["versions"]
    subresources = {} if "subresources" in first else {"subresources": {"status": {}}}
    without = {field: value for field, value in first.items() if field != "subresources"}
    return {**spec, "versions": [without | subresources, *others]}


def _collection(workload: Workload, crd: Object) -> Any:
    spec = crd["spec"]
    return workload.served((spec["group"], spec["versions"][0]["name"], spec["names"]["plural"]))


def namespace_goes(workload: Workload) -> None:
    """The other one, with everything in it."""
    rnd, api, name = workload.random, workload.api, ANOTHER_NAMESPACE
    api.delete(api.by_path["", "v1", "namespaces"], "", name)
    if rnd.random() < INSTALLED_AGAIN:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        workload.server.loop.after(rnd.uniform(*WITHIN_S), workload.attempt, api.apply_new, made)


STEPS: dict[str, Callable[[Workload], None]] = {"kind_goes": kind_goes, "namespace_goes": namespace_goes}
