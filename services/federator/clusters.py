"""The clusters file: which clusters the federator knows, where they are, and whose it is there.

    clusters:
      v100:                                   the alias, as jobs name it
        uri: https://pai-v100.example         what stands before /rest-server
        user: alice
        token: {env: PAI_V100_TOKEN}          or {file: /run/secrets/pai-v100}; never the token itself
        poll_ms: 5000
        limits: {requests_per_minute: 600, lists_per_minute: 60, submissions_per_hour: 60}
        ca_file: /etc/ssl/pai.pem
      gpus:
        kind: kubernetes
        uri: https://gpus.example:6443        as jobs name it; the kubeconfig says how to reach it
        user: ml
        kubeconfig: gpus.kubeconfig           without one: where `muster ingest` looks
        namespace: training
        scheduler: muster
        dialect: coscheduling                 how a gang is declared: coscheduling, volcano
        gpu: nvidia.com/gpu
        log: {domain: log-gpus, cluster: gpus}     its own Muster log: where that is heard over a leaf node nobody polls

All mistakes are reported at once, with cluster, field and what was expected, but without the value, as it may be a
token. Paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from services.documents import NotYaml, load_all
from services.federator.records import account_of

MOST_CLUSTERS = 100
POLL_MS, TIMEOUT_MS = 5_000, 30_000

Text = Annotated[str, Meta(min_length=1)]
Uri = Annotated[str, Meta(pattern=r"^https?://[^\s/@]+(/\S*)?\Z")]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
Milliseconds = Annotated[int, Meta(ge=100, le=3_600_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class InvalidClusters(ValueError):
    """What is wrong with a clusters file, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the bearer token is; one of both."""

    env: str = ""
    file: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the cluster's server, for this user; 0: none. The defaults are OpenPAI's."""

    requests_per_minute: Count = 600
    lists_per_minute: Count = 60
    submissions_per_hour: Count = 60


class MusterLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster's own log: the JetStream domain under which a leaf node brings it, and the cluster's name in it."""

    domain: Name
    cluster: Name


class OpenPaiCluster(msgspec.Struct, frozen=True, kw_only=True):
    alias: str
    uri: Uri
    user: Text
    token: Token
    poll_ms: Milliseconds = POLL_MS
    timeout_ms: Milliseconds = TIMEOUT_MS
    limits: Limits = Limits()
    ca_file: str = ""


class KubernetesCluster(msgspec.Struct, frozen=True, kw_only=True):
    alias: str
    uri: Uri
    user: Text
    kubeconfig: str = ""
    namespace: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")] = "default"
    scheduler: Text = "muster"
    dialect: Literal["coscheduling", "volcano"] = "coscheduling"
    gpu: Text = "nvidia.com/gpu"
    log: MusterLog | None = None
    poll_ms: Milliseconds = POLL_MS
    timeout_ms: Milliseconds = TIMEOUT_MS


Cluster = OpenPaiCluster | KubernetesCluster
Kind = type[OpenPaiCluster] | type[KubernetesCluster]
Given = dict[str, Any]
"""Fields of a cluster, by their names."""
_KINDS: dict[str, Kind] = {
    "openpai": OpenPaiCluster,
    "kubernetes": KubernetesCluster,
}
_WHOLE = "a whole number from 0 to 1000000"
_TEXT = "some text"
_LOG = "{domain: DOMAIN, cluster: NAME}"
_NAME = "letters, digits, '-' and '_', at most 64"
_MILLISECONDS = "milliseconds, a whole number from 100 to 3600000"
_EXPECTED = {
    "uri": "an http or https URI without spaces or a password",
    "user": _TEXT,
    "token": "{env: VARIABLE} or {file: PATH}",
    "token.env": "the name of a variable",
    "token.file": "a path",
    "limits": f"{_WHOLE} for each of requests_per_minute, lists_per_minute, submissions_per_hour",
    "limits.requests_per_minute": _WHOLE,
    "limits.lists_per_minute": _WHOLE,
    "limits.submissions_per_hour": _WHOLE,
    "ca_file": "a path",
    "kubeconfig": "a path",
    "namespace": "a Kubernetes namespace",
    "scheduler": _TEXT,
    "dialect": "coscheduling or volcano",
    "gpu": "the name of a resource",
    "log": _LOG,
    "log.domain": _NAME,
    "log.cluster": _NAME,
    "poll_ms": _MILLISECONDS,
    "timeout_ms": _MILLISECONDS,
}
"""By field. What stood there is not told."""


def parse(text: str) -> tuple[Cluster, ...]:
    """The clusters in the file's order. Raises InvalidClusters with all that is wrong."""
    clusters, problems = read(text)
    if problems:
        raise InvalidClusters(problems)
    return clusters


