"""The traces as Kubernetes objects: small files here, the real ones where they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from services.simulator.offline import served
from services.simulator.traces import (
    CN_NODE,
    GPU_MILLI,
    HN_NODE,
    RDMA,
    TraceError,
    dlrm,
    load,
    nodes_needed,
    openb_nodes,
    openb_pods,
)
from tests import shared

SHARED = shared.SHARED / "traces"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the traces are not here")

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-0,32000,262144,0,
node-1,96000,393216,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-0,12000,16384,1,1000,,LS,Running,0,12537496,0
pod-1,6000,12288,1,460,V100M16|V100M32,BE,Running,427061,12902960,427061
pod-2,2000,1024,0,0,,BE,Pending,1558381,12902960,
pod-3,2000,1024,8,1000,G2,LS,Running,1558381,12902960,1558382
"""
DLRM = """instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,disk_request,max_instance_per_node
instance_0,HN,app_0,12,1,25,120.0,680.5,8
instance_1,HN,app_0,12,1,25,120.0,680.0,8
instance_2,CN,app_0,64,0,100,320.0,255.0,-1
instance_3,CN,app_1,64,0,1,320.0,255.0,-1
instance_4,HN,app_1,8,1,25,40.0,85.0,-1
"""


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_openb_nodes_offer_their_gpus_in_thousandths(tmp_path: Path) -> None:
    plain, gpus = openb_nodes(write(tmp_path, "nodes.csv", NODES))
    assert plain["status"]["allocatable"] == {"cpu": "32000m", "memory": "262144Mi", "pods": "110"}
    assert "nvidia.com/gpu.product" not in plain["metadata"]["labels"]
    assert gpus["status"]["allocatable"][GPU_MILLI] == "8000"
    assert gpus["metadata"]["labels"]["nvidia.com/gpu.product"] == "G2"


def test_openb_tasks_ask_for_shares_or_whole_gpus(tmp_path: Path) -> None:
    pods = list(openb_pods(write(tmp_path, "pods.csv", PODS)))
    asked = [pod["spec"]["containers"][0]["resources"]["requests"].get(GPU_MILLI) for pod in pods]
    assert asked == ["1000", "460", None, "8000"]
    affinity = pods[1]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["V100M16", "V100M32"]}
    ]
    assert "affinity" not in pods[0]["spec"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"muster"}
    assert [pod["metadata"]["name"] for pod in openb_pods(tmp_path / "pods.csv", limit=2)] == ["pod-0", "pod-1"]


def test_what_openb_becomes_is_what_an_api_server_takes(tmp_path: Path) -> None:
    """Whole ones: a GPU is an extended resource, which has a limit, too."""
    nodes, pods = write(tmp_path, "nodes.csv", NODES), write(tmp_path, "pods.csv", PODS)
    room = {"cpu": "96000m", "memory": "393216Mi", "pods": "110", GPU_MILLI: "8000"}
    assert list(openb_nodes(nodes))[1] == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-1",
            "labels": {"kubernetes.io/hostname": "node-1", "nvidia.com/gpu.product": "G2"},
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }
    sharing, _, without = list(openb_pods(pods))[:3]
    asked = {"cpu": "12000m", "memory": "16384Mi", GPU_MILLI: "1000"}
    assert sharing == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod-0", "namespace": "openb", "labels": {"muster.dev/qos": "LS"}},
        "spec": {
            "schedulerName": "muster",
            "containers": [
                {"name": "main", "image": "trace", "resources": {"requests": asked, "limits": {GPU_MILLI: "1000"}}}
            ],
        },
    }
    assert without["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2000m", "memory": "1024Mi"}}


