"""Public traces of real clusters as Kubernetes objects: the CSV files of the Alibaba Cluster Trace Program.

openb (cluster-trace-gpu-v2023): nodes and tasks of a GPU cluster, where a task may ask for a share of one GPU.
A node offers `muster.dev/gpu-milli`, 1000 for each GPU, and every task asks for that: `gpu_milli` where it shares a GPU,
1000 × num_gpu where it takes whole ones. Room is pooled for each node, so shares may span GPUs here as they may not in
reality: what is placed is an upper bound. The GPU's model is the node's label `nvidia.com/gpu.product`; a task's
`gpu_spec` is a required node affinity on it.

dlrm (cluster-trace-gpu-v2025): services with two roles, CN on CPU machines and HN on GPU machines, useless without each
other. `app_0` becomes the PodGroups `app-0-cn` and `app-0-hn`, each with all its instances as minMember: coscheduling's,
each alone, or, as `gang_groups`, Koordinator's, each naming both in one GangGroup, Strict or NonStrict. The trace has no
nodes: two pools of `CN_NODE` and `HN_NODE` are sized by first fit decreasing, so that everything just fits; the pools are
told apart by the label `muster.dev/pool`, which the pods select. `rdma` is a percentage of a NIC,
`muster.dev/rdma-percent`. `max_instance_per_node` is kept as an annotation; Kubernetes has no request for it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal, DecimalException
from itertools import islice
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Shape = dict[str, int]
"""cpu in milli, memory and ephemeral-storage in MiB, everything else in pieces."""

GPU_MILLI = "muster.dev/gpu-milli"
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
RDMA = "muster.dev/rdma-percent"
POOL = "muster.dev/pool"
MAX_PER_NODE = "muster.dev/max-instances-per-node"
PODGROUP_LABEL = "scheduling.x-k8s.io/pod-group"
KOORDINATORS_LABEL = "pod-group.scheduling.sigs.k8s.io"
KOORDINATORS = "gang.scheduling.koordinator.sh/"
TRACES = ("openb", "dlrm")
MODES = {"strict": "Strict", "nonstrict": "NonStrict"}
"""How the two gangs of a service may be grouped → Koordinator's word for it."""

OPENB_NODES, OPENB_PODS = "openb_node_list_all_node.csv", "openb_pod_list_default.csv"
DLRM = "disaggregated_DLRM_trace.csv"

CN_NODE: Shape = {"cpu": 192_000, "memory": 1024 * 1024, "ephemeral-storage": 3072 * 1024, RDMA: 100, "pods": 110}
"""192 cores, 1 TiB of memory, 3 TiB of disk, one NIC."""
HN_NODE: Shape = {
    "cpu": 128_000,
    "memory": 1024 * 1024,
    "ephemeral-storage": 6144 * 1024,
    RDMA: 200,
    GPU: 8,
    "pods": 110,
}
"""128 cores, 1 TiB of memory, 6 TiB of disk, two NICs, eight GPUs."""
NODES = {"cn": CN_NODE, "hn": HN_NODE}
"""By role."""


REQUESTS = {
    "cpu": ("cpu_request", 1000),
    "memory": ("memory_request", 1024),
    "ephemeral-storage": ("disk_request", 1024),
    RDMA: ("rdma_request", 1),
    GPU: ("gpu_request", 1),
}
"""Resource → dlrm's column, and how many of the resource's units one of the column's is."""

MOST = 10**15
"""Of anything."""


class TraceError(ValueError):
    """What is wrong with a trace file: names the file, the line, the column and what was expected."""


def load(trace: str, directory: Path | str, limit: int | None = None, gang_groups: str = "") -> Iterator[Object]:
    """The objects of a trace, nodes first: ``openb`` or ``dlrm``. `limit` bounds the pods (dlrm: whole services).

    `gang_groups`: of dlrm, one of `MODES`; empty: each gang alone. Raises TraceError, also for files that are not there.
    """
    directory = Path(directory)
    match trace:
        case "openb":
            yield from openb_nodes(directory / OPENB_NODES)
            yield from openb_pods(directory / OPENB_PODS, limit)
        case "dlrm":
            yield from dlrm(directory / DLRM, limit, gang_groups)
        case _:
            raise TraceError(f"trace {trace!r}: expected openb or dlrm")


