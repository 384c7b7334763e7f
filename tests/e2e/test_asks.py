"""What a real API server says of the requests and limits that `muster simulate` refuses or takes."""

from __future__ import annotations

from typing import Any

from deploy.e2e.api import Api, ApiError, collection
from tests.simulator.test_asks import REFUSED, TAKEN, asking


async def tried(api: Api, pod: dict[str, Any]) -> str:
    """What is said of it; empty if it is taken."""
    try:
        await api.call("POST", collection(pod) + "?dryRun=All", pod)
    except ApiError as error:
        return str(error)
    return ""


async def test_a_real_server_refuses_and_takes_the_same(api: Api) -> None:
    for pod, field in REFUSED:
        assert f'"{"spec." if field.startswith("containers") else ""}{field}"' in await tried(api, pod), field
    for pod in TAKEN:
        assert await tried(api, pod) == ""
    assert "Limit must be set" in await tried(api, asking({"nvidia.com/gpu": "1"}))
