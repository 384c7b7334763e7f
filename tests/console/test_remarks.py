"""What is said of manifests beside where their pods go: what is not read, and what is probably not meant."""

import pytest

from services.console import show
from services.console.remarks import remarks
from services.console.simulate import simulate
from tests.console.manifests import node, placed, pod, workload
from tests.manifests import pod_group
from tests.simulator.test_train_jobs import train_job


def test_what_is_not_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As it was: a DaemonSet, or a kind that was mistyped, was dropped in silence."""
    others = [("v1", "ConfigMap"), ("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "Pood"), ("v2", "Pod")]
    objects = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": f"x{n}"}} for n, (version, kind) in enumerate(others)
    ]
    found = placed(node("n1"), workload("Job", "j", 1), pod_group("g", 1), *objects)
    assert found["unread"] == {"ConfigMap v1": 2, "CronJob batch/v1": 1, "Pod v2": 1, "Pood v1": 1}
    show.answer(found)
    assert "without effect: 2 ConfigMap v1, 1 CronJob batch/v1, 1 Pod v2, 1 Pood v1\n" in capsys.readouterr().out


def test_a_suspended_workload_is_told() -> None:
    """Of it no pods are made: without a word the answer would be empty."""
    job = workload("Job", "later", 2)
    job["spec"]["suspend"] = True
    training = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 2}}},
    }
    of_another_group = {"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job["spec"]}
    found = simulate([node("n1"), job, training, of_another_group, workload("Job", "now", 1)]).answer()
    assert found["warnings"] == [
        "Job default/later: it is suspended: no pods are made of it before it is resumed",
        "PyTorchJob team/train: it is suspended: no pods are made of it before it is resumed",
    ]
    assert len(found["bound"]) == 1


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("batch.volcano.sh/v1alpha1", "CronJob"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ],
)
def test_so_is_a_suspended_job_of_another_project(version: str, kind: str) -> None:
    job = {"apiVersion": version, "kind": kind, "metadata": {"name": "j", "namespace": "ml"}, "spec": {"suspend": True}}
    told = [f"{kind} ml/j: it is suspended: no pods are made of it before it is resumed"]
    assert remarks([job]) == ({}, told)
    assert remarks([{**job, "spec": {"suspend": False}}]) == ({}, [])


def test_a_scheduler_name_that_no_service_can_be_given_is_told() -> None:
    """An API server takes any text. As it was, the demo ended with it."""
    job = workload("Job", "j", 1)
    job["spec"]["template"]["spec"]["schedulerName"] = " muster"
    found = simulate([node("n1"), job, pod("p", schedulerName="a,b"), pod("q", schedulerName="a.b")]).answer()
    why = "no service serves it: expected no comma, nor spaces around"
    assert found["warnings"] == [
        f"Job default/j: schedulerName ' muster': {why}",
        f"Pod default/p: schedulerName 'a,b': {why}",
    ]
    assert len(found["bound"]) == 3


def test_a_mirror_pod_without_a_node_is_refused() -> None:
    """As an API server does: its node's kubelet makes it. As it was, nothing was said of it."""
    mirror = pod("static-n1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    found = simulate([node("n1"), mirror, pod("p")]).answer()
    assert "must set spec.nodeName if mirror pod annotation is set" in str(found["rejected"])
    assert found["bound"].keys() == {"default/p"}


def test_what_others_name_is_read() -> None:
    kinds = {
        "v1": ("Namespace", "LimitRange"),
        "node.k8s.io/v1": ("RuntimeClass",),
        "trainer.kubeflow.org/v1alpha1": ("TrainingRuntime", "ClusterTrainingRuntime"),
    }
    helpers = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}} for version in kinds for kind in kinds[version]
    ]
    assert remarks(helpers) == ({}, [])
    assert remarks([{**helper, "apiVersion": "example.com/v1"} for helper in helpers]).unread.keys() == {
        f"{helper['kind']} example.com/v1" for helper in helpers
    }