# ---------------------------------------------------------------------------------------------------------------- openb


def openb_nodes(path: Path) -> Iterator[Object]:
    """A Node for each row."""
    for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        gpus = row.integer("gpu")
        shape = {"cpu": row.integer("cpu_milli"), "memory": row.integer("memory_mib"), "pods": 110}
        labels = {GPU_PRODUCT: row["model"]} if row["model"] else {}
        yield _node(row["sn"], shape | ({GPU_MILLI: gpus * 1000} if gpus else {}), labels)


def openb_pods(path: Path, limit: int | None = None) -> Iterator[Object]:
    """A Pod for each row, in the order of the file, which is that of creation."""
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
    for row in islice(_rows(path, columns), limit):
        gpus = row.integer("num_gpu")
        asked = {"cpu": row.integer("cpu_milli"), "memory": row.integer("memory_mib")}
        if gpus:
            asked[GPU_MILLI] = row.integer("gpu_milli") if gpus == 1 else gpus * 1000
        pod = _pod(row["name"], "openb", asked)
        pod["metadata"]["labels"] = {"muster.dev/qos": row["qos"]}
        if models := [model for model in row["gpu_spec"].split("|") if model]:
            expression = {"key": GPU_PRODUCT, "operator": "In", "values": models}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        yield pod


# ----------------------------------------------------------------------------------------------------------------- dlrm


def dlrm(path: Path, limit: int | None = None, gang_groups: str = "") -> Iterator[Object]:
    """Nodes, then for each service its two PodGroups and their pods; whole services up to `limit` pods, at least one."""
    services: dict[str, list[Object]] = {}
    label = KOORDINATORS_LABEL if gang_groups else PODGROUP_LABEL
    columns = ("instance_sn", "role", "app_name", *(column for column, _ in REQUESTS.values()), "max_instance_per_node")
    for row in _rows(path, columns):
        if row["role"] not in ("CN", "HN"):
            raise row.error("role", "CN or HN")
        services.setdefault(row["app_name"], []).append(_instance(row, label))
    chosen: list[list[Object]] = []
    for pods in services.values():
        if limit is not None and chosen and sum(map(len, chosen)) + len(pods) > limit:
            break
        chosen.append(pods)
    everything = [pod for pods in chosen for pod in pods]
    for role, shape in NODES.items():
        asked = [_shape(pod) for pod in everything if pod["spec"]["nodeSelector"][POOL] == role]
        for number in range(nodes_needed(asked, shape)):
            yield _node(f"{role}-{number:04}", shape, {POOL: role})
    for pods in chosen:
        yield from _grouped(pods, gang_groups) if gang_groups else _groups(pods)
        yield from pods


def _instance(row: _Row, label: str) -> Object:
    role = row["role"].lower()
    node, asked = NODES[role], {}
    for resource, (column, scale) in REQUESTS.items():
        asked[resource] = row.integer(column, scale)
        if asked[resource] > node.get(resource, 0):
            raise row.error(column, f"at most {node.get(resource, 0) // scale}, as a whole node has")
    pod = _pod(row["instance_sn"].replace("_", "-"), "dlrm", {name: n for name, n in asked.items() if n})
    pod["metadata"]["labels"] = {label: f"{row['app_name'].replace('_', '-')}-{role}"}
    if row.integer("max_instance_per_node", negative=True) > 0:
        pod["metadata"]["annotations"] = {MAX_PER_NODE: row["max_instance_per_node"]}
    pod["spec"]["nodeSelector"] = {POOL: role}
    return pod


def _groups(pods: Iterable[Object]) -> Iterator[Object]:
    for name, members in Counter(pod["metadata"]["labels"][PODGROUP_LABEL] for pod in pods).items():
        yield _pod_group("scheduling.x-k8s.io/v1alpha1", name, members, {})


