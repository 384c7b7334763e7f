"""As much of aiohttp as a service needs, which is a third of what it imports.

nats-py imports it, for websockets alone: 0.1 s of the start of who speaks no HTTP. And it loads the system's certificates
twice when it is imported, for whoever names no TLS context: 0.15 s; not for who always does.
"""

from __future__ import annotations

import re
import ssl
import sys
from importlib import import_module

SPEAK_NO_HTTP = ("planner", "feed")
"""Services that talk to nothing but NATS."""
ASK_KUBERNETES = ("ingest", "binder")
"""Services that talk HTTP with their cluster, and trust whom its configuration names and nobody else
(`services.kubernetes.access`)."""


def prepare(role: str, nats_url: str) -> None:
    """What a process of this role imports first."""
    if role in SPEAK_NO_HTTP:
        import_nats(nats_url)
    if role in ASK_KUBERNETES and not _is_websocket(nats_url):
        import_own_tls()


def import_nats(nats_url: str) -> None:
    """nats-py; without aiohttp, unless that is there, or NATS is spoken to by websockets."""
    left_out = "aiohttp" not in sys.modules and not _is_websocket(nats_url)
    if left_out:
        sys.modules["aiohttp"] = None  # type: ignore[assignment]
    import_module("events.jetstream")
    if left_out:
        del sys.modules["aiohttp"]


def import_own_tls() -> None:
    """aiohttp without the system's certificates, unless it is there."""
    if "aiohttp" in sys.modules:
        return
    ssl.SSLContext.set_default_verify_paths = lambda self: None  # type: ignore[method-assign]
    import aiohttp  # noqa: F401

    del ssl.SSLContext.set_default_verify_paths


def _is_websocket(nats_url: str) -> bool:
    return re.search("wss?://", nats_url, re.IGNORECASE) is not None