def test_only_what_makes_no_pods_is_said_to_make_none() -> None:
    """As it was: of a Job of Volcano, which has no such field, it was said although its pods were placed."""
    tasks = [{"name": "a", "replicas": 1, "template": {"spec": pod("x")["spec"]}}]
    replicas = {"Worker": {"replicas": 1, "template": {"spec": pod("x")["spec"]}}}
    kinds = {
        ("batch.volcano.sh/v1alpha1", "Job"): {"tasks": tasks},
        ("kubeflow.org/v1", "PyTorchJob"): {"pytorchReplicaSpecs": replicas},
    }
    jobs = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower()}, "spec": {"suspend": True, **spec}}
        for (version, kind), spec in kinds.items()
    ]
    found = simulate([node("n1"), *jobs]).answer()
    assert (sorted(found["bound"]), found["warnings"]) == (["default/job-a-0", "default/pytorchjob-worker-0"], [])


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_what_is_neither_true_nor_false_is_refused(kind: str) -> None:
    """As it was: `suspend: "false"` suspended, and nothing was said."""
    job = job_set(suspend="false") if kind == "JobSet" else train_job(suspend="false")
    (refused,) = simulate([node("n1"), job]).answer()["rejected"]
    assert "spec.suspend: Invalid value: 'false': expected true or false" in refused


def test_a_paused_deployment_makes_no_pods_and_keeps_those_that_it_has() -> None:
    new, known = workload("Deployment", "new", 2), workload("Deployment", "known", 2)
    for deployment in (new, known):
        deployment["spec"]["paused"] = True
    known["status"] = {"replicas": 2}
    found = simulate([node("n1"), new, known]).answer()
    assert found["warnings"] == [
        "Deployment default/new: it is paused: no pods are made of it before it is resumed",
    ]
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in found["bound"]] == ["default/known"] * 2


def test_so_does_one_of_which_volcano_makes_a_gang() -> None:
    """As it was: of this one alone the pods were placed, below the warning that there are none."""
    new, known = workload("Deployment", "new", 2), workload("Deployment", "known", 2)
    for deployment in (new, known):
        deployment["spec"]["paused"] = True
        deployment["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": "2"}
    assert placed(node("n1"), new)["gangs"] == {}
    known["status"] = {"replicas": 2}
    found = placed(node("n1"), new, known)
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in found["bound"]] == ["default/known"] * 2
    assert [gang["min_member"] for gang in found["gangs"].values()] == [2]


LABEL, OF_VOLCANO = "scheduling.x-k8s.io/pod-group", "scheduling.volcano.sh/group-min-member"


def stateful_set(replicas: int, minimum: str = "", gang: str = "", **fields: object) -> dict:
    made = workload("StatefulSet", "db", replicas, labels={LABEL: gang} if gang else None)
    made["metadata"]["annotations"] = {OF_VOLCANO: minimum} if minimum else {}
    made["spec"] |= fields
    return made


