"""What a kubeconfig, and the environment beside it, mean to kubectl and client-go, where the official package differs."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from services.kubernetes import access
from services.kubernetes.access import AccessError
from tests.kubernetes.certificates import CERTIFICATE, KEY
from tests.kubernetes.kubeconfigs import CLUSTERS, PROXY, encoded, kubeconfig


def test_a_token_file_goes_before_a_token_as_for_client_go(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, CLUSTERS["http"], {"token": "abc", "tokenFile": "token"})
    found = access.from_kubeconfig(path)
    assert found.authorization() == "Bearer abc", "there is no file yet"
    (tmp_path / "token").write_text("from-a-file")
    assert found.authorization() == "Bearer from-a-file"


def test_of_several_files_the_first_current_context_counts_as_for_kubectl(tmp_path: Path) -> None:
    """As it was: the last one's. Services could have bound pods on another cluster than kubectl showed."""
    files = []
    for name, current in (("empty", None), ("none", ""), ("first", "first"), ("second", "second")):
        file = tmp_path / name
        config = {
            "current-context": current,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example"}}],
            "users": [{"name": name, "user": {"token": f"of-{name}"}}],
        }
        file.write_text("" if current is None else json.dumps(config))
        files.append(str(file))
    found = access.load(os.pathsep.join([str(tmp_path / "missing"), *files]))
    assert (found.base_url, found.authorization()) == ("http://first.example", "Bearer of-first")
    with pytest.raises(AccessError, match="current-context: expected the name of a context, in one of these files"):
        access.load(os.pathsep.join(files[:2]))


def test_base64_may_have_line_ends(tmp_path: Path) -> None:
    lines = base64.encodebytes(CERTIFICATE.encode()).decode()
    made = access.from_kubeconfig(kubeconfig(tmp_path, CLUSTERS["https"] | {"certificate-authority-data": lines}, {}))
    assert made.ssl_context is not None
    assert len(made.ssl_context().get_ca_certs()) == 1


def test_an_encrypted_key_asks_nobody_for_its_pass_phrase(tmp_path: Path) -> None:
    key = load_pem_private_key(KEY.encode(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(locked)}
    with pytest.raises(AccessError, match="TLS: "):
        access.from_kubeconfig(kubeconfig(tmp_path, CLUSTERS["https"], user)).ssl_context()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxy"),
    [
        ("https://api.example:6443", "", PROXY),
        ("https://api.example:6443", "other.example,10.0.0.0/8", PROXY),
        ("https://api.example:6443", "other.example,.example", None),
        ("https://api.example:6443", "other.example, *", None),
        ("https://api.example:6443", "*.example", None),
        ("https://api.example:6443", "*.other.example", PROXY),
        ("https://10.96.0.1:443", "10.0.0.0/8,.svc", None),
        ("https://10.96.0.1:443", "*.svc,*", None),
        ("https://10.96.0.1:443", "10.1.2.3/8", None),
        ("https://10.96.0.1:443", "192.168.0.0/16, 10.96.0.1", None),
        ("https://11.96.0.1:443", "10.0.0.0/8", PROXY),
        ("https://[fd00::1]:443", "10.0.0.0/8,fd00::/8", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://localhost:6443", "", None),
    ],
)
def test_the_environments_proxy_is_passed_by_as_kubectl_passes_it_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str, proxy: str | None
) -> None:
    """However the kubeconfig is read. One that is named in it is taken at its word."""
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    path = kubeconfig(tmp_path, {"server": server}, {})
    assert (access.from_kubeconfig(path).proxy, access.official(path).proxy) == (proxy, proxy)
    path = kubeconfig(tmp_path, {"server": server, "proxy-url": "other.example:80"}, {})
    named = "http://other.example:80"
    assert (access.from_kubeconfig(path).proxy, access.official(path).proxy) == (named, named)
