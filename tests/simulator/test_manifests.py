"""Objects from YAML files, and what is said of bad ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from services.simulator.errors import ApiError
from services.simulator.manifests import ManifestError, read_yaml
from services.simulator.offline import served
from tests import shared
from tests.manifests import load_yaml

SHARED = shared.SHARED / "manifests"

GOOD = """
# a comment, an empty document, two objects
---
apiVersion: v1
kind: Node
metadata: {name: 'n', creationTimestamp: 2026-01-02T03:04:05Z}
status: {allocatable: {cpu: 4, memory: 8Gi}}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a, labels: {min: "3"}}
  spec: {containers: [{name: c}]}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: q}
- apiVersion: example.com/v1
  kind: Unknown
  metadata: {generateName: u-, namespace: team}
  items: []
- apiVersion: example.com/v1
  kind: DenyList
  metadata: {name: d, namespace: team}
---
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_documents_and_lists_become_objects(tmp_path: Path) -> None:
    objects = load_yaml([write(tmp_path / "good.yaml", GOOD)])
    assert [obj["kind"] for obj in objects] == ["Node", "Pod", "Queue", "Unknown", "DenyList"]
    assert [obj["metadata"].get("namespace") for obj in objects] == [None, "default", None, "team", "team"]
    assert objects[0]["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert objects[0]["status"]["allocatable"]["cpu"] == 4


def test_a_directory_gives_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json"):
        write(tmp_path / name, f'{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}}}}')
    write(tmp_path / "notes.txt", "not YAML: [")
    assert [obj["metadata"]["name"] for obj in load_yaml([tmp_path])] == ["a.yaml", "b.yml", "c.json"]


def test_what_stands_twice_is_named_with_its_line(tmp_path: Path) -> None:
    """As `kubectl` does; the last one counted. A key beside what is merged is no such mistake."""
    file = write(tmp_path / "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  name: b\n")
    with pytest.raises(ManifestError) as refused:
        load_yaml([file])
    assert (
        str(refused.value)
        == f"{file}, document 1: not YAML: 'name' appears twice in one mapping, again at line 5, column 3"
    )
    merged = "x: &x {apiVersion: v1, kind: Pod}\n<<: *x\nkind: Node\nmetadata: {name: 'n'}\ny: {<<: *x, kind: z}\n"
    assert [obj["kind"] for obj in load_yaml([write(file, merged)])] == ["Node"]


def test_a_file_is_named_once_and_the_place_in_it_told(tmp_path: Path) -> None:
    for content, said in (
        (
            b"a: [",
            r", document 1: not YAML: while parsing a flow node \D+ at line \d, column \d\S*.*",
        ),  # libyaml's words, and PyYAML's own
        (b"ok\xff", ": expected text in UTF-8, found the byte 0xff at 2"),
    ):
        (tmp_path / "a.yaml").write_bytes(content)
        with pytest.raises(ManifestError) as refused:
            load_yaml([tmp_path / "a.yaml"])
        assert re.fullmatch(f"{tmp_path}/a.yaml{said}", str(refused.value))
        assert str(refused.value).count("a.yaml") == 1
    with pytest.raises(ManifestError, match=f"^{tmp_path}/b.yaml: No such file or directory$"):
        load_yaml([tmp_path / "b.yaml"])


def test_a_document_that_is_not_yaml_costs_itself_only(tmp_path: Path) -> None:
    """As it was: all of its file. `kubectl` takes what stands behind it, too."""
    documents = [
        "# a comment\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n",
        " \napiVersion: v1\nkind: Node\nmetadata: [{name: b}\n",
        " {apiVersion: v1, kind: Node, metadata: {name: c, annotations: {x: '\n  ---'}}}\n",
        f"\napiVersion: v1\nkind: Node\nmetadata: {{name: d}}\nx: {1 << 70:#x}\n",
        "\n# nothing\n",
        "\r\nkind: Node\r\napiVersion: v1\r\nmetadata: {name: e}\r\n...\r\n",
        "\nx: 1\nx: 2\n",
    ]
    objects, refused = read_yaml([write(tmp_path / "a.yaml", "---".join(documents))])
    assert [obj["metadata"]["name"] for obj in objects] == ["a", "c", "e"]
    assert objects[1]["metadata"]["annotations"]["x"] == " ---"
    syntax, integer, twice = map(str, refused)
    assert re.match(rf"{tmp_path}/a.yaml, document 2: not YAML: \D* line (8|9), column \d+", syntax)
    assert integer == f"{tmp_path}/a.yaml, document 4: not YAML: expected integers of 64 bits, found one of 71"
    assert (
        twice
        == f"{tmp_path}/a.yaml, document 7: not YAML: 'x' appears twice in one mapping, again at line 25, column 1"
    )


def test_json_values_may_stand_one_behind_the_other(tmp_path: Path) -> None:
    """As ``jq -c '.items[]'`` writes them; `kubectl` takes them, too. As it was: all of the file was no YAML."""
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in "abc"]
    text = f"{json.dumps(nodes[0])}\n{json.dumps(nodes[1], indent=4)} {json.dumps(nodes[2])}\n"
    objects, refused = read_yaml([write(tmp_path / "a.json", text + '{"kind": "Node", "kind": "Pod"}')])
    assert [obj["metadata"]["name"] for obj in objects] == ["a", "b", "c"]
    (twice,) = map(str, refused)
    assert twice.endswith("document 4: not YAML: 'kind' appears twice in one mapping, again at line 9, column 18")
    with pytest.raises(ManifestError, match="document 1: not YAML: did not find"):
        read_yaml([write(tmp_path / "a.json", text + "{")])