def natively() -> dict:
    """One of Kubernetes' own gangs."""
    made = stateful_set(2)
    made["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return made


def test_so_is_one_of_kubernetes_own_and_of_a_template_without_labels() -> None:
    made = natively()
    del made["spec"]["template"]["metadata"]
    for one in (natively(), made):
        (told,) = remarks([one]).warnings
        assert "a gang that needs several of them never starts" in told


@pytest.mark.parametrize(
    "given",
    [
        stateful_set(2, gang="g"),
        stateful_set(2, gang="g", podManagementPolicy="OrderedReady"),
        stateful_set(2, gang="g", podManagementPolicy=""),
        stateful_set(2, minimum="2"),
    ],
)
def test_a_gang_whose_pods_come_one_by_one_is_told(given: dict) -> None:
    """As it was: it was placed without a word, and never starts where a StatefulSet's controller makes its pods."""
    found = placed(node("n"), pod_group("g", 2), given)
    (told,) = found["warnings"]
    assert told.startswith("StatefulSet default/db: spec.podManagementPolicy is OrderedReady: ")
    assert "a gang that needs several of them never starts. Parallel makes them at once" in told
    assert len(found["bound"]) == 2


@pytest.mark.parametrize(
    "given",
    [
        *(stateful_set(2), stateful_set(1, gang="g"), stateful_set(2, minimum="1")),
        stateful_set(2, gang="g", podManagementPolicy="Parallel"),
        workload("Deployment", "db", 2, labels={LABEL: "g"}),
        *(
            {"apiVersion": f"{group}/v9", "kind": "StatefulSet", "metadata": {"name": "a"}}
            for group in ("apps", "x.io")
        ),
    ],
)
def test_nothing_is_said_of_other_stateful_sets(given: dict) -> None:
    assert placed(node("n"), given)["warnings"] == []


def test_bound_pods_that_keep_others_away_are_told_once() -> None:
    """As it was: others were placed beside them, and nothing was said (ARCHITECTURE.md, known limits)."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    keeping = [pod(name, affinity=affinity, nodeName="n") for name in ("a", "b")]
    found = simulate([node("n"), *keeping, pod("c"), pod("d", affinity=affinity)]).answer()
    assert found["warnings"] == [
        "Pod default/a and 1 more: the required podAntiAffinity of a bound pod keeps no other pod away here"
    ]
    assert found["bound"]["default/c"] == "n"
    assert found["waiting"] == {"default/d": "not supported yet: required podAntiAffinity"}


def job_set(**fields: object) -> dict:
    template = {"spec": workload("Job", "x", 1)["spec"]}
    jobs = [{"name": "driver", "template": template}, {"name": "workers", "template": template}]
    spec = {"replicatedJobs": jobs, **fields}
    metadata = {"name": "train", "namespace": "team"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def test_what_is_not_simulated_of_a_job_set_is_told() -> None:
    """As it was: its jobs were placed at once, and wherever they fit, without a word."""
    key, at_once = "alpha.jobset.sigs.k8s.io/exclusive-topology", "has no effect here: all of its jobs are made at once"
    ordered = job_set(startupPolicy={"startupPolicyOrder": "InOrder"})
    ordered["metadata"]["annotations"] = {key: "rack"}
    depends = job_set()
    depends["metadata"]["name"] = "later"
    depends["spec"]["replicatedJobs"][1] |= {"dependsOn": [{"name": "driver", "status": "Ready"}]}
    found = simulate([node("n"), ordered, depends]).answer()
    assert found["warnings"] == [
        f"JobSet team/train: spec.startupPolicy.startupPolicyOrder {at_once}",
        f"JobSet team/train: metadata.annotations[{key}] has no effect here: its jobs may share such a domain",
        f"JobSet team/later: spec.replicatedJobs[1].dependsOn {at_once}",
    ]
    assert len(found["bound"]) == 4


def test_a_job_of_another_controller_is_told() -> None:
    """As MultiKueue's, which makes its pods in another cluster."""
    kueue = {"managedBy": "kueue.x-k8s.io/multikueue"}
    jobs = [workload("Job", name, 1) for name in ("own", "theirs")]
    for job, manager in zip(jobs, ("kubernetes.io/job-controller", kueue["managedBy"]), strict=True):
        job["spec"]["managedBy"] = manager
    training = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"runPolicy": kueue, "tfReplicaSpecs": {"Worker": {"template": {"spec": pod("x")["spec"]}}}},
    }
    found = simulate([node("n"), *jobs, training, train_job(**kueue, podTemplateOverrides=[{"spec": {}}])]).answer()
    effect = "has no effect here: its pods are made as by its own controller"
    assert found["warnings"] == [
        f"Job default/theirs: spec.managedBy {effect}",
        f"TFJob t: spec.runPolicy.managedBy {effect}",
        f"TrainJob default/tune: spec.managedBy {effect}",
        "TrainJob default/tune: spec.podTemplateOverrides has no effect here: Trainer reads spec.runtimePatches",
    ]


