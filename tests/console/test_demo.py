"""The demo as its users run it: a process that starts processes, and leaves none behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.muster import app
from services.console.demo.cluster import Progress, scheduler_names
from services.console.demo.cluster_view import bar, picture
from services.console.demo.command import acts_of, clear
from services.console.demo.workload import nodes, workload
from services.simulator.kubelet import DURATION
from services.simulator.traces import DLRM
from tests.console.manifests import node, pod
from tests.console.manifests import workload as owner
from tests.dialects.trace import drawn, write
from tests.manifests import GANG, pod_group
from tests.world import World

runner = CliRunner()
DEMO = [sys.executable, "-m", "services", "demo"]


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Two gangs that each need most of the cluster, the first of which ends soon; and one that never fits."""
    first = owner("Job", "first", 6, {GANG: "first"})
    later = owner("Job", "later", 2, {GANG: "second"})
    later["spec"]["suspend"] = True
    first["spec"]["template"]["metadata"]["annotations"] = {DURATION: "300"}
    things = [pod_group("first", 6), first, pod_group("second", 6), owner("Job", "second", 6, {GANG: "second"})]
    things += [
        pod_group("never", 9),
        owner("Job", "never", 9, {GANG: "never"}),
        pod("alone", "500m"),
        pod("odd", "many"),
        later,
        owner("DaemonSet", "agent", 1, cpu="250m"),
        owner("CronJob", "nightly", 1),
        {"kind": "Pod"},
    ]
    files = {"nodes": [node("n1", cpu="4"), node("n2", cpu="4")], "workload": things}
    arguments = []
    for name, objects in files.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text("\n---\n".join(map(json.dumps, objects)))
        arguments += [f"--{name}", str(file)]
    return arguments


