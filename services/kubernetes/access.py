"""Where the API server is and how this process proves who it is.

The official `kubernetes` package is the authority on configuration: exec plugins, OIDC, basic authentication, merged
kubeconfig files all go through it, its refresh hook included. Importing it costs 0.25 s of CPU, though, and every
service has to be up within two seconds on two cores shared by all of them. So the forms of credentials that only have
to be *read* are read here: a service account's mounted files, and a kubeconfig whose user has nothing but a token or
a client certificate. A test compares both ways on each of these forms.
"""

from __future__ import annotations

import base64
import contextlib
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from events import tls
from events.homes import without_credentials

REFUSED_S = 10.0
"""How soon credentials that are not accepted though they are new are asked for once more: a plugin may take seconds."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    """One whose credentials only have to be read."""

    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


_PLAIN_USER = set(_User.__struct_encode_fields__)
S = TypeVar("S", _Cluster, _User)


class AccessError(Exception):
    """The configuration cannot be used. Names the file, the field and what was expected."""


@dataclass(frozen=True)
class Access:
    """How to reach one API server."""

    base_url: str
    """``https://host:port``, without a slash at its end."""
    ssl_context: Callable[[], ssl.SSLContext] | None = None
    """As of now: a file that was written anew is read again. None for plain http."""
    authorization: Callable[[], str | None] = lambda: None
    """The value of the Authorization header as of now. May read a file or run a plugin: call it off the loop."""
    refreshed: bool = False
    """Whether `authorization` can give another answer later."""
    refused: Callable[[], None] = lambda: None
    """Hears that what it gave was not accepted (401)."""
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
    ca_file = str(directory / "ca.crt")
    base_url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        base_url=base_url,
        ssl_context=_renewed([ca_file], lambda: _ssl_context(verify=True, ca_file=ca_file)),
        authorization=lambda: f"Bearer {_read_token(token_file)}",
        refreshed=True,
        proxy=_environment_proxy(base_url),
    )


def from_kubeconfig(path: str) -> Access:
    """A kubeconfig file, or several joined as in ``$KUBECONFIG``. Raises AccessError."""
    if os.pathsep in path:
        return official(path)
    file = Path(os.path.expanduser(path))  # not Path.expanduser: it raises where there is no such home
    if not set(_current(file, _parse(file))[1]) <= _PLAIN_USER:
        return official(path)
    return _plain(file, *_sections(file))


def _sections(file: Path) -> tuple[_Cluster, _User]:
    cluster, user = _current(file, _parse(file))
    return _converted(file, "cluster", cluster, _Cluster), _converted(file, "user", user, _User)


def official(path: str) -> Access:
    """A kubeconfig as the `kubernetes` package reads it, plugins and token refresh included. Raises AccessError."""
    official = _Official(path)
    server = _server(path, official.configuration.host)
    return Access(
        base_url=server,
        ssl_context=official.context if urlsplit(server).scheme == "https" else None,
        authorization=official.authorization,
        refused=official.refused,
        refreshed=True,
        server_hostname=official.configuration.tls_server_name,
        proxy=_proxy(path, official.configuration.proxy, server),
    )


class _Official:
    """What the package made of a kubeconfig. By itself it asks a plugin again only for a token whose expiry that has
    told. So all of it is read again once it is not accepted, as client-go asks a plugin: for a certificate, a token
    without an expiry or of another kind, a file with a new one. Methods may be called off the loop, one at a time."""

    def __init__(self, path: str) -> None:
        """Raises AccessError."""
        self._path = path
        self._refused, self._again_s = False, float("-inf")
        self._load()

    def _load(self) -> None:
        found = _loaded(self._path)
        verify, files = found.verify_ssl, (found.ssl_ca_cert, found.cert_file, found.key_file)
        if urlsplit(found.host).scheme == "https":
            self._context = _renewed(files, lambda: _ssl_context(verify, *files))
        self.configuration = found

    def refused(self) -> None:
        self._refused = True

    def authorization(self) -> str | None:
        """What the package sends, after a plugin or a refresh of its own. Raises AccessError."""
        if self._refused and time.monotonic() >= self._again_s:
            self._again_s = time.monotonic() + REFUSED_S
            self._load()
            self._refused = False
        try:
            said: str | None = self.configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # a plugin's, whatever it is
            raise AccessError(f"{self._path}: user: no bearer token: {type(error).__name__}: {error}") from error
        if _is_none(said):
            raise AccessError(f"{self._path}: user: expected a bearer token, and none came of it")
        if said and not all(map(_one_word, said.strip(" ").split(" "))):
            raise AccessError(f"{self._path}: user: expected a bearer token: one word without spaces or line ends")
        return said

    def context(self) -> ssl.SSLContext:
        """Of the files that the last reading named. Raises AccessError."""
        return self._context()


