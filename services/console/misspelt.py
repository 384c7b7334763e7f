"""What looks like a gang's declaration, and is read by nobody: a field of a PodGroup, a label or an annotation.

Kubernetes drops fields that it does not know (``kubectl`` warns of them), and takes any label. So a gang whose
`minMember` is misspelt has no minimum, and a pod whose label is misspelt is placed alone. Each field of a PodGroup's
spec that no dialect has is named. Labels and annotations may be anybody's, so only two kinds are named: a dialect's
label that stands among the annotations, or its annotation among the labels; and a key that is nearly a dialect's: its
prefix or its name is the same, and the other half is close.

In pods, workloads, nodes and PriorityClasses a field is named that is nearly one of those that are read: a container with
a ``resource`` asks for nothing. Of statuses only a node's are looked at: people write what it offers by hand.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from events.dialects import POD_GROUPS, TIMEOUT_ANNOTATION
from services.ingest.dialects import batch, coscheduling, koordinator
from services.kubernetes.objects import PodGroupSpec
from services.simulator.forms import FORMS

NEAR_NAME, NEAR_PREFIX, NEAR_FIELD, NEAR_BUILT_IN = 0.75, 0.85, 0.75, 0.86
"""How alike two words are (`difflib`) of which one is taken for the other's misspelling."""
FIELDS = (
    *(field.encode_name for field in msgspec.structs.fields(PodGroupSpec)),
    "minResources",  # read by none, and known (docs/dialects.md): the gang is placed without it
    *("resourceClaims", "disruptionMode", "preemptionPolicy", "podGroupTemplateRef", "workloadRef"),
)
"""Of a PodGroup's spec, in any dialect."""
LABELS = (*(key for each in coscheduling.GENERATIONS for key in (each.gang, each.minimum) if key), batch.TASK)
ANNOTATIONS = (
    *koordinator.ON_PODS,
    *(koordinator.PREFIX + name for name in ("name", "network-topology-index", "network-topology-spec")),
    TIMEOUT_ANNOTATION,
    *(batch.GROUP_NAME, batch.KUBE_BATCH_MINIMUM, batch.VOLCANO_MINIMUM, batch.QUEUE_NAME, batch.TASK),
    "scheduling.volcano.sh/group-min-resources",
)
KEYS = {"labels": LABELS, "annotations": ANNOTATIONS}
OLDER = ("serviceAccount",)
"""Fields of Kubernetes' own that are as near as that to another one: of all in the OpenAPI of 1.36."""
OTHER = {"labels": "annotations", "annotations": "labels"}


def misspelt(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    return [f"{named(obj)}: {said}" for obj in objects for said in _of(obj)]


def _of(obj: dict[str, Any]) -> Iterator[str]:
    yield from _of_fields(obj)
    yield from _of_keys(obj)
    if form := FORMS.get((obj["apiVersion"], obj["kind"])):
        written = (part for part in obj if part != "status" or obj["kind"] == "Node")
        yield from _of_form({part: obj[part] for part in written}, _described(form), "")


_described = lru_cache(inspect.type_info)


def _of_form(value: Any, form: inspect.Type, path: str) -> Iterator[str]:
    """Fields of it, and of what it holds, that are nearly one of the form's."""
    if isinstance(form, inspect.UnionType):
        for each in form.types:
            yield from _of_form(value, each, path)
    elif isinstance(form, inspect.ListType) and isinstance(value, list):
        for index, part in enumerate(value):
            yield from _of_form(part, form.item_type, f"{path}[{index}]")
    elif isinstance(form, inspect.StructType) and isinstance(value, dict):
        types = {field.encode_name: field.type for field in form.fields}
        for name, part in value.items():
            here = f"{path}.{name}" if path else name
            if name in types:
                yield from _of_form(part, types[name], here)
            elif found := _nearest_field(name, tuple(types)):
                yield f"{here} is no field{_meant(found)}"


@lru_cache(maxsize=10_000)
def _nearest_field(name: str, known: tuple[str, ...]) -> str:
    return "" if name in OLDER else _nearest(name, known, NEAR_BUILT_IN)


def _of_fields(obj: dict[str, Any]) -> Iterator[str]:
    spec = obj.get("spec")
    if obj["kind"] != "PodGroup" or obj["apiVersion"] not in POD_GROUPS.values() or not isinstance(spec, dict):
        return
    for field in spec:
        if field not in FIELDS:
            yield f"spec.{field} is no field of a PodGroup{_meant(_nearest(field, FIELDS, NEAR_FIELD))}"


def _of_keys(obj: dict[str, Any]) -> Iterator[str]:
    for path, metadata, _ in all_metadata(obj):
        for place in KEYS:
            keys = metadata.get(place)
            if isinstance(keys, dict):
                yield from (f"{path}.{place}[{key}] {said}" for key in keys if (said := _of_key(key, place)))


def all_metadata(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(where it stands, the metadata, the object or template that has it), of an object and of all templates in it."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from all_metadata(part, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, part in value.items():
            here = f"{path}.{name}" if path else name
            if name == "metadata" and isinstance(part, dict):
                yield here, part, value
            else:
                yield from all_metadata(part, here)


@lru_cache(maxsize=10_000)  # pods of one template have one set of them
def _of_key(key: str, place: str) -> str:
    """What is wrong with a label or annotation; empty for nothing."""
    if key in KEYS[place]:
        return ""
    if key in KEYS[OTHER[place]]:
        return f"is read among {OTHER[place]} alone"
    found = _nearest_key(key, KEYS[place])
    return f"is no declaration{_meant(found)}" if found else ""


def _nearest_key(key: str, known: Iterable[str]) -> str:
    """One of which the prefix or the name is the same, without regard to case, and the other nearly."""
    prefix, _, name = key.lower().rpartition("/")
    for other in known:
        other_prefix, _, other_name = other.lower().rpartition("/")
        if (prefix == other_prefix and _alike(name, other_name) >= NEAR_NAME) or (
            name == other_name and _alike(prefix, other_prefix) >= NEAR_PREFIX
        ):
            return other
    return ""


def _nearest(word: str, known: Iterable[str], least: float) -> str:
    score, found = max((_alike(word.lower(), other.lower()), other) for other in known)
    return found if score >= least else ""


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _meant(found: str) -> str:
    return f"; did you mean {found}?" if found else ""


def named(obj: dict[str, Any]) -> str:
    """``Kind namespace/name``."""
    metadata = obj["metadata"]
    name = metadata.get("name") or metadata.get("generateName", "")
    return f"{obj['kind']} {'/'.join(filter(None, (metadata.get('namespace'), name)))}"