def processes_of(directory: Path) -> list[str]:
    """The command lines of all processes that were started with something in this directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if str(directory).encode() in line and int(path.parent.name) != os.getpid():
            found.append(line.decode(errors="replace"))
    return found


def test_gangs_that_would_deadlock_run_one_after_the_other_and_the_log_verifies(
    tiny: list[str], tmp_path: Path
) -> None:
    keep = tmp_path / "kept"
    done = subprocess.run(
        [*DEMO, *tiny, "--keep", str(keep), "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["pods_bound"], found["gangs_bound"], found["waiting"]) == (15, 2, 9)
    assert list(found["waiting_groups"]) == ["default/never"]
    assert "Insufficient cpu" in found["waiting_groups"]["default/never"]["why"]
    assert found["rejected"] == [
        f"{tiny[-1]}, document 12: apiVersion: expected a name, found nothing",
        "Pod default/odd: spec.containers[0].resources.requests.cpu is 'many'; "
        "expected a quantity such as 500m, 1.5, 2Gi or 1e3",
    ]
    assert found["unread"] == {"CronJob apps/v1": 1}
    assert found["warnings"] == ["Job default/later: it is suspended: no pods are made of it before it is resumed"]
    assert found["verified"] is found["settled"] is True
    assert found["unclean"] == {}, "what else the exit code says"
    assert found["decisions"] > 0
    assert found["pods_per_second"] == pytest.approx(found["pods_bound"] / found["seconds"], rel=0.1)
    assert found["log"] == str(keep / "demo.db")
    assert processes_of(keep) == []
    again = subprocess.run(
        [sys.executable, "-m", "services", "replay", found["log"], "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(again.stdout)["digest"] == found["digest"]


def test_a_trace_brings_its_nodes_and_its_gang_groups(tmp_path: Path) -> None:
    services = list(drawn(3))
    write(tmp_path / DLRM, services)
    trace = ["--trace", "dlrm", "--dir", str(tmp_path), "--gang-groups", "strict", "--limit", str(len(services) - 1)]
    kept = ["--keep", str(tmp_path / "kept")]
    done = subprocess.run([*DEMO, *trace, *kept, "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    of_two = sum(row["app_name"] != "app_2" for row in services)
    assert (found["pods_bound"], found["gangs_bound"], found["waiting"]) == (of_two, 4, 0)
    assert found["verified"] is found["settled"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_process_behind(tiny: list[str], tmp_path: Path, number: signal.Signals) -> None:
    keep = tmp_path / "kept"
    demo = subprocess.Popen([*DEMO, *tiny, "--keep", str(keep), "--json"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (keep / "binder.log").exists():
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(processes_of(keep)) >= 3
        demo.send_signal(number)
        assert demo.wait(60) == 128 + number
    finally:
        demo.kill()
        demo.wait()
    assert processes_of(keep / "") == []


def test_interrupted_again_it_leaves_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the second Ctrl-C left the server's store and the keys of the bodies."""
    for name in ("a", "b"):
        (tmp_path / "demo" / name / name).mkdir(parents=True)
    (tmp_path / "demo" / "keys").touch()
    rmtree = shutil.rmtree

    def interrupted(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    clear(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--trace", "openb"], "expected --dir DIR"),
        (["--limit", "3"], "belong to --trace"),
        (["--nodes", "nodes.yaml"], "expected both --nodes and --workload"),
        (["--trace", "openb", "--dir", ".", "--nodes", "n.yaml", "--workload", "w.yaml"], "brings its own nodes"),
        (["--nodes", "nowhere.yaml", "--workload", "nowhere.yaml"], "nowhere.yaml"),
        (["--trace", "openb", "--dir", "/nowhere"], "/nowhere/openb_node_list_all_node.csv"),
        (["--trace", "other", "--dir", "."], "other"),
        (["--trace", "openb", "--dir", ".", "--gang-groups", "strict"], "belongs to --trace dlrm"),
        (["--trace", "dlrm", "--dir", ".", "--gang-groups", "loose"], "expected strict or nonstrict"),
        (["--trace", ""], "--trace '': expected openb or dlrm"),
        (["--act", "3"], "--act 3: expected 1 or 2"),
        (["--act", "2", "--nodes", "n.yaml", "--workload", "w.yaml"], "belong to --act 1"),
    ],
)
def test_what_it_cannot_run_is_told_at_once(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = runner.invoke(app, ["demo", *arguments, "--keep", str(tmp_path / "kept")])
    assert done.exit_code == 2
    assert said in done.stderr
    assert processes_of(tmp_path) == []


def test_a_directory_without_a_name_is_not_the_one_in_which_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: `--keep "$KEPT"` of a script without the variable left fifteen files there."""
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, ["demo", "--act", "1", "--at-most", "1", "--keep", ""])
    assert (done.exit_code, done.stderr) == (2, "error: --keep '': expected a directory\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--nodes", "--workload"])
def test_a_path_without_a_word_is_no_working_directory(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: whatever lay there was taken, as by `--nodes "$NODES"` of a script without the variable."""
    monkeypatch.chdir(tmp_path)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    (tmp_path / "nodes.json").write_text(json.dumps(node))
    files = {"--nodes": "nodes.json", "--workload": "nodes.json"} | {flag: ""}
    done = runner.invoke(app, ["demo", "--at-most", "1", *(one for pair in files.items() for one in pair)])
    assert (done.exit_code, done.stderr) == (2, f"error: {flag} '': expected a file or directory\n")


def test_without_a_node_nothing_is_started(tmp_path: Path) -> None:
    """As it was: it ran to its end over an empty cluster, and all was well."""
    pods = tmp_path / "pods.yaml"
    pods.write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}")
    done = runner.invoke(app, ["demo", "--nodes", str(pods), "--workload", str(pods), "--keep", str(tmp_path / "kept")])
    assert (done.exit_code, done.stderr) == (
        2,
        f"error: --nodes {pods}: expected a Node, found none that can be used\n",
    )
    assert processes_of(tmp_path) == []


