"""`muster run`: several services from one command, each a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import events as ev
from events.lease import holder_of
from services import settings
from services.cli.muster import app
from services.console import together
from services.console.processes import Child
from tests.console.muster import CLUSTER, Muster
from tests.waiting import until

IN_PROC = pytest.mark.skipif(sys.platform != "linux", reason="who a process's children are stands in /proc")


def children(parent: Child) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether it is neither gone nor a zombie that nobody reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def started(muster: Muster) -> Child:
    run = muster.start("run", "ingest", "planner", "binder")
    await muster.bind_one_more()
    return run


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_all_of_them_serve_and_hand_their_leases_over_when_they_are_told_to_end(
    muster: Muster, told: signal.Signals
) -> None:
    muster.lease_s = 60  # none runs out meanwhile
    run = await started(muster)
    taken = [muster.said(kind)[-1].holder for kind in (ev.IngestTaken, ev.PlannerTaken, ev.BinderTaken)]
    assert len(set(taken)) == 3
    os.kill(run.pid, told)
    assert await asyncio.to_thread(run.wait) == 0, run.tail()
    for writer in ("ingest", "planner.0", "binder"):
        assert await holder_of(muster.log.connection, CLUSTER, writer) == ""


@IN_PROC
async def test_told_to_end_while_they_start_it_ends_with_0(muster: Muster) -> None:
    """As it was: 143, or 130 of Ctrl-C, as a service that had no handler yet was ended by the signal."""
    run = muster.start("run", "ingest", "planner", "binder")
    await until(lambda: children(run), "the first of them")
    run.terminate()
    assert await asyncio.to_thread(run.wait) == 0, run.tail()


@IN_PROC
async def test_where_one_ends_all_do(muster: Muster) -> None:
    run = await started(muster)
    found = children(run)
    assert len(found) == 3
    os.kill(found[0], signal.SIGKILL)  # the planner, which needs least to start
    await until(lambda: "the others end, too" in run.tail(), "it to end")
    assert await asyncio.to_thread(run.wait) == 128 + signal.SIGKILL, run.tail()
    assert not any(map(alive, found))
    assert "planner ended with 137: the others end, too" in run.tail()


@IN_PROC
async def test_they_do_not_outlive_the_command(muster: Muster) -> None:
    run = await started(muster)
    found = children(run)
    os.kill(run.pid, signal.SIGKILL)
    await until(lambda: not any(map(alive, found)), "its services to end")


async def test_the_exit_code_is_that_of_the_first_that_ends(muster: Muster) -> None:
    """Here no binder can be, as its cluster cannot be reached with what it is given."""
    run = muster.start("run", "planner", "binder", "--kubeconfig", str(muster.directory / "nobody"))

    await until(lambda: "the others end, too" in run.tail(), "it to end")
    assert await asyncio.to_thread(run.wait) == 4, run.tail()


INHERITED = """
import os, signal, sys
from services.console import together

def ended(code):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

signal.pthread_sigmask(signal.SIG_BLOCK, together.HEARD)
ended(9)
sys.exit(together._watch({ended(7): "planner"}))
"""


def test_as_process_1_it_buries_those_whose_parents_are_gone() -> None:
    """As it was: what a shell in the container had left in the background ended all services as it ended itself."""
    done = subprocess.run([sys.executable, "-c", INHERITED], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr


DEAF = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "services", "run", *sys.argv[1:]])
"""


def test_it_hears_of_an_end_though_its_parent_did_not_want_to(tmp_path: Path) -> None:
    """As it was: started with SIGCHLD ignored, as some parents leave it, it went on without its services."""
    run = [sys.executable, "-c", DEAF, "ingest", "--kubeconfig", str(tmp_path / "nobody")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "ingest ended with 4: the others end, too" in done.stderr


def test_probes_are_answered_one_port_behind_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_HEALTH_PORT", "8080")
    each = together.of_each(("ingest", "binder"), {"cluster": "prod"})
    assert [(one.cluster, one.health_port) for one in each] == [("prod", 8080), ("prod", 8081)]
    assert each[0].holder != each[1].holder
    monkeypatch.setenv("MUSTER_HEALTH_PORT", "65535")
    with pytest.raises(settings.InvalidSetting, match=r"PORT: expected 65534 at most, .*, not '65535'"):
        together.of_each(("ingest", "binder"), {})
    monkeypatch.delenv("MUSTER_HEALTH_PORT")
    assert [one.health_port for one in together.of_each(("ingest", "binder"), {})] == [0, 0]


def test_a_shell_completes_which_services() -> None:
    asked = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster run ", "COMP_CWORD": "2"}
    completed = CliRunner().invoke(app, prog_name="muster", env=asked)
    assert completed.stdout.split() == ["ingest", "planner", "binder", "feed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "federator"], "error: SERVICE: expected some of ingest, planner, binder, feed, not 'federator'\n"),
        (["--cluster", "a b"], "error: --cluster: expected"),
        (["--nats", "log.db"], "error: --nats, MUSTER_NATS_URL: log.db: expected a NATS URL such as"),
    ],
)
def test_what_is_asked_for_wrongly_is_told_before_anything_starts(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
