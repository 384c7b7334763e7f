"""What cannot be used to reach an API server is told in one line, which names the file and what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.kubernetes import access
from services.kubernetes.access import AccessError
from tests.kubernetes.test_access import CLUSTERS, encoded, kubeconfig


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"server": "ftp://x"}, {}, "cluster.server: 'ftp://x': expected an http or https URL"),
        ({"server": "https://:6443"}, {}, "cluster.server: 'https://:6443': expected an http or https URL"),
        ({"server": "https://x:0"}, {}, "cluster.server: 'https://x:0': expected an http or https URL"),
        ({"server": "https://x", "certificate-authority": "none.crt"}, {}, "none.crt"),
        (
            {"server": "https://x", "certificate-authority-data": "%%%"},
            {},
            "certificate-authority-data: expected base64",
        ),
        ({"server": "https://x", "certificate-authority-data": "ä"}, {}, "certificate-authority-data: expected base64"),
        ({"server": "https://x", "certificate-authority-data": encoded("no PEM")}, {}, "TLS"),
        ({"server": "https://x", "certificate-authority": "a\0b"}, {}, "TLS"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, cluster: Any, user: Any, said: str) -> None:
    with pytest.raises(AccessError) as error:
        access.from_kubeconfig(kubeconfig(tmp_path, cluster, user))
    assert said in str(error.value)


def test_a_home_that_nobody_has_is_named() -> None:
    """A user that is only a number, as in a container without $HOME, has none either."""
    with pytest.raises(AccessError, match="~nobody-of-this-name/config: expected a kubeconfig file: No such file"):
        access.load("~nobody-of-this-name/config")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected a mapping"),
        ("current-context: x\n---\ncurrent-context: y\n", "expected a mapping"),
        ("a: \udcff", "expected a kubeconfig file: 'utf-8' codec can't decode"),
        ("{current-context: x, contexts: [x, {name: x}]}", "contexts: expected one entry named 'x' with a mapping"),
        ("{", "expected YAML"),
        ("[]", "expected a mapping"),
        ("{}", "current-context: missing; expected the name of one of its contexts"),
        ("current-context: [x]", "current-context: ['x']; expected the name"),
        ("current-context: x", "contexts: expected one entry named 'x'"),
        (None, "expected a kubeconfig file"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(AccessError) as error:
        access.load(str(file))
    assert str(file) in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "found an empty file"),
        (b" \n", "found an empty file"),
        (b"two words", "one word without spaces"),
        (b"a\nb", "one word without"),
        (b"\xff", "can't decode"),
        (None, "No such file"),
    ],
)
def test_a_file_without_a_token_is_named_and_nothing_is_sent(
    tmp_path: Path, content: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    for ask in (
        lambda: access.in_cluster(tmp_path),
        access.from_kubeconfig(kubeconfig(tmp_path, CLUSTERS["http"], {"tokenFile": "token"})).authorization,
    ):
        with pytest.raises(AccessError, match=f"{file}: expected a bearer token.*{said}"):
            ask()


@pytest.mark.parametrize("lacks", ["users", "user"])
def test_a_kubeconfig_without_a_user_is_nobodys(tmp_path: Path, lacks: str) -> None:
    file = Path(kubeconfig(tmp_path, CLUSTERS["http"], {"token": "abc"}))
    config = json.loads(file.read_text())
    if lacks == "users":
        del config["users"]
    else:
        del config["contexts"][0]["context"]["user"]
    file.write_text(json.dumps(config))
    found = access.from_kubeconfig(str(file))
    assert (found.base_url, found.authorization()) == ("http://127.0.0.1:8080", None)