def test_one_job_for_three_clusters_is_kept_on_the_best_that_starts_it(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = subprocess.run(
        [*DEMO, "--act", "2", "--keep", str(keep)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    high, middle, low = (
        next(line for line in lines if line.startswith(alias)) for alias in ("h100 ", "a100 ", "v100 ")
    )
    assert (middle[-1], "█" in low, "×" in low, "×" in high) == ("█", False, True, True)
    said = " ".join(" ".join(lines).split())
    assert "a100 keeps the job: it ran for its guard time of 0.6 s" in said
    assert "v100 (a100 of higher priority was scheduled)" in said
    assert "h100 (it was not scheduled within its extra time; a100 holds the job)" in said
    assert processes_of(keep) == []


def test_the_second_act_for_machines(tmp_path: Path) -> None:
    command = [*DEMO, "--act", "2", "--keep", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["federation"]
    assert (found["cluster"], found["settled"], found["unclean"]) == ("a100", True, {})
    assert found["stopped"] == {"v100": "R5", "h100": "R6"}
    assert found["verified"] is True
    assert found["decisions"] >= 6
    assert (tmp_path / "federation.db").exists()


@pytest.mark.parametrize(
    ("act", "own_work", "acts"),
    [(None, False, (1, 2)), (None, True, (1,)), (1, False, (1,)), (1, True, (1,)), (2, False, (2,))],
)
def test_which_acts_there_are(act: int | None, own_work: bool, acts: tuple[int, ...]) -> None:
    assert acts_of(act, own_work) == acts


@pytest.mark.parametrize("log", ["demo.db", "federation.db"])
def test_a_directory_that_holds_a_log_is_not_written_over(tiny: list[str], tmp_path: Path, log: str) -> None:
    (tmp_path / log).write_bytes(b"")
    done = runner.invoke(app, ["demo", *tiny, "--keep", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is a log already" in done.stderr
    assert (tmp_path / log).read_bytes() == b""


@pytest.mark.parametrize("store", ["nats", "nats-federation"])
def test_nor_is_one_in_which_a_demo_was_interrupted_taken_up(tiny: list[str], tmp_path: Path, store: str) -> None:
    """As it was: its second act met the job of the first run, and its first one never came to rest."""
    (tmp_path / "kept" / store).mkdir(parents=True)
    done = runner.invoke(app, ["demo", *tiny, "--keep", str(tmp_path / "kept")])
    assert (done.exit_code, [path.name for path in (tmp_path / "kept").iterdir()]) == (2, [store])
    assert f"{store}: there is a NATS server's store" in done.stderr


def test_the_default_workload_would_deadlock_pod_by_pod() -> None:
    """Two gangs that fit alone and not together, each of more than half of what both want."""
    gpus = sum(int(each["status"]["allocatable"].get("nvidia.com/gpu", 0)) for each in nodes())
    jobs = {each["metadata"]["name"]: each["spec"]["completions"] for each in workload() if each["kind"] == "Job"}
    first, second = jobs["llama-a"], jobs["llama-b"]
    assert first <= gpus
    assert second <= gpus
    assert gpus < first + second
    assert gpus // 2 < min(first, second)


def test_scheduler_names_are_those_of_pods_and_templates() -> None:
    objects = [pod("a", schedulerName="volcano"), owner("Deployment", "d", 1), node("n"), pod_group("g", 1)]
    assert scheduler_names(objects) == {"volcano", "default-scheduler"}
    odd = [pod(f"odd-{number}", schedulerName=name) for number, name in enumerate((",", "a,", "a,b", " a"))]
    assert scheduler_names([*objects, *odd]) == {"volcano", "default-scheduler"}


def test_the_picture_names_pods_gangs_and_reasons() -> None:
    from rich.console import Console

    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 3, 3)
    world.gang("large", 9, 9)
    world.settle()
    world.pod("foreign", node="unknown", candidate=False)
    progress = Progress()
    for stored in world.log.commits:
        progress.state.apply_stored(stored)
    console = Console(width=160)
    with console.capture() as capture:
        console.print(picture(progress))
    text = capture.get()
    assert "1 node, 13 pods: 3 bound (0 finished), 9 waiting" in text
    assert "default/large" in text
    assert "Insufficient cpu" in text
    assert bar(1, 4) == "██████░░░░░░░░░░░░░░░░░░ 1/4"
    assert bar(0, 0).endswith("0/0")


def test_the_best_second_is_the_one_with_most_bindings() -> None:
    progress = Progress()
    progress.bindings_ns = [second * 10**9 // 4 for second in (0, 1, 2, 3, 4, 40, 41, 42, 43, 44, 45)]
    assert progress.peak() == 5
