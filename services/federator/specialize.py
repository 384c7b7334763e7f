"""Seed 001, "Describing a multi-cluster job": the job for one cluster.

    The specialization method will generate the job configuration for a given cluster, which will replace <% $mcc.xxx %>
    to its corresponding value.

A text that is nothing but a placeholder becomes the value with its type (an integer, a list); within a longer text the
value is written out, as JSON writes it. The name gets the alias behind it; where that name is taken by somebody else, a
number as well. The plugin and all tokens go; a marker in ``extras`` says whose the job is. The text's ``extra`` becomes
the ``extras`` that servers know, and a missing ``type`` becomes ``job``, which they ask for.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import yaml

from services.federator.backends import MARKER, Owner
from services.federator.mcc import PLACEHOLDER, PLUGINS, Mapped, MultiClusterJob, is_super, slug, without_tokens

PROTOCOL = "2"
_PLAIN = re.compile(r"[A-Za-z][ -~]*")
"""What may stand without quotes, where PyYAML agrees; nothing that is a number anywhere begins with a letter."""
_LINES = re.compile(r"[!-~][ -~]*(\n[ -~]*)+")


def name_on(job: str, alias: str, number: int = 1) -> str:
    """The job's name on a cluster: ``mc-job-name-<alias>``; behind names that were taken, ``…-2``."""
    name = f"{job}-{slug(alias)}"
    return name if number == 1 else f"{name}-{number}"


def specialize(job: MultiClusterJob, alias: str, owner: Owner, number: int = 1) -> Mapped:
    """The job for the cluster with this alias. Raises InvalidJob when there is none."""
    job.choice(alias)
    values = {name: by_alias[alias] for name, by_alias in job.parameters.items()}
    special: Mapped = {}
    for key, value in without_tokens(job.document).items():
        if key in ("extra", "extras"):
            special["extras"] = {**_extras(value, values), MARKER: msgspec.to_builtins(owner)}
        else:
            special[key] = _filled(value, values)
    special["protocolVersion"] = PROTOCOL
    special["name"] = name_on(job.name, alias, number)
    special.setdefault("type", "job")
    return special


def to_yaml(special: Mapped) -> str:
    """As it is submitted: YAML that 1.1 and 1.2 read alike."""
    return yaml.dump(special, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _extras(extras: Mapped, values: Mapped) -> Mapped:
    kept = {key: _filled(value, values) for key, value in extras.items() if key not in (PLUGINS, MARKER)}
    plugins = [_filled(plugin, values) for plugin in extras[PLUGINS] if not is_super(plugin)]
    return {**kept, PLUGINS: plugins} if plugins else kept


def _filled(value: Any, values: Mapped) -> Any:
    if isinstance(value, dict):
        return {key: _filled(part, values) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    if not isinstance(value, str):
        return value
    if whole := PLACEHOLDER.fullmatch(value.strip()):
        return values[whole[1]]
    return PLACEHOLDER.sub(lambda found: _written(values[found[1]]), value)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _Dumper(yaml.SafeDumper):
    """Without anchors. PyYAML knows 1.1 and would leave plain what 1.2 takes for a number (``1e3``, ``0o14``)."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(value) else "|" if _LINES.fullmatch(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