def _loaded(path: str) -> Any:
    """The package's configuration. Raises AccessError, also where a plugin gave nothing: the package goes on without, and
    who asks as nobody is refused for good."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config
    from kubernetes.config.kube_config import KubeConfigMerger

    # Without a proxy it has the environment's, also where NO_PROXY names the server; without a host http://localhost.
    configuration = Configuration(host="", proxy="")
    files, context = _joined(path)
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=files, context=context, client_configuration=configuration, persist_config=False
        )
        user = _user(KubeConfigMerger(files).config, context)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError) as error:
        raise AccessError(f"{path}: {error}") from error
    except Exception as error:  # it takes the file for what it should be
        raise AccessError(f"{path}: expected a kubeconfig file: {type(error).__name__}: {error}") from error
    if "as" in user:  # the package overlooks it
        raise AccessError(f"{path}: user.as: expected credentials of the user's own: nobody is impersonated")
    # What is asked for credentials, if anything.
    asked = next((one for one in ("exec", "auth-provider") if one in user), "")
    bearer = configuration.api_key.get("BearerToken")
    if asked and (_is_none(bearer) or not (bearer or configuration.cert_file)):
        raise AccessError(f"{path}: user.{asked}: expected a token or a certificate, and none came of it")
    return configuration


def _is_none(bearer: str | None) -> bool:
    """What the package makes of a plugin's token that is empty, or null."""
    return bearer is not None and bearer.strip() in ("Bearer", "Bearer None")


def _joined(path: str) -> tuple[str, str]:
    """Those files that say something, and the current context: the first that one of them names, as for kubectl. The
    package takes the last, and an empty file for an error. Raises AccessError."""
    files, current = list[str](), ""
    for name in filter(None, path.split(os.pathsep)):
        file = Path(os.path.expanduser(name))
        if os.path.exists(file) and (documents := _documents(file)):
            files.append(str(file))
            current = current or str(_mapping(file, documents).get("current-context") or "")
    if not current:
        raise AccessError(f"{path}: current-context: expected the name of a context, in one of these files")
    return os.pathsep.join(files), current


def _user(config: Any, current: str) -> Any:
    """The current context's user, of a configuration as the package merges it; empty: there is none."""
    context = config["contexts"].get_with_name(current)["context"]
    found = config["users"].get_with_name(context.safe_get("user"), safe=True) if config.value.get("users") else None
    return (found.safe_get("user") if found is not None else None) or ()


def _converted(file: Path, what: str, section: dict[str, Any], kind: type[S]) -> S:
    try:
        return msgspec.convert(section, kind)
    except msgspec.ValidationError as error:
        raise AccessError(f"{file}: {what}: {error}") from error


def _plain(file: Path, cluster: _Cluster, user: _User) -> Access:
    server = _server(str(file), cluster.server)
    context = None
    if urlsplit(server).scheme == "https":
        context = _as_written(file)
    return Access(
        base_url=server,
        ssl_context=context,
        authorization=_bearer(file),
        refreshed=bool(user.token or user.token_file),
        server_hostname=cluster.tls_server_name,
        proxy=_proxy(str(file), cluster.proxy_url, server),
    )


