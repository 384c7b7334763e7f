"""The NATS server's accounts and permissions, generated from the table of writers in `events.subjects`.

One account for a cluster, so that nothing of another cluster can even be named; in it one user for a role. A role may
publish onto its own subject in the log, onto its own lease, and what reading the log asks of JetStream. It may not
purge or delete, nor change a stream. Answers come to inboxes; to the log's subjects nobody subscribes.

What the server cannot hold back: who may make consumers may have them deliver copies of what they read onto another
subject of the account. Such a message is no commit (its header is missing, or names another writer), but it costs the
subject's writer a conflict. Subscribers of the feed that nobody vouches for belong into an account of their own.

``python -m events.permissions CLUSTER`` prints the text; passwords are read by the server from its environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from events import subjects

FEED = "feed"
READER = "reader"
SUBSCRIBER = "subscriber"
ROLES = (*subjects.WRITES, FEED, READER, SUBSCRIBER)
"""The writers; the feed; who only reads the log (console, export); who subscribes to the feed."""

INBOX = "_INBOX.>"


def password_variable(role: str) -> str:
    """The environment variable that holds the password of a role's user, in the server and in the service."""
    return f"MUSTER_{role.upper()}_PASSWORD"


def configuration(cluster: str, passwords: Mapping[str, str] | None = None) -> str:
    """The ``accounts`` block of nats-server's configuration. Without `passwords` (by role) the server's environment.

    Raises ValueError for a name that is no cluster's.
    """
    if not subjects.valid_cluster(cluster):
        raise ValueError(f"cluster {cluster!r}: expected letters, digits, '-' and '_', at most 64")
    users = "\n".join(_user(cluster, role, (passwords or {}).get(role)) for role in ROLES)
    return f"accounts {{\n  muster-{cluster} {{\n    jetstream: enabled\n    users: [\n{users}\n    ]\n  }}\n}}\n"


def may_publish(cluster: str, role: str) -> list[str]:
    """The subjects onto which a role's user may publish."""
    log, feed = subjects.stream(cluster), f"muster-feed-{cluster}"
    if role == SUBSCRIBER:
        return [*_reading(feed), f"$JS.API.CONSUMER.DURABLE.CREATE.{feed}.>", f"$JS.ACK.{feed}.>"]
    reading = _reading(log)
    if role == READER:
        return [*reading, f"$JS.API.STREAM.MSG.GET.muster-leases-{cluster}"]
    creating = f"$JS.API.STREAM.CREATE.{log}"  # whoever starts first; as it is already, it changes nothing
    leasing = [
        *_leases(cluster, role),
        f"$JS.API.STREAM.CREATE.muster-leases-{cluster}",
        f"$JS.API.STREAM.MSG.GET.muster-leases-{cluster}",
    ]
    if role == FEED:
        return [f"muster-feed.{cluster}.>", *reading, creating, *_keeping(feed), *leasing]
    return [subjects.subject(cluster, _writers(role)), *reading, creating, *leasing]


def may_subscribe(cluster: str, role: str) -> list[str]:
    """A standby hears at once that its role's lease was given back; the binder hears the planners' as well."""
    if role in (READER, SUBSCRIBER):
        return [INBOX]
    watched = _leases(cluster, "planner") if role == "binder" else []
    return [INBOX, *_leases(cluster, role), *watched]


def _writers(role: str) -> str:
    """Planner shards share a user; the other roles have one writer each."""
    return "planner.*" if role == "planner" else role


def _leases(cluster: str, role: str) -> list[str]:
    return [f"muster-leases.{cluster}.{_writers(role)}"]


def _reading(stream: str) -> list[str]:
    return [
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        f"$JS.API.CONSUMER.DELETE.{stream}.>",
    ]


def _keeping(stream: str) -> list[str]:
    return [f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "INFO", "UPDATE", "MSG.GET")]


def _user(cluster: str, role: str, password: str | None) -> str:
    secret = f"${password_variable(role)}" if password is None else json.dumps(password)
    publish, subscribe = (json.dumps(allowed) for allowed in (may_publish(cluster, role), may_subscribe(cluster, role)))
    return (
        f"      {{ user: {json.dumps(role)}, password: {secret}, permissions: {{\n"
        f"          publish: {{ allow: {publish} }}\n"
        f"          subscribe: {{ allow: {subscribe} }} }} }}"
    )


if __name__ == "__main__":
    sys.stdout.write(configuration(sys.argv[1]))
