"""Kubeconfigs, written for tests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.kubernetes.certificates import CERTIFICATE

PROXY = "http://proxy.example:3128"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    file = directory / "config"
    file.write_text(
        json.dumps(
            {
                "current-context": "there",
                "contexts": [{"name": "there", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}, {"name": "other", "cluster": {"server": "http://x"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(file)


CLUSTERS = {
    "http": {"server": "http://127.0.0.1:8080/"},
    "https": {"server": "https://127.0.0.1:6443", "certificate-authority-data": encoded(CERTIFICATE)},
    "a file": {"server": "https://127.0.0.1:6443/prefix", "certificate-authority": "ca.crt"},
    "insecure": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True},
    "named": {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": encoded(CERTIFICATE),
        "tls-server-name": "api.example",
    },
    "by proxy": {"server": "http://api.example:8080", "proxy-url": "http://127.0.0.1:3128"},
}