def _as_written(kubeconfig: Path) -> Callable[[], ssl.SSLContext]:
    """Of the files that it names by now, as these stand."""

    def named() -> Callable[[], ssl.SSLContext]:
        cluster, user = _sections(kubeconfig)
        paths = (cluster.certificate_authority, user.client_certificate, user.client_key)
        files = [str(kubeconfig.parent / path) for path in paths if path]
        return _renewed(files, lambda: _plain_context(kubeconfig, cluster, user))

    written = tls.Files([str(kubeconfig)], named, AccessError)

    def context() -> ssl.SSLContext:
        of_files = written.now()
        return of_files()

    return context


def _plain_context(file: Path, cluster: _Cluster, user: _User) -> ssl.SSLContext:
    ca_data, cert_data = cluster.certificate_authority_data, user.client_certificate_data
    with (
        _as_file(file, "certificate-authority", cluster.certificate_authority, ca_data) as ca_file,
        _as_file(file, "client-certificate", user.client_certificate, cert_data) as cert_file,
        _as_file(file, "client-key", user.client_key, user.client_key_data) as key_file,
    ):
        return _ssl_context(not cluster.insecure_skip_tls_verify, ca_file, cert_file, key_file)


def _renewed(files: Iterable[str | None], make: Callable[[], ssl.SSLContext]) -> Callable[[], ssl.SSLContext]:
    return tls.Files(files, make, AccessError).now


def _bearer(kubeconfig: Path) -> Callable[[], str | None]:
    """As its user is written by now: where no service account is mounted, a new token comes with a new kubeconfig."""
    written = tls.Files([str(kubeconfig)], lambda: _bearer_of(kubeconfig, _sections(kubeconfig)[1]), AccessError)

    def authorization() -> str | None:
        bearer = written.now()
        return bearer()

    return authorization


def _bearer_of(kubeconfig: Path, user: _User) -> Callable[[], str | None]:
    """Of a file that it names, which may be written anew; while that cannot be read, that of the kubeconfig."""
    token, location = user.token, kubeconfig.parent / (user.token_file or "")
    if token and not _one_word(token):
        raise AccessError(f"{kubeconfig}: user.token: expected one word without spaces or line ends")

    def of_file() -> str:
        try:
            return f"Bearer {_read_token(location)}"
        except AccessError:
            if token:
                return f"Bearer {token}"
            raise

    if user.token_file:
        return of_file
    return lambda: f"Bearer {token}" if token else None


def _server(kubeconfig: str, named: str) -> str:
    """What its cluster is asked under, without a slash at its end. Raises AccessError."""
    url = named.rstrip("/")
    if not _is_http(url):
        raise AccessError(f"{kubeconfig}: cluster.server: {url!r}: expected an http or https URL")
    return url


def _is_http(url: str) -> bool:
    """Whether it is an http or https URL that can be asked."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are no IPv6 address, a port that is none
        usable = False
    return usable and _one_word(url)


def _one_word(text: str) -> bool:
    """Whether it can stand in a line of HTTP."""
    return text.isascii() and text.isprintable() and " " not in text


def _parse(file: Path) -> dict[str, Any]:
    """The kubeconfig's mapping, the file's one document. Raises AccessError."""
    return _mapping(file, _documents(file))


def _mapping(file: Path, parsed: list[Any]) -> dict[str, Any]:
    """Raises AccessError."""
    if len(parsed) != 1 or not isinstance(parsed[0], dict):
        raise AccessError(f"{file}: expected a mapping with clusters, contexts and users")
    config: dict[str, Any] = parsed[0]
    return config


def _documents(file: Path) -> list[Any]:
    """Of its YAML. Raises AccessError."""
    from services.documents import NotYaml, load_all

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(f"{file}: expected a kubeconfig file: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or a path with a NUL
        raise AccessError(f"{file}: expected a kubeconfig file: {error}") from error
    try:
        return load_all(text)
    except NotYaml as error:
        raise AccessError(f"{file}: expected YAML: {error}") from error


def _current(file: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cluster and user of the current context."""

    def named(section: str, item: str, name: object) -> dict[str, Any]:
        entries = config.get(section)
        listed = entries if isinstance(entries, list) else []
        found = [entry for entry in listed if isinstance(entry, dict) and entry.get("name") == name]
        if len(found) != 1 or not isinstance(found[0].get(item), dict):
            raise AccessError(f"{file}: {section}: expected one entry named {name!r} with a mapping {item!r}")
        value: dict[str, Any] = found[0][item]
        return value

    current = config.get("current-context")
    if not isinstance(current, str) or not current:
        stands = "missing" if current is None else repr(current)
        raise AccessError(f"{file}: current-context: {stands}; expected the name of one of its contexts")
    context = named("contexts", "context", current)
    cluster = named("clusters", "cluster", context.get("cluster"))
    user = named("users", "user", context["user"]) if context.get("user") and config.get("users") else {}
    return cluster, user


