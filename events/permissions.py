"""The NATS server's accounts and permissions, generated from the table of writers in `events.subjects`.

One account for a cluster, so that nothing of another cluster can even be named; in it one user for a role. A federation
has an account too: in it `federator`, and `jobs`, who may ask the federator and hear the answers, no more. A role may
publish onto its own subject in the log, onto its own lease, and what reading the log asks of JetStream; what it keeps
besides (the feed, the snapshots) it may keep. It may not delete the log, nor change a stream; only `keeper`, as whom
``muster retention`` runs, may purge it, and that user writes nothing but the snapshot on which what is left stands.
Answers come to an inbox of the user's own, so that nobody overhears another's; nobody subscribes to the log's subjects.

Planner shards share a user, unless they are named here: ``--shard auto`` finds out which shard it is when it runs. A
named shard has a user that can write for no other.

**Over a leaf node** a federation reads what ingest wrote into a cluster's log, and nothing else. The cluster exports the
five requests that reading takes, and one for ingest's lease; an account without users and streams imports them under a
JetStream domain, ``log-<cluster>``, and is what the leaf node connects. (The true domain cannot be taken: an import under
it is shadowed by the server's own.) The cluster's server asks nobody there and subscribes to nothing. On the federation's
side the connection signs in as ``leaf-<cluster>``: it hears questions to its own domain alone, and may only answer the
federator, into its inbox.

Three users are people's: ``operator`` and ``federation-operator`` may do everything in their account (import a log,
change a stream's replicas), and ``system``, in the servers' own account, sees the servers. No service has their
passwords.

What the server cannot prevent: a user who may make consumers can have them deliver what they read to another subject of
the account. Such a message is no commit (its header is missing, or names another writer), but it costs the subject's
writer a conflict. A federation that reads a log over a leaf node may do that as well. Who asks the federator names the
subject of the answer, and it is published with the federator's permissions: so the federator answers onto no subject of
the server's or of Muster's (`events.micro`). Untrusted subscribers of the feed belong in an account of their own.

``python -m events.permissions CLUSTER [SHARD ...]`` prints the text; the server reads passwords from its environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from events import cloudevents, lease, object_store, subjects

FEED = "feed"
READER = "reader"
KEEPER = "keeper"
LEAF = "leaf"
SUBSCRIBER = "subscriber"
OPERATOR = "operator"
SYSTEM = "system"
PLANNER = "planner"
FEDERATOR = "federator"
JOBS = "jobs"
FEDERATION_OPERATOR = "federation-operator"
FEDERATION_USERS = (FEDERATOR, JOBS, FEDERATION_OPERATOR)
ROLES = (*(role for role in subjects.WRITES if role not in subjects.FEDERATION_ROLES), FEED, READER, KEEPER, SUBSCRIBER)
"""The writers; the feed; who only reads the log (console, export); who purges it; who subscribes to the feed."""

MAY = {
    "ingest": "read restore create write lease",
    PLANNER: "read restore create write lease",
    "binder": "read restore create write lease watch snapshot",
    "admin": "read restore write",
    FEED: "read create lease publish",
    READER: "read restore look",
    KEEPER: "read restore purge snapshot",
    SUBSCRIBER: "subscribe",
    FEDERATOR: "read restore create write lease snapshot keep answer",
    JOBS: "request",
}
"""What each role does. What that asks of the server stands in `PUBLISH` and `SUBSCRIBE`."""

DISCOVERY = tuple(
    f"$SRV.{verb}{of}"
    for verb in ("PING", "INFO", "STATS")
    for of in ("", f".{subjects.FEDERATOR_SERVICE}", f".{subjects.FEDERATOR_SERVICE}.*")
)
"""On which every micro service says what it is: all of them, those of a name, one of these."""
PUBLISH = {
    "read": (
        "$JS.API.STREAM.INFO.{log}",
        "$JS.API.STREAM.MSG.GET.{log}",
        "$JS.API.CONSUMER.CREATE.{log}.>",
        "$JS.API.CONSUMER.MSG.NEXT.{log}.>",
        "$JS.API.CONSUMER.DELETE.{log}.>",
    ),
    "restore": ("$JS.API.STREAM.MSG.GET.{snapshots}", "$JS.API.STREAM.INFO.{snapshots}"),
    "purge": ("$JS.API.STREAM.PURGE.{log}",),
    "create": ("$JS.API.STREAM.CREATE.{log}",),  # whoever starts first; as it is already, it changes nothing
    "write": ("muster.{cluster}.{writer}",),
    "lease": (
        "muster-leases.{cluster}.{writer}",
        "$JS.API.STREAM.CREATE.{leases}",
        "$JS.API.STREAM.MSG.GET.{leases}",
    ),
    "look": ("$JS.API.STREAM.MSG.GET.{leases}",),
    "snapshot": (
        "$O.{bucket}.>",
        "$JS.API.STREAM.CREATE.{snapshots}",
        "$JS.API.STREAM.INFO.{snapshots}",
        "$JS.API.STREAM.PURGE.{snapshots}",
    ),
    "publish": (
        "muster-feed.{cluster}.>",
        "$JS.API.STREAM.CREATE.{feed}",
        "$JS.API.STREAM.INFO.{feed}",
        "$JS.API.STREAM.UPDATE.{feed}",
        "$JS.API.STREAM.MSG.GET.{feed}",
    ),
    "subscribe": (
        "$JS.API.CONSUMER.CREATE.{feed}",  # as clients ask for one without a name: ordered, ephemeral
        "$JS.API.CONSUMER.CREATE.{feed}.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.{feed}.>",
        "$JS.API.CONSUMER.INFO.{feed}.>",
        "$JS.API.CONSUMER.MSG.NEXT.{feed}.>",
        "$JS.API.CONSUMER.DELETE.{feed}.>",
        "$JS.API.STREAM.INFO.{feed}",
        "$JS.ACK.{feed}.>",
        "$JS.FC.{feed}.>",  # flow control: a consumer that pushes waits for it
    ),
    "keep": (
        "$O.{bodies}.>",
        "$JS.API.STREAM.CREATE.{kept}",
        "$JS.API.STREAM.INFO.{kept}",
        "$JS.API.STREAM.PURGE.{kept}",
        "$JS.API.STREAM.MSG.GET.{kept}",
    ),
    "request": (*(f"{{jobs}}.{verb}" for verb in ("submit", "status", "list", "cancel", "explain")), *DISCOVERY),
}
OVER_LEAF = (
    "STREAM.INFO.{log}",
    "STREAM.MSG.GET.{leases}",
    "CONSUMER.CREATE.{log}.>",
    "CONSUMER.MSG.NEXT.{log}.>",
    "CONSUMER.DELETE.{log}.>",
)
"""What a federation asks of a cluster's JetStream: behind ``$JS.API.`` there, behind ``$JS.log-<cluster>.API.`` here."""
SUBSCRIBE = {
    "answer": ("{jobs}.*", *DISCOVERY),
    "lease": ("muster-leases.{cluster}.{writer}",),  # a standby hears at once that its lease was given back
    "watch": ("muster-leases.{cluster}.planner.*",),
}