def test_a_job_that_asks_kubernetes_for_a_gang_is_told() -> None:
    """Kubernetes 1.37, WorkloadWithJob: its pods are placed one by one here. Without `scheduling` they are there, too."""
    policies = {"gang": {"gang": {"minCount": 2}}, "basic": {"basic": {}}, "none": None, "own": {"gang": {}}}
    jobs = {name: workload("Job", name, 1) for name in (*policies, "apart")}
    for name, policy in policies.items():
        jobs[name]["spec"]["scheduling"] = {"schedulingPolicy": policy}
    jobs["own"]["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    jobs["apart"]["spec"]["scheduling"] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    effect = "spec.scheduling has no effect here: no PodGroup is made of its pods"
    assert simulate([node("n"), *jobs.values()]).answer()["warnings"] == [
        f"Job default/gang: {effect}",
        f"Job default/apart: {effect}",
    ]


@pytest.mark.parametrize(
    ("job", "manager"),
    [
        ("JobSet", "jobset.sigs.k8s.io/jobset-controller"),
        ("TrainJob", "trainer.kubeflow.org/trainjob-controller"),
        *(("TFJob", f"kubeflow.org/{manager}") for manager in ("training-operator", "mpi-operator")),
    ],
)
def test_nothing_is_said_of_a_jobs_own_controller(job: str, manager: str) -> None:
    """Of a JobSet that another one manages it is."""
    for managed_by, told in ((manager, 0), ("kueue.x-k8s.io/multikueue", 1)):
        said = {"managedBy": managed_by}
        tf = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "t"}, "spec": {"runPolicy": said}}
        made = {"JobSet": job_set(**said), "TrainJob": train_job(**said), "TFJob": tf}[job]
        assert len(remarks([made]).warnings) == told


def test_a_job_set_without_a_spec_has_no_jobs() -> None:
    """As it was: a traceback."""
    empty = {field: said for field, said in job_set().items() if field != "spec"}
    found = simulate([node("n"), empty, empty | {"metadata": {"name": "null"}, "spec": None}]).answer()
    assert (found["bound"], found["warnings"], found["rejected"]) == ({}, [], [])


@pytest.mark.parametrize(("kind", "whose"), [("Job", ""), ("CronJob", "its Job's ")])
def test_what_is_not_simulated_of_a_volcano_job_is_told(kind: str, whose: str) -> None:
    template = {"spec": {"containers": [{"name": "c"}], "schedulerName": "volcano"}}
    tasks = [{"name": name, "template": template} for name in ("driver", "worker")]
    tasks[1]["dependsOn"] = {"name": ["driver"]}
    spec = {"schedulerName": "volcano", "tasks": tasks}
    if kind == "CronJob":
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": kind, "metadata": {"name": "train"}, "spec": spec}
    assert simulate([node("n"), job]).answer()["warnings"] == [
        f"{kind} train: {whose}spec.tasks[1].dependsOn has no effect here: the pods of all tasks are made at once"
    ]


def test_of_a_train_job_the_runtime_that_it_names_is_looked_at() -> None:
    def runtime(name: str) -> dict:
        spec = {"template": {"spec": job_set()["spec"]}}
        metadata = {"name": name}
        kind = "ClusterTrainingRuntime"
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}

    unused, used, plain = runtime("unused"), runtime("used"), runtime("plain")
    for one in (unused, used):
        one["spec"]["template"]["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Complete"}]
    jobs = [
        {**used, "kind": "TrainJob", "metadata": {"name": f"of-{name}"}, "spec": {"runtimeRef": {"name": name}}}
        for name in ("used", "plain")
    ]
    assert simulate([node("n"), unused, used, plain, *jobs]).answer()["warnings"] == [
        "TrainJob of-used: its JobSet's spec.replicatedJobs[1].dependsOn has no effect here: all of its jobs are made at"
        " once"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        *({"startupPolicy": odd} for odd in (None, "InOrder", {"startupPolicyOrder": "AnyOrder"})),
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": job_set()["spec"]["replicatedJobs"][:1]},
        {"replicatedJobs": "InOrder"},
    ],
)
def test_nothing_is_said_of_a_job_set_without_an_order(fields: dict) -> None:
    assert simulate([node("n"), job_set(**fields)]).answer()["warnings"] == []
