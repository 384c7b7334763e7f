"""One annotation on a pod, written once: what became of it, whoever wrote it."""

from __future__ import annotations

from typing import NamedTuple

from services.kubernetes.binding import result_of
from services.kubernetes.client import Client
from services.kubernetes.errors import ApiError, Conflict, NotFound


class Written(NamedTuple):
    """`outcome`: written (by us now, or already there), changed (another version of the pod: try again with that), gone
    (no such pod any more), refused (a definite no, see `message`), in_doubt.

    A webhook may answer 404 or 409, too. Only the pod tells: if it is there and nothing changed, that was a refusal, and
    with the version that it has it would be refused again for ever.
    """

    outcome: str
    resource_version: str = ""
    message: str = ""


async def annotate(
    client: Client, namespace: str, name: str, uid: str, resource_version: str, annotation: tuple[str, str]
) -> Written:
    """Ask once to write ``(key, value)`` on condition that UID and resourceVersion are these. Raises ApiError where that
    leaves nothing in doubt, and may be answered otherwise later: nothing was executed, or the pod could not be read."""
    key, value = annotation
    try:
        version = await client.annotate_pod(namespace, name, uid, resource_version, {key: value})
        return Written("written", version)
    except (Conflict, NotFound) as error:
        refused = Written("refused", resource_version, str(error))
        return await _look(client, namespace, name, uid, annotation, refused)
    except ApiError as error:
        if result_of(error).outcome == "not_executed":
            raise
        if not error.retryable:
            return Written("refused", message=str(error))
        return Written("in_doubt", message=str(error))


async def _look(
    client: Client, namespace: str, name: str, uid: str, annotation: tuple[str, str], refused: Written
) -> Written:
    """What became of a write that failed with the pod; `refused`: what it means if nothing did."""
    seen = await client.get_pod(namespace, name)
    if seen is None or seen.metadata.uid != uid:
        return Written("gone")
    key, value = annotation
    version = seen.metadata.resource_version
    if (seen.metadata.annotations or {}).get(key) == value:
        return Written("written", version)
    return refused if version == refused.resource_version else Written("changed", version)
