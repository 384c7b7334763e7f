"""Simulate: manifests in, placements and reasons out; the same on every machine."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from events.policy import DEFAULT_POLICY
from services.cli.muster import app
from services.console import show
from services.console.policy import changed
from services.console.profiles import PROFILES, UnknownProfile, profile
from services.console.simulate import Simulation, simulate
from services.console.verify import verify
from services.simulator.manifests import load_yaml
from services.state.validate import validate_state
from tests import shared
from tests.manifests import GANG, pod_group

SHARED = shared.SHARED / "manifests" / "coscheduling"
EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
GOLDEN = Path(__file__).parent / "golden"


def node(name: str, cpu: str = "8", memory: str = "32Gi", **labels: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def pod_spec(cpu: str = "1", **fields: object) -> dict:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"containers": [container], **fields}


def pod(name: str, cpu: str = "1", labels: dict | None = None, **fields: object) -> dict:
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(cpu, **fields)}


def workload(kind: str, name: str, replicas: int, labels: dict | None = None, **asks: str) -> dict:
    labels = {"app": name, **(labels or {})}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**asks)}
    spec: dict = {"template": template}
    if kind == "Job":
        spec |= {"parallelism": replicas, "completions": replicas}
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec |= {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def placed(*objects: dict, policy=DEFAULT_POLICY) -> dict:
    simulation = simulate(objects, policy)
    validate_state(simulation.state)
    return simulation.answer()


def given_out(told: dict, **metadata: object) -> dict:
    """As a server says of a pod that it has."""
    told["metadata"] |= {"uid": f"uid-of-{told['metadata']['name']}", **metadata}
    return told


def test_a_pod_of_a_cluster_keeps_the_priority_that_it_got_when_it_was_made() -> None:
    """A default came since, and a class went."""
    usual = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "usual"}}
    bound = [
        given_out(pod("old", "3", nodeName="n", priority=0)),
        given_out(pod("older", "1", nodeName="n", priority=5, priorityClassName="gone")),
    ]
    found = placed(node("n", "4"), usual | {"value": 100, "globalDefault": True}, *bound, pod("new", "1"))
    assert found["rejected"] == []
    assert found["waiting"] == {"default/new": "0/1 nodes are available: 1 Insufficient cpu."}


def test_a_pod_of_a_cluster_holds_what_its_status_says() -> None:
    resized = given_out(pod("resized", "1", nodeName="n"))
    actual = {"name": "main", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}}
    resized["status"] = {"phase": "Running", "containerStatuses": [actual]}
    found = placed(node("n", "4"), resized, pod("new", "2"))
    assert found["waiting"] == {"default/new": "0/1 nodes are available: 1 Insufficient cpu."}


def test_a_pod_of_a_cluster_that_is_on_its_way_out_is_no_member_and_holds_its_room() -> None:
    gang = {"scheduling.x-k8s.io/pod-group": "g"}
    since = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    going = given_out(pod("going", "3", labels=gang, nodeName="n"), **since)
    never = given_out(pod("never", "1"), finalizers=["a/b"], **since)
    found = placed(node("n", "4"), pod_group("g", 2), going, never, pod("b", labels=gang), pod("c", "2"))
    assert found["bound"] == {"default/going": "n"}
    assert found["waiting"] == {
        "default/b": "gang default/g has 1 of its minimum of 2 pods: less than minAvailable",
        "default/c": "0/1 nodes are available: 1 Insufficient cpu.",
    }


def test_a_pod_may_take_centuries_to_end() -> None:
    vm = pod("vm", "3", nodeName="n", terminationGracePeriodSeconds=1 << 32)
    found = placed(node("n", "4"), vm, pod("new", "2"))
    assert (found["rejected"], list(found["waiting"])) == ([], ["default/new"])


def test_workloads_are_expanded_and_placed() -> None:
    kinds = ("Deployment", "ReplicaSet", "StatefulSet", "Job")
    found = placed(node("n1"), node("n2"), *(workload(kind, kind.lower(), 3) for kind in kinds))
    assert len(found["bound"]) == 12
    assert {"default/statefulset-0", "default/statefulset-1", "default/statefulset-2"} <= set(found["bound"])
    assert found["waiting"] == {}
    assert found["evicted"] == []


def daemons(name: str, cpu: str = "1", **fields: object) -> dict:
    found = workload("DaemonSet", name, 0)
    found["spec"]["template"]["spec"] = pod_spec(cpu, **fields)
    return found


def test_a_daemon_set_takes_its_room_on_each_node() -> None:
    """As it was: it was named as not read, took no room, and a gang fitted that does not fit."""
    nodes = [node("n1", cpu="4"), node("n2", cpu="4", gpu="yes")]
    gang = [pod_group("g", 4), *(pod(f"g-{number}", "2", {GANG: "g"}) for number in range(4))]
    assert len(placed(*nodes, *gang)["bound"]) == 4
    found = placed(*nodes, daemons("agent"), *gang)
    assert sorted(found["bound"].values()) == ["n1", "n2"]
    assert all(name.startswith("default/agent-") for name in found["bound"])
    assert (found["unread"], found["warnings"], found["rejected"]) == ({}, [], [])
    assert "Insufficient cpu" in found["waiting"]["default/g-0"]
    found = placed(*nodes, daemons("agent", nodeSelector={"gpu": "yes"}), *gang)
    assert list(found["bound"].values()) == ["n2"]


def test_a_daemon_for_which_its_node_has_no_room_waits_for_that_node() -> None:
    found = placed(node("n1", cpu="4"), node("n2", cpu="1"), daemons("agent", "2"))
    assert list(found["bound"].values()) == ["n1"]
    (why,) = found["waiting"].values()
    assert why.startswith("0/2 nodes are available")


def test_a_daemon_goes_to_a_node_that_is_cordoned_and_none_is_made_for_one_that_is_refused() -> None:
    cordoned, odd = node("n1"), node("N2")
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    found = placed(cordoned, odd, daemons("agent"))
    assert (list(found["bound"].values()), found["waiting"]) == (["n1"], {})


def test_a_daemon_set_that_no_node_takes_is_told() -> None:
    (said,) = placed(node("n1"), daemons("agent", nodeSelector={"gpu": "yes"}))["warnings"]
    assert said.startswith("DaemonSet default/agent: no pod is made of it: no node has what")


def test_a_daemon_set_listed_with_its_pods_makes_no_others(tmp_path: Path) -> None:
    agent = daemons("agent")
    listed = given_out(
        pod("agent-x7kqb", nodeName="n1"),
        ownerReferences=[
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
        ],
    )
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n1"), agent, listed]}))
    assert placed(*load_yaml([file]))["bound"] == {"default/agent-x7kqb": "n1"}


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    objects = [node("n1"), node("n2"), pod_group("fits", 12), workload("Job", "fits", 12, {GANG: "fits"})]
    objects += [pod_group("never", 20), workload("Job", "never", 20, {GANG: "never"})]
    found = placed(*objects)
    assert found["gangs"]["default/fits"] == {
        "dialect": "coscheduling/v1alpha1",
        "min_member": 12,
        "members": 12,
        "bound": 12,
        "waiting": 0,
        "phase": "Running",
    }
    assert found["gangs"]["default/never"]["bound"] == 0
    assert len(found["waiting"]) == 20
    assert all(why.startswith("0/2 nodes are available: 2 Insufficient cpu.") for why in found["waiting"].values())


def test_two_gangs_of_more_than_half_never_deadlock() -> None:
    """Pod by pod each would hold half of the cluster and wait for the rest."""
    jobs = [
        thing for name in ("one", "two") for thing in (pod_group(name, 10), workload("Job", name, 10, {GANG: name}))
    ]
    found = placed(node("n1"), node("n2"), *jobs)
    assert sorted(gang["bound"] for gang in found["gangs"].values()) == [0, 10]


def test_every_scheduler_name_is_a_candidate_and_bound_pods_hold_their_room() -> None:
    objects = [node("n1", cpu="4"), pod("taken", "3", nodeName="n1"), pod("a", schedulerName="volcano"), pod("b")]
    found = placed(*objects)
    assert found["bound"] == {"default/a": "n1", "default/taken": "n1"}
    assert list(found["waiting"]) == ["default/b"]


def test_a_pod_group_has_its_place_in_the_order_of_the_files_too() -> None:
    """The node has room for either: what stands first in the files goes first, be it a pod or a PodGroup."""
    gang = [pod_group("g", 2), pod("g-0", "3", labels={GANG: "g"}), pod("g-1", "3", labels={GANG: "g"})]
    alone = pod("alone", "3")
    assert set(placed(node("n1"), *gang, alone)["bound"]) == {"default/g-0", "default/g-1"}
    assert set(placed(node("n1"), alone, *gang)["bound"]) == {"default/alone"}


def test_pods_are_tried_by_priority_and_then_in_the_order_of_the_files() -> None:
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
    ]
    names = ["z", "y", "x", "w"]
    found = placed(node("n1", cpu="3"), *map(pod, names), pod("v", priorityClassName="high"), *classes)
    assert sorted(found["bound"]) == ["default/v", "default/y", "default/z"]


def test_a_bad_declaration_costs_its_own_object_and_is_shown() -> None:
    labels = {"pod-group.scheduling.x-k8s.io/name": "g", "pod-group.scheduling.x-k8s.io/min-available": "abc"}
    found = placed(node("n1"), node("bad", cpu="many"), pod("odd", labels=labels), pod("good"))
    assert found["bound"] == {"default/good": "n1"}
    assert "'abc'" in found["waiting"]["default/odd"]
    assert len(found["rejected"]) == 2
    assert any("'many'" in said for said in found["rejected"])


def test_gated_pods_and_unsupported_constraints_wait_with_their_reason() -> None:
    spread = [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]
    found = placed(
        node("n1"),
        pod("gated", schedulingGates=[{"name": "later"}]),
        pod("spread", topologySpreadConstraints=spread),
    )
    assert "gates" in found["waiting"]["default/gated"]
    assert "topologySpreadConstraints" in found["waiting"]["default/spread"]


def test_binpack_fills_a_node_before_the_next() -> None:
    objects = [node("n1"), node("n2"), node("n3"), *(pod(f"p{i}") for i in range(8))]
    spread = placed(*objects)["bound"]
    packed = placed(*objects, policy=changed(DEFAULT_POLICY, {"profile": "binpack"}))["bound"]
    assert len(set(spread.values())) == 3
    assert len(set(packed.values())) == 1


def test_an_unknown_profile_names_those_that_there_are() -> None:
    with pytest.raises(UnknownProfile, match="expected one of default, binpack"):
        profile("fastest")


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_nodes_does_not_matter(seed: int) -> None:
    nodes = [node(f"n{i}", cpu=str(2 + i % 3)) for i in range(9)]
    things = [pod_group("g", 7), workload("Job", "g", 7, {GANG: "g"}), workload("Deployment", "d", 9, cpu="2")]
    expected = placed(*nodes, *things)
    random.Random(seed).shuffle(nodes)
    assert placed(*things, *nodes) == expected


@pytest.mark.parametrize("name", PROFILES)
async def test_its_log_verifies(name: str) -> None:
    objects = [node("n1"), pod_group("g", 7), workload("Job", "g", 7, {GANG: "g"}), workload("Deployment", "d", 9)]
    simulation = simulate(objects, changed(DEFAULT_POLICY, {"profile": name}))
    report = await verify(simulation.log)
    assert report.verified
    assert report.digest == simulation.answer()["digest"]
    assert report.decided > 0


def test_time_passes_only_for_what_waits_for_it() -> None:
    simulation = simulate([node("n1"), pod("fits"), pod("never", "99")])
    assert not any(b'"tick"' in stored.header for stored in simulation.log.commits)


def test_a_gang_that_holds_what_it_found_gives_it_back_when_its_time_is_over() -> None:
    """NonStrict, of seed 002: two of its three pods wait at permit, and nothing else happens until they time out."""
    prefix = "gang.scheduling.koordinator.sh"
    says = {f"{prefix}/name": "g", f"{prefix}/min-available": "3", f"{prefix}/mode": "NonStrict"}
    pods = [pod(f"g-{number}", "4") for number in range(3)]
    for each in pods:
        each["metadata"]["annotations"] = says
    simulation = simulate([node("n1", "8"), *pods])
    found = simulation.answer()
    assert found["bound"] == {}
    assert len(found["waiting"]) == 3
    assert all("timeout" in why for why in found["waiting"].values()), found["waiting"]
    assert any(b'"tick"' in stored.header for stored in simulation.log.commits)
    assert found["warnings"] == []


def test_time_that_passes_no_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what waited just then was the answer, without a word."""
    monkeypatch.setattr("services.console.simulate.MAX_TICKS", 1)
    prefix = "gang.scheduling.koordinator.sh"
    pods = [pod(f"g-{number}", "4") for number in range(3)]
    for each in pods:
        each["metadata"]["annotations"] = {
            f"{prefix}/name": "g",
            f"{prefix}/min-available": "3",
            f"{prefix}/mode": "NonStrict",
        }
    assert placed(node("n1", "8"), *pods)["warnings"] == [
        "time passed 1 times, and no more here: what waits might go on later"
    ]


