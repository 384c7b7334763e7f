"""What stands in the clusters file is what its backends do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from events.connection import Connection
from services.federator.backends import Accepted, Reach, Submission
from services.federator.backends.gangs import DIALECTS
from services.federator.backends.kubernetes import Kubernetes
from services.federator.backends.leaf import Leaf
from services.federator.backends.opening import load, reaches, read_keys, usable
from services.federator.backends.openpai import OpenPai
from services.federator.clusters import InvalidClusters
from services.federator.specialize import to_yaml
from services.kubernetes.access import AccessError
from services.simulator.cluster import SimulatedCluster
from tests.federator.backends.sites import job

TEXT = """
clusters:
  pai:
    uri: https://pai.example
    user: alice
    token: {file: secrets/pai}
    poll_ms: 2500
    timeout_ms: 1500
    limits: {requests_per_minute: 61, lists_per_minute: 62, submissions_per_hour: 63}
  gpus:
    kind: kubernetes
    uri: https://gpus.example:6443
    user: ml
    kubeconfig: gpus.yaml
    namespace: training
    scheduler: another
    dialect: volcano
    gpu: amd.com/gpu
    timeout_ms: 1500
    log: {domain: log-gpus, cluster: prod}
  plain: {kind: kubernetes, uri: "https://plain.example", user: ml, kubeconfig: "~/gpus.yaml"}
"""


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedCluster]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    async with SimulatedCluster() as running:
        for directory in (tmp_path, tmp_path / "home"):
            running.write_kubeconfig(directory / "gpus.yaml")
        yield running


@pytest.fixture
async def opened(cluster: SimulatedCluster, tmp_path: Path) -> AsyncIterator[dict[str, Reach]]:
    (tmp_path / "clusters.yaml").write_text(TEXT)
    found = reaches(load(tmp_path / "clusters.yaml"), tmp_path, Connection("nats://127.0.0.1"))
    yield found
    for reach in found.values():
        await reach.backend.close()


async def test_a_backend_of_openpais(opened: dict[str, Reach], tmp_path: Path) -> None:
    reach = opened["alice@https://pai.example"]
    assert isinstance(reach.backend, OpenPai)
    assert (reach.poll_s, reach.log, reach.backend._timeout_s) == (2.5, None, 1.5)
    paces = [reach.backend._pace, reach.backend._paces["list"], reach.backend._paces["submit"]]
    assert [pace.most for pace in paces] == [61, 62, 63]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "pai").write_text("secret")
    assert await reach.backend._token.read() == "secret"


async def test_a_backend_of_kubernetes(opened: dict[str, Reach], cluster: SimulatedCluster) -> None:
    backend = opened["ml@https://gpus.example:6443"].backend
    assert isinstance(backend, Kubernetes)
    assert backend._jobs._timeout_s == 1.5
    described = job("train")
    described["taskRoles"]["worker"]["resourcePerInstance"]["gpu"] = 2
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}})
    assert isinstance(await backend.submit(Submission(name="train", body=to_yaml(described).encode())), Accepted)
    (made,) = cluster.list("Job", namespace="training")
    template = made["spec"]["template"]
    assert template["spec"]["schedulerName"] == "another"
    assert DIALECTS["volcano"].key in template["metadata"]["annotations"]
    assert template["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "2"


async def test_a_clusters_own_log(opened: dict[str, Reach]) -> None:
    log = opened["ml@https://gpus.example:6443"].log
    assert isinstance(log, Leaf)
    assert (log._log.domain, log._log.cluster, log._namespace) == ("log-gpus", "prod", "training")
    assert opened["ml@https://plain.example"].log is None


def test_keys_stand_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one \n\n  two\n")
    assert read_keys(tmp_path / "keys") == ["one", "two"]


@pytest.mark.parametrize("read", [load, read_keys])
def test_a_file_that_is_no_text_is_named(read: object, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(InvalidClusters, match=r"odd: expected a .*: not UTF-8"):
        read(tmp_path / "odd")  # type: ignore[operator]


KUBERNETES, OPENPAI = "kind: kubernetes, uri: 'https://{0}', user: u", "uri: 'https://{0}', user: u, token: {{env: T}}"


def test_every_file_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    """As it was: one at each start, and none with the clusters file's name."""
    file = tmp_path / "clusters.yaml"
    entries = [f"  {name}: {{{KUBERNETES.format(name)}, kubeconfig: {name}.yaml}}" for name in ("a", "b")]
    file.write_text("\n".join(["clusters:", *entries]))
    expected = "expected a kubeconfig file: No such file or directory"
    missing = [f"{file}: clusters.{name}.kubeconfig: {tmp_path}/{name}.yaml: {expected}" for name in ("a", "b")]
    with pytest.raises(AccessError) as found:
        usable(file)
    assert str(found.value).split("; ") == missing
    file.write_text("\n".join(["clusters:", *entries, f"  c: {{{OPENPAI.format('c')}, ca_file: c.pem}}"]))
    with pytest.raises(InvalidClusters) as invalid:
        usable(file)
    last = f"{file}: clusters.c.ca_file: {tmp_path}/c.pem: expected certificates in PEM: No such file or directory"
    assert invalid.value.problems == (*missing, last)
    file.write_text("\n".join(["clusters:", *entries, "  d: {kind: slurm}"]))
    with pytest.raises(InvalidClusters) as invalid:
        usable(file)
    assert invalid.value.problems == (f"{file}: clusters.d.kind: expected openpai or kubernetes", *missing)
