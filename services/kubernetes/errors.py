"""What the API server may answer instead of doing it. Every error names the verb and the resource."""

from __future__ import annotations

import re

LONGEST_MESSAGE = 1_024
"""Characters of the server's words that are repeated: an admission webhook may say megabytes, of each of thousands of
pods, and outcomes stand in the log together."""


class ApiError(Exception):
    """The API server refused, or could not be reached. `code` is the HTTP status, 0 where there was no answer."""

    def __init__(self, request: str, code: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        self.request, self.code, self.reason = request, code, reason[:LONGEST_MESSAGE]
        self.message = message[:LONGEST_MESSAGE]
        self.retry_after_s = retry_after_s
        super().__init__(f"{request}: {code or 'no answer'} {self.reason}: {self.message}")

    @property
    def retryable(self) -> bool:
        """Whether the same request may be answered otherwise a moment later. Of server errors any may: a gateway has
        numbers of its own (520, 529, 561) for an API server whose answer it lost."""
        return (self.code in RETRYABLE or self.code >= 500) and not self.final

    @property
    def for_nobody(self) -> bool:
        """Whether the server took this client for nobody (401), as while a token is exchanged, or who knows tokens is
        away: that says nothing of what was asked for."""
        return self.code == 401 and not _denied.search(self.message)

    @property
    def final(self) -> bool:
        """Whether nothing was executed, nor ever will be, however often it was asked for: the object would be larger than
        etcd takes. The API server answers that as a mistake of its own, and as a conflict of a binding."""
        return self.code in (409, 500) and self.message.endswith(TOO_LARGE)

    @property
    def namespace_is_going(self) -> bool:
        """Whether nothing can be made any more, as the namespace is being deleted: a 403 that no permission mends."""
        return self.code == 403 and self.message.endswith(TERMINATED)


TOO_LARGE = "etcdserver: request is too large"
TERMINATED = "because it is being terminated"
RETRYABLE = frozenset({0, 408, 429})
_denied = re.compile("denied (the )?request")
"""Admission's words: a webhook may deny with a 401 of its own, and so does a ValidatingAdmissionPolicy whose reason is
Unauthorized."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted."""


class Forbidden(ApiError):
    """403: the service account lacks a permission; the message names it."""


class NotFound(ApiError):
    """404: the object, or the whole resource, does not exist."""

    def of_served(self) -> ApiError:
        """As it counts of a kind that is always served: unless a Status says it, a gateway does that lost its way."""
        if self.reason:
            return self
        return Unreachable(self.request, "NotFound", f"expected the API server: {self.message}", sent=True)


class Conflict(ApiError):
    """409: a precondition failed, or the object exists already. Also 422, where that was the UID's."""


class Expired(ApiError):
    """410: the resourceVersion is too old, or the server cannot go on from it for another reason; list again."""


class Unreachable(ApiError):
    """No answer: the connection failed or broke, or it took too long. If `sent`, it may have been executed."""

    def __init__(self, request: str, reason: str, message: str, *, sent: bool) -> None:
        super().__init__(request, 0, reason, message)
        self.sent = sent


class NoCredentials(Unreachable):
    """Nothing was asked: there is no token, or none that can be sent. Another read of it may find one."""

    def __init__(self, message: str) -> None:
        super().__init__("authenticate", "NoCredentials", message, sent=False)


BY_CODE: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
}
