"""Where the API server is and how this process proves who it is.

The official `kubernetes` package is the authority on configuration: exec plugins, OIDC, basic authentication, merged
kubeconfig files all go through it, its refresh hook included. Importing it costs 0.25 s of CPU, though, and every
service has to be up within two seconds on two cores shared by all of them. So the forms of credentials that only have
to be *read* are read here: a service account's mounted files, and a kubeconfig whose user has nothing but a token or
a client certificate. A test compares both ways on each of these forms.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLAIN_USER = {"token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}


class AccessError(Exception):
    """The configuration cannot be used. Names the file, the field and what was expected."""


@dataclass(frozen=True)
class Access:
    """How to reach one API server."""

    base_url: str
    """``https://host:port``, without a slash at its end."""
    ssl_context: ssl.SSLContext | None = None
    """None for plain http."""
    authorization: Callable[[], str | None] = lambda: None
    """The value of the Authorization header as of now. May read a file or run a plugin: call it off the loop."""
    refreshed: bool = False
    """Whether `authorization` can give another answer later."""
    server_hostname: str | None = None
    """The name that the server's certificate is checked against, where it is not the URL's."""
    proxy: str | None = None


def load(kubeconfig: str | None = None) -> Access:
    """The file named, else ``$KUBECONFIG``, else the service account of this pod, else ``~/.kube/config``.

    Raises AccessError.
    """
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")
    if kubeconfig:
        return from_kubeconfig(kubeconfig)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return from_kubeconfig("~/.kube/config")


def direct(url: str) -> Access:
    """A server that asks for no credentials: the simulated cluster."""
    return Access(base_url=url.rstrip("/"))


def in_cluster(directory: Path = SERVICE_ACCOUNT) -> Access:
    """The service account that Kubernetes mounts into a pod; its token is rotated, so it is read anew."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise AccessError("KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT: expected both in a pod's environment")
    token_file = directory / "token"
    _read_token(token_file)
    base_url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        base_url=base_url,
        ssl_context=_ssl_context(verify=True, ca_file=str(directory / "ca.crt")),
        authorization=lambda: f"Bearer {_read_token(token_file)}",
        refreshed=True,
        proxy=_environment_proxy(base_url),
    )


def from_kubeconfig(path: str) -> Access:
    """A kubeconfig file, or several joined as in ``$KUBECONFIG``. Raises AccessError."""
    if os.pathsep in path:
        return official(path)
    file = Path(path).expanduser()
    cluster, user = _current(file, _parse(file))
    if not set(user) <= _PLAIN_USER:
        return official(path)
    return _plain(file, cluster, user)


def official(path: str) -> Access:
    """A kubeconfig as the `kubernetes` package reads it, plugins and token refresh included. Raises AccessError."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config

    configuration = Configuration()
    try:
        load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError) as error:
        raise AccessError(f"{path}: {error}") from error
    context = None
    if configuration.host.startswith("https"):
        context = _ssl_context(
            verify=configuration.verify_ssl,
            ca_file=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
        )
    return Access(
        base_url=configuration.host.rstrip("/"),
        ssl_context=context,
        authorization=lambda: configuration.get_api_key_with_prefix("BearerToken"),
        refreshed=configuration.refresh_api_key_hook is not None,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def _plain(file: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Access:
    server = str(cluster.get("server") or "").rstrip("/")
    if urlsplit(server).scheme not in ("http", "https"):
        raise AccessError(f"{file}: cluster.server: {server!r}: expected an http or https URL")
    context = None
    if server.startswith("https"):
        with (
            _as_file(file, cluster, "certificate-authority") as ca_file,
            _as_file(file, user, "client-certificate") as cert_file,
            _as_file(file, user, "client-key") as key_file,
        ):
            verify = not cluster.get("insecure-skip-tls-verify", False)
            context = _ssl_context(verify=verify, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
    return Access(
        base_url=server,
        ssl_context=context,
        authorization=_bearer(file, user),
        refreshed=not user.get("token") and bool(user.get("tokenFile")),
        server_hostname=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url") or _environment_proxy(server),
    )


def _bearer(kubeconfig: Path, user: dict[str, Any]) -> Callable[[], str | None]:
    """A token in the kubeconfig goes before a file that it names."""
    if token := user.get("token"):
        return lambda: f"Bearer {token}"
    if token_file := user.get("tokenFile"):
        location = kubeconfig.parent / token_file
        return lambda: f"Bearer {_read_token(location)}"
    return lambda: None


def _parse(file: Path) -> dict[str, Any]:
    """The kubeconfig's mapping. libyaml where there is one: certificates make these files large."""
    import yaml

    try:
        text = file.read_text()
        parsed = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise AccessError(f"{file}: expected a kubeconfig file: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise AccessError(f"{file}: expected YAML: {error}") from error
    if not isinstance(parsed, dict):
        raise AccessError(f"{file}: expected a mapping with clusters, contexts and users")
    return parsed


def _current(file: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cluster and user of the current context."""

    def named(section: str, item: str, name: object) -> dict[str, Any]:
        entries = config.get(section) or []
        found = [entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
        if len(found) != 1 or not isinstance(found[0].get(item), dict):
            raise AccessError(f"{file}: {section}: expected one entry named {name!r} with a mapping {item!r}")
        value: dict[str, Any] = found[0][item]
        return value

    context = named("contexts", "context", config.get("current-context"))
    cluster = named("clusters", "cluster", context.get("cluster"))
    user = named("users", "user", context["user"]) if context.get("user") and config.get("users") else {}
    return cluster, user


@contextlib.contextmanager
def _as_file(kubeconfig: Path, section: dict[str, Any], key: str) -> Iterator[str | None]:
    """The file that `key` names, or a short-lived one with what ``<key>-data`` holds: OpenSSL reads keys from files."""
    data = section.get(f"{key}-data")
    if not data:
        yield str(kubeconfig.parent / section[key]) if section.get(key) else None
        return
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise AccessError(f"{kubeconfig}: {key}-data: expected base64: {error}") from error
    with tempfile.NamedTemporaryFile(prefix="muster-") as file:
        file.write(content)
        file.flush()
        yield file.name


def _ssl_context(
    *, verify: bool, ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert_file:
            context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise AccessError(f"TLS: {ca_file or 'system certificates'}, {cert_file}, {key_file}: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise AccessError(f"{file}: expected a bearer token: {error.strerror}") from error
    if not token:
        raise AccessError(f"{file}: expected a bearer token, found an empty file")
    return token


def _environment_proxy(base_url: str) -> str | None:
    parts = urlsplit(base_url)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
