"""The server's schema of a job: what it accepts, and what it says of the rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from services.simulator.openpai.schema import validate
from tests.shared import SHARED

PUBLISHED = SHARED / "manifests" / "openpai"

JOB: dict[str, Any] = {
    "protocolVersion": 2,
    "name": "train_1",
    "type": "job",
    "prerequisites": [
        {"type": "dockerimage", "name": "image", "uri": "openpai/standard", "auth": {"username": "u"}},
        {"type": "data", "name": "cifar", "uri": ["https://data.example/c.tar.gz"], "anything": 1},
        {"type": "script", "name": "load", "plugin": "cmd", "callbacks": []},
    ],
    "parameters": {"epochs": 3},
    "secrets": {"password": "x"},
    "jobRetryCount": 1,
    "taskRoles": {
        "worker": {
            "instances": 2,
            "completion": {"minFailedInstances": 1, "minSucceededInstances": None},
            "prerequisites": ["load"],
            "dockerImage": "image",
            "data": "cifar",
            "resourcePerInstance": {"cpu": 4, "memoryMB": 8192, "gpu": 1, "ports": {"ssh": 1}},
            "extraContainerOptions": {"shmMB": 64, "infiniband": True},
            "commands": ["run"],
        }
    },
    "deployments": [{"name": "prod", "taskRoles": {"worker": {"preCommands": ["wget"]}}}],
    "defaults": {"deployment": "prod", "virtualCluster": "default"},
    "extras": {"anything": {"goes": []}},
}


def test_a_job_with_everything_in_it_is_accepted() -> None:
    assert validate(JOB) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("extra", {}, "job: Additional properties are not allowed ('extra' was unexpected)"),
        ("protocolVersion", "super-2", "job.protocolVersion: 'super-2' is not one of ['2', 2]"),
        ("name", "a~b", "job.name: 'a~b' does not match"),
        ("name", "n" * 256, "is too long"),
        ("type", "data", "job.type: 'data' is not one of ['job']"),
        ("taskRoles", {}, "job.taskRoles: {} should be non-empty"),
        (
            "taskRoles.worker.resourcePerInstance.gpu",
            "1",
            "job.taskRoles.worker.resourcePerInstance.gpu: '1' is not of",
        ),
        ("taskRoles.worker.resourcePerInstance", {"cpu": 1, "memoryMB": 1}, "'gpu' is a required property"),
        ("taskRoles.worker.instances", 0, "job.taskRoles.worker.instances: 0 is less than the minimum of 1"),
        ("taskRoles.worker.instances", True, "is not of type 'integer'"),
        ("taskRoles.worker.commands", [], "job.taskRoles.worker.commands: [] should be non-empty"),
        ("taskRoles.worker.dockerImage", "cifar", "dockerimage prerequisite 'cifar' does not exist"),
        ("taskRoles.worker.prerequisites", ["other"], "prerequisites[0]: prerequisite 'other' does not exist"),
        ("taskRoles.worker.nice", 1, "'nice' was unexpected"),
        ("prerequisites", [], "job.prerequisites: [] should be non-empty"),
        ("prerequisites", [{"type": "image", "name": "i"}], "job.prerequisites[0].type: 'image' is not one of"),
        ("prerequisites", [{"type": "dockerimage", "name": "i"}], "job.prerequisites[0]: 'uri' is a required property"),
        ("prerequisites", [{"type": "data", "name": "i", "uri": "one"}], "job.prerequisites[0].uri: 'one' is not of"),
        ("defaults.deployment", "test", "job.defaults.deployment: deployment 'test' does not exist"),
        ("deployments", [{"name": "prod"}], "'taskRoles' is a required property"),
    ],
)
def test_what_it_says_of_the_rest(path: str, value: Any, said: str) -> None:
    job = copy.deepcopy(JOB)
    *above, last = path.split(".")
    inner = job
    for part in above:
        inner = inner[part]
    inner[last] = value
    wrong = validate(job)
    assert len(wrong) == 1, wrong
    assert said in wrong[0]


def test_names_that_are_given_twice() -> None:
    job = copy.deepcopy(JOB)
    job["prerequisites"].append({"type": "dockerimage", "name": "image", "uri": "other"})
    job["prerequisites"].append({"type": "output", "name": "image"})
    assert validate(job) == ["job.prerequisites[3].name: duplicate dockerimage prerequisite 'image'"]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published manifests here")
def test_published_jobs_are_accepted() -> None:
    files = sorted(PUBLISHED.glob("*.yaml"))
    assert files
    for file in files:
        assert validate(yaml.safe_load(file.read_text())) == [], file.name