def test_what_has_a_generate_name_only_is_named_as_its_pods_are_named_after_it(tmp_path: Path) -> None:
    """As `kubectl create` takes it. As it was: a Job was refused, and a JobSet with ``KeyError: 'name'``."""
    pods = "{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
    jobs = f"{{apiVersion: batch/v1, kind: Job, metadata: {{generateName: train-}}, spec: {{template: {pods}}}}}\n---\n"
    job_set = "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {generateName: many-}, spec: "
    job_set += f"{{replicatedJobs: [{{name: w, replicas: 1, template: {{spec: {{template: {pods}}}}}}}]}}}}"
    one, two, many = load_yaml([write(tmp_path / "a.yaml", jobs * 2 + job_set)])
    names = [obj["metadata"]["name"] for obj in (one, two, many)]
    assert [name[:-5] for name in names] == ["train-", "train-", "many-"]
    assert len(set(names)) == 3
    made = [obj["metadata"]["name"] for obj in served([one, two, many]) if obj["kind"] == "Pod"]
    assert [name[:-6] for name in made] == [names[0], names[1], f"{names[2]}-w-0-0"]
    with pytest.raises(ManifestError, match=r"Job: metadata\.name: expected a name, found nothing"):
        load_yaml([write(tmp_path / "a.yaml", "apiVersion: batch/v1\nkind: Job")])


def test_directives_stay_with_their_document(tmp_path: Path) -> None:
    text = "%YAML 1.1\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
    assert [obj["metadata"]["name"] for obj in load_yaml([write(tmp_path / "a.yaml", text)])] == ["a"]


def test_a_namespace_of_a_node_means_nothing(tmp_path: Path) -> None:
    """As for the API server. As it was: the node was refused, and every pod waited."""
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: 'n', namespace: default}\n"
    (found,) = served(load_yaml([write(tmp_path / "a.yaml", node)]))
    assert (found["metadata"]["name"], "namespace" in found["metadata"]) == ("n", False)