def read(text: str) -> tuple[tuple[Cluster, ...], list[str]]:
    """The clusters of which each field is right, and all that is wrong. Raises InvalidClusters where there are none to
    look at."""
    try:
        documents = load_all(text)
    except NotYaml as error:  # whose words would quote the file
        where = f"line {error.line}: " if error.line else ""
        raise InvalidClusters([f"{where}expected YAML"]) from None
    entries = documents[0].get("clusters") if len(documents) == 1 and isinstance(documents[0], dict) else None
    if not isinstance(entries, dict) or not entries:
        raise InvalidClusters(["expected a mapping with 'clusters', by alias"])
    problems = [f"{key}: not known; expected 'clusters' alone" for key in documents[0] if key != "clusters"]
    if len(entries) > MOST_CLUSTERS:
        problems.append(f"clusters: expected at most {MOST_CLUSTERS}, found {len(entries)}")
    found: list[tuple[Kind, Given]] = []
    clusters: list[Cluster] = []
    for alias, entry in entries.items():
        before = len(problems)
        if (one := _given(alias, entry, problems)) is not None:
            found.append(one)
            clusters += [one[0](**one[1])] if len(problems) == before else []
    for kind, given in found:
        problems += [f"clusters.{given['alias']}.{problem}" for problem in _contradictions(kind, given)]
    problems += _twice([given for _, given in found])
    return tuple(clusters), problems


def _given(alias: str, entry: Any, problems: list[str]) -> tuple[Kind, Given] | None:
    """Its kind, and its fields as they are meant; without those that are wrong."""
    where = f"clusters.{alias}"
    if not isinstance(entry, dict):
        problems.append(f"{where}: expected a mapping")
        return None
    kind = _KINDS.get(str(entry.get("kind", "openpai")))
    if kind is None:
        problems.append(f"{where}.kind: expected {' or '.join(_KINDS)}")
        return None
    known = [field for field in kind.__struct_encode_fields__ if field != "alias"]
    problems += [
        f"{where}.{key}: not known; expected {', '.join(known)}" for key in entry if key not in (*known, "kind")
    ]
    given: Given = {"alias": alias}
    for field in msgspec.structs.fields(kind):
        if field.name == "alias":
            continue
        if field.name not in entry:
            if field.required:
                problems.append(f"{where}.{field.name}: missing; expected {_EXPECTED[field.name]}")
        elif _fits(entry[field.name], field.type):
            given[field.name] = msgspec.convert(entry[field.name], field.type)
        else:
            problems += [
                f"{where}.{place}: expected {_EXPECTED[place]}" for place in _misfits(field, entry[field.name])
            ]
    return kind, given


def _misfits(field: FieldInfo, value: Any) -> Iterator[str]:
    """What within a field is of another type; the field itself where it is not, or not that alone."""
    kinds = [kind for kind in (field.type, *get_args(field.type)) if isinstance(kind, type)]
    inner = [one for kind in kinds if issubclass(kind, msgspec.Struct) for one in msgspec.structs.fields(kind)]
    given = value if isinstance(value, dict) else {}
    wrong = [one.name for one in inner if one.name in given and not _fits(given[one.name], one.type)]
    yield from (f"{field.name}.{name}" for name in wrong)
    if not wrong or given.keys() - {one.name for one in inner}:
        yield field.name


def _fits(value: Any, of: Any) -> bool:
    try:
        msgspec.convert(value, of)
    except msgspec.ValidationError:
        return False
    return True


def _twice(clusters: Sequence[Given]) -> Iterator[str]:
    """A job names a cluster by its URI and whose it is there."""
    seen: dict[str, str] = {}
    for given in clusters:
        if "user" in given and "uri" in given:
            first = seen.setdefault(account_of(given["user"], given["uri"]), given["alias"])
            if first != given["alias"]:
                yield f"clusters.{given['alias']}: expected another uri or user than those of {first}"


def _reachable(uri: str) -> bool:
    """Whether its host can be looked up and its port be one."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # UnicodeError is one
        return False
    return bool(host) and port != 0 and not set(host) & set('\\"<>^`{|}')


def _contradictions(kind: Kind, given: Given) -> Iterator[str]:
    if "uri" in given and not _reachable(given["uri"]):
        yield f"uri: expected {_EXPECTED['uri']}, with a host and a port that there can be"
    if kind is KubernetesCluster:
        return
    if "token" in given and bool(given["token"].env) == bool(given["token"].file):
        yield "token: expected 'env' with a variable's name, or 'file' with a path"
    most: int = given.get("limits", Limits()).lists_per_minute
    if most and given.get("poll_ms", POLL_MS) * most < 60_000:
        yield f"poll_ms: expected at least {-(-60_000 // most)}: limits.lists_per_minute is {most}"