def test_nothing_at_all_is_answered_too() -> None:
    assert placed()["bound"] == {}
    assert Simulation().answer()["gangs"] == {}


def test_what_a_server_would_refuse_costs_itself_only() -> None:
    refused = pod_group("g", 2)
    refused["spec"]["minMember"] = "abc"
    found = placed(node("n1"), refused, pod("a"), pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert [why.partition(":")[0] for why in found["rejected"]] == [
        'PodGroup.scheduling.x-k8s.io "g" is invalid',
        'pods "a" already exists (namespace default)',
    ]


def test_a_workload_that_a_server_would_refuse_is_refused_once_and_makes_no_pods() -> None:
    """They were placed, and said to be bound: of what `kubectl apply` would not have taken."""
    restarted, unselected = workload("Job", "j", 3), workload("Deployment", "d", 2)
    del restarted["spec"]["template"]["spec"]["restartPolicy"]
    del unselected["spec"]["selector"]
    mistyped = workload("Deployment", "m", 2)
    mistyped["spec"]["template"]["spec"]["tolerations"] = [{"key": "k", "operator": "Exist"}]
    found = placed(node("n1"), restarted, unselected, mistyped, workload("Job", "ok", 1))
    assert len(found["bound"]) == 1
    assert found["waiting"] == {}
    assert [why.split(": ")[:2] for why in found["rejected"]] == [
        ['Job.batch "j" is invalid', "spec.template.spec.restartPolicy"],
        ['Deployment.apps "d" is invalid', "spec.selector"],
        ['Deployment.apps "m" is invalid', "spec.template.spec.tolerations[0].operator"],
    ]


def test_a_template_that_makes_bad_pods_is_told_once_with_what_it_costs() -> None:
    """As it was: a line for each pod, so that one mistake of a large Job hid all others."""
    nameless = workload("Deployment", "d", 3)
    nameless["spec"]["template"]["spec"]["priorityClassName"] = "nobody"
    unreadable = workload("Job", "j", 2, cpu="abc")
    template = {"template": {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec(cpu="abc")}}}}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, **template}]},
    }
    alone = pod("alone", runtimeClassName="nowhere")
    found = simulate([node("n"), nameless, unreadable, job_set, alone, pod("good")]).answer()
    assert [re.sub(r"-[a-z0-9]{5}\b", "-*", line) for line in found["rejected"]] == [
        'Deployment default/d, 3 pods: pods "d-7bf7dfddd4-*" is forbidden: no PriorityClass with name nobody was found '
        "(namespace default)",
        'pods "alone" is forbidden: pod rejected: RuntimeClass "nowhere" not found (namespace default)',
        "Job default/j, 2 pods: Pod default/j-*: spec.containers[0].resources.requests.cpu is 'abc'; expected a "
        "quantity such as 500m, 1.5, 2Gi or 1e3",
        "JobSet default/s, 4 pods: Pod default/s-w-0-0-*: spec.containers[0].resources.requests.cpu is 'abc'; expected "
        "a quantity such as 500m, 1.5, 2Gi or 1e3",
    ]
    assert found["bound"] == {"default/good": "n"}


