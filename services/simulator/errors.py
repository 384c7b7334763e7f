"""Refusals in Kubernetes' form: a Status object with a code, a reason, a message and details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.simulator.resources import Resource

Object = dict[str, Any]
"""A Kubernetes object, as decoded JSON."""


class ApiError(Exception):
    """An answer other than success. `body` is the Status that the client reads."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        *,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.retry_after_s = retry_after_s
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            "code": code,
        }
        self.namespace = ""
        """That of the object, for people who do not see the request. Set by `of`, as `about` is."""
        self.about = ""
        """The object, as ``Pod default/a``."""
        if details is not None or retry_after_s:
            self.status["details"] = dict(details or {})
        if retry_after_s:
            self.status["details"]["retryAfterSeconds"] = retry_after_s

    def of(self, obj: Object) -> ApiError:
        """This error, which now says which object it is about."""
        self.namespace = str((obj.get("metadata") or {}).get("namespace") or "")
        self.about = about(obj)
        return self

    @property
    def told(self) -> str:
        """The message, which names the object, and the namespace that it does not name."""
        return f"{self.message} (namespace {self.namespace})" if self.namespace else self.message

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.status)


def about(obj: Object) -> str:
    """``Pod default/a``: how an object is known to who reads what is wrong with it."""
    metadata = obj.get("metadata") or {}
    name = str(metadata.get("name") or "")
    return (
        f"{obj.get('kind')} {metadata['namespace']}/{name}"
        if metadata.get("namespace")
        else f"{obj.get('kind')} {name}"
    )


def success(resource: Resource, name: str, uid: str) -> Object:
    """The Status of a deletion that answers with no object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": _details(resource, name) | {"uid": uid},
    }


def _details(resource: Resource, name: str, subresource: str = "", **more: Any) -> Object:
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return details | {"kind": resource.plural + (f"/{subresource}" if subresource else "")} | more


def _kind(resource: Resource) -> str:
    return resource.kind + (f".{resource.group}" if resource.group else "")


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified()} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified()} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.qualified(subresource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name, subresource))


def precondition(resource: Resource, entry_key: tuple[str, str], which: str, asked: str, found: str) -> ApiError:
    """A failed precondition of a write, as the storage tells it. `which`: UID or ResourceVersion."""
    namespace, name = entry_key
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{namespace}/{name}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {which} in precondition: {asked}, "
        f"{which} in object meta: {found}"
    )
    return conflict(resource, name, why)


def deletion_precondition(resource: Resource, name: str, which: str, asked: str, found: str) -> ApiError:
    """A failed precondition of a deletion: it names the kind where others name the plural."""
    kind = _kind(resource)
    guess = "deleted and then recreated" if which == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {kind} "{name}": the {which} in the precondition ({asked}) does '
        f"not match the {which} in record ({found}). The object might have been {guess}"
    )
    return ApiError(409, "Conflict", message, {"name": name, "kind": resource.kind})


def modified(resource: Resource, name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, causes: Sequence[tuple[str, str, str]]) -> ApiError:
    """`causes`: (field, reason such as FieldValueInvalid, message)."""
    told = [f"{field}: {message}" for field, _, message in causes]
    many = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    kind = _kind(resource)
    listed = [{"reason": reason, "message": message, "field": field} for field, reason, message in causes]
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.kind, "causes": listed}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {many}', details)


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    message = f'{resource.qualified()} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(resource, name))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def undecodable(kind: str, version: str, why: object) -> ApiError:
    """The object does not fit its kind. `version`: with or without the group, as the server tells it there."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def expired(message: str) -> ApiError:
    """410 Gone: list again."""
    return ApiError(410, "Expired", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def too_large_version(asked: int, current: int) -> ApiError:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", message, details, retry_after_s=1)


def unsupported_media(offered: str, accepted: Sequence[str]) -> ApiError:
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return ApiError(415, "UnsupportedMediaType", f"{message} (found {offered})")


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def no_such_resource() -> ApiError:
    """A path below a group that is served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def too_large_request(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_large_object() -> ApiError:
    """Which the API server takes as a mistake of its own."""
    return internal("etcdserver: request is too large")


def failed_json_patch() -> ApiError:
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def internal(message: str) -> ApiError:
    """What the API server didn't mean to answer: no reason is told."""
    return ApiError(500, "", message)
