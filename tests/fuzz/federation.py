"""The federation's decoders, as `targets` has the others': descriptions of jobs, clusters files, commits of its log."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec
import yaml

import events as ev
from events import envelope
from events.envelope import Header, MalformedCommit, Stored
from services.documents import load_all
from services.federator import clusters, core, mcc, snapshot
from services.federator.backends import MARKER, Owner, Submission, openpai
from services.federator.clusters import InvalidClusters
from services.federator.mcc import InvalidJob
from services.federator.specialize import specialize, to_yaml
from services.federator.state import State
from services.state.form import Damaged, UnknownCommit
from tests.events import samples
from tests.federator import logs
from tests.federator.jobs import EXAMPLE

RACE, MIDDLE = 3, 20
"""A seed of the federator's own simulation, and after how many commits of it much is under way."""
CLUSTERS = """
clusters:
  v100:
    uri: https://pai-v100.example
    user: alice
    token: {env: PAI_V100_TOKEN}
    poll_ms: 5000
    limits: {requests_per_minute: 600, lists_per_minute: 60, submissions_per_hour: 60}
    ca_file: /etc/ssl/pai.pem
  gpus:
    kind: kubernetes
    uri: https://gpus.example:6443
    user: ml
    kubeconfig: gpus.kubeconfig
    namespace: training
    log: {domain: log-gpus, cluster: gpus}
"""


def job(data: bytes) -> None:
    """A multi-cluster job that can be specialised for each of its clusters, or InvalidJob with what is wrong."""
    try:
        found = mcc.load(data.decode("utf-8", "replace"))
    except InvalidJob as error:
        assert error.problems
        assert all(0 < len(problem) <= mcc.LONGEST_TOLD for problem in error.problems)
        return
    tokens = found.tokens()
    for choice in found.clusters:
        owner = Owner(federation="federation", job="u", cluster=choice.alias)
        special = specialize(found, choice.alias, owner)
        text = to_yaml(special)
        assert load_all(text) == [special]
        assert not any(mcc.PLACEHOLDER.search(one) for _, one in mcc.scalars(special))
        assert not any(name in (special.get("secrets") or {}) for name in tokens)
        assert msgspec.convert(special["extras"][MARKER], Owner) == owner
        sent = Submission(name=special["name"], body=text.encode())
        assert openpai._unfit(sent) in ("", f"the job has {len(sent.body)} bytes; the server takes at most 1048576")


def clusters_file(data: bytes) -> None:
    """Clusters, or InvalidClusters, which never quotes what stands there."""
    try:
        found = clusters.parse(data.decode("utf-8", "replace"))
    except InvalidClusters as error:
        assert error.problems
        return
    assert len({one.alias for one in found}) == len(found)
    msgspec.json.encode(found)


def commit(data: bytes) -> None:
    """Folded and decided upon, behind nothing and in the middle of a race; or UnknownCommit that names it."""
    for before in (State(), snapshot.FORM.decode(raced()[-1])):
        fold(before, data)


def fold(state: State, data: bytes) -> None:
    made = envelope.encode_header(Header(writer="federator", epoch=0, basis=0, time_ns=1, cause="decide"))
    place = state.sequence + 1
    stored = Stored(sequence=place, subject="muster.federation.federator", message_id="", header=made, payload=data)
    try:
        state.apply_stored(stored)
    except UnknownCommit as error:
        assert f"commit {place} on muster.federation.federator" in str(error)
        return
    except MalformedCommit as error:
        raise AssertionError("a service would end as if Muster were wrong, and not the log") from error
    envelope.encode_events(core.decide(state))
    assert snapshot.FORM.digest(snapshot.FORM.decode(snapshot.FORM.encode(state))) == snapshot.FORM.digest(state)


def kept(data: bytes) -> None:
    """A snapshot's lines, or Damaged."""
    try:
        found = snapshot.FORM.decode(data)
    except Damaged as error:
        assert str(error)
    else:
        assert snapshot.FORM.digest(snapshot.FORM.decode(snapshot.FORM.encode(found))) == snapshot.FORM.digest(found)


# ---------------------------------------------------------------------------------------------------------------- seeds


@cache
def jobs() -> list[dict[str, Any]]:
    """The text's example, and with the server's spelling and a list of clusters."""
    (said,) = load_all(EXAMPLE)
    listed = load_all(EXAMPLE)[0]
    listed["extras"] = listed.pop("extra")
    plugin = listed["extras"][mcc.PLUGINS][-1]["parameters"]
    plugin["clusters"] = [{"alias": alias, **one} for alias, one in plugin["clusters"].items()]
    return [said, listed]


def job_texts() -> list[bytes]:
    return [EXAMPLE.encode(), *(yaml.safe_dump(one).encode() for one in jobs())]


def cluster_texts() -> list[bytes]:
    return [CLUSTERS.encode()]


def commits() -> list[bytes]:
    own = get_args(ev.FederatorEvents)
    of_race = [envelope.encode_events(list(said)) for said in logs.history(RACE)[:MIDDLE]]
    return [*of_race, *(envelope.encode_events([event]) for event in samples.samples() if isinstance(event, own))]


@cache
def raced() -> list[bytes]:
    """The snapshots of a job's race up to its middle, each a commit further."""
    state, found = State(), []
    for sequence, said in enumerate(logs.history(RACE)[:MIDDLE], 1):
        state.apply(sequence, said)
        found.append(snapshot.FORM.encode(state))
    return found