def users(shards: Sequence[str] = (), leaves: Sequence[str] = ()) -> tuple[str, ...]:
    """One for each role, or for each of these shards in the planners' place; people's; the federation's; one for each of
    these clusters whose logs come over leaf nodes."""
    planners = [f"{PLANNER}-{shard}" for shard in shards] or [PLANNER]
    roles = [user for role in ROLES for user in (planners if role == PLANNER else [role])]
    return (*roles, OPERATOR, *FEDERATION_USERS, *map(leaf_user, leaves), SYSTEM)


def leaf_user(cluster: str) -> str:
    """As whom a cluster's server signs in at the federation's."""
    return f"{LEAF}-{cluster}"


def leaf_domain(cluster: str) -> str:
    """The JetStream domain under which a federation reads a cluster's log."""
    return f"log-{cluster}"


def leaf_account_name(cluster: str) -> str:
    """The account that a cluster's leaf node connects."""
    return f"muster-{cluster}-{LEAF}"


def password_variable(user: str) -> str:
    """The environment variable that holds this user's password in the server."""
    return f"MUSTER_{user.upper().replace('-', '_')}_PASSWORD"


def inbox(user: str) -> str:
    """As `events.connection` chooses it."""
    return f"_INBOX_{user}.>"


def configuration(
    cluster: str,
    passwords: Mapping[str, str] | None = None,
    shards: Sequence[str] = (),
    leaves: Sequence[str] = (),
    is_leaf: bool = False,
) -> str:
    """The ``accounts`` block of nats-server's configuration. Without `passwords` (by user) the server's environment.

    The federation's account is that of `subjects.FEDERATION`: it costs nothing where nobody federates. `leaves` are the
    clusters whose logs it reads over leaf nodes; `is_leaf`: this cluster's log is read so.
    Raises ValueError for a name that is no cluster's, and for shards that are no names, or would share a password.
    """
    federation = federation_account(passwords, leaves)
    federation += leaf_account(cluster) if is_leaf else ""
    account_of_system = f"  $SYS {{ users: [ {_sign_in(SYSTEM, passwords)} }} ] }}\n"
    return f"accounts {{\n{account(cluster, passwords, shards, is_leaf)}{federation}{account_of_system}}}\n"