def _grouped(pods: Iterable[Object], mode: str) -> Iterator[Object]:
    """The same as Koordinator's, in one GangGroup."""
    members = Counter(pod["metadata"]["labels"][KOORDINATORS_LABEL] for pod in pods)
    said = {KOORDINATORS + "mode": MODES[mode]}
    said[KOORDINATORS + "groups"] = json.dumps([f"dlrm/{name}" for name in sorted(members)])
    for name, count in members.items():
        yield _pod_group("scheduling.sigs.k8s.io/v1alpha1", name, count, said)


def _pod_group(api_version: str, name: str, members: int, annotations: dict[str, str]) -> Object:
    metadata: Object = {"name": name, "namespace": "dlrm"}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": members}}


def nodes_needed(asked: Iterable[Shape], node: Shape) -> int:
    """How many nodes of a shape first fit decreasing takes. Each pod fits a node that is empty."""
    classes = Counter(tuple(sorted((*shape.items(), ("pods", 1)))) for shape in asked)
    largest_first = sorted(classes, key=lambda shape: (-max(n / node.get(name, 1) for name, n in shape), shape))
    free: list[Shape] = []
    for shape in largest_first:
        left = classes[shape]
        place = 0
        while left:
            if place == len(free):
                free.append(dict(node))
            room = min(free[place].get(name, 0) // n for name, n in shape)
            taken = min(left, room)
            for name, n in shape:
                free[place][name] -= n * taken
            left -= taken
            place += 1
    return len(free)


# -------------------------------------------------------------------------------------------------------------- objects


def _quantities(shape: Shape) -> dict[str, str]:
    units = {"cpu": "m", "memory": "Mi", "ephemeral-storage": "Mi"}
    return {name: f"{amount}{units.get(name, '')}" for name, amount in shape.items()}


def _shape(pod: Object) -> Shape:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return {name: int(quantity.removesuffix("Mi").removesuffix("m")) for name, quantity in requests.items()}


def _node(name: str, shape: Shape, labels: dict[str, str]) -> Object:
    room = _quantities(shape)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "capacity": room,
            "allocatable": dict(room),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _pod(name: str, namespace: str, asked: Shape) -> Object:
    requests = _quantities(asked)
    extended = {resource: quantity for resource, quantity in requests.items() if "/" in resource}
    resources = {"requests": requests} | ({"limits": extended} if extended else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "trace", "resources": resources}],
        },
    }


# ----------------------------------------------------------------------------------------------------------------- rows


class _Row(dict[str, str]):
    """One row of a trace; knows where it stands."""

    where: str

    def error(self, column: str, expected: str) -> TraceError:
        return TraceError(f"{self.where}: {column}: expected {expected}, found {self.get(column, '')[:60]!r}")

    def integer(self, column: str, scale: int = 1, *, negative: bool = False) -> int:
        """The column times `scale`, rounded up; empty is 0. Raises TraceError."""
        try:
            value = Decimal(self.get(column) or 0) * scale
            small = abs(value) <= MOST
        except DecimalException:
            raise self.error(column, "a number") from None
        if not small:
            raise self.error(column, f"a number of at most {MOST}")
        rounded = int(value.to_integral_value(rounding="ROUND_CEILING"))
        if rounded < 0 and not negative:
            raise self.error(column, "a number of at least 0")
        return rounded


def _rows(path: Path, columns: Iterable[str]) -> Iterator[_Row]:
    try:
        file = path.open(newline="", encoding="utf-8-sig")  # spreadsheets put a mark before the first column
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    with file:
        reader = csv.DictReader(file)
        try:
            if missing := [column for column in columns if column not in (reader.fieldnames or ())]:
                raise TraceError(f"{path}: the column {', '.join(missing)} is missing")
            for values in reader:
                row = _Row({column: value or "" for column, value in values.items() if column is not None})
                row.where = f"{path}, line {reader.line_num}"
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path}, line {reader.line_num + 1}: {error}") from error
