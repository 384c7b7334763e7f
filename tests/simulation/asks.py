"""What pods of a history ask for: requests, and what else their spec says of nodes, ports and volumes."""

from __future__ import annotations

from tests.simulation.told import Object

ZONE_A = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
IN_ZONE_A = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ZONE_A}}
LIKES_ZONE_A = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": one} for one in ZONE_A]
}
ADDRESSES = ("10.0.0.1", "10.0.0.2")
ASKS: tuple[tuple[Object, Object], ...] = (
    *[({"cpu": "1", "memory": "1Gi"}, {})] * 3,
    *[({"cpu": "2", "memory": "4Gi"}, {})] * 2,
    ({"cpu": "1"}, {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}}),
    ({"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "1"}, {}),
    ({"cpu": "500m"}, {"affinity": {"nodeAffinity": LIKES_ZONE_A}}),
    ({"cpu": "1"}, {"nodeSelector": {"zone": "a"}}),
    ({"cpu": "2"}, {"affinity": {"nodeAffinity": IN_ZONE_A}}),
    ({"cpu": "1"}, {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}),
    ({}, {"container": {"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": one} for one in ADDRESSES]}}),
    ({"cpu": "1"}, {}),
    ({"cpu": "1"}, {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
)
"""A few classes, most of them plain."""
_INIT = {"name": "i", "image": "i"}
_SIDECAR = {**_INIT, "name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}


def _expressions(*asked: tuple[str, str, list[str]]) -> Object:
    """Nodes that these require."""
    terms = [{"key": key, "operator": operator, "values": values} for key, operator, values in asked]
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


ODD: tuple[tuple[Object, Object], ...] = (
    ({"cpu": "1"}, {"initContainers": [{**_INIT, "resources": {"requests": {"cpu": "2"}}}]}),
    (
        {"cpu": "1"},
        {"initContainers": [_SIDECAR, {**_INIT, "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}}]},
    ),
    ({"cpu": "1"}, {"runtimeClassName": "kata"}),
    ({"cpu": "1"}, {"resources": {"requests": {"cpu": "3", "memory": "3Gi"}}}),
    ({}, {"container": {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}}),
    ({"cpu": "1", "example.dev/nowhere": "1"}, {}),
    ({"cpu": "1"}, _expressions(("zone", "NotIn", ["a"]))),
    ({"cpu": "1"}, _expressions(("zone", "Exists", []), ("rack", "DoesNotExist", []))),
    ({"cpu": "1"}, _expressions(("rack", "Gt", ["2"]))),
    ({"cpu": "1"}, _expressions(("rack", "Lt", ["5"]), ("zone", "In", ["a", "b"]))),
    ({"cpu": "1"}, {"tolerations": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}),
    ({"cpu": "1"}, {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "y"}]}),
)
"""What later histories have besides: in how many ways a pod may ask."""


def _opens(cpu: str, *ports: Object) -> tuple[Object, Object]:
    return {"cpu": cpu}, {"container": {"ports": [{"containerPort": 80, **port} for port in ports]}}


OPENING = (
    _opens("1", {"hostPort": 80}),
    _opens("1", {"hostPort": 80, "hostIP": ADDRESSES[0]}),
    _opens("500m", {"hostPort": 80, "hostIP": ADDRESSES[1]}, {"hostPort": 81}),
    _opens("500m", {"hostPort": 80, "protocol": "UDP"}, {"hostPort": 81}),
    _opens("1", {"hostPort": 81}),
)
"""And those of a gang that is rolled out: what they open before and anew may collide or not."""
MIDDLE = "1767226100"
"""A time in the middle of those that autoscalers taint with."""


def _tolerates(key: str, operator: str) -> tuple[Object, Object]:
    return {"cpu": "1"}, {"tolerations": [{"key": key, "operator": operator, "value": MIDDLE}]}


def _terms(*terms: Object) -> tuple[Object, Object]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"cpu": "1"}, {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _named(operator: str) -> tuple[Object, Object]:
    return _terms({"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["n1"]}]})


COMPARING = (
    _tolerates("ToBeDeletedByClusterAutoscaler", "Gt"),
    _tolerates("ToBeDeletedByClusterAutoscaler", "Lt"),
    _named("In"),
    _named("NotIn"),
    _terms({}),
    _terms({}, *ZONE_A),
)
"""And the rarest: tolerations that compare numbers, nodes by name, terms that match nothing."""
PLAIN, OF_GANGS = 6, 10
"""So many of them are of pods that come in numbers; so many of gangs. A gang with a claim on a volume waits for ever."""
