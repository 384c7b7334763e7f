"""Random small clusters and pods for `test_filters`, drawn so that they meet at the edges of what filters decide.

Quantities, label values, taints and ports come from short lists, for nodes and pods alike: exactly enough is as frequent
as one too few. Everything follows from one number. The API server refuses some of it (huge pages without memory, pod
requests below those of the containers): that costs these objects only.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from deploy.e2e.api import Object

CPU = ("0", "1m", "250m", "500m", "0.5", "999m", "1", "1001m", "1.0005", "2", "2e0", "3", "64")
MEMORY = ("0", "1", "1Ki", "64Mi", "128974848", "129e6", "1G", "1Gi", "1073741825", "1.5Gi", "2Gi", "900Gi")
STORAGE = ("0", "1", "500M", "1Gi", "1.1Gi", "2Gi", "1Ti")
DEVICES = ("0", "1", "2", "3", "8", "1000000000000")
PAGES = ("0", "2Mi", "4Mi", "6Mi")
LARGE_PAGES = ("0", "1Gi", "2Gi")
POOLS = {
    "cpu": CPU,
    "memory": MEMORY,
    "ephemeral-storage": STORAGE,
    "nvidia.com/gpu": DEVICES,
    "example.com/fpga": DEVICES,
    "kubernetes.io/batteries": DEVICES,
    "hugepages-2Mi": PAGES,
    "hugepages-1Gi": LARGE_PAGES,
}
OVERCOMMITTED = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limits may be above their requests."""
KEYS = ("zone", "example.com/disk", "generation", "empty", "missing")
VALUES = {
    "zone": ("a", "b", ""),
    "example.com/disk": ("ssd", "hdd"),
    "generation": ("0", "3", "03", "10", "9223372036854775807", "9223372036854775808", "x", "1.5", ""),
    "empty": ("",),
    "missing": ("x",),
}
NUMBERS = ("0", "3", "003", "9", "9223372036854775806", "9223372036854775807", "9223372036854775808", "x", "")
TAINTS = {
    "dedicated": ("ml", "web", ""),
    "nvidia.com/gpu": ("present", ""),
    "level": ("5", "05", "10", "x", "9223372036854775808"),
    "node.kubernetes.io/not-ready": ("",),
    "node.kubernetes.io/unschedulable": ("",),
}
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
PORTS = (80, 443, 8080)
ADDRESSES = ("", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1")
RUNTIME: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "sandboxed"},
    "handler": "sandboxed",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
    "scheduling": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}],
    },
}
"""Its overhead, selector and tolerations are written into the pods that name it."""


FEATURE = "RestartAllContainersOnContainerExits"
"""What a node declares whose kubelet restarts all containers when one of them exits so."""
RESTART = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


class Cluster(NamedTuple):
    """`occupants` have a node and a status; with the phase ``Terminating`` they are being deleted."""

    nodes: list[Object]
    occupants: list[tuple[Object, Object]]
    questions: list[Object]


def cluster(seed: int, questions: int, scheduler: str) -> Cluster:
    """The cluster of this number: 8 to 12 nodes, pods on them, and so many pods that look for one."""
    draw = Draw(seed)
    nodes = [draw.node(number) for number in range(draw.chance.randint(8, 12))]
    names = [node["metadata"]["name"] for node in nodes]
    occupants = [draw.occupant(number, names) for number in range(draw.chance.randint(5, 40))]
    asked = [draw.question(number, names, scheduler) for number in range(questions)]
    return Cluster(nodes, occupants, asked)


def containers_of(pod: Object) -> list[Object]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def ports_of(pod: Object) -> list[Object]:
    return [port for container in containers_of(pod) for port in container.get("ports", [])]


