"""Multi-cluster jobs for tests: the text's example, with values in its blanks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import events as ev
from services.federator.specialize import to_yaml

EXAMPLE = """
protocolVersion: super-2
name: mc-job-name
secrets:
  token-a1: aaa-secret
  token-b2: bbb-secret
taskRoles:
  main:
    dockerImage: image
    commands:
      - python train.py --gpus <% $mcc.gpuNum %> --out /out/<% $mcc.gpuNum %>
    resourcePerInstance:
      cpu: 4
      memoryMB: 8192
      gpu: <% $mcc.gpuNum %>
prerequisites:
  - {type: dockerimage, name: image, uri: openpai/standard}
extra:
  com.microsoft.pai.runtimeplugin:
    - plugin: teamwise_storage
      parameters:
        storageConfigNames: <% $mcc.storageConfigs %>
    - plugin: super_scheduler
      parameters:
        clusters:
          a1: {uri: pai-a.example, user: ann, gpuType: V100, priority: 80}
          b2: {uri: pai-b.example, user: bob, gpuType: K80, priority: 20}
        guardTimeRunning: 10
        timeScale: 1
        params:
          gpuNum: {a1: 1, b2: 4}
          storageConfigs:
            a1: [storage-1, storage-2]
            b2: [storage-3]
"""


def document() -> dict[str, Any]:
    """The example as a document of its own, to be changed."""
    from services.documents import load_all

    found: dict[str, Any] = copy.deepcopy(load_all(EXAMPLE)[0])
    return found


def plugin(document: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the super_scheduler."""
    extras = document.get("extra") or document["extras"]
    found: dict[str, Any] = extras["com.microsoft.pai.runtimeplugin"][-1]["parameters"]
    return found


def for_clusters(request: ev.JobFederated) -> dict[str, Any]:
    """The example as the user of such a request wrote it, without what only OpenPAI takes."""
    job, aliases = document(), [contender.cluster for contender in request.clusters]
    del job["secrets"]
    job["name"] = request.name
    plugin(job).update(
        guardTimeRunning=round(request.guard_ms / 60_000, 3),
        timeScale=round(request.scale_ms / 60_000, 3),
        clusters={
            one.cluster: {"uri": one.uri, "user": one.user, "priority": one.priority_milli / 1_000}
            for one in request.clusters
        },
        params={"gpuNum": dict.fromkeys(aliases, 1), "storageConfigs": {alias: [alias] for alias in aliases}},
    )
    return job


def quick(name: str, urls: Mapping[str, str], priorities: Mapping[str, int]) -> str:
    """The example's text for alice on these simulated clusters, by alias: all of its times are fractions of a second."""
    job = document()
    del job["secrets"]
    job["name"] = name
    del job["extra"]["com.microsoft.pai.runtimeplugin"][0]
    plugin(job).update(
        guardTimeRunning=0.005,
        timeScale=0.001,
        clusters={alias: {"uri": url, "user": "alice", "priority": priorities[alias]} for alias, url in urls.items()},
        params={"gpuNum": dict.fromkeys(urls, 1)},
    )
    return to_yaml(job)


def federated(job: dict[str, Any], **clusters: int) -> dict[str, Any]:
    """A job of one cluster as one for many: `clusters` is alias → priority. GPUs differ from cluster to cluster."""
    document = copy.deepcopy(job)
    document["protocolVersion"] = "super-2"
    extras = document.setdefault("extras", {})
    roles = sorted(document["taskRoles"])
    params = {}
    for role in roles:
        resources = document["taskRoles"][role]["resourcePerInstance"]
        params[f"gpu-{role}"] = {alias: resources["gpu"] + index for index, alias in enumerate(clusters)}
        resources["gpu"] = f"<% $mcc.gpu-{role} %>"
    entries = {
        alias: {"uri": f"http://{alias}.example", "user": "ann", "priority": priority}
        for alias, priority in clusters.items()
    }
    parameters = {"clusters": entries, "guardTimeRunning": 10, "timeScale": 1, "params": params}
    extras.setdefault("com.microsoft.pai.runtimeplugin", []).append(
        {"plugin": "super_scheduler", "parameters": parameters}
    )
    return document
