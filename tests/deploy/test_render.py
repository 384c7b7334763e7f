"""The generated manifests: fresh, and taken by the servers that they configure."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml

from deploy import render
from deploy.nats import (
    CERTIFICATE_NAMES,
    Leaves,
    certificate_secret,
    new_password,
    password_secrets,
    secret_name,
    server_configuration,
)
from deploy.nats import url as nats_url
from deploy.render import MANIFESTS, rendered
from events import permissions
from events.connection import Connection
from events.homes import open_log, split
from events.permissions import password_variable, users
from events.server import find_binary, quoted, reserve_port
from events.subjects import FEDERATION
from services.cli.muster import app
from services.settings import read

DEPLOY = MANIFESTS.parent


def documents(name: str, **options: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(**options)[name]))


def deployments(name: str, **options: Any) -> list[dict[str, Any]]:
    return [one for one in documents(name, **options) if one["kind"] == "Deployment"]


def container(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["spec"]["template"]["spec"]["containers"]
    return dict(found)


def passwords(shards: tuple[str, ...] = ()) -> dict[str, str]:
    """Secret → password, as the Secrets say."""
    return {
        one["metadata"]["name"]: base64.b64decode(one["data"]["password"]).decode()
        for one in json.loads(password_secrets(shards))["items"]
    }


def secrets_in(environment: list[dict[str, Any]]) -> list[str]:
    sources = [entry["valueFrom"] for entry in environment if "valueFrom" in entry]
    return [source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source]


def servers_environment(statefulset: dict[str, Any], secrets: dict[str, str], pod: str) -> dict[str, str]:
    """What the kubelet would give a server."""
    found = {"POD_NAME": pod}
    for entry in container(statefulset)["env"]:
        source = entry.get("valueFrom", {}).get("secretKeyRef")
        if source:
            assert source["key"] == "password"
            found[entry["name"]] = secrets[source["name"]]
    return found


@pytest.mark.parametrize("name", sorted(rendered()))
def test_the_committed_manifest_is_what_would_be_rendered_now(name: str) -> None:
    assert (MANIFESTS / name).read_text() == rendered()[name], "stale: run `python -m deploy.render`"


@pytest.mark.parametrize("module", [render, permissions], ids=lambda module: module.__name__)
def test_it_is_a_command(module: ModuleType) -> None:
    command = [sys.executable, "-m", module.__name__, "--no-such"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.startswith("usage: ")) == (2, "", True)


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        (render, ["--cluster", "a b"], "cluster 'a b': expected letters, digits, '-' and '_'"),
        (render, ["--cluster", "federation"], "expected another name"),
        (render, ["--secrets", "--shards", "a,A"], "expected names that differ in more than case"),
        (render, ["--image", ""], "--image '': expected the name of an image"),
        (render, ["--image", "a b"], "--image 'a b': expected the name of an image"),
        (render, ["--shards", "0,auto"], "--shards: 'auto': expected a name that"),
        (render, ["--shards", "b-"], "--shards: 'b-': expected a name that"),
        (render, ["--cluster", "a", "--leaves", "b,a"], "leaf 'a': expected another name than that"),
        (render, ["--secrets", "--certificates"], "not allowed with argument"),
        (permissions, ["a b"], "cluster 'a b': expected letters"),
        (permissions, [], "the following arguments are required: cluster"),
    ],
)
def test_what_cannot_be_rendered_is_usage_and_nothing_is_written(
    module: ModuleType,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = {path.name: path.read_text() for path in MANIFESTS.glob("*.yaml")}
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    with pytest.raises(SystemExit) as ended:
        module.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, said in err) == (2, "", True), err
    assert before == {path.name: path.read_text() for path in MANIFESTS.glob("*.yaml")}


@pytest.mark.parametrize("shards", [(), ("0", "blue")])
def test_each_server_finds_all_passwords_in_the_secrets(shards: tuple[str, ...]) -> None:
    *_, statefulset = documents("30-nats.yaml", shards=shards)
    secrets = passwords(shards)
    environment = servers_environment(statefulset, secrets, "nats-0")
    expected = {password_variable(user): secrets[secret_name(user)] for user in users(shards)}
    assert environment == {"POD_NAME": "nats-0", **expected}
    assert len(set(secrets.values())) == len(secrets) == len(users(shards))
    assert passwords(shards) != secrets, "every time new ones"


@pytest.mark.parametrize("cluster", ["prod", "007", "no", "null", "1e3"])
def test_a_clusters_name_is_text(cluster: str) -> None:
    """YAML reads some of these as something else, and the API server refuses them."""
    for document in deployments("40-services.yaml", cluster=cluster):
        assert {"name": "MUSTER_CLUSTER", "value": cluster} in container(document)["env"]


def test_probes_are_answered_at_the_pods_own_address() -> None:
    """Which may be one of IPv6 alone. As it was: there each service was killed by its startup probe."""
    own = {"fieldRef": {"fieldPath": "status.podIP"}}
    for document in [*deployments("40-services.yaml"), *deployments("50-federator.yaml")]:
        assert {"name": "MUSTER_HEALTH_HOST", "valueFrom": own} in container(document)["env"]


@pytest.mark.parametrize("file", ["30-nats.yaml", "40-services.yaml", "50-federator.yaml"])
def test_who_stands_in_for_another_is_elsewhere_if_that_can_be(file: str) -> None:
    pods = [one["spec"]["template"] for one in documents(file) if one["kind"] in ("Deployment", "StatefulSet")]
    for pod in pods:
        name = pod["metadata"]["labels"]["app.kubernetes.io/name"]
        spread = pod["spec"]["topologySpreadConstraints"]
        assert "topology.kubernetes.io/zone" in [one["topologyKey"] for one in spread]
        for one in spread:
            assert one["whenUnsatisfiable"] == "ScheduleAnyway"
            assert one["labelSelector"] == {"matchLabels": {"app.kubernetes.io/name": name}}
    assert pods


@pytest.mark.parametrize("file", ["40-services.yaml", "50-federator.yaml"])
def test_who_drains_nodes_takes_one_of_several_at_a_time(file: str) -> None:
    budgets = {one["metadata"]["name"]: one["spec"] for one in documents(file) if one["kind"] == "PodDisruptionBudget"}
    several = {one["metadata"]["name"]: one["spec"] for one in deployments(file) if one["spec"]["replicas"] > 1}
    assert budgets.keys() == several.keys() != set()
    for name, budget in budgets.items():
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["selector"] == several[name]["selector"]


@pytest.mark.parametrize("shards", [(), ("0", "blue")])
def test_each_service_is_given_its_own_password_only(shards: tuple[str, ...]) -> None:
    names = []
    for document in deployments("40-services.yaml", shards=shards):
        environment = container(document)["env"]
        (user,) = [entry["value"] for entry in environment if entry["name"] == "MUSTER_NATS_USER"]
        assert secrets_in(environment) == [secret_name(user)]
        names.append((document["metadata"]["name"], user))
    planners = [f"planner-{shard}" for shard in shards] or ["planner"]
    assert names == [(name, name) for name in ("ingest", *planners, "binder", "feed")]


def test_each_service_is_given_the_authority_and_no_key() -> None:
    for document in deployments("40-services.yaml"):
        volumes = document["spec"]["template"]["spec"]["volumes"]
        (certificates,) = [volume["secret"] for volume in volumes if "secret" in volume]
        assert certificates == {"secretName": "nats-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}


@pytest.mark.parametrize("servers", [1, 3])
def test_the_nightly_job_is_one_that_muster_runs_as_who_may_purge(servers: int) -> None:
    account, claim, job = documents("60-retention.yaml", cluster="prod", servers=servers)
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    command, *arguments = one["args"]
    parsed = typer.main.get_command(app).commands[command].make_context(command, arguments).params  # type: ignore[attr-defined]
    assert split(parsed["log"]) == (nats_url(servers), "prod")
    assert (parsed["archive"], parsed["days"], parsed["no_archive"]) == ("/archive/prod.db", 30, False)
    assert secrets_in(one["env"]) == [secret_name("keeper")]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in one["volumeMounts"]} == volumes.keys()
    assert volumes["archive"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert job["spec"]["concurrencyPolicy"] == "Forbid"


def test_the_federator_reads_its_files_where_they_are_mounted() -> None:
    (deployment,) = deployments("50-federator.yaml", cluster="prod")
    (volumes, found) = deployment["spec"]["template"]["spec"]["volumes"], container(deployment)
    sources = {one["name"]: one.get("configMap", {}).get("name") or one.get("secret", {}) for one in volumes}
    mounts = {one["name"]: one["mountPath"] for one in found["volumeMounts"]}
    assert sources.keys() == mounts.keys()
    assert all(one.get("readOnly") or one["name"] == "tmp" for one in found["volumeMounts"])
    assert sources["clusters"] == "federator-clusters"
    assert (sources["tokens"], sources["keys"]) == (
        {"secretName": "federator-tokens"},
        {"secretName": "federator-keys"},
    )
    assert sources["nats-ca"] == {"secretName": "nats-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    chosen = read({}, {entry["name"]: entry["value"] for entry in found["env"] if "value" in entry})
    assert (chosen.cluster, chosen.nats_user) == (FEDERATION, "federator")
    assert chosen.clusters_file == f"{mounts['clusters']}/clusters.yaml"
    assert chosen.body_keys_file == f"{mounts['keys']}/keys"
    assert secrets_in(found["env"]) == [secret_name("federator")]


def test_the_federators_pod_is_held_as_every_services_is() -> None:
    (federator,) = deployments("50-federator.yaml")
    for other in deployments("40-services.yaml"):
        for key in ("securityContext", "startupProbe", "readinessProbe", "livenessProbe", "ports"):
            assert container(federator)[key] == container(other)[key]
        pods = [one["spec"]["template"]["spec"] for one in (federator, other)]
        assert pods[0]["securityContext"] == pods[1]["securityContext"]
    assert container(federator)["resources"].keys() == {"requests", "limits"}
    assert federator["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", sorted(rendered()))
def test_every_pod_is_no_root_on_a_read_only_root_with_probes_and_bounded_resources(name: str) -> None:
    """The restricted Pod Security Standard, which the namespace enforces, leaves all but the first open."""
    assert {one["kind"] for one in documents(name)} & {"Deployment", "StatefulSet", "CronJob"}
    for document in documents(name):
        if document["kind"] in ("Deployment", "StatefulSet", "CronJob"):
            job = document["spec"].get("jobTemplate")
            pod = (job or document)["spec"]["template"]["spec"]
            (found,) = pod["containers"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert found["securityContext"]["readOnlyRootFilesystem"] is True
            if not job:  # which ends by itself
                probes = [found[one]["httpGet"]["port"] for one in ("startupProbe", "readinessProbe", "livenessProbe")]
                assert set(probes) <= {port["name"] for port in found["ports"]}
            for bound in ("requests", "limits"):
                assert found["resources"][bound].keys() == {"cpu", "memory"}


def test_the_servers_sync_every_message_that_they_acknowledge() -> None:
    assert "sync_interval: always" in documents("30-nats.yaml")[0]["data"]["nats-server.conf"]


@pytest.mark.parametrize(("servers", "replicas"), [(1, 1), (3, 3), (5, 3)])
def test_services_know_all_servers_and_ask_for_the_replicas_that_they_allow(servers: int, replicas: int) -> None:
    *_, statefulset = documents("30-nats.yaml", servers=servers)
    assert statefulset["spec"]["replicas"] == servers
    for document in deployments("40-services.yaml", servers=servers):
        environment = {entry["name"]: entry["value"] for entry in container(document)["env"] if "value" in entry}
        chosen = read({}, environment)
        assert chosen.log_replicas == replicas
        assert len(chosen.nats_url.split(",")) == servers
        assert chosen.nats_ca_file == "/etc/nats-ca/ca.crt"


def test_a_shard_of_its_own_name_is_told_it() -> None:
    arguments = [container(document)["args"] for document in deployments("40-services.yaml", shards=("0", "on"))]
    assert arguments == [["ingest"], ["planner", "--shard", "0"], ["planner", "--shard", "on"], ["binder"], ["feed"]]


def test_a_changed_configuration_restarts_the_servers() -> None:
    digests = {
        str(documents("30-nats.yaml", cluster=name)[-1]["spec"]["template"]["metadata"]["annotations"])
        for name in ("a", "b", "a")
    }
    assert len(digests) == 2


def test_a_password_begins_with_a_letter_so_that_the_server_takes_it_for_text() -> None:
    assert all(new_password()[0].isalpha() for _ in range(100))


def test_cert_manager_makes_the_secret_that_the_servers_mount() -> None:
    *_, certificate = yaml.safe_load_all((DEPLOY / "cert-manager.yaml").read_text())
    assert certificate["spec"]["secretName"] == json.loads(certificate_secret())["metadata"]["name"]
    assert (*certificate["spec"]["dnsNames"], *certificate["spec"]["ipAddresses"]) == CERTIFICATE_NAMES


def adapted(text: str, ports: list[int], number: int, directory: Path) -> str:
    """The configuration of one server for this machine: ports and paths, and loopback's name for the pods'."""
    clients, routes = ports[:3], ports[3:]
    for other in range(3):
        text = text.replace(f"nats-{other}.nats.muster-system.svc:6222", f"localhost:{routes[other]}")
    text = text.replace("port: 4222\nhttp_port: 8222", f"host: localhost\nport: {clients[number]}")
    text = text.replace("0.0.0.0:6222", f"localhost:{routes[number]}")
    text = re.sub(r"/etc/nats-tls/([\w.]+)", lambda name: quoted(directory / name[1]), text)
    return text.replace("store_dir: /data", f"store_dir: {quoted(directory / f'data-{number}')}")


@pytest.fixture
def as_configured(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Three servers of the ConfigMap's text, with the Secrets' passwords and certificate: (URL, Secret → password)."""
    secrets, (configuration, *_, statefulset) = passwords(), documents("30-nats.yaml")
    for name, value in json.loads(certificate_secret())["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(value))
    with ExitStack() as running:
        reserved = [running.enter_context(reserve_port()) for _ in range(6)]
        ports = [one.getsockname()[1] for one in reserved]
        for number in range(3):
            file = tmp_path / f"{number}.conf"
            file.write_text(adapted(configuration["data"]["nats-server.conf"], ports, number, tmp_path))
            environment = os.environ | servers_environment(statefulset, secrets, f"nats-{number}")
            log = running.enter_context(open(tmp_path / f"{number}.log", "wb"))
            process = subprocess.Popen([find_binary()[0], "-c", str(file)], env=environment, stderr=log)
            running.callback(process.wait)
            running.callback(process.terminate)
        yield ",".join(f"nats://localhost:{port}" for port in ports[:3]), secrets


async def test_three_servers_as_they_are_configured_hold_a_replicated_log(
    as_configured: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """Opened as each service's own environment says."""
    url, secrets = as_configured
    trusted = {"ca_file": str(tmp_path / "ca.crt")}
    for document in (*deployments("40-services.yaml"), *deployments("50-federator.yaml")):
        given = {entry["name"]: entry["value"] for entry in container(document)["env"] if "value" in entry}
        chosen = read({}, given | {"MUSTER_NATS_PASSWORD": secrets[secret_name(given["MUSTER_NATS_USER"])]})
        options = chosen.nats_options() | trusted
        log = await open_log(url, chosen.cluster, create=True, replicas=chosen.log_replicas, **options)
        assert await log.end() == 0
        await log.close()
    operator = await Connection(url).connect(user="operator", password=secrets["nats-user-operator"], **trusted)
    stream = json.loads(await operator.ask("$JS.API.STREAM.INFO.muster-default"))
    names = {stream["cluster"]["leader"], *(replica["name"] for replica in stream["cluster"]["replicas"])}
    assert names == {"nats-0", "nats-1", "nats-2"}
    await operator.close()


@pytest.mark.parametrize(
    ("cluster", "leaves"),
    [("hub", Leaves(("prod", "lab"))), ("prod", Leaves(joins=True)), ("both", Leaves(("lab",), joins=True))],
)
def test_servers_take_what_is_configured_for_leaf_nodes(tmp_path: Path, cluster: str, leaves: Leaves) -> None:
    """The file as it is, with the secrets' values in the environment; certificates alone are left out."""
    *_, statefulset = list(yaml.safe_load_all(rendered(cluster, leaves=leaves)["30-nats.yaml"]))
    environment = {"POD_NAME": "nats-0"}
    for entry in container(statefulset)["env"]:
        source = entry.get("valueFrom", {}).get("secretKeyRef")
        if source:
            is_url = source["name"] == "nats-federation"
            environment[entry["name"]] = "tls://leaf-prod:m1@hub.example:7422" if is_url else new_password()
    names = {port.get("name") for port in container(statefulset)["ports"]}
    assert ("leaves" in names) == bool(leaves.clusters)
    assert ("MUSTER_FEDERATION_URL" in environment) == leaves.joins
    file = tmp_path / "nats.conf"
    text = server_configuration(cluster, 3, (), leaves)
    file.write_text(re.sub(r"(?m)^\s*tls .*$", "", re.sub(r",? tls \{[^{}]*\}", "", text)))
    binary, _ = find_binary()
    command = [binary, "-t", "-c", str(file)]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("servers", [1, 3])
def test_servers_sync_each_message_before_they_acknowledge_it(servers: int) -> None:
    """Their default is every two minutes: where all lose power at once, acknowledged commits are lost."""
    assert "sync_interval: always" in server_configuration("default", servers)


def test_a_server_without_its_passwords_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(re.sub(r"(?m)^\s*tls .*$", "", server_configuration("default", 1)))
    binary, _ = find_binary()
    environment = {"POD_NAME": "nats-0"} | {password_variable(user): new_password() for user in users()}
    whole = subprocess.run(
        [binary, "-t", "-c", str(file)], env=environment, capture_output=True, text=True, check=False
    )
    assert whole.returncode == 0, whole.stderr
    del environment["MUSTER_BINDER_PASSWORD"]
    part = subprocess.run([binary, "-t", "-c", str(file)], env=environment, capture_output=True, text=True, check=False)
    assert "MUSTER_BINDER_PASSWORD" in part.stderr
    assert part.returncode != 0


# ------------------------------------------------------------------------------------------------------------- its README


def test_whoever_reads_the_log_from_outside_finds_what_is_named() -> None:
    told = (DEPLOY / "README.md").read_text()
    secrets = [json.loads(certificate_secret()), *json.loads(password_secrets())["items"]]
    made = {secret["metadata"]["name"]: secret for secret in secrets}
    read = re.findall(r"get secret (\S+) -o jsonpath='{\.data\.(\S+?)}'", told)
    assert len(read) >= 2, "a password, and the authority"
    for name, key in read:
        assert key.replace("\\", "") in made[name]["data"]
    assert re.findall("nats://[^ /]*", told) == ["nats://localhost:4222"]
    assert "localhost" in CERTIFICATE_NAMES


def test_removing_it_leaves_nothing_of_it() -> None:
    """Of what no namespace takes along."""
    told = (DEPLOY / "README.md").read_text()
    (line,) = re.findall(r"kubectl delete (clusterrole\S*) (.*)", told)
    deleted = {(kind, name) for kind in line[0].split(",") for name in line[1].split()}
    deleted |= {("namespace", name) for name in re.findall(r"kubectl delete namespace (\S+)", told)}
    made = [one for file in sorted(MANIFESTS.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text()) if one]
    scoped = [one for one in made if "namespace" not in one["metadata"]]
    left = {(one["kind"].lower(), one["metadata"]["name"]) for one in scoped} - deleted
    assert {kind for kind, _ in left} == {"customresourcedefinition"}
    assert "kubectl delete -f deploy/manifests/10-podgroup-crd.yaml" in told