class Draw:
    """What one number chooses."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.opened: set[tuple[str, int]] = set()
        """Host ports that occupants of nodes hold, or held before they finished."""

    def sometimes(self, share: float) -> bool:
        return self.chance.random() < share

    def one(self, of: Any) -> Any:
        return self.chance.choice(list(of))

    def some(self, of: Any, most: int) -> list[Any]:
        listed = list(of)
        return self.chance.sample(listed, self.chance.randint(0, min(most, len(listed))))

    # ----------------------------------------------------------------------------------------------------------- nodes

    def node(self, number: int) -> Object:
        name = f"{self.one(('node-', 'n.rack-', '10.0.'))}{self.seed}.{number}"
        labels = {key: self.one(VALUES[key]) for key in self.some(KEYS, 5) if key != "missing"}
        room = {resource: self.one(pool) for resource, pool in POOLS.items() if self.sometimes(0.75)}
        if self.sometimes(0.7):
            room |= {"cpu": self.one(("3", "64")), "memory": self.one(("2Gi", "900Gi"))}
        if self.sometimes(0.95):
            room["pods"] = self.one(("0", "1", "3", "110", "110", "110"))
        listed = "capacity" if self.sometimes(0.1) else "allocatable"
        spec: Object = {"taints": self.taints() if self.sometimes(0.5) else []}
        if self.sometimes(0.15):
            spec["unschedulable"] = True
        status: Object = {listed: room}
        if self.sometimes(0.5):
            status["declaredFeatures"] = [FEATURE]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels | {"kubernetes.io/hostname": name}},
            "spec": spec,
            "status": status,
        }

    def taints(self) -> list[Object]:
        found = {}
        for key in self.some(TAINTS, 2):
            effect = self.one(EFFECTS)
            found[key, effect] = {"key": key, "value": self.one(TAINTS[key]), "effect": effect}
        return list(found.values())

    # ------------------------------------------------------------------------------------------------------------ pods

    def occupant(self, number: int, nodes: list[str]) -> tuple[Object, Object]:
        pod = self.pod(f"o-{self.seed}-{number}", "default-scheduler")
        node = pod["spec"]["nodeName"] = "gone" if self.sometimes(0.05) else self.one(nodes)
        of_host = "hostNetwork" in pod["spec"]  # there the API server makes each port of a container one of the node's
        opened = (port.get("hostPort", port["containerPort"] if of_host else 0) for port in ports_of(pod))
        ports = {(node, port) for port in opened if port}
        if ports & self.opened:  # the kube-scheduler forgets a port when the first of two pods that hold it finishes
            for container in containers_of(pod):
                container.pop("ports", None)
        self.opened |= ports
        phase = self.one(("Running", "Running", "", "Succeeded", "Failed", "Terminating"))
        return pod, {"phase": phase} | (self.resizing(pod) if phase and self.sometimes(0.6) else {})

    def resizing(self, pod: Object) -> Object:
        """What a kubelet says while a resize is under way; not always what it could say."""
        status: Object = {}
        for field, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
            if told := [self.resized(container) for container in pod["spec"].get(containers, ())]:
                status[field] = told
        if self.sometimes(0.5):
            status["resources"] = {"requests": self.amounts()}
        if self.sometimes(0.5):
            status["allocatedResources"] = self.amounts()
        if self.sometimes(0.4):
            reason = self.one(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return status

    def resized(self, container: Object) -> Object:
        told = {"name": container["name"], "image": "busybox", "imageID": "", "ready": True, "restartCount": 0}
        if self.sometimes(0.7):
            told["resources"] = {"requests": self.amounts()}
        if self.sometimes(0.7):
            told["allocatedResources"] = self.amounts()
        return told

    def amounts(self) -> Object:
        pools = (("cpu", CPU), ("memory", MEMORY))
        return {resource: self.one(pool) for resource, pool in pools if self.sometimes(0.7)}

    def question(self, number: int, nodes: list[str], scheduler: str) -> Object:
        pod = self.pod(f"q-{self.seed}-{number}", scheduler)
        spec = pod["spec"]
        if self.sometimes(0.25):
            spec["nodeSelector"] = {key: self.one(VALUES[key]) for key in self.some(KEYS, 2)}
        if self.sometimes(0.5):
            spec["affinity"] = {"nodeAffinity": self.affinity(nodes)}
        if self.sometimes(0.7):
            spec["tolerations"] = [self.toleration() for _ in range(self.chance.randint(0, 4))]
            if spec["tolerations"] and self.sometimes(0.2):
                spec["tolerations"].append(spec["tolerations"][0])
        if self.sometimes(0.1):
            spec["tolerations"] = [{"operator": "Exists"}]
        return pod

    def pod(self, name: str, scheduler: str) -> Object:
        spec: Object = {"schedulerName": scheduler, "containers": self.containers("c", 3), "restartPolicy": "Never"}
        if self.sometimes(0.25):
            spec["initContainers"] = self.containers("i", 3)
            for container in spec["initContainers"]:
                if self.sometimes(0.5):
                    container["restartPolicy"] = "Always"
        if self.sometimes(0.1):
            spec["resources"] = self.resources(self.some(("cpu", "memory", "hugepages-2Mi"), 3))
        elif self.sometimes(0.1):
            spec["resources"] = {"requests": {"cpu": self.one(("3", "64")), "memory": self.one(("2Gi", "900Gi"))}}
        if self.sometimes(0.05):
            for container in spec["containers"]:
                container |= {"restartPolicy": "Never", "restartPolicyRules": [RESTART]}
        if self.sometimes(0.1):
            spec["runtimeClassName"] = RUNTIME["metadata"]["name"]
        if self.sometimes(0.1):
            spec["hostNetwork"] = True
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        for port in ports_of(pod) if "hostNetwork" in spec else ():
            port.pop("hostPort", None)
        return pod

    def containers(self, prefix: str, most: int) -> list[Object]:
        return [self.container(f"{prefix}{number}") for number in range(self.chance.randint(1, most))]

    def container(self, name: str) -> Object:
        container: Object = {"name": name, "image": "busybox"}
        if self.sometimes(0.75):
            asked = self.some(POOLS, 3)
            if any("pages" in resource for resource in asked) and not {"cpu", "memory"} & set(asked):
                asked[-1] = "cpu"
            container["resources"] = self.resources(asked)
        if self.sometimes(0.25):
            container["ports"] = [self.port() for _ in range(self.chance.randint(1, 2))]
        return container

    def resources(self, asked: Any) -> Object:
        requests: Object = {}
        limits: Object = {}
        for resource in asked:
            amount = self.one(POOLS[resource])
            if resource not in OVERCOMMITTED:
                limits[resource] = amount
                if self.sometimes(0.5):
                    requests[resource] = amount
            else:
                if self.sometimes(0.7):
                    requests[resource] = amount
                if self.sometimes(0.5):
                    limits[resource] = amount
        return {key: found for key, found in (("requests", requests), ("limits", limits)) if found}

    def port(self) -> Object:
        port: Object = {"containerPort": self.one(PORTS)}
        if self.sometimes(0.8):
            port["hostPort"] = self.one(PORTS)
        if self.sometimes(0.5):
            port["hostIP"] = self.one(ADDRESSES)
        if self.sometimes(0.6):
            port["protocol"] = self.one(("TCP", "UDP", "SCTP"))
        return port

    # ----------------------------------------------------------------------------------------------------- constraints

    def toleration(self) -> Object:
        key = self.one((*TAINTS, ""))
        found: Object = {"key": key} if key or self.sometimes(0.5) else {}
        if not key or self.sometimes(0.4):
            found["operator"] = "Exists"
        elif self.sometimes(0.2):
            found |= {"operator": self.one(("Gt", "Lt")), "value": self.one(("3", "7", "-1", "9223372036854775807"))}
        else:
            found |= {"value": self.one(TAINTS[key])} | ({"operator": "Equal"} if self.sometimes(0.5) else {})
        if self.sometimes(0.6):
            found["effect"] = self.one(EFFECTS)
        if found.get("effect") == "NoExecute" and self.sometimes(0.5):
            found["tolerationSeconds"] = self.one((0, 300, -5))
        return found

    def affinity(self, nodes: list[str]) -> Object:
        found: Object = {}
        if self.sometimes(0.9):
            terms = [self.term(nodes) for _ in range(self.chance.randint(1, 3))]
            found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.sometimes(0.3):
            found["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.one((1, 100)), "preference": self.term(nodes)}
            ]
        return found

    def term(self, nodes: list[str]) -> Object:
        """Perhaps an empty one, which matches nothing."""
        term: Object = {}
        if self.sometimes(0.8):
            term["matchExpressions"] = [self.expression(nodes) for _ in range(self.chance.randint(0, 2))]
        if self.sometimes(0.3):
            term["matchFields"] = [self.field(nodes) for _ in range(self.chance.randint(0, 2))]
        return term

    def expression(self, nodes: list[str]) -> Object:
        if self.sometimes(0.1):
            key, operator = "kubernetes.io/hostname", self.one(("In", "NotIn"))
            return {"key": key, "operator": operator, "values": self.some(nodes[1:], 4) + nodes[:1]}
        key, operator = self.one(KEYS), self.one(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": self.one(("generation", key)), "operator": operator, "values": [self.one(NUMBERS)]}
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        return {"key": key, "operator": operator, "values": [self.one(VALUES[key]), *self.some(VALUES[key], 2)]}

    def field(self, nodes: list[str]) -> Object:
        named = "gone" if self.sometimes(0.2) else self.one(nodes)
        return {"key": "metadata.name", "operator": self.one(("In", "In", "NotIn")), "values": [named]}