def test_a_null_in_a_map_is_an_empty_value(tmp_path: Path) -> None:
    """As for the API server. As it was: it was left out, so that the pod went to any node, and asked for its limit."""
    container = "{name: c, resources: {requests: {cpu: }, limits: {cpu: 2}}}"
    spec = f"spec: {{nodeSelector: {{gpu: }}, affinity: , containers: [{container}]}}"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {{b: }}}}\n{spec}\n"
    (pod,) = load_yaml([write(tmp_path / "a.yaml", text)])
    assert (pod["metadata"]["labels"], pod["spec"]["nodeSelector"]) == ({"b": ""}, {"gpu": ""})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "0"}
    assert "affinity" not in pod["spec"]
    limits = "spec: {limits: [{type: Pod, min: {cpu: 1}, max: {cpu: }}]}"
    text = f"apiVersion: v1\nkind: LimitRange\nmetadata: {{name: l}}\n{limits}\n"
    with pytest.raises(ApiError, match="min 1 is greater than max 0"):
        served(load_yaml([write(tmp_path / "a.yaml", text)]))


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "document 1: not YAML"),
        ("- 1", "document 1: expected a Kubernetes object, found list [1]"),
        ("apiVersion: v1\nkind: List", "document 1, List: items: expected a list, found nothing"),
        ("apiVersion: v1\nkind: PodList\nitems: {}", "document 1, PodList: items: expected a list, found dict {}"),
        ("kind: Pod", "document 1: apiVersion: expected a name, found nothing"),
        ("apiVersion: v1", "document 1: kind: expected a name, found nothing"),
        ("apiVersion: v1\nkind: Pod", "Pod: metadata.name: expected a name, found nothing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: n}", "Pod: metadata.name: expected a string, found bool False"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 7}", "Pod: metadata.name: expected a string, found int 7"),
        ("apiVersion: v1\nkind: Pod\nmetadata: x", "metadata: expected an object, found str 'x'"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 7}",
            "metadata.namespace: expected a string, found",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: 7}", "metadata.generateName: expected a string, found"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nstatus: []", "Pod a: status: expected an object, found"),
        (
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {{a: [{'1, ' * 40}]}}}}",
            f"labels[a]: expected a string, found list [{'1, ' * 18}1,...",
        ),
        (POD + "spec: {}", "Pod a: spec.containers: expected a list of containers, found nothing"),
        (POD + "spec: []", "Pod a: spec: expected an object, found list []"),
        (POD + "spec: {containers: [{image: x}]}", "spec.containers[0]: expected a container with a name"),
        (
            POD + "spec: {containers: [{name: c, resources: {requests: 3}}]}",
            "requests: expected an object, found int 3",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {min-available: 3}}",
            "Pod a: metadata.labels[min-available]: expected a string, found int 3",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {groups: [b]}}",
            "metadata.annotations[groups]: expected a string, found list ['b']",
        ),
        (JOB + "spec: {parallelism: -1}", "Job j: spec.parallelism: expected a count of at least 0, found int -1"),
        (JOB + "spec: {completions: two}", "spec.completions: expected a count of at least 0, found str 'two'"),
        (
            JOB + "spec: {template: {metadata: {labels: {a: 1}}}}",
            "spec.template: metadata.labels[a]: expected a string",
        ),
        (
            POD + "spec: {containers: [{name: c}], nodeSelector: {zone: a, gpu: true}}",
            "Pod a: spec.nodeSelector[gpu]: Expected str, got bool",
        ),
        (JOB + "spec: {template: {}}", "spec.template.spec.containers: expected a list of containers"),
        ("apiVersion: v1\nkind: List\nitems: [{kind: Pod}]", "document 1, items[0]: apiVersion"),
        (POD + "spec: {containers: [{name: c}]}\n---\nx: 1", "document 2: apiVersion"),
        *(
            ("apiVersion: a.b/v1\nkind: C\nmetadata: {name: c, ownerReferences: [" + owner + "]}", f"C c: {said}")
            for owner, said in (
                ("null", "metadata.ownerReferences[0]: Expected object, got null"),
                ("{uid: u, name: a}", "metadata.ownerReferences[0].kind: Expected a value"),
                ("{uid: u, name: 7, kind: a}", "metadata.ownerReferences[0].name: Expected str, got int"),
            )
        ),
    ],
)
def test_a_bad_document_is_named_with_its_field(tmp_path: Path, text: str, told: str) -> None:
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(ManifestError) as raised:
        load_yaml([path])
    assert str(path) in str(raised.value)
    assert told in str(raised.value)


def test_a_job_may_have_more_retries_and_completions_than_pods(tmp_path: Path) -> None:
    """As it was: each Job with a `backoffLimitPerIndex` that a server gave out was refused."""
    pods = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
    text = JOB + f"spec: {{backoffLimit: 2147483647, completions: 5000000, parallelism: 2, {pods}}}"
    assert len(served(load_yaml([write(tmp_path / "a.yaml", text)]))) == 2
    with pytest.raises(ManifestError, match=r"spec\.parallelism: expected a count of at most 1000000, found 5000000"):
        load_yaml([write(tmp_path / "a.yaml", text.replace("parallelism: 2", "parallelism: 5000000"))])