def test_the_claims_of_a_stateful_set_are_not_overlooked() -> None:
    """Its pods were placed as if they had no volumes: the controller adds them."""
    database = workload("StatefulSet", "db", 1)
    database["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {}}]
    found = placed(node("n1"), database)
    assert found["waiting"] == {"default/db-0": "not supported yet: persistentVolumeClaim"}


@pytest.mark.parametrize("template", [["x"], {"spec": 3}, {"metadata": {"labels": []}}, {"metadata": "x"}])
def test_a_training_jobs_template_that_is_none_costs_itself_only(template: object) -> None:
    """It ended the command with a traceback."""
    kubeflow, volcano = "kubeflow.org/v1", "batch.volcano.sh/v1alpha1"
    specs = {
        ("PyTorchJob", kubeflow): {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
        ("Job", volcano): {"tasks": [{"name": "t", "template": template}]},
    }
    jobs = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}
        for (kind, version), spec in specs.items()
    ]
    found = placed(node("n1"), *jobs, pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert all(".template" in why for why in found["rejected"])
    assert len(found["rejected"]) == 2


@pytest.mark.parametrize("count", [1 << 40, -1, "x"])
def test_a_count_that_no_cluster_bears_is_refused_for_every_kind_of_job(count: object) -> None:
    """Pods were made, one by one, until the memory was full."""
    template = {"spec": pod_spec()}
    specs = {
        ("PyTorchJob", "kubeflow.org/v1"): {"pytorchReplicaSpecs": {"W": {"replicas": count, "template": template}}},
        ("Job", "batch.volcano.sh/v1alpha1"): {"tasks": [{"replicas": count, "template": template}]},
        ("JobSet", "jobset.x-k8s.io/v1alpha2"): {
            "replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": count, "template": template}}}]
        },
    }
    jobs = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}
        for (kind, version), spec in specs.items()
    ]
    found = placed(node("n1"), *jobs, pod("a"))
    assert found["bound"] == {"default/a": "n1"}
    assert len(found["rejected"]) == 3


