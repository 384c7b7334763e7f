"""What becomes of an OpenPAI job on Kubernetes, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.console.simulate import simulate
from services.documents import load_all
from services.federator.backends import MARKER
from services.federator.backends.gangs import (
    DECIDES,
    FIRST,
    HELD,
    JOBS,
    MANAGED,
    MANAGER,
    NAME,
    PHASE,
    Placing,
    job_names,
    kubernetes_name,
    objects,
    owned,
    owner,
)
from services.federator.backends.protocol import Unsupported
from services.federator.backends.scripts import OPTIONS
from services.simulator.workloads import pods_of
from tests.federator.backends.sites import OWNER, job
from tests.manifests import node
from tests.shared import SHARED

PUBLISHED = SHARED / "manifests" / "openpai"


def full() -> dict[str, Any]:
    made = job("train-gpus", instances=4)
    made["prerequisites"] += [
        {"type": "data", "name": "cifar", "uri": ["https://data.example/c.tar"]},
        {"type": "script", "name": "code", "uri": "github.example/code"},
        {"type": "output", "name": "cifar", "uri": "hdfs://out"},
    ]
    made["parameters"] = {"epochs": 3, "lr": 0.5, "name": "resnet", "amp": True}
    made["deployments"] = [
        {"name": "test", "taskRoles": {"worker": {"preCommands": ["no"]}}},
        {"name": "prod", "taskRoles": {"worker": {"preCommands": ["wget"], "postCommands": ["done"]}}},
    ]
    made["defaults"] = {"deployment": "prod"}
    made["taskRoles"]["worker"] |= {
        "data": "cifar",
        "script": "code",
        "output": "cifar",
        "completion": {"minFailedInstances": 1, "minSucceededInstances": 2},
        "extraContainerOptions": {"shmMB": 64},
        "resourcePerInstance": {"cpu": 2, "memoryMB": 8192, "gpu": 1, "ports": {"ssh": 1}},
        "commands": [
            "  get <% $data.uri[0] %> <% $script.uri %>",
            "train <%$parameters.name%> --epochs <% $parameters.epochs %> <% $parameters.other %> <% $data.uri[1] %>",
            "put <% $output.uri %> <% $parameters.amp %>",
        ],
    }
    return made


def script(made: dict[str, Any]) -> str:
    """What a Job's pods run, without the options of the shell."""
    command: list[str] = made["spec"]["template"]["spec"]["containers"][0]["command"]
    return command[-1].removeprefix(OPTIONS)


def test_every_field_has_its_place() -> None:
    made, _, group = objects(full(), Placing(scheduler="muster", gpu="amd.com/gpu", user="ann"))
    name = group["metadata"]["name"]
    assert name.startswith("train-gpus-")
    assert (group["apiVersion"], group["kind"], group["spec"]) == (
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
        {"minMember": 4},
    )
    assert made["metadata"]["name"] == "train-gpus"
    assert owner(made["metadata"]["annotations"], "train-gpus") == OWNER
    spec = made["spec"]
    assert {key: spec[key] for key in ("parallelism", "completions", "completionMode", "backoffLimit")} == {
        "parallelism": 4,
        "completions": 4,
        "completionMode": "Indexed",
        "backoffLimit": 0,
    }
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert spec["template"]["metadata"] == {
        "labels": {MANAGED: MANAGER, "scheduling.x-k8s.io/pod-group": name},
        "annotations": {NAME: "train-gpus"},
    }
    pod = spec["template"]["spec"]
    assert (pod["schedulerName"], pod["restartPolicy"]) == ("muster", "Never")
    (container,) = pod["containers"]
    assert container["image"] == "openpai/standard"
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "8192Mi", "amd.com/gpu": "1"}
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["command"] == [
        "/bin/bash",
        "-c",
        "set -o errexit\nset -o nounset\nset -o pipefail\n"
        "wget\n"
        "get https://data.example/c.tar github.example/code\n"
        "train resnet --epochs 3 <% $parameters.other %> <% $data.uri.1 %>\n"
        "put hdfs://out true\n"
        "done",
    ]
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    assert {one["name"]: one["valueFrom"] if "valueFrom" in one else one["value"] for one in container["env"]} == {
        "PAI_JOB_NAME": "train-gpus",
        "PAI_USER_NAME": "ann",
        "PAI_DEFAULT_FS_URI": "",
        "PAI_TASK_ROLE_COUNT": "1",
        "PAI_TASK_ROLE_LIST": "worker",
        "PAI_TASK_ROLE_TASK_COUNT_worker": "4",
        "PAI_RESOURCE_worker": "1,2,8192,64",
        "PAI_MIN_FAILED_TASK_COUNT_worker": "1",
        "PAI_MIN_SUCCEEDED_TASK_COUNT_worker": "2",
        "PAI_CURRENT_TASK_ROLE_NAME": "worker",
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT": "4",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": index,
        "PAI_TASK_INDEX": index,
    }
    assert container["volumeMounts"] == [{"name": "dshm", "mountPath": "/dev/shm"}]
    assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}