def test_dlrm_services_are_two_gangs_each(tmp_path: Path) -> None:
    objects = list(dlrm(write(tmp_path, "dlrm.csv", DLRM)))
    groups = {obj["metadata"]["name"]: obj["spec"]["minMember"] for obj in objects if obj["kind"] == "PodGroup"}
    assert groups == {"app-0-hn": 2, "app-0-cn": 1, "app-1-cn": 1, "app-1-hn": 1}
    pods = [obj for obj in objects if obj["kind"] == "Pod"]
    assert Counter(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods) == Counter(groups)
    assert next(obj for obj in objects if obj["kind"] == "PodGroup") == {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "app-0-hn", "namespace": "dlrm"},
        "spec": {"minMember": 2},
    }
    assert {pod["metadata"]["namespace"] for pod in pods} == {"dlrm"}
    assert ["annotations" in pod["metadata"] for pod in pods] == [True, True, False, False, False]
    first = pods[0]
    assert first["metadata"]["name"] == "instance-0"
    assert first["metadata"]["annotations"] == {"muster.dev/max-instances-per-node": "8"}
    assert first["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "12000m",
        "memory": "122880Mi",
        "ephemeral-storage": "696832Mi",
        RDMA: "25",
        "nvidia.com/gpu": "1",
    }
    nodes = [obj["metadata"]["labels"]["muster.dev/pool"] for obj in objects if obj["kind"] == "Node"]
    assert nodes == ["cn", "cn", "hn"]


@pytest.mark.parametrize(("asked", "mode"), [("strict", "Strict"), ("nonstrict", "NonStrict")])
def test_dlrm_services_as_gang_groups_name_both_gangs(tmp_path: Path, asked: str, mode: str) -> None:
    objects = list(dlrm(write(tmp_path, "dlrm.csv", DLRM), gang_groups=asked))
    groups = [obj for obj in objects if obj["kind"] == "PodGroup"]
    assert {obj["apiVersion"] for obj in groups} == {"scheduling.sigs.k8s.io/v1alpha1"}
    of_pods = Counter(
        obj["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] for obj in objects if obj["kind"] == "Pod"
    )
    assert {obj["metadata"]["name"]: obj["spec"]["minMember"] for obj in groups} == of_pods
    for group in groups:
        app = group["metadata"]["name"].rpartition("-")[0]
        assert group["metadata"]["annotations"] == {
            "gang.scheduling.koordinator.sh/mode": mode,
            "gang.scheduling.koordinator.sh/groups": f'["dlrm/{app}-cn", "dlrm/{app}-hn"]',
        }


def test_a_limit_takes_whole_services_but_at_least_one(tmp_path: Path) -> None:
    path = write(tmp_path, "dlrm.csv", DLRM)
    for limit, expected in ((1, 3), (3, 3), (4, 3), (5, 5), (None, 5)):
        assert sum(obj["kind"] == "Pod" for obj in dlrm(path, limit)) == expected


def test_the_mark_that_a_spreadsheet_puts_before_the_first_column_is_none_of_its_name(tmp_path: Path) -> None:
    marked, plain = (write(tmp_path, f"dlrm{len(mark)}.csv", mark + DLRM) for mark in ("\ufeff", ""))
    assert list(dlrm(marked)) == list(dlrm(plain))


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (DLRM.replace("HN,app_0,12,1", "XX,app_0,12,1"), "line 2: role: expected CN or HN, found 'XX'"),
        (DLRM.replace("64,0,1,320.0", "64,0,1,much"), "line 5: memory_request: expected a number, found 'much'"),
        (DLRM.replace("64,0,1,320.0", "64,0,1,-3"), "line 5: memory_request: expected a number of at least 0"),
        (DLRM.replace("role,", "part,"), "the column role is missing"),
        (DLRM.replace("gpu_request", "gpus"), "the column gpu_request is missing"),
        (
            DLRM.replace("CN,app_1,64", "CN,app_1,640"),
            "line 5: cpu_request: expected at most 192, as a whole node has, found '640'",
        ),
        (
            DLRM.replace("CN,app_1,64,0", "CN,app_1,64,1"),
            "line 5: gpu_request: expected at most 0, as a whole node has",
        ),
        (DLRM.replace("64,0,1,320.0", "64,0,1,nan"), "line 5: memory_request: expected a number, found 'nan'"),
        (DLRM.replace("85.0,-1", "85.0,1e99"), "line 6: max_instance_per_node: expected a number of at most 1000"),
        (DLRM.replace("85.0,-1", "85.0," + "9" * 200_000), "line 6: field larger than field limit"),
        ("", "the column instance_sn, role, app_name, cpu_request, memory_request, disk_request, rdma_request, "),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, broken: str, told: str) -> None:
    with pytest.raises(TraceError, match=told):
        list(dlrm(write(tmp_path, "dlrm.csv", broken)))


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "dlrm.csv").write_bytes(DLRM.encode() + b"instance_\xff\n")
    with pytest.raises(TraceError, match="can't decode byte 0xff"):
        list(dlrm(tmp_path / "dlrm.csv"))