@contextlib.contextmanager
def _as_file(kubeconfig: Path, key: str, path: str | None, data: str | None) -> Iterator[str | None]:
    """The file that `key` names, or a short-lived one with what ``<key>-data`` holds: OpenSSL reads keys from files."""
    if not data:
        yield str(kubeconfig.parent / path) if path else None
        return
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except ValueError as error:  # binascii.Error is one
        raise AccessError(f"{kubeconfig}: {key}-data: expected base64: {error}") from error
    try:
        file = tempfile.NamedTemporaryFile(prefix="muster-")  # noqa: SIM115
    except OSError as error:
        raise AccessError(f"{kubeconfig}: {key}-data: no temporary file: {error.strerror}") from error
    with file:
        try:
            file.write(content)
            file.flush()
        except OSError as error:
            raise AccessError(f"{kubeconfig}: {key}-data: no temporary file: {error.strerror}") from error
        yield file.name


def _ssl_context(
    verify: bool, ca_file: str | None, cert_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    try:
        context = tls.trusting(ca_file)
        if cert_file:
            context.load_cert_chain(cert_file, key_file, password="")  # else OpenSSL asks whoever sits there
    except (OSError, ValueError) as error:  # SSLError is an OSError; a path may have a NUL
        raise AccessError(f"TLS: {ca_file or 'system certificates'}, {cert_file}, {key_file}: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise AccessError(f"{file}: expected a bearer token: {getattr(error, 'strerror', '') or error}") from error
    if not token:
        raise AccessError(f"{file}: expected a bearer token, found an empty file")
    if not _one_word(token):
        raise AccessError(f"{file}: expected a bearer token: one word without spaces or line ends")
    return token


def _proxy(kubeconfig: str, named: str | None, server: str) -> str | None:
    """That of the kubeconfig goes before the environment's. Raises AccessError."""
    return _http_proxy(f"{kubeconfig}: cluster.proxy-url", named) if named else _environment_proxy(server)


def _environment_proxy(server: str) -> str | None:
    """What the environment names, unless the server is this machine or stands in NO_PROXY. Raises AccessError."""
    parts, proxies = urlsplit(server), getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    if _is_direct(parts.hostname or "", proxies.get("no", "")):
        return None
    return _http_proxy(f"{parts.scheme.upper()}_PROXY or ALL_PROXY", found)


def _is_direct(host: str, no_proxy: str) -> bool:
    """What Python's own `proxy_bypass` does not know and kubectl does: loopback, ``*`` beside others, ``*.example`` and
    networks such as 10.0.0.0/8."""
    entries = [entry.strip() for entry in no_proxy.split(",")]
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or any(fnmatchcase(host, entry) for entry in entries if entry.startswith("*"))
    return address.is_loopback or "*" in entries or any(_is_in(address, entry) for entry in entries)


def _is_in(address: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:  # a name, most of the time
        return False


def _http_proxy(where: str, named: str) -> str:
    """`named` as a URL; without a scheme it is http, as for kubectl. Raises AccessError."""
    url = named if "://" in named else f"http://{named}"
    if not _is_http(url):
        raise AccessError(f"{where}: {without_credentials(url)!r}: expected the URL of an http or https proxy")
    return url