def test_volcano_knows_a_gang_by_an_annotation() -> None:
    made, _, group = objects(full(), Placing(scheduler="volcano", dialect="volcano"))
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    template = made["spec"]["template"]
    assert template["metadata"] == {
        "labels": {MANAGED: MANAGER},
        "annotations": {NAME: "train-gpus", "scheduling.k8s.io/group-name": group["metadata"]["name"]},
    }
    assert template["spec"]["schedulerName"] == "volcano"


def test_what_a_job_does_not_say() -> None:
    made = job("train", roles=2)
    for role in made["taskRoles"].values():
        del role["instances"]
        role |= {"completion": None, "extraContainerOptions": None}
    made["deployments"] = [{"name": "prod", "taskRoles": {"worker": {"preCommands": ["no"]}}}]
    gang = objects(made, Placing())
    assert gang.group["spec"] == {"minMember": 2}
    for one in (gang.first, *gang.others):
        assert (one["spec"]["parallelism"], one["spec"]["completions"]) == (1, 1)
        assert one["metadata"]["annotations"][JOBS] == "2"
        assert "successPolicy" not in one["spec"]
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert script(one) == "run"
        assert container["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
        assert {"name": "PAI_CURRENT_TASK_ROLE_TASK_COUNT", "value": "1"} in container["env"]
        (volume,) = one["spec"]["template"]["spec"]["volumes"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "512Mi"}, "as on OpenPAI"


def test_a_deployments_commands_are_a_roles_own() -> None:
    made = job("train", roles=2)
    made["deployments"] = [
        {"name": "prod", "taskRoles": {"ps": {"preCommands": ["before"], "postCommands": ["after"]}}}
    ]
    made["defaults"] = {"deployment": "prod"}
    gang = objects(made, Placing())
    assert [script(one) for one in (gang.first, *gang.others)] == ["run", "before\nrun\nafter"]


@pytest.mark.parametrize(
    ("succeeded", "decides", "policy"),
    [(None, True, None), (-1, False, None), (0, True, None), (1, True, 1), (2, True, None), (9, False, None)],
)
def test_so_many_instances_make_a_success(succeeded: int | None, decides: bool, policy: int | None) -> None:
    """By default all of one role, as the server has it. As it was: all of every role."""
    made = job("train", instances=2)
    made["taskRoles"]["worker"]["completion"] = {"minSucceededInstances": succeeded}
    first = objects(made, Placing()).first
    assert (DECIDES in first["metadata"]["annotations"]) is decides
    assert first["spec"].get("successPolicy") == ({"rules": [{"succeededCount": policy}]} if policy else None)


def test_a_gang_of_another_owner_has_another_pod_group() -> None:
    other = full()
    other["extras"][MARKER] = other["extras"][MARKER] | {"job": "uid-2"}
    first, second = objects(full(), Placing()), objects(other, Placing())
    assert first.group["metadata"]["name"] != second.group["metadata"]["name"]
    assert first.first["metadata"]["name"] == second.first["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"secrets": {"password": "hunter2"}}, "secrets: not supported on Kubernetes"),
        ({"jobRetryCount": 2}, "jobRetryCount: expected 0"),
        ({"extras": {}}, f"extras.{MARKER}: expected the owner's marker"),
        ({"prerequisites": []}, "taskRoles.worker.dockerImage: expected a dockerimage prerequisite"),
        (
            {"prerequisites": [{"type": "dockerimage", "name": "image", "uri": "i", "auth": {"password": "hunter2"}}]},
            "taskRoles.worker.dockerImage: auth is not supported on Kubernetes",
        ),
        ({"taskRoles": {}}, "taskRoles: expected 1 to 100 task roles"),
        ({"taskRoles": ["worker"]}, "taskRoles: expected 1 to 100 task roles"),
        ({"taskRoles": {str(number): {} for number in range(101)}}, "taskRoles: expected 1 to 100 task roles"),
        ({"defaults": {"deployment": "hunter2"}}, "defaults.deployment: expected the name of a deployment"),
        (
            {"extras": None, "secrets": {"a": 1}},
            f"extras.{MARKER}: expected the owner's marker; secrets: not supported",
        ),
    ],
)
def test_what_a_gang_cannot_be_is_refused_by_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported) as error:
        objects(job("train") | change, Placing())
    assert str(error.value).startswith(said)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("commands", "hunter2", "taskRoles.worker.commands: expected array, got str"),
        ("commands", None, "taskRoles.worker.commands: expected array, got null"),
        ("instances", 0, "taskRoles.worker.instances: expected int >= 1"),
        ("instances", "2", "taskRoles.worker.instances: expected int, got str"),
        ("resourcePerInstance", {"cpu": 1}, "taskRoles.worker.resourcePerInstance.memoryMB: expected a value"),
        (
            "resourcePerInstance",
            {"cpu": [1], "memoryMB": 1},
            "taskRoles.worker.resourcePerInstance.cpu: expected float",
        ),
        ("completion", 1, "taskRoles.worker.completion: expected object | null, got int"),
    ],
)
def test_a_role_of_other_types_is_refused_by_its_field(field: str, value: Any, said: str) -> None:
    """Commands in one string were a script of its letters; of the others was told that there was a TypeError."""
    made = full()
    made["taskRoles"]["worker"][field] = value
    with pytest.raises(Unsupported) as error:
        objects(made, Placing())
    assert str(error.value).startswith(said)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"deployments": [{"name": "prod", "taskRoles": {"worker": {"preCommands": "x"}}}]},
            "deployments[0].taskRoles",
        ),
        (
            {"prerequisites": [{"type": "dockerimage", "name": "image"}]},
            "taskRoles.worker.dockerImage: expected a dockerimage prerequisite, with a uri",
        ),
        ({"prerequisites": ["x"]}, "prerequisites[0]: expected object, got str"),
        ({"taskRoles": {"worker": 7}}, "taskRoles.worker: expected object, got int"),
        ({"extras": 7}, "extras: expected object | null, got int"),
    ],
)
def test_a_job_of_other_types_is_refused_by_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported) as error:
        objects(full() | change, Placing())
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ({"extraContainerOptions": {"infiniband": True}}, "extraContainerOptions.infiniband: not supported"),
        ({"prerequisites": ["code", "run"]}, "prerequisites: plugins are not supported on Kubernetes"),
        ({"prerequisites": ["both"]}, "prerequisites: plugins are not supported on Kubernetes"),
        ({"prerequisites": ["nobody's"]}, "prerequisites: expected names of the job's prerequisites"),
        ({"prerequisites": "code"}, "prerequisites: expected array | null, got str"),
        ({"data": "nobody's"}, "data: expected the name of a prerequisite of this type"),
        ({"script": "cifar"}, "script: expected the name of a prerequisite of this type"),
        ({"commands": ["<%# amp %>x<%/ amp %>"]}, "commands: expected nothing but references between <% and %>"),
        ({"commands": ["a", "b <%! nobody's %>"]}, "commands: expected nothing but references between <% and %>"),
        ({"commands": ["<%", "run"]}, "commands: expected every <% to be closed"),
    ],
)
def test_what_a_role_asks_for_is_refused_and_not_left_out(role: dict[str, Any], said: str) -> None:
    """As it was: it ran without."""
    made = full()
    made["prerequisites"].append({"type": "script", "name": "run", "plugin": "com.microsoft.pai.runtimeplugin.cmd"})
    made["prerequisites"].append({"type": "script", "name": "both", "plugin": "com.microsoft.pai.runtimeplugin.cmd"})
    made["prerequisites"].append({"type": "data", "name": "both"})
    made["taskRoles"]["worker"] |= role
    with pytest.raises(Unsupported) as error:
        objects(made, Placing())
    assert str(error.value).startswith(f"taskRoles.worker.{said}")


