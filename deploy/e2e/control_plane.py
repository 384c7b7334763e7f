"""A real Kubernetes control plane on loopback: etcd and kube-apiserver, and beside them what a test asks for.

Etcd's data are never synced, and lie on tmpfs where that takes them: the control plane is as fast as it can be, and
gone with its directory.
With `durable` they lie on disk and are synced, so that etcd may be killed.
Users are known by tokens; ``admin`` may do everything, all others what RBAC grants them.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from deploy.e2e.build import BIN, STAGES
from deploy.e2e.processes import Process, answers, free_port, wait_until

TMPFS = Path("/dev/shm")
ROOM_BYTES = 2 << 30
"""What has to be free there, for the control planes of all tests together. In a container it is 64 MB, unless whoever
starts that says otherwise: etcd fills these at its first write."""


class ControlPlane:
    """Etcd and kube-apiserver, from `start` to `stop`, or in a ``with``; logs and kubeconfigs stand in `directory`."""

    def __init__(self, directory: Path, apiserver_flags: Sequence[str] = (), *, durable: bool = False) -> None:
        self.directory = directory
        self.apiserver_flags = apiserver_flags
        self.durable = durable
        self.data = directory / "etcd" if durable else Path(tempfile.mkdtemp(prefix="muster-etcd-", dir=in_memory()))
        self.admin_token = secrets.token_urlsafe()
        self.etcd_port, self.peer_port, self.port = free_port(), free_port(), free_port()
        self.programs = BIN
        """Where those lie that are started from now on."""
        self.health = "/readyz"
        """What the apiserver has to answer when it is started."""
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The apiserver's self-signed certificate and its authority."""
        return self.directory / "certificates" / "apiserver.crt"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "tokens.csv").write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        (self.directory / "service-accounts.pem").write_text(private_key())
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        """Starts etcd, or starts it again on its data after its process was ended."""
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        etcd = self.run(
            "etcd",
            f"--data-dir={self.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
            *(() if self.durable else ("--unsafe-no-fsync",)),
        )
        wait_until(lambda: answers(f"{client}/readyz"), "etcd is ready", etcd)

    def start_apiserver(self) -> None:
        """Starts the apiserver, or starts it again on the same port after its process was ended."""
        apiserver = self.run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",  # there may be no route to guess one from
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'certificates'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.directory / 'service-accounts.pem'}",
            f"--service-account-signing-key-file={self.directory / 'service-accounts.pem'}",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--max-requests-inflight=4000",
            "--max-mutating-requests-inflight=4000",
            "--shutdown-delay-duration=0s",
            *self.apiserver_flags,
        )
        wait_until(self.ready, "the apiserver is ready", apiserver)

    def ready(self) -> bool:
        """Whether the apiserver is, and has made what it makes at its start (the RBAC roles, the default namespace)."""
        try:
            context = ssl.create_default_context(cafile=self.certificate)
        except (FileNotFoundError, ssl.SSLError):  # not there yet, or not written yet
            return False
        made = ("/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
        return all(answers(self.url + path, self.admin_token, context) for path in (self.health, *made))

    def start_controllers(self, *controllers: str, gates: Sequence[str] = ()) -> Process:
        """The kube-controller-manager with these controllers only, e.g. ``deployment-controller``; `gates` are open."""
        port = free_port()
        manager = self.run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('admin', self.admin_token)}",
            f"--controllers={','.join(controllers)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.directory / 'certificates'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *(f"--feature-gates={gate}=true" for gate in gates),
        )
        insecure = ssl._create_unverified_context()  # its certificate is its own and nobody reads its answer
        wait_until(lambda: answers(f"https://127.0.0.1:{port}/healthz", "", insecure), "the controllers run", manager)
        return manager

    def start_kubelets(self, *stages: Path) -> Process:
        """KWOK, as the kubelet of each node that carries the annotation ``kwok.x-k8s.io/node: fake``.

        `stages` are files with more of what it does to an object.
        """
        port = free_port()
        kwok = self.run(
            "kwok",
            f"--kubeconfig={self.kubeconfig('admin', self.admin_token)}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            f"--server-address=127.0.0.1:{port}",
            *(f"--config={stage}" for stage in (*sorted(STAGES.iterdir()), *stages)),
        )
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "KWOK is ready", kwok)
        return kwok

    def start_scheduler(self, config: dict[str, object], *flags: str) -> Process:
        """A kube-scheduler with this KubeSchedulerConfiguration (its clientConnection is filled in here)."""
        connection = {"kubeconfig": str(self.kubeconfig("admin", self.admin_token)), "qps": 5000, "burst": 5000}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": connection,
        } | config
        file = self.directory / f"scheduler-{secrets.token_hex(4)}.json"
        file.write_text(json.dumps(document))
        return self.run(
            "kube-scheduler",
            f"--config={file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.directory / 'certificates'}",
            *flags,
        )

    def kubeconfig(self, user: str, token: str) -> Path:
        """Writes a kubeconfig for a user with this token; returns its path."""
        authority = base64.b64encode(self.certificate.read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "clusters": [{"name": "e2e", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": token}}],
        }
        file = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        file.write_text(json.dumps(document))  # JSON is YAML
        return file

    def run(self, name: str, *flags: str) -> Process:
        """Starts one of the `programs`; its predecessor of the same name must have ended."""
        process = Process(name, [self.programs / name, *flags], self.directory / f"{name}.log")
        self.processes[name] = process
        return process

    def stop(self) -> None:
        """Ends everything, clients first, and removes etcd's data."""
        for process in reversed(self.processes.values()):
            process.stop(timeout_s=10)
        shutil.rmtree(self.data, ignore_errors=True)


def in_memory() -> Path | None:
    """Where temporary directories are in memory; None where etcd's would not fit, or nobody may make any."""
    usable = TMPFS.is_dir() and os.access(TMPFS, os.W_OK)
    return TMPFS if usable and shutil.disk_usage(TMPFS).free >= ROOM_BYTES else None


def private_key() -> str:
    """A new P-256 key in PEM, which signs service accounts' tokens: RFC 5915, with only what its readers need."""
    number = (secrets.randbits(255) | 1).to_bytes(32, "big")  # below the curve's order, which is nearly 2^256
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    der = b"\x30\x31\x02\x01\x01\x04\x20" + number + curve
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"
