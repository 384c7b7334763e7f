"""From an entry of the clusters file to the backend that it describes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from pathlib import Path

from events import tls
from events.connection import Connection
from services.federator.backends import Backend, Reach
from services.federator.backends.credentials import Secret
from services.federator.backends.gangs import Placing
from services.federator.backends.kubernetes import Kubernetes
from services.federator.backends.leaf import Leaf
from services.federator.backends.openpai import OpenPai
from services.federator.clusters import Cluster, InvalidClusters, KubernetesCluster, OpenPaiCluster, read
from services.federator.records import account_of
from services.kubernetes import access


def load(file: Path) -> tuple[Cluster, ...]:
    """Raises InvalidClusters, which names the file."""
    clusters, problems = _read(file)
    if problems:
        raise InvalidClusters(problems)
    return clusters


def _read(file: Path) -> tuple[tuple[Cluster, ...], list[str]]:
    """As `clusters.read`, with the file's name in what is wrong. Raises InvalidClusters."""
    try:
        clusters, problems = read(file.read_text(encoding="utf-8"))
    except InvalidClusters as error:
        raise InvalidClusters([f"{file}: {problem}" for problem in error.problems]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InvalidClusters([f"{file}: expected a clusters file: {reason}"]) from None
    return clusters, [f"{file}: {problem}" for problem in problems]


def usable(file: Path) -> tuple[Cluster, ...]:
    """Its clusters, and that the files which they name can be read. Raises InvalidClusters, or AccessError where it is
    kubeconfigs alone that cannot; with all that is wrong, and the file's name."""
    clusters, problems = _read(file)
    wrong = [error for cluster in clusters if (error := _unreadable(cluster, file.parent)) is not None]
    said = [*problems, *(f"{file}: {error}" for error in wrong)]
    if problems or any(isinstance(error, InvalidClusters) for error in wrong):
        raise InvalidClusters(said)
    if wrong:
        raise access.AccessError("; ".join(said))
    return clusters


def _unreadable(cluster: Cluster, directory: Path) -> InvalidClusters | access.AccessError | None:
    """Why a file that it names is of no use."""
    try:
        if isinstance(cluster, OpenPaiCluster):
            _trusting(cluster, directory)
        else:
            _access(cluster, directory)
    except (InvalidClusters, access.AccessError) as error:
        return error
    return None


def reaches(clusters: Iterable[Cluster], directory: Path, connection: Connection | None = None) -> dict[str, Reach]:
    """By account, as jobs name it. `connection`: over which clusters' own logs are read. Raises as `open_backend`."""
    return {
        account_of(cluster.user, cluster.uri): Reach(
            open_backend(cluster, directory), cluster.poll_ms / 1000, _log(cluster, connection)
        )
        for cluster in clusters
    }


def _log(cluster: Cluster, connection: Connection | None) -> Leaf | None:
    if connection is None or not isinstance(cluster, KubernetesCluster) or cluster.log is None:
        return None
    return Leaf(connection, cluster.log.domain, cluster.log.cluster, cluster.namespace)


def open_backend(cluster: Cluster, directory: Path) -> Backend:
    """Inside a running loop. `directory`: to which paths are relative. Raises InvalidClusters, AccessError."""
    timeout_s = cluster.timeout_ms / 1000
    if isinstance(cluster, OpenPaiCluster):
        return OpenPai(
            cluster.uri,
            cluster.user,
            Secret(variable=cluster.token.env, file=_path(directory, cluster.token.file)),
            limits=cluster.limits,
            ssl_context=_trusting(cluster, directory),
            timeout_s=timeout_s,
        )
    placing = Placing(scheduler=cluster.scheduler, dialect=cluster.dialect, gpu=cluster.gpu, user=cluster.user)
    return Kubernetes(_access(cluster, directory), cluster.namespace, placing, timeout_s=timeout_s)


def read_keys(file: Path) -> list[str]:
    """One a line; `Cipher` says whether they are. Raises InvalidClusters."""
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InvalidClusters([f"{file}: expected a file of keys: {reason}"]) from None


def _path(directory: Path, path: str) -> str:
    return str(directory / os.path.expanduser(path)) if path else ""  # not Path.expanduser, which may raise


def _trusting(cluster: OpenPaiCluster, directory: Path) -> ssl.SSLContext | None:
    if not cluster.ca_file:
        return None
    path = _path(directory, cluster.ca_file)
    try:
        return tls.trusting(path)
    except OSError as error:  # SSLError is one
        said = f"clusters.{cluster.alias}.ca_file: {path}: expected certificates in PEM: {error.strerror or error}"
        raise InvalidClusters([said]) from error


def _access(cluster: KubernetesCluster, directory: Path) -> access.Access:
    try:
        return access.load(_path(directory, cluster.kubeconfig) or None)
    except access.AccessError as error:
        raise access.AccessError(f"clusters.{cluster.alias}.kubeconfig: {error}") from error