def test_a_job_sets_pods_restart_on_failure_unless_it_says_more() -> None:
    """Their template need not say it, though that of a Job must."""
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": pod_spec()}}}}]}
    name = {"name": "x", "namespace": "default"}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": name, "spec": spec}
    assert len(placed(node("n1"), job_set)["bound"]) == 1
    spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    found = placed(node("n1"), job_set)
    assert found["bound"] == {}
    assert "restartPolicy" in found["rejected"][0]


def test_a_document_that_is_no_object_costs_itself_only(tmp_path: Path) -> None:
    odd = pod("odd") | {"metadata": {"name": "odd", "labels": {"size": 3}}}
    file = tmp_path / "all.yaml"
    file.write_text("\n---\n".join(map(json.dumps, [node("n1"), odd, {"kind": "Pod"}, pod("a")])))
    said = CliRunner().invoke(app, ["simulate", "-f", str(file), "--json"])
    assert said.exit_code == 0
    found = json.loads(said.stdout)
    assert found["bound"] == {"default/a": "n1"}
    assert found["rejected"] == [
        f"{file}, document 2, Pod odd: metadata.labels[size]: expected a string, found int 3",
        f"{file}, document 3: apiVersion: expected a name, found nothing",
    ]


def test_the_configuration_of_a_program_is_told(tmp_path: Path) -> None:
    """As it was: nothing was said of it."""
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    told = json.loads(CliRunner().invoke(app, ["simulate", "-f", str(file), "--json"]).stdout)
    assert told["unread"] == {"KubeSchedulerConfiguration kubescheduler.config.k8s.io/v1": 1}
    assert told["rejected"] == []


