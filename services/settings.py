"""The settings of a process: where things are and how much it may do at once; nothing that a decision depends on.

A setting comes from a command line flag, else from the environment (``MUSTER_NATS_URL`` for `nats_url`), else it is the
default here. What bounds or steers a decision is in the log, as the policy.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from events.homes import split, without_credentials
from events.log import LogError
from events.subjects import EXPECTED_CLUSTER, EXPECTED_NAME, KEPT_BACK

PREFIX = "MUSTER_"
FLAGS = {"nats_url": "--nats", "clusters_file": "--clusters", "body_keys_file": "--keys"}
"""Flags that are not named like their setting."""
SECRET = frozenset({"nats_password"})
FILES = ("_file", "kubeconfig")
"""How settings end that name a file, whose name need not be UTF-8."""

Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
Cluster = Annotated[str, Meta(pattern=rf"^(?!{'|'.join(KEPT_BACK)})[A-Za-z0-9_-]{{1,64}}\Z")]
Concurrency = Annotated[int, Meta(ge=1, le=4096)]
Subject = Annotated[str, Meta(pattern=r"^([^\s.*>]+(\.[^\s.*>]+)*)?\Z")]
PATTERNS = {
    Name: EXPECTED_NAME,
    Cluster: EXPECTED_CLUSTER,
    Subject: "a subject of NATS without wildcards",
}
MOST_INTEGER = (1 << 63) - 1
MOST_OFFSET_MS = 10**12
"""Some 30 years; a time beyond 2^63 ns stands in no header, so that the commit is nobody's."""
PerSecond = Annotated[float, Meta(gt=0, le=100_000)]


def holder_identity(name: str = "") -> str:
    """Who holds a lease or a subject: the name, or host and process; and a random part, as all of these come again. Two
    that took a subject with equal bytes at once would both be told that they have it (deduplication)."""
    return f"{name or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(3)}"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every service reads. Get one from `read`."""

    nats_url: Text = "nats://127.0.0.1:4222"
    nats_user: str = ""
    """The role's user, where the server knows users."""
    nats_password: str = ""
    nats_credentials_file: str = ""
    """A .creds file, instead of user and password."""
    nats_ca_file: str = ""
    """PEM: the authorities that may sign the servers' certificates. With it, nothing goes out without TLS."""
    nats_certificate_file: str = ""
    """PEM: this client's certificate, where the servers ask for one."""
    nats_key_file: str = ""
    """PEM: its key; empty: the key stands in the certificate's file."""
    nats_inbox_prefix: Subject = ""
    """Where answers come; empty: ``_INBOX_<user>``, which nobody else may listen to."""
    log_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """Replicas of the streams that this process makes; more than one needs a NATS cluster."""
    cluster: Cluster = "default"
    """The name of the cluster in the log: letters, digits, '-' and '_'."""
    shard: Name = "0"
    """The planner's shard; auto: the first of 0 … 63 that is free."""
    kubeconfig: str = ""
    """Path; empty: ``$KUBECONFIG``, else the pod's service account, else ``~/.kube/config``."""
    scheduler_names: Annotated[tuple[Text, ...], Meta(min_length=1)] = ("muster",)
    """Pods with one of these schedulerNames are candidates; separated by commas."""
    holder: Text = msgspec.field(default_factory=holder_identity)
    """Of this process alone, whatever name is given."""

    lease_s: Annotated[int, Meta(ge=1, le=60)] = 2
    """How long after its last word a killed process of a role is replaced. The same for all processes of a cluster."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = "auto"
    """auto: text on a terminal, JSON lines elsewhere."""
    telemetry: Literal["auto", "on", "off"] = "auto"
    """auto: on when a standard OTEL_* variable names an exporter or an endpoint. Off loads nothing."""
    health_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Port of /healthz and /readyz; 0: none."""
    health_host: Text = "0.0.0.0"
    """Address on which they are answered: probes come from outside the pod."""

    bind_concurrency: Concurrency = 64
    """Bindings in flight."""
    condition_patches_per_second: PerSecond = 15.0
    """Writes behind the bindings: PodScheduled conditions."""
    kubernetes_events_per_second: PerSecond = 50.0
    """Writes behind the bindings: Kubernetes events."""
    group_patches_per_second: PerSecond = 20.0
    """Writes behind the bindings: PodGroup status."""

    snapshot_after_bytes: Annotated[int, Meta(ge=0)] = 32 << 20
    """How much of the log since the last snapshot makes the binder take another; 0: none."""
    retention_days: Annotated[int, Meta(ge=0)] = 0
    """How many days of its log `muster retention` leaves at least; 0: all of it, for ever."""

    feed_max_age_s: Annotated[int, Meta(ge=60, le=MOST_INTEGER // 10**9)] = 7 * 24 * 3600
    """How long the feed keeps an event."""
    feed_max_bytes: Annotated[int, Meta(ge=16 << 20, le=MOST_INTEGER)] = 1 << 30
    """How much the feed keeps in all: more than one event can be."""

    clusters_file: str = ""
    """The federator's clusters (docs/federation.md)."""
    body_keys_file: str = ""
    """The keys with which the federator keeps jobs' bodies: Fernet's, one a line; the first encrypts."""

    clock_offset_ms: Annotated[int, Meta(ge=-MOST_OFFSET_MS, le=MOST_OFFSET_MS)] = 0
    """For tests of clocks that disagree, never for production: added to the clock by which this process times its
    commits and the log."""

    def __repr__(self) -> str:
        told = dict.fromkeys(SECRET, "***") | {"nats_url": without_credentials(self.nats_url)}
        shown = ((name, told.get(name, getattr(self, name))) for name in self.__struct_fields__)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown)})"

    def now_ns(self) -> int:
        """This process's wall clock, in nanoseconds since 1970."""
        return time.time_ns() + self.clock_offset_ms * 1_000_000

    def nats_options(self) -> dict[str, Any]:
        """What `events.connection` is given to connect."""
        options = {
            "user": self.nats_user,
            "password": self.nats_password,
            "user_credentials": self.nats_credentials_file,
            "ca_file": self.nats_ca_file,
            "certificate_file": self.nats_certificate_file,
            "key_file": self.nats_key_file,
            "inbox_prefix": self.nats_inbox_prefix,
        }
        return {name: value for name, value in options.items() if value}

    def environment(self) -> dict[str, str]:
        """This process's environment with these settings: for a child, whose command line everybody can read."""
        chosen = {PREFIX + name.upper(): _text(getattr(self, name)) for name in self.__struct_fields__}
        return {**os.environ, **chosen}


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


