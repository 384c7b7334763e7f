"""What the readers of all dialects share: keys of labels and annotations, names of gangs, words of refusal."""

from __future__ import annotations

import re

from events import dialects
from services.ingest.rejection import LONGEST_VALUE, Rejection, shown
from services.kubernetes.objects import Metadata

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")


def label(metadata: Metadata, key: str) -> str:
    """An empty label is none."""
    return (metadata.labels or {}).get(key, "")


def annotation(metadata: Metadata, key: str) -> str:
    """An empty annotation is none."""
    return (metadata.annotations or {}).get(key, "")


def of_label(key: str) -> str:
    return f"metadata.labels[{key}]"


def of_annotation(key: str) -> str:
    return f"metadata.annotations[{key}]"


def misnamed(name: str, field: str) -> Rejection | None:
    """What is wrong with a gang's name. The API server checks the values of labels, those of annotations it does not."""
    if _NAME.fullmatch(name):
        return None
    return Rejection(field, name[:LONGEST_VALUE], "a name: letters, digits, '-', '.' and '_', at most 253")


def gang_key(dialect: str, metadata: Metadata, name: str, field: str) -> str | Rejection:
    """The key of the gang that a pod names in `field`."""
    return misnamed(name, field) or dialects.gang_key(dialect, metadata.namespace, name)


def one_of(value: object, field: str, allowed: tuple[str, ...]) -> str | Rejection:
    if isinstance(value, str) and value in allowed:
        return value
    return Rejection(field, shown(value), f"one of {', '.join(allowed)}")
