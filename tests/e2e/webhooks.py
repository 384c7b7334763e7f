"""Admission webhooks on loopback, each of which says what a test wants."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from deploy.e2e.api import Api, Object, collection
from deploy.e2e.processes import free_port
from tests.e2e.cluster import until
from tests.kubernetes.certificates import CERTIFICATE, KEY

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
ASKED = "asked"
PROBE: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": ASKED}}
"""What a webhook is asked about until it is in force."""
Says = Callable[[Object], Object | None]
"""From an AdmissionRequest to what is said besides the UID; None lets it pass."""


def no(code: int, message: str = "not now", **status: object) -> Object:
    """A refusal with this code."""
    return {"allowed": False, "status": {"code": code, "message": message, **status}}


def patched(*operations: Object) -> Object:
    """A JSON patch of the object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        certificate.write_text(CERTIFICATE)
        key.write_text(KEY)
        context.load_cert_chain(certificate, key)
    return context


@asynccontextmanager
async def webhook(
    api: Api, says: Says, *resources: str, mutating: bool = False, takes_s: float = 0.0
) -> AsyncIterator[None]:
    """Asked about these resources in the namespace `ASKED`, as long as this lasts. That must be there. The API server
    waits five seconds for an answer."""
    in_force = False

    async def answer(request: web.Request) -> web.Response:
        nonlocal in_force
        asked = (await request.json())["request"]
        probed = asked["kind"]["kind"] == PROBE["kind"]
        in_force |= probed
        said = None if probed else says(asked)
        await asyncio.sleep(0 if probed else takes_s)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response(review | {"response": {"uid": asked["uid"], **(said or {"allowed": True})}})

    application = web.Application()
    application.router.add_post("/", answer)
    runner, port = web.AppRunner(application), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=_context()).start()
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    path = f"{CONFIGURATIONS}/{kind.lower()}s"
    authority = base64.b64encode(CERTIFICATE.encode()).decode()
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [*resources, "configmaps"]}
    hook: Object = {
        "name": "e2e.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ASKED}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "e2e"}}
    await api.call("POST", path, body | {"webhooks": [hook]})

    async def probe() -> bool:
        await api.call("POST", f"{collection(PROBE)}?dryRun=All", PROBE)
        return in_force

    try:
        await until(probe, "the webhook is in force")
        yield
    finally:
        await api.delete(f"{path}/e2e")
        await runner.cleanup()