def test_what_has_no_effect_on_openpai_has_none_here() -> None:
    made = full()
    plain, _, _ = objects(made, Placing())
    made["taskRoles"]["worker"] |= {"prerequisites": ["code", "cifar"]}
    made["taskRoles"]["worker"]["extraContainerOptions"] |= {"infiniband": False}
    assert objects(made, Placing()).first == plain


@pytest.mark.parametrize("failed", [-1, 0, 2])
def test_other_completions_are_refused(failed: int) -> None:
    made = full()
    made["taskRoles"]["worker"]["completion"]["minFailedInstances"] = failed
    with pytest.raises(Unsupported, match=r"completion\.minFailedInstances: expected 1"):
        objects(made, Placing())


def test_a_marker_that_no_log_could_keep_is_nobodys() -> None:
    marked = {NAME: "train", MARKER: msgspec.json.encode(OWNER).decode()}
    assert owner(marked, "train") == OWNER
    long = msgspec.structs.replace(OWNER, job="x" * 256)
    assert owner(marked | {MARKER: msgspec.json.encode(long).decode()}, "train") is None


def test_parameters_that_fill_the_memory_are_refused() -> None:
    """As it was: a job of 256 KiB became gigabytes, and the federator that was killed for it tried again at its start."""
    made = job("train", instances=1)
    made["parameters"] = {"long": "x" * 1_000}
    spec = made["taskRoles"]["worker"]
    spec["commands"] = ["<% $parameters.long %>" * 500]
    assert len(script(objects(made, Placing()).first)) == 500_000
    spec["commands"] = ["<% $parameters.long %>" * 5_000]
    with pytest.raises(Unsupported, match=r"taskRoles\.worker\.commands: expected at most 524288 characters"):
        objects(made, Placing())


