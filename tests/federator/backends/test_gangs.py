"""What becomes of an OpenPAI job on Kubernetes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.console.simulate import simulate
from services.documents import load_all
from services.federator.backends import MARKER
from services.federator.backends.gangs import NAME, Placing, Unsupported, kubernetes_name, objects, owner
from services.simulator.workloads import pods_of
from tests.federator.backends.sites import OWNER, job
from tests.manifests import node

PUBLISHED = Path("/work/shared/manifests/openpai")


def full() -> dict[str, Any]:
    made = job("train-gpus", instances=4)
    made["prerequisites"] += [
        {"type": "data", "name": "cifar", "uri": ["https://data.example/c.tar"]},
        {"type": "script", "name": "code", "uri": "github.example/code"},
    ]
    made["parameters"] = {"epochs": 3, "lr": 0.5, "name": "resnet"}
    made["deployments"] = [
        {"name": "prod", "taskRoles": {"worker": {"preCommands": ["wget"], "postCommands": ["done"]}}}
    ]
    made["defaults"] = {"deployment": "prod"}
    made["taskRoles"]["worker"] |= {
        "data": "cifar",
        "script": "code",
        "completion": {"minFailedInstances": 1, "minSucceededInstances": 2},
        "extraContainerOptions": {"shmMB": 64},
        "resourcePerInstance": {"cpu": 2, "memoryMB": 8192, "gpu": 1, "ports": {"ssh": 1}},
        "commands": [
            "  get <% $data.uri[0] %> <% $script.uri %>",
            "train <%$parameters.name%> --epochs <% $parameters.epochs %> <% $parameters.other %> <% $data.uri[7] %>",
        ],
    }
    return made


def test_every_field_has_its_place() -> None:
    group, made = objects(full(), Placing(scheduler="muster", gpu="amd.com/gpu"))
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
    assert spec["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == name
    pod = spec["template"]["spec"]
    assert (pod["schedulerName"], pod["restartPolicy"]) == ("muster", "Never")
    (container,) = pod["containers"]
    assert container["image"] == "openpai/standard"
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "8192Mi", "amd.com/gpu": "1"}
    assert container["command"] == [
        "/bin/sh",
        "-c",
        "wget\n"
        "get https://data.example/c.tar github.example/code\n"
        "train resnet --epochs 3 <% $parameters.other %> <% $data.uri[7] %>\n"
        "done",
    ]
    assert {one["name"] for one in container["env"]} == {
        "PAI_JOB_NAME",
        "PAI_CURRENT_TASK_ROLE_NAME",
        "PAI_CURRENT_TASK_ROLE_TASK_COUNT",
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
        "PAI_TASK_INDEX",
    }
    assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Mi"}


def test_volcano_knows_a_gang_by_an_annotation() -> None:
    group, made = objects(full(), Placing(scheduler="volcano", dialect="volcano"))
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    template = made["spec"]["template"]
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    assert template["spec"]["schedulerName"] == "volcano"


def test_a_gang_of_another_owner_has_another_pod_group() -> None:
    other = full()
    other["extras"][MARKER] = other["extras"][MARKER] | {"job": "uid-2"}
    first, second = objects(full(), Placing()), objects(other, Placing())
    assert first[0]["metadata"]["name"] != second[0]["metadata"]["name"]
    assert first[1]["metadata"]["name"] == second[1]["metadata"]["name"]


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
        (
            {"taskRoles": job("x")["taskRoles"] | {"ps": job("x")["taskRoles"]["worker"]}},
            "taskRoles: expected one task role",
        ),
    ],
)
def test_what_a_gang_cannot_be_is_refused_by_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported) as error:
        objects(job("train") | change, Placing())
    assert str(error.value).startswith(said)
    assert "hunter2" not in str(error.value)


def test_other_completions_are_refused() -> None:
    made = full()
    made["taskRoles"]["worker"]["completion"]["minFailedInstances"] = -1
    with pytest.raises(Unsupported, match=r"completion\.minFailedInstances: expected 1"):
        objects(made, Placing())


def test_names() -> None:
    assert kubernetes_name("train-v100") == "train-v100"
    odd = ["Train_V100", "train-v100-", "-", "_", "a" * 53, "A" * 255, "train--v100_"]
    made = [kubernetes_name(name) for name in odd]
    assert len(set(made)) == len(odd)
    for name in made:
        assert len(name) <= 52
        assert name == name.lower().strip("-")
    assert kubernetes_name("Train_V100").startswith("train-v100-")


@pytest.mark.parametrize(
    "annotations", [None, {}, {NAME: "train"}, {NAME: "train", MARKER: "x"}, {NAME: "o", MARKER: "{}"}]
)
def test_what_is_no_marker(annotations: dict[str, str] | None) -> None:
    assert owner(annotations, "train") is None


def test_muster_binds_it_as_a_gang() -> None:
    """The objects as they are, to the scheduler that they name: all pods or none."""
    for nodes, bound in ((4, 4), (3, 0)):
        group, made = objects(full(), Placing())
        machines = [node(f"n{number}", memory="16Gi", **{"nvidia.com/gpu": "1"}) for number in range(nodes)]
        for one in (group, made):
            one["metadata"]["namespace"] = "default"
        answer = simulate([*machines, group, *pods_of(made)]).answer()
        assert len(answer["bound"]) == bound


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
        "CPU_500Task_MNIST.yaml": "taskRoles",
        "docker_image_auth.yaml": "taskRoles.worker.dockerImage",
    }
