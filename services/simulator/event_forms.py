"""Kubernetes' events under their two groups: the same objects, stored in the core form."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""From the core form to that of events.k8s.io; every other field has the same name in both."""
_CORE_NAMES = {theirs: core for core, theirs in _NAMES.items()}

REQUIRED = ("eventTime", "reportingController", "reportingInstance", "action", "reason")
"""What events.k8s.io demands of a new event."""
LONGEST_NOTE = 1_024
"""Bytes."""
WORDS = ("reason", "action")
LONGEST_WORD = 128
"""Bytes of each of them."""


def from_core(event: Object) -> Object:
    return {_NAMES.get(field, field): value for field, value in event.items()}


def to_core(event: Object) -> Object:
    return {_CORE_NAMES.get(field, field): value for field, value in event.items()}