def test_names_on_kubernetes_are_short_lower_case_and_distinct() -> None:
    assert kubernetes_name("train-v100") == "train-v100"
    odd = ["Train_V100", "train-V100", "train-v100-", "-", "_", "a" * 53, "A" * 255, "train--v100_"]
    made = [kubernetes_name(name) for name in odd]
    assert len(set(made)) == len(odd)
    for name in made:
        assert len(name) <= 52
        assert name == name.lower().strip("-")
    assert kubernetes_name("a" * 52) == "a" * 52
    assert "--" not in kubernetes_name("a" * 40 + "_" + "a" * 40)
    assert kubernetes_name("Train_V100").startswith("train-v100-")


OURS = {MARKER: msgspec.json.encode(OWNER).decode()}


@pytest.mark.parametrize(
    "annotations",
    [None, {}, {NAME: "train"}, {NAME: "train", MARKER: "x"}, {NAME: "train", MARKER: "{}"}, OURS, OURS | {NAME: "o"}],
)
def test_what_is_no_marker(annotations: dict[str, str] | None) -> None:
    assert owner(annotations, "train") is None
    assert owner(OURS | {NAME: "train"}, "train") == OWNER


def test_every_task_role_is_a_job_and_all_of_them_one_gang() -> None:
    described = job("train", instances=2, roles=3)
    described["taskRoles"]["ps"] |= {"instances": 1, "completion": {"minSucceededInstances": 1}}
    described["taskRoles"]["chief"] |= {"completion": {"minSucceededInstances": -1}}
    gang = objects(described, Placing())
    first, others = job_names("train", OWNER)
    assert [made["metadata"]["name"] for made in (gang.first, *gang.others)] == [first, f"{others}-1", f"{others}-2"]
    assert gang.group["spec"] == {"minMember": 5}
    for made in (gang.first, *gang.others):
        labels = made["spec"]["template"]["metadata"]["labels"]
        assert labels["scheduling.x-k8s.io/pod-group"] == gang.group["metadata"]["name"]
        assert made["spec"]["suspend"], "nothing runs before it is released"
        assert made["metadata"]["annotations"][PHASE] == HELD
        assert owner(made["metadata"]["annotations"], "train") == OWNER
    assert [made["spec"]["completions"] for made in (gang.first, *gang.others)] == [2, 1, 2]
    assert [DECIDES in made["metadata"]["annotations"] for made in (gang.first, *gang.others)] == [True, True, False]