@pytest.mark.parametrize("count", [0, 1_000_000])
@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job"])
def test_the_least_and_the_most_that_there_may_be_is_taken(kind: str, count: int, tmp_path: Path) -> None:
    """None as well: nothing else is written of what somebody scaled down."""
    version, field = ("batch/v1", "parallelism") if kind == "Job" else ("apps/v1", "replicas")
    spec = {field: count, "template": {"spec": {"containers": [{"name": "c"}]}}}
    file = tmp_path / "a.json"

    def told(spec: dict[str, Any]) -> str:
        return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec})

    (found,) = load_yaml([write(file, told(spec))])
    assert found["spec"] == spec
    for wrong in (-1, 1_000_001, False):
        with pytest.raises(ManifestError, match=rf"{kind} a: spec\.{field}: expected a count of at"):
            load_yaml([write(file, told(spec | {field: wrong}))])


def test_what_is_bad_costs_itself_only(tmp_path: Path) -> None:
    bad = write(
        tmp_path / "bad.yaml", f"{GOOD}---\nx: 1\n---\n- 1\n---\napiVersion: v1\nkind: List\nitems: [1, {{}}]\n"
    )
    objects, refused = read_yaml([bad])
    assert objects == load_yaml([write(tmp_path / "good.yaml", GOOD)])
    assert [str(error).removeprefix(f"{bad}, ").partition(":")[0] for error in refused] == [
        "document 4",
        "document 5",
        "document 6, items[0]",
        "document 6, items[1]",
    ]
    with pytest.raises(ManifestError, match="document 1: apiVersion"):
        read_yaml([write(tmp_path / "bad.yaml", "x: 1")])
    with pytest.raises(ManifestError, match="expected Kubernetes objects, found none"):
        read_yaml([write(tmp_path / "bad.yaml", "---")])
    assert read_yaml([]) == ([], [])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml"):
        load_yaml([tmp_path / "none.yaml"])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collected manifests are not here")
def test_the_published_coscheduling_manifests_are_read_as_they_are() -> None:
    files = (
        "nginx-podgroup-replicaset.yaml",
        "pg1-podgroup.yaml",
        "pause-deployment.yaml",
        "elasticquota-example.yaml",
    )
    objects = served(load_yaml([SHARED / "coscheduling" / name for name in files]))
    kinds = [obj["kind"] for obj in objects]
    assert kinds == ["PodGroup", *["Pod"] * 6, "PodGroup", *["Pod"] * 2, "ElasticQuota"]
    members = [obj for obj in objects if obj["kind"] == "Pod"]
    assert members[0]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "nginx"
    assert members[0]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3000m", "memory": "500Mi"}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collected manifests are not here")
@pytest.mark.parametrize("name", ["podgroup-strict-groups.yaml", "gang-master-worker.yaml"])
def test_published_annotations_that_are_no_strings_are_refused(name: str) -> None:
    with pytest.raises(ManifestError, match=r"metadata\.annotations.*expected a string"):
        load_yaml([SHARED / "koordinator" / name])


def test_a_list_of_nothing_is_none(tmp_path: Path) -> None:
    """As Go's API machinery says it."""
    text = "{apiVersion: v1, kind: PodList, items: null}\n---\n{apiVersion: v1, kind: Node, metadata: {name: a}}\n"
    assert [obj["kind"] for obj in load_yaml([write(tmp_path / "a.yaml", text)])] == ["Node"]


def test_the_items_of_a_typed_list_are_of_its_kind(tmp_path: Path) -> None:
    """As `kubectl get --raw` says them: the API server tells the kind once, of the list."""
    items = "[{metadata: {name: a}}, {apiVersion: v1, kind: Pood, metadata: {name: b}}]"
    text = f"{{apiVersion: v1, kind: NodeList, items: {items}}}"
    assert [(obj["apiVersion"], obj["kind"]) for obj in load_yaml([write(tmp_path / "nodes.json", text)])] == [
        ("v1", "Node"),
        ("v1", "Pood"),
    ]
    with pytest.raises(ManifestError, match=r"items\[0\]: apiVersion: expected a name"):
        load_yaml([write(tmp_path / "list.json", "{apiVersion: v1, kind: List, items: [{metadata: {name: a}}]}")])