class InvalidSetting(ValueError):
    """Names the setting, where it came from, its value and what was expected."""


def read(flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """`flags` by field name; a flag that is None was not given. Raises InvalidSetting."""
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    unknown = given.keys() - {field.name for field in msgspec.structs.fields(Settings)}
    if unknown:
        raise InvalidSetting(f"no such setting: {', '.join(sorted(unknown))}")
    chosen: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        variable = PREFIX + field.name.upper()
        if field.name in given:
            flag = FLAGS.get(field.name, f"--{field.name.replace('_', '-')}")
            chosen[field.name] = _convert(field, flag, given[field.name])
        elif environment.get(variable):
            chosen[field.name] = _convert(field, variable, environment[variable])
    if "holder" in chosen:
        chosen["holder"] = holder_identity(chosen["holder"])
    return Settings(**_with_the_urls_cluster(chosen, "--nats" if "nats_url" in given else PREFIX + "NATS_URL", given))


def _with_the_urls_cluster(chosen: dict[str, Any], origin: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """``nats://host:4222/prod`` names the cluster, as it does where it names a log; a flag goes before it. What is no
    URL is left to whoever connects."""
    try:
        servers, named = split(chosen.get("nats_url", ""))
    except LogError:
        return chosen
    if not named:
        return chosen
    field = next(field for field in msgspec.structs.fields(Settings) if field.name == "cluster")
    cluster = chosen["cluster"] if "cluster" in given else _convert(field, f"{origin}, behind the URL", named)
    return {**chosen, "nats_url": servers, "cluster": cluster}


def _convert(field: msgspec.structs.FieldInfo, origin: str, value: Any) -> Any:
    """`origin` is the flag or variable that `value` came from."""
    kind = field.type
    plain, given = kind.__origin__ if hasattr(kind, "__metadata__") else kind, value
    if get_origin(plain) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        value = [part.strip() if isinstance(part, str) else part for part in parts]
    try:
        if not field.name.endswith(FILES):
            for part in value if isinstance(value, list) else [value]:
                str(part).encode()
        return msgspec.convert(value, kind, strict=False)
    except UnicodeEncodeError as error:
        raise InvalidSetting(f"{origin}: expected text in UTF-8, not {_shown(field, given)}") from error
    except msgspec.ValidationError as error:
        if get_origin(plain) is Literal:
            expected = f"one of {', '.join(get_args(plain))}"
        else:
            expected = "names, with commas between them" if get_origin(plain) is tuple else _expected(kind, error)
        raise InvalidSetting(f"{origin}: expected {expected}, not {_shown(field, given)}") from error


def _shown(field: msgspec.structs.FieldInfo, value: Any) -> str:
    if field.name == "nats_url":
        value = without_credentials(str(value))
    return "***" if field.name in SECRET else repr(value)


def _expected(kind: Any, error: msgspec.ValidationError) -> str:
    """msgspec's ``Expected `int` >= 1 - at `$[...]``` as the end of a sentence."""
    text = str(error).partition(" - at ")[0].partition(", got")[0].replace("`", "").removeprefix("Expected ")
    if "regex" in text:
        return PATTERNS[kind]
    if text == "Number out of range":
        return "a number that is not so large"
    for term, words in (("str of length >= 1", "some text"), ("int", "a whole number"), ("float", "a number")):
        text = text.replace(term, words)
    return text