def account(
    cluster: str, passwords: Mapping[str, str] | None = None, shards: Sequence[str] = (), is_leaf: bool = False
) -> str:
    """The cluster's own account, for a server of several. Raises as `configuration`."""
    if not subjects.valid_cluster(cluster):
        raise ValueError(f"cluster {cluster!r}: expected {subjects.EXPECTED_CLUSTER}")
    for name in shards:
        if not subjects.valid_name(name):
            raise ValueError(f"shard {name!r}: expected {subjects.EXPECTED_NAME}")
    if cluster == subjects.FEDERATION:
        raise ValueError(f"cluster {cluster!r}: expected another name: the federation has this one")
    within = [user for user in users(shards) if user not in (*FEDERATION_USERS, SYSTEM)]
    if len({password_variable(user) for user in within}) < len(within):
        raise ValueError(f"shards {', '.join(shards)}: expected names that differ in more than case, '-' and '_'")
    exports = [f"{{ service: {json.dumps(f'$JS.API.{asked}')}{_many(asked)} }}" for asked in _over_leaf(cluster)]
    return _account(cluster, [_user(cluster, user, passwords) for user in within], exports if is_leaf else [])


def federation_account(passwords: Mapping[str, str] | None, leaves: Sequence[str]) -> str:
    """The account of the federation's log. Raises ValueError for a leaf that is no cluster's name."""
    for name in leaves:
        if not subjects.valid_cluster(name):
            raise ValueError(f"leaf {name!r}: expected {subjects.EXPECTED_CLUSTER}")
    if len({password_variable(leaf_user(name)) for name in leaves}) < len(leaves):
        raise ValueError(f"leaves {', '.join(leaves)}: expected names that differ in more than case, '-' and '_'")
    listed = [_user(subjects.FEDERATION, user, passwords, leaves) for user in FEDERATION_USERS]
    return _account(subjects.FEDERATION, [*listed, *(_leaf_user(cluster, passwords) for cluster in leaves)], [])


def leaf_account(cluster: str) -> str:
    """The account that a cluster's leaf node connects: what reading its log takes, and nobody in it."""
    account, domain = json.dumps(f"muster-{cluster}"), leaf_domain(cluster)
    imports = "\n".join(
        f"      {{ service: {{ account: {account}, subject: {json.dumps(f'$JS.API.{asked}')} }}, "
        f"to: {json.dumps(f'$JS.{domain}.API.{asked}')} }}"
        for asked in _over_leaf(cluster)
    )
    return f"  {leaf_account_name(cluster)} {{\n    imports: [\n{imports}\n    ]\n  }}\n"