def owned(kind: str, name: str, by: str, maker: str, **status: object) -> str:
    group = {"Pod": "v1", "Job": "batch/v1", "ReplicaSet": "apps/v1"}
    of = {"Deployment": "apps/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", **group}
    owner = {"apiVersion": of[by], "kind": by, "name": maker, "uid": "u", "controller": True}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = template["spec"] if kind == "Pod" else {"template": template, "selector": {"matchLabels": {"a": "b"}}}
    metadata = {"name": name, "uid": name, "resourceVersion": "7", "ownerReferences": [owner] if maker else []}
    return json.dumps(
        {"apiVersion": group.get(kind, of[kind]), "kind": kind, "metadata": metadata, "spec": spec, "status": status}
    )


def test_what_kubectl_says_of_a_cluster_is_what_there_is(tmp_path: Path) -> None:
    """What has ended holds no room; what has made what stands beside it is not to make it once more."""
    told = [
        owned("Deployment", "web", "Deployment", ""),
        owned("ReplicaSet", "web-1", "Deployment", "web"),
        owned("Pod", "web-1-a", "ReplicaSet", "web-1", phase="Running"),
        owned("Deployment", "alone", "Deployment", ""),
        owned("ReplicaSet", "of-another", "Deployment", "gone"),
        owned("Pod", "done", "Job", "", phase="Succeeded"),
        owned("Pod", "broken", "Job", "", phase="Failed"),
        owned("Job", "over", "JobSet", "", conditions=[{"type": "Complete", "status": "True"}]),
        owned("Job", "goes-on", "JobSet", "", conditions=[{"type": "Complete", "status": "False"}]),
        owned("JobSet", "train", "JobSet", ""),
        owned("Job", "train-0", "JobSet", "train"),
    ]
    objects = load_yaml([write(tmp_path / "all.yaml", "\n---\n".join(told))])
    assert [obj["metadata"]["name"] for obj in objects] == ["web-1-a", "alone", "of-another", "goes-on", "train-0"]
    assert not any("resourceVersion" in obj["metadata"] for obj in objects)


@pytest.mark.parametrize(
    ("maker", "version", "between", "labels"),
    [
        ("Deployment", "apps/v1", ("ReplicaSet", "web-6d4cf"), {"pod-template-hash": "6d4cf"}),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", ("Job", "web-node-0"), {"jobset.sigs.k8s.io/jobset-name": "web"}),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1", ("Job", "web-node-0"), {"jobset.sigs.k8s.io/jobset-name": "web"}),
    ],
)
def test_so_it_is_where_what_it_made_is_not_listed_but_the_pods_are(
    maker: str, version: str, between: tuple[str, str], labels: dict[str, str], tmp_path: Path
) -> None:
    """As it was: `kubectl get nodes,deployments,pods` had each Deployment's pods twice."""
    kind, name = between
    pod = json.loads(owned("Pod", f"{name}-x", kind, name, phase="Running"))
    pod["metadata"]["labels"] = labels
    makers = [told_of(maker) | {"apiVersion": version, "metadata": {"name": one}} for one in ("web", "other")]
    objects = load_yaml([write(tmp_path / "now.yaml", "\n---\n".join(map(json.dumps, [*makers, pod])))])
    assert [obj["metadata"]["name"] for obj in objects] == ["other", f"{name}-x"]


