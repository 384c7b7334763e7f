"""The clusters file: what is read, and what is said of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.federator.backends.opening import load, open_backend
from services.federator.clusters import (
    InvalidClusters,
    KubernetesCluster,
    Limits,
    MusterLog,
    OpenPaiCluster,
    Token,
    parse,
)
from services.simulator.cluster import SimulatedCluster

TEXT = """
clusters:
  v100:
    uri: https://pai.example/east
    user: alice
    token: {env: PAI_TOKEN}
  k80:
    kind: openpai
    uri: http://pai.example:8080
    user: alice
    token: {file: secrets/k80}
    poll_ms: 2000
    limits: {lists_per_minute: 30}
  gpus:
    kind: kubernetes
    uri: https://gpus.example:6443
    user: ml
    kubeconfig: gpus.yaml
    namespace: training
    dialect: volcano
    log: {domain: log-gpus, cluster: gpus}
"""


def test_a_clusters_file_is_read_with_every_field_and_default() -> None:
    assert parse(TEXT) == (
        OpenPaiCluster(alias="v100", uri="https://pai.example/east", user="alice", token=Token(env="PAI_TOKEN")),
        OpenPaiCluster(
            alias="k80",
            uri="http://pai.example:8080",
            user="alice",
            token=Token(file="secrets/k80"),
            poll_ms=2000,
            limits=Limits(lists_per_minute=30),
        ),
        KubernetesCluster(
            alias="gpus",
            uri="https://gpus.example:6443",
            user="ml",
            kubeconfig="gpus.yaml",
            namespace="training",
            dialect="volcano",
            log=MusterLog(domain="log-gpus", cluster="gpus"),
        ),
    )


OPENPAI: dict[str, Any] = {"uri": "https://pai.example", "user": "alice", "token": {"env": "T"}}
KUBERNETES: dict[str, Any] = {"kind": "kubernetes", "uri": "https://k.example", "user": "ml"}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (OPENPAI | {"uri": "pai.example"}, "clusters.a.uri: expected an http or https URI"),
        (OPENPAI | {"uri": "https://alice:hunter2@pai.example"}, "clusters.a.uri: expected an http or https URI"),
        (OPENPAI | {"uri": "https://pai.example\n"}, "clusters.a.uri: expected an http or https URI"),
        (OPENPAI | {"user": ""}, "clusters.a.user: expected some text"),
        ({"uri": "https://pai.example", "user": "alice"}, "clusters.a.token: missing; expected {env: VARIABLE} or"),
        (OPENPAI | {"token": "hunter2"}, "clusters.a.token: expected {env: VARIABLE} or {file: PATH}"),
        (OPENPAI | {"token": {"value": "hunter2"}}, "clusters.a.token: expected {env: VARIABLE} or {file: PATH}"),
        (OPENPAI | {"token": {}}, "clusters.a.token: expected 'env' with a variable's name, or 'file'"),
        (OPENPAI | {"token": {"env": "A", "file": "b"}}, "clusters.a.token: expected 'env' with a variable's name"),
        (OPENPAI | {"poll_ms": "5s"}, "clusters.a.poll_ms: expected milliseconds, a whole number from 100"),
        (OPENPAI | {"poll_ms": 500}, "clusters.a.poll_ms: expected at least 1000: limits.lists_per_minute is 60"),
        (OPENPAI | {"limits": {"lists_per_minute": -1}}, "clusters.a.limits.lists_per_minute: expected a whole number"),
        (OPENPAI | {"limits": {"lists": 1}}, "clusters.a.limits: expected a whole number"),
        (OPENPAI | {"namespace": "x"}, "clusters.a.namespace: not known; expected uri, user, token"),
        (KUBERNETES | {"token": {"env": "T"}}, "clusters.a.token: not known; expected uri, user, kubeconfig"),
        (KUBERNETES | {"namespace": "Not_One"}, "clusters.a.namespace: expected a Kubernetes namespace"),
        (KUBERNETES | {"namespace": "one\n"}, "clusters.a.namespace: expected a Kubernetes namespace"),
        (KUBERNETES | {"dialect": "yarn"}, "clusters.a.dialect: expected coscheduling or volcano"),
        (KUBERNETES | {"log": {"domain": "d"}}, "clusters.a.log: expected {domain: DOMAIN, cluster: NAME}"),
        (KUBERNETES | {"log": {"domain": "a.b", "cluster": "c"}}, "clusters.a.log.domain: expected letters, digits"),
        (KUBERNETES | {"log": {"domain": "a\n", "cluster": "c"}}, "clusters.a.log.domain: expected letters, digits"),
        (OPENPAI | {"log": {"domain": "d", "cluster": "c"}}, "clusters.a.log: not known; expected uri, user, token"),
        (KUBERNETES | {"scheduler": ""}, "clusters.a.scheduler: expected some text"),
        (KUBERNETES | {"timeout_ms": 0}, "clusters.a.timeout_ms: expected milliseconds"),
        ({"kind": "slurm"}, "clusters.a.kind: expected openpai or kubernetes"),
        (["a"], "clusters.a: expected a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_cluster_field_and_what_was_expected(entry: Any, said: str) -> None:
    with pytest.raises(InvalidClusters) as error:
        parse(json.dumps({"clusters": {"a": entry, "b": OPENPAI | {"uri": "https://b.example"}}}))
    (problem,) = error.value.problems
    assert problem.startswith(said), problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    "uri",
    [
        "http://h:port",
        "http://h:99999",
        "http://h:0",
        "http://[::1",
        "http://a\\b",
        "http://a..b",
        f"http://{'a' * 64}",
    ],
)
def test_a_uri_that_leads_nowhere_is_refused(uri: str) -> None:
    """As it was: the first job that named it ended the federator, and each that was started after it."""
    with pytest.raises(InvalidClusters, match=r"^clusters\.a\.uri: expected an http or https URI"):
        parse(json.dumps({"clusters": {"a": OPENPAI | {"uri": uri}}}))


def test_a_cluster_has_one_entry() -> None:
    """As it was: of two the last one counted, and jobs ran in its namespace."""
    entries = {"a": KUBERNETES, "b": KUBERNETES | {"uri": "https://k.example/", "namespace": "other"}}
    with pytest.raises(InvalidClusters, match=r"^clusters\.b: expected another uri or user than those of a$"):
        parse(json.dumps({"clusters": entries}))


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidClusters) as error:
        parse(json.dumps({"clusters": {"a": {"uri": 1}, "b": {"kind": 2}}, "other": 1}))
    assert [problem.partition(": ")[0] for problem in error.value.problems] == [
        "other",
        "clusters.a.uri",
        "clusters.a.user",
        "clusters.a.token",
        "clusters.b.kind",
    ]


def test_of_one_entry_too_everything_is_told_at_once() -> None:
    """As it was: of a mapping its first mistake, and what contradicts itself only where nothing else was wrong."""
    entries = {
        "a": OPENPAI | {"user": 1, "token": {"env": "A", "file": "b"}, "uri": "http://h:0"},
        "b": {"uri": "https://b.example", "user": "u", "token": {"env": 1, "file": 2}, "poll_ms": "x"},
        "c": OPENPAI | {"limits": {"requests_per_minute": -1, "lists_per_minute": "x", "lists": 1}},
        "d": KUBERNETES | {"log": {"domain": "a.b", "cluster": "c.d"}, "gpu": ""},
        "e": KUBERNETES | {"gpu": 1},
    }
    with pytest.raises(InvalidClusters) as error:
        parse(json.dumps({"clusters": entries}))
    assert [problem.partition(": ")[0].removeprefix("clusters.") for problem in error.value.problems] == [
        "a.user",
        "b.token.env",
        "b.token.file",
        "b.poll_ms",
        "c.limits.requests_per_minute",
        "c.limits.lists_per_minute",
        "c.limits",
        "d.gpu",
        "d.log.domain",
        "d.log.cluster",
        "e.gpu",
        "a.uri",
        "a.token",
        "e",
    ]


@pytest.mark.parametrize(
    "text", ["", "[", "a: 1", "clusters: []", "clusters: [a]", "clusters: {}", "clusters: {a: 1}\n---\n{}"]
)
def test_what_is_no_clusters_file(text: str) -> None:
    with pytest.raises(InvalidClusters):
        parse(text)


async def test_backends_are_opened_with_paths_relative_to_the_file(tmp_path: Path) -> None:
    async with SimulatedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "gpus.yaml")
        file = tmp_path / "clusters.yaml"
        file.write_text(TEXT)
        backends = [open_backend(entry, tmp_path) for entry in load(file)]
        assert [type(backend).__name__ for backend in backends] == ["OpenPai", "OpenPai", "Kubernetes"]
        for backend in backends:
            await backend.close()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidClusters, match=r"none\.yaml: expected a clusters file"):
        load(tmp_path / "none.yaml")


def test_a_file_that_is_not_yaml_is_named_and_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text("clusters:\n  a: [hunter2\n")
    with pytest.raises(InvalidClusters, match=r"clusters\.yaml: line 3: expected YAML") as error:
        load(file)
    assert "hunter2" not in str(error.value)


async def test_an_authority_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    (entry,) = parse(json.dumps({"clusters": {"a": OPENPAI | {"ca_file": "ca.pem"}}}))
    with pytest.raises(InvalidClusters, match=r"clusters\.a\.ca_file: .*/ca\.pem: expected certificates in PEM"):
        open_backend(entry, tmp_path)
