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

import events as ev
from events.policy import DEFAULT_POLICY
from services.cli.muster import app
from services.console import show
from services.console.policy import changed
from services.console.profiles import PROFILES, UnknownProfile, profile
from services.console.simulate import Simulation, simulate
from services.console.verify import verify
from services.simulator.operators.pod_groups import GROUP_NAME
from tests import shared
from tests.console.manifests import given_out, node, placed, pod, workload
from tests.manifests import GANG, load_yaml, pod_group

SHARED = shared.SHARED / "manifests" / "coscheduling"
EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
GOLDEN = Path(__file__).parent / "golden"


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


def test_what_a_cluster_has_is_tried_by_its_age_and_what_is_new_behind_it() -> None:
    """As it was: by name, as kubectl lists, so that a new pod had the room for which an older one waits."""
    new, young, old = (pod(name, "3") for name in ("a", "b", "c"))
    given_out(young, creationTimestamp="2026-03-01T00:00:00Z")
    given_out(old, creationTimestamp="2026-01-01T00:00:00Z")
    assert placed(node("n", "4"), new, young, old)["bound"] == {"default/c": "n"}
    assert placed(node("n", "4"), new, young)["bound"] == {"default/b": "n"}


def test_what_a_cluster_created_in_the_same_second_is_of_one_age_in_whatever_order_it_is_given() -> None:
    pods = [given_out(pod(name, "3"), creationTimestamp="2026-01-01T00:00:00Z") for name in ("b", "a")]
    assert len(placed(node("n", "4"), *pods)["bound"]) == 1
    assert placed(node("n", "4"), *pods)["bound"] == placed(node("n", "4"), *reversed(pods))["bound"]


def test_a_gang_of_a_cluster_is_as_old_as_its_pod_group_and_pods_that_are_made_as_their_workload() -> None:
    gang = given_out(pod_group("g", 1), creationTimestamp="2026-01-01T00:00:00Z")
    member = given_out(pod("z", "3", labels={GANG: "g"}), creationTimestamp="2026-03-01T00:00:00Z")
    alone = given_out(pod("a", "3"), creationTimestamp="2026-02-01T00:00:00Z")
    assert placed(node("n", "4"), alone, gang, member)["bound"] == {"default/z": "n"}
    job = given_out(workload("Job", "job", 1, cpu="3"), creationTimestamp="2026-01-01T00:00:00Z")
    assert list(placed(node("n", "4"), alone, job)["waiting"]) == ["default/a"]


def test_a_gang_of_a_cluster_that_its_pods_declare_is_as_old_as_the_first_of_them() -> None:
    says = {f"gang.scheduling.koordinator.sh/{field}": text for field, text in (("name", "g"), ("min-available", "2"))}
    young, old = (given_out(pod(name, "2"), annotations=says) for name in ("a", "z"))
    alone = given_out(pod("b", "3"))
    for month, one in enumerate((old, alone, young), 1):
        one["metadata"]["creationTimestamp"] = f"2026-0{month}-01T00:00:00Z"
    assert set(placed(node("n", "4"), young, alone, old)["bound"]) == {"default/a", "default/z"}


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


def test_a_pod_that_runs_does_not_wait() -> None:
    """As it was: one whose gang cannot be read stood under `waiting`, though it held its room."""
    gang = {"gang.scheduling.koordinator.sh/name": "not a name"}
    runs, new = given_out(pod("runs", "6", nodeName="n", priority=0)), pod("new")
    runs["status"] = {"phase": "Running"}
    for one in (runs, new):
        one["metadata"]["annotations"] = gang
    found = placed(node("n"), runs, new, pod("large", "3"))
    assert found["bound"] == {"default/runs": "n"}
    assert list(found["waiting"]) == ["default/large", "default/new"]
    assert [line.partition(": ")[0] for line in found["rejected"]] == ["Pod default/runs", "Pod default/new"]


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


def test_a_pod_group_that_cannot_be_read_is_no_pod_that_waits() -> None:
    group = pod_group("g", 1)
    group["spec"]["minMember"] = -1
    found = placed(node("n1"), group, pod("a"))
    assert (found["bound"], found["waiting"]) == ({"default/a": "n1"}, {})
    assert [line.partition(":")[0] for line in found["rejected"]] == ["PodGroup default/g"]


def test_binpack_fills_a_node_before_the_next(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), node("n3"), *(pod(f"p{i}") for i in range(8))]
    spread = placed(*objects)["bound"]
    packed = placed(*objects, policy=changed(DEFAULT_POLICY, {"profile": "binpack"}))["bound"]
    assert len(set(spread.values())) == 3
    assert len(set(packed.values())) == 1
    (tmp_path / "all.json").write_text("\n---\n".join(map(json.dumps, objects)))
    for name, bound in (("default", spread), ("binpack", packed)):
        said = CliRunner().invoke(app, ["simulate", "-f", str(tmp_path), "--profile", name, "--json"])
        assert (said.exit_code, json.loads(said.stdout)["bound"]) == (0, bound)


def test_an_unknown_profile_names_those_that_there_are() -> None:
    with pytest.raises(UnknownProfile, match=r"^--profile 'fastest': expected one of default, binpack"):
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


def test_who_is_evicted_is_named_and_gone() -> None:
    """No manifest makes a member fail, so one does here: behind what was simulated, and nobody comes in its place."""
    policy = changed(DEFAULT_POLICY, {"replacement_policy": "evict"})
    members = [pod(name, labels={GANG: "g"}) for name in ("a", "b")]
    simulation = simulate([node("n1"), pod_group("g", 2), *members], policy)
    (failed,) = (one.fact for one in simulation.state.pods.values() if one.fact.name == "a")
    named = {"uid": failed.uid, "namespace": failed.namespace, "name": failed.name, "resource_version": "9"}
    simulation.append("ingest", [ev.PodFinished(**named, succeeded=False, reason="OutOfcpu")], "facts")
    simulation.settle()
    found = simulation.answer()
    assert found["evicted"] == ["default/b"]
    assert "default/b" not in found["bound"]


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
    assert why.endswith("resources.requests[cpu]: expected int | float | str, got array")


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


def test_a_pod_group_of_a_class_of_the_systems_goes_first() -> None:
    """As it was: such a class was not there, as nobody has it in a file."""
    groups = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": 2} | ({"priorityClassName": name} if name != "none" else {}),
        }
        for name in ("none", "system-cluster-critical")
    ]
    pods = [pod(f"{group['metadata']['name']}-{number}") for group in groups for number in range(2)]
    for each in pods:
        each["metadata"]["annotations"] = {GROUP_NAME: each["metadata"]["name"].rpartition("-")[0]}
    found = placed(node("n", cpu="2"), *groups, *pods)
    assert list(found["bound"]) == ["default/system-cluster-critical-0", "default/system-cluster-critical-1"]
