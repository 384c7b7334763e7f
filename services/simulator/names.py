"""How names, keys and values of labels must look: each rule says what is wrong with one, empty for nothing.

The API server's own rules, in its words where they are short.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def subdomain(name: str) -> str:
    """Of most objects' names."""
    return _lowercase(name, _SUBDOMAIN, LONGEST_SUBDOMAIN, "subdomain", "characters, '-' or '.'")


def label(name: str) -> str:
    """Of what becomes part of a host's name: namespaces, containers, StatefulSets."""
    return _lowercase(name, _LABEL, LONGEST_LABEL, "label", "characters or '-'")


def _lowercase(name: str, pattern: re.Pattern[str], longest: int, what: str, characters: str) -> str:
    if len(name) <= longest and pattern.fullmatch(name):
        return ""
    return (
        f"a lowercase RFC 1123 {what} must consist of lower case alphanumeric {characters}, and must start and end with "
        f"an alphanumeric character (and be at most {longest} long)"
    )


def path_segment(name: str) -> str:
    """Of roles and others that may be called ``system:node``: whatever may stand between two slashes of a URL."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in name), "")


def job(name: str) -> str:
    """Of Jobs: their pods carry it as a label."""
    return subdomain(name) or ("" if len(name) <= LONGEST_LABEL else f"must be no more than {LONGEST_LABEL} bytes")


@lru_cache(maxsize=10_000)  # pods of one template have one set of them
def key(name: str) -> str:
    """Of labels, annotations, taints, gates, topologies: ``name`` or ``prefix/name``."""
    prefix, slash, own = name.partition("/")
    if not slash:
        prefix, own = "", prefix
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (wrong := subdomain(prefix)):
        return f"prefix part {wrong}"
    if not own:
        return "name part must be non-empty"
    if len(own) > LONGEST_LABEL:
        return f"name part must be no more than {LONGEST_LABEL} bytes"
    if _NAME.fullmatch(own):
        return ""
    return (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character"
    )


@lru_cache(maxsize=10_000)
def value(text: str) -> str:
    """Of labels, of what selects by them, of taints."""
    if len(text) > LONGEST_LABEL:
        return f"must be no more than {LONGEST_LABEL} bytes"
    if not text or _NAME.fullmatch(text):
        return ""
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character"
    )