def test_pods_that_wait_for_one_reason_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    show.answer(placed(node("n1"), *(pod(f"large-{number}", "99") for number in range(9)), pod("odd", "many")))
    said = capsys.readouterr().out
    assert said.count("Insufficient cpu") == 1
    assert "… 6 more" in said
    assert "default/odd" in said


def test_what_is_not_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As it was: a DaemonSet, or a kind that was mistyped, was dropped in silence."""
    others = [("v1", "ConfigMap"), ("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "Pood"), ("v2", "Pod")]
    objects = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": f"x{n}"}} for n, (version, kind) in enumerate(others)
    ]
    found = placed(node("n1"), workload("Job", "j", 1), pod_group("g", 1), *objects)
    assert found["unread"] == {"ConfigMap v1": 2, "CronJob batch/v1": 1, "Pod v2": 1, "Pood v1": 1}
    show.answer(found)
    assert "without effect: 2 ConfigMap v1, 1 CronJob batch/v1, 1 Pod v2, 1 Pood v1\n" in capsys.readouterr().out


def test_without_nodes_that_is_the_reason() -> None:
    assert placed(pod("a"))["waiting"] == {"default/a": "no nodes available to schedule pods"}


def test_a_rejection_says_what_is_missing_and_names_what_has_no_namespace() -> None:
    bare = node("n1")
    del bare["status"]["allocatable"]
    assert placed(bare)["rejected"] == [
        "Node n1: status.allocatable is empty or missing; expected a quantity for each resource"
    ]
    odd = pod("odd")
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = [1]
    (why,) = placed(node("n1"), odd)["rejected"]
    assert why.endswith("resources.requests[...]: expected int | float | str, got array")


def test_objects_may_come_from_stdin() -> None:
    said = CliRunner().invoke(app, ["simulate", "-f", "-", "--json"], input=json.dumps(pod("a")))
    assert json.loads(said.stdout)["waiting"].keys() == {"default/a"}
    for content, told in (
        (b"\xff", "expected text in UTF-8"),
        (b"a: [", "document 1: not YAML"),
        (b"[]", "document 1"),
    ):
        refused = CliRunner().invoke(app, ["simulate", "-f", "-"], input=content)
        assert refused.exit_code == 2
        assert re.match(f"error: stdin[:,] {told}", refused.stderr)


def test_no_objects_at_all_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("---\n# nothing\n")
    said = CliRunner().invoke(app, ["simulate", "-f", str(tmp_path / "empty.yaml")])
    assert (said.exit_code, said.stderr) == (
        2,
        f"error: {tmp_path}/empty.yaml: expected Kubernetes objects, found none\n",
    )


def test_in_a_pipe_nothing_is_folded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a" * 60
    show.answer(placed(node("n1"), pod(name, "99")))
    why = "0/1 nodes are available: 1 Insufficient cpu."
    assert any(name in line and why in line for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(("golden", "name"), [("two-gangs", "default"), ("two-gangs-binpack", "binpack")])
def test_the_example_is_placed_as_it_always_was(golden: str, name: str) -> None:
    """Where something else is right from now on: ``muster simulate -f … --json``, less the digest, is the new file."""
    objects = load_yaml([EXAMPLES / "nodes.yaml", EXAMPLES / "two-gangs.yaml"])
    found = placed(*objects, policy=changed(DEFAULT_POLICY, {"profile": name}))
    assert found == json.loads((GOLDEN / f"{golden}.json").read_text()) | {"digest": found["digest"]}


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_the_digest_does_not_depend_on_the_hash_seed(seed: str, tmp_path: Path) -> None:
    things = [*(node(f"n{i}") for i in range(5)), pod_group("g", 9), workload("Job", "g", 9, {GANG: "g"})]
    things += [workload("Deployment", "d", 20), pod("never", "99")]
    file = tmp_path / "all.yaml"
    file.write_text("\n---\n".join(map(json.dumps, things)))
    command = [sys.executable, "-m", "services", "simulate", "-f", str(file), "--json"]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(said) == simulate(load_yaml([file])).answer()


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
def test_the_coscheduling_manifests_go_through_unchanged() -> None:
    files = sorted(file for file in SHARED.glob("*.yaml") if ".fragment." not in file.name)
    objects = load_yaml(files)
    assert {"PodGroup", "ReplicaSet", "Deployment", "ElasticQuota"} <= {obj["kind"] for obj in objects}
    found = placed(node("n1"), node("n2"), node("n3"), *objects)
    assert found["gangs"]["default/nginx"]["phase"] == "Running"
    assert found["gangs"]["default/nginx"]["bound"] == 6
    assert set(found["waiting"].values()) == {"gang default/pg1 has 2 of its minimum of 3 pods: less than minAvailable"}


def test_a_suspended_workload_is_told() -> None:
    """Of it no pods are made: without a word the answer would be empty."""
    job = workload("Job", "later", 2)
    job["spec"]["suspend"] = True
    training = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 2}}},
    }
    of_another_group = {"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job["spec"]}
    found = simulate([node("n1"), job, training, of_another_group, workload("Job", "now", 1)]).answer()
    assert found["warnings"] == [
        "Job default/later: it is suspended: no pods are made of it before it is resumed",
        "PyTorchJob team/train: it is suspended: no pods are made of it before it is resumed",
    ]
    assert len(found["bound"]) == 1


def test_bound_pods_that_keep_others_away_are_told_once() -> None:
    """As it was: others were placed beside them, and nothing was said (ARCHITECTURE.md, known limits)."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    keeping = [pod(name, affinity=affinity, nodeName="n") for name in ("a", "b")]
    found = simulate([node("n"), *keeping, pod("c"), pod("d", affinity=affinity)]).answer()
    assert found["warnings"] == [
        "Pod default/a and 1 more: the required podAntiAffinity of a bound pod keeps no other pod away here"
    ]
    assert found["bound"]["default/c"] == "n"
    assert found["waiting"] == {"default/d": "not supported yet: required podAntiAffinity"}