def _over_leaf(cluster: str) -> list[str]:
    names = {"log": subjects.stream(cluster), "leases": lease.stream(cluster)}
    return [asked.format_map(names) for asked in OVER_LEAF]


def _many(asked: str) -> str:
    """A pull is answered by many messages."""
    return ", response: stream" if ".NEXT." in asked else ""


def _account(cluster: str, listed: Sequence[str], exports: Sequence[str]) -> str:
    exported = "".join(f"\n      {one}" for one in exports)
    block = f"    exports: [{exported}\n    ]\n" if exports else ""
    return (
        f"  muster-{cluster} {{\n    jetstream: enabled\n    users: [\n" + "\n".join(listed) + f"\n    ]\n{block}  }}\n"
    )


def may_publish(cluster: str, user: str, leaves: Sequence[str] = ()) -> list[str]:
    """The subjects onto which a user may publish; the federator asks JetStream in the domains of these clusters, too."""
    asked = [(leaf, verb) for leaf in leaves for verb in _over_leaf(leaf)] if user == FEDERATOR else []
    return [*_granted(PUBLISH, cluster, user), *(f"$JS.{leaf_domain(leaf)}.API.{verb}" for leaf, verb in asked)]


def may_subscribe(cluster: str, user: str) -> list[str]:
    """The subjects to which a user may subscribe."""
    return [inbox(user), *_granted(SUBSCRIBE, cluster, user)]


def _granted(table: Mapping[str, Sequence[str]], cluster: str, user: str) -> list[str]:
    role, _, shard = user.partition("-")
    names = {
        "cluster": cluster,
        "writer": f"{PLANNER}.{shard or '*'}" if role == PLANNER else role,
        "log": subjects.stream(cluster),
        "leases": lease.stream(cluster),
        "feed": cloudevents.stream(cluster),
        "bucket": object_store.bucket(cluster),
        "snapshots": object_store.stream(cluster),
        "jobs": subjects.jobs(cluster),
        "bodies": object_store.bodies_bucket(cluster),
        "kept": object_store.stream_of(object_store.bodies_bucket(cluster)),
    }
    return [subject.format_map(names) for grant in MAY[role].split() for subject in table.get(grant, ())]


def _leaf_user(cluster: str, passwords: Mapping[str, str] | None) -> str:
    answers, questions = json.dumps([inbox(FEDERATOR)]), json.dumps([f"$JS.{leaf_domain(cluster)}.API.>"])
    return (
        f'      {_sign_in(leaf_user(cluster), passwords)}, allowed_connection_types: ["LEAFNODE"], permissions: {{\n'
        f"          publish: {{ allow: {answers} }}\n"
        f"          subscribe: {{ allow: {questions} }} }} }}"
    )


def _user(cluster: str, user: str, passwords: Mapping[str, str] | None, leaves: Sequence[str] = ()) -> str:
    if user in (OPERATOR, FEDERATION_OPERATOR):
        return f"      {_sign_in(user, passwords)} }}"
    publish = json.dumps(may_publish(cluster, user, leaves))
    subscribe = json.dumps(may_subscribe(cluster, user))
    # where an answer goes only the request says: for two minutes the server lets one message go there
    answers = "\n          allow_responses: true" if "answer" in MAY.get(user, "").split() else ""
    return (
        f"      {_sign_in(user, passwords)}, permissions: {{\n"
        f"          publish: {{ allow: {publish} }}\n"
        f"          subscribe: {{ allow: {subscribe} }}{answers} }} }}"
    )


def _sign_in(user: str, passwords: Mapping[str, str] | None) -> str:
    secret = f"${password_variable(user)}" if passwords is None else json.dumps(passwords[user])
    return f"{{ user: {json.dumps(user)}, password: {secret}"


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m events.permissions", description="The accounts of a NATS server.")
    parser.add_argument("cluster", help="the cluster's name in the log")
    parser.add_argument("shards", nargs="*", help="planner shards with users of their own")
    asked = parser.parse_args()
    try:
        sys.stdout.write(configuration(asked.cluster, shards=asked.shards))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