def test_what_belongs_to_a_run_goes_when_its_first_job_goes() -> None:
    gang = objects(job("train", roles=2), Placing())
    for made in (gang.group, *gang.others):
        belongs = owned(made, "train", "uid-of-train")
        (reference,) = belongs["metadata"]["ownerReferences"]
        assert reference == {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-of-train"}
        assert belongs["metadata"]["labels"][FIRST] == "uid-of-train"
        assert "ownerReferences" not in made["metadata"]


@pytest.mark.parametrize("name", ["train", "n" * 255, "x" * 37 + "-" * 5 + "y"])
def test_other_jobs_names_leave_room_for_their_pods(name: str) -> None:
    gang = objects(job(name, roles=3), Placing())
    for made in gang.others:
        assert len(made["metadata"]["name"]) <= 52
    other = job(name, roles=3)
    other["extras"][MARKER] = other["extras"][MARKER] | {"job": "uid-2"}
    theirs = objects(other, Placing())
    assert {made["metadata"]["name"] for made in gang.others}.isdisjoint(
        made["metadata"]["name"] for made in theirs.others
    )


@pytest.mark.parametrize("roles", [1, 3])
def test_muster_binds_it_as_a_gang(roles: int) -> None:
    """The objects as they are, to the scheduler that they name: all pods or none."""
    pods = 2 * roles
    for nodes, bound in ((pods, pods), (pods - 1, 0)):
        gang = objects(job("train", roles=roles), Placing())
        machines = [node(f"n{number}", cpu="1") for number in range(nodes)]
        for one in (gang.group, gang.first, *gang.others):
            one["metadata"]["namespace"] = "default"
        made = [pod for one in (gang.first, *gang.others) for pod in pods_of(released(one))]
        answer = simulate([*machines, gang.group, *made]).answer()
        assert len(answer["bound"]) == bound


@pytest.mark.parametrize(("gpus", "bound"), [(1, 2), (0, 0)])
def test_who_asks_for_gpus_may_go_to_nodes_that_are_kept_for_them(gpus: int, bound: int) -> None:
    """Clusters taint such nodes with the resource's name, and no field of a job can say that it tolerates that."""
    asked = job("train", instances=2)
    for role in asked["taskRoles"].values():
        role["resourcePerInstance"] |= {"gpu": gpus}
    gang = objects(asked, Placing(gpu="amd.com/gpu"))
    machine = node("gpus", **{"amd.com/gpu": "2"})
    machine["spec"] = {"taints": [{"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}]}
    for one in (gang.group, gang.first):
        one["metadata"]["namespace"] = "default"
    answer = simulate([machine, gang.group, *pods_of(released(gang.first))]).answer()
    assert len(answer["bound"]) == bound


def released(made: dict[str, Any]) -> dict[str, Any]:
    return made | {"spec": made["spec"] | {"suspend": False}}


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published manifests here")
def test_published_jobs_are_mapped_or_refused_by_name() -> None:
    refused = {}
    for file in sorted(PUBLISHED.glob("*.yaml")):
        (made,) = load_all(file.read_text())
        made["extras"] = (made.get("extras") or {}) | job("x")["extras"]
        try:
            objects(made, Placing())
        except Unsupported as error:
            refused[file.name] = str(error).partition(":")[0]
    assert refused == {
        "cmd_with_prerequisites_test_job.yaml": "taskRoles.worker.prerequisites",
        "docker_image_auth.yaml": "taskRoles.worker.dockerImage",
    }
