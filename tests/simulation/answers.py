"""How a request is refused: by the API server, a webhook or something between, by the number that a fault has for it."""

from __future__ import annotations

from services.kubernetes.transport import Answer

REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", 'admission webhook "no.example" denied the request'),
    404: ("NotFound", 'admission webhook "no.example" denied the request: not found'),
    409: ("Conflict", 'Operation cannot be fulfilled on resourcequotas "pods": the object has been modified'),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "too many requests"),
    500: ("InternalError", "etcdserver: request timed out"),
    503: ("ServiceUnavailable", "apiserver not ready"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
    1409: ("Conflict", 'Operation cannot be fulfilled on pods/binding "p": rpc error: code = Unavailable desc = lost'),
}
"""How the API server says no; 1409: as the storage failed, in the words that it has for that of a binding."""
PAGE = b"<html><body>It works!</body></html>"
OF_A_PROXY = {1000 + code: Answer(code, PAGE) for code in (200, 302, 404, 502)}
GATEWAY_404 = 2404
OF_A_PROXY[GATEWAY_404] = Answer(404, b"404 page not found\n")
"""What something between answers in the server's place."""
