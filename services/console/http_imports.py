"""As much of aiohttp as a service needs, which is a third of what it imports.

nats-py imports it, for websockets alone: 0.1 s of the start of who speaks no HTTP. And it loads the system's certificates
twice when it is imported, for whoever names no TLS context: 0.15 s; not for who always does.
"""

from __future__ import annotations

import re
import ssl
import sys

SPEAK_NO_HTTP = ("planner", "feed")
"""Services that talk to nothing but NATS."""
ASK_KUBERNETES = ("ingest", "binder")
"""Services that talk HTTP with their cluster, and trust whom its configuration names and nobody else
(`services.kubernetes.access`)."""


def prepare(role: str, nats_url: str) -> None:
    """Before nats-py is imported."""
    if role in SPEAK_NO_HTTP:
        leave_out(nats_url)
    if role in ASK_KUBERNETES and not _is_websocket(nats_url):
        import_own_tls()


def leave_out(nats_url: str) -> None:
    """Whoever imports it from now on does without, but for a NATS that is spoken to by websockets."""
    if not _is_websocket(nats_url):
        sys.modules["aiohttp"] = None  # type: ignore[assignment]


def import_own_tls() -> None:
    """Import it, whether or not it was left out until now; without the system's certificates, if nobody did before."""
    if sys.modules.get("aiohttp", None) is not None:
        return
    sys.modules.pop("aiohttp", None)
    ssl.SSLContext.set_default_verify_paths = lambda self: None  # type: ignore[method-assign]
    import aiohttp  # noqa: F401

    del ssl.SSLContext.set_default_verify_paths


def _is_websocket(nats_url: str) -> bool:
    return re.search("wss?://", nats_url, re.IGNORECASE) is not None