def test_what_only_looks_like_a_maker_makes_its_own_pods(tmp_path: Path) -> None:
    """Somebody named it as an owner that controls nothing; a ReplicaSet of one's own has a name like a Deployment's; a
    plain Job's pod is no JobSet's; a job that waits is listed with its PodGroup."""

    def of_nobody(kind: str) -> dict[str, Any]:
        return told_of(kind) | {"metadata": {"name": "web"}}

    deployment = of_nobody("ReplicaSet") | {"apiVersion": "apps/v1", "kind": "Deployment"}
    named = json.loads(owned("Pod", "a", "ReplicaSet", "web"))
    named["metadata"]["ownerReferences"][0]["controller"] = False
    alike = json.loads(owned("Pod", "b", "ReplicaSet", "web-2"))
    plain = json.loads(owned("Pod", "c", "Job", "web"))
    group = json.loads(owned("ReplicaSet", "web", "Job", "web"))
    group |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "web"}}
    of_ray = json.loads(owned("Pod", "d", "Job", "web"))
    of_ray["metadata"]["ownerReferences"][0] |= {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    given = [of_nobody("ReplicaSet"), deployment, named, alike, of_nobody("JobSet"), plain, of_nobody("Job"), group]
    text = "\n---\n".join(map(json.dumps, [*given, cluster, of_ray]))
    assert len(load_yaml([write(tmp_path / "now.yaml", text)])) == len(given) + 2


def told_of(kind: str, **status: Any) -> dict[str, Any]:
    versions = {"Job": "batch.volcano.sh/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2", "Pod": "v1"}
    versions |= {"TrainJob": "trainer.kubeflow.org/v1alpha1", "ReplicaSet": "apps/v1"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    version = versions.get(kind, "kubeflow.org/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": spec, "status": status}


def condition(kind: str, says: str, status: str = "True") -> dict[str, Any]:
    return told_of(kind, conditions=[{"type": "Suspended", "status": "False"}, {"type": says, "status": status}])


def of_kubernetes(says: str) -> dict[str, Any]:
    """What it is to become stands there before its last pods are gone."""
    return condition("Job", says) | {"apiVersion": "batch/v1"}


@pytest.mark.parametrize(
    "told",
    [
        *(condition("JobSet", says) for says in ("Completed", "Failed")),
        *(condition("TrainJob", says) for says in ("Complete", "Failed")),
        *(of_kubernetes(says) for says in ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")),
        *(condition(kind, says) for kind in ("PyTorchJob", "MPIJob") for says in ("Succeeded", "Failed")),
        *(told_of("Job", state={"phase": phase}) for phase in ("Completed", "Failed", "Terminated", "Aborted")),
    ],
    ids=lambda told: f"{told['kind']} {told['status']}",
)
def test_a_job_that_has_ended_makes_no_pods(told: dict[str, Any], tmp_path: Path) -> None:
    """As it was: of other projects' jobs nobody looked, and `muster simulate` started again what had ended long ago."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [told, {**told, "kind": "Other"}]}
    objects = load_yaml([write(tmp_path / "now.json", json.dumps(listed))])
    assert [obj["kind"] for obj in objects] == ["Other"]


@pytest.mark.parametrize(
    "told",
    [
        *(condition("JobSet", "Completed", "False"), condition("PyTorchJob", "Running")),
        *(
            told_of("JobSet", conditions=odd)
            for odd in (None, "Failed", {"type": "Failed"}, ["Failed"], [{"type": []}])
        ),
        *(told_of("Job", state=odd) for odd in (None, "Completed", {"phase": "Running"}, {"phase": ["Completed"]})),
        *(condition("ReplicaSet", "Failed"), told_of("Job", conditions=[{"status": "Completed"}])),
    ],
    ids=lambda told: f"{told['kind']} {told['status']}",
)
def test_a_job_that_does_not_say_that_it_has_ended_has_not(told: dict[str, Any], tmp_path: Path) -> None:
    assert len(load_yaml([write(tmp_path / "now.json", json.dumps(told))])) == 1


def test_what_every_cluster_has_is_no_second_one(tmp_path: Path) -> None:
    """`kubectl get namespaces,priorityclasses` says them, too; they were refused, for they exist already."""
    names = {"Namespace": ["default", "team"], "PriorityClass": ["system-node-critical", "high"]}
    versions = {"Namespace": "v1", "PriorityClass": "scheduling.k8s.io/v1"}
    told = [
        {"apiVersion": versions[kind], "kind": kind, "metadata": {"name": name}}
        for kind in names
        for name in names[kind]
    ]
    objects = load_yaml([write(tmp_path / "all.yaml", "\n---\n".join(map(json.dumps, told)))])
    assert [obj["metadata"]["name"] for obj in objects] == ["team", "high"]


def test_a_deployment_of_an_old_version_is_checked_like_a_new_one(tmp_path: Path) -> None:
    """It was taken as it was, and ended `muster simulate`."""
    text = "{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: old}, spec: {replicas: [1]}}"
    with pytest.raises(ManifestError, match=r"spec\.replicas: expected a count"):
        load_yaml([write(tmp_path / "old.yaml", text)])