def test_what_a_row_does_not_say_is_nothing_and_what_it_says_beyond_is_passed_over(tmp_path: Path) -> None:
    """As a file that was cut off has rows."""
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
    short, long = openb_pods(write(tmp_path, "pods.csv", header + "a,0.5\nb,1,1,0,0,,LS,and,more\n"))
    assert short["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1m", "memory": "0Mi"}
    assert long["metadata"]["labels"] == {"muster.dev/qos": "LS"}


def test_a_column_that_is_missing_is_named_before_any_row(tmp_path: Path) -> None:
    for text, read in ((NODES, openb_nodes), (PODS, openb_pods)):
        header = text.partition("\n")[0]
        read_of_it = header.split(",")[:7]
        for column in read_of_it:
            with pytest.raises(TraceError, match=f"x.csv: the column {column} is missing"):
                list(read(write(tmp_path, "x.csv", header.replace(column, "other", 1) + "\n")))


def test_unknown_traces_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected openb or dlrm"):
        list(load("borg", tmp_path))
    with pytest.raises(TraceError, match=r"openb_node_list_all_node\.csv"):
        list(load("openb", tmp_path))


def test_pools_are_sized_by_first_fit_decreasing() -> None:
    node = {"cpu": 10, "pods": 3}
    assert nodes_needed([], node) == 0
    assert nodes_needed([{"cpu": 6}, {"cpu": 4}, {"cpu": 5}, {"cpu": 5}], node) == 2
    assert nodes_needed([{"cpu": 1}] * 7, node) == 3
    assert nodes_needed([{"cpu": 6}] * 3, node) == 3
    # The largest first, by what it takes most of: in the order in which they come these would take one node more.
    assert nodes_needed([{"cpu": 3}, {"cpu": 3}, {"cpu": 7}, {"cpu": 7}], node) == 2
    assert (
        nodes_needed([{"cpu": 40, "gpu": 1}] * 2 + [{"cpu": 1, "gpu": 7}] * 2, {"cpu": 100, "gpu": 8, "pods": 9}) == 2
    )


@real
def test_the_real_openb_trace() -> None:
    objects = list(load("openb", SHARED))
    assert Counter(obj["kind"] for obj in objects) == {"Node": 1523, "Pod": 8152}
    gpus = sum(int(obj["status"]["allocatable"].get(GPU_MILLI, 0)) for obj in objects if obj["kind"] == "Node")
    assert gpus == 6212 * 1000
    assert len(served(load("openb", SHARED, limit=50))) == 1523 + 50


@real
def test_the_real_dlrm_trace() -> None:
    objects = list(load("dlrm", SHARED))
    kinds = Counter(obj["kind"] for obj in objects)
    assert (kinds["PodGroup"], kinds["Pod"]) == (312, 23871)
    groups = {obj["metadata"]["name"]: obj["spec"]["minMember"] for obj in objects if obj["kind"] == "PodGroup"}
    assert sum(groups.values()) == 23871
    pools = Counter(obj["metadata"]["labels"]["muster.dev/pool"] for obj in objects if obj["kind"] == "Node")
    # No fewer than the scarcest resource of each pool allows.
    pods = [obj for obj in objects if obj["kind"] == "Pod"]
    requests = {
        role: [
            pod["spec"]["containers"][0]["resources"]["requests"]
            for pod in pods
            if pod["spec"]["nodeSelector"]["muster.dev/pool"] == role
        ]
        for role in ("cn", "hn")
    }
    cores = sum(int(asked["cpu"].removesuffix("m")) for asked in requests["cn"])
    assert pools["cn"] >= cores / CN_NODE["cpu"]
    rdma = sum(int(asked[RDMA]) for asked in requests["hn"])
    assert pools["hn"] >= rdma / HN_NODE[RDMA]
