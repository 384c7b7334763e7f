"""What OpenTelemetry's variables may say here.

Its SDK replaces most wrong values by defaults, fails at others without naming them, and prints credentials. So all that
can be wrong is checked before the SDK starts: a message names the variable and what was expected, and never what may be
a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

SIGNALS = ("TRACES", "METRICS")
OTLP = "OTEL_EXPORTER_OTLP_"
QUEUE, BATCH = "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
QUEUE_SPANS, BATCH_SPANS = 2_048, 512
"""OpenTelemetry's defaults."""
SAMPLERS = ("always_on", "always_off", "traceidratio")
MOST = 2**31 - 1

Check = tuple[str, Callable[[str], bool]]
"""What is expected, in words, and whether it is there."""


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _are_headers(text: str) -> bool:
    return all(re.fullmatch(r"\s*[!#-'*+.0-9A-Z^-z|~-]+\s*=.*", part) for part in text.split(",") if part.strip())


def _is_number(least: float, most: float, kind: Callable[[str], float]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return least <= kind(text) <= most
        except ValueError:
            return False

    return check


_URL: Check = ("the URL of a collector, such as http://collector:4318", _is_url)
_HEADERS: Check = ("name=value, with commas between several", _are_headers)
_PROTOCOL: Check = ("http/protobuf, the one that Muster has", lambda text: text == "http/protobuf")
_COMPRESSION: Check = ("gzip, deflate or none", lambda text: text.lower() in ("gzip", "deflate", "none"))
_SECONDS: Check = ("seconds, more than 0", _is_number(0.001, MOST, float))
_MILLISECONDS: Check = ("milliseconds, a whole number of at least 1", _is_number(1, MOST, int))
_SPANS: Check = ("a whole number of at least 1", _is_number(1, MOST, int))
_RATIO: Check = ("a number from 0 to 1", _is_number(0, 1, float))
_EXPORTER: Check = ("otlp (over http), console or none", lambda text: text in ("otlp", "console", "none"))
_SAMPLER: Check = (
    f"one of {', '.join(SAMPLERS)}, each also with parentbased_ before it",
    lambda text: text.lower().removeprefix("parentbased_") in SAMPLERS,
)
ENDPOINT, HEADERS = "ENDPOINT", "HEADERS"
OTLP_CHECKS: Mapping[str, Check] = {
    ENDPOINT: _URL,
    HEADERS: _HEADERS,
    "PROTOCOL": _PROTOCOL,
    "COMPRESSION": _COMPRESSION,
    "TIMEOUT": _SECONDS,
}
"""Behind `OTLP`, or that and a signal: it counts where that signal goes out so. Logs go to stderr."""
CHECKS: Mapping[str, Check] = {
    **{f"OTEL_{signal}_EXPORTER": _EXPORTER for signal in SIGNALS},
    "OTEL_TRACES_SAMPLER": _SAMPLER,
    "OTEL_TRACES_SAMPLER_ARG": _RATIO,
    "OTEL_METRIC_EXPORT_INTERVAL": _MILLISECONDS,
    "OTEL_METRIC_EXPORT_TIMEOUT": _MILLISECONDS,
    "OTEL_BSP_SCHEDULE_DELAY": _MILLISECONDS,
    "OTEL_BSP_EXPORT_TIMEOUT": _MILLISECONDS,
    QUEUE: _SPANS,
    BATCH: _SPANS,
}
_AS_SENT = "!#$%&'()*+,/:;=?@[]~"
"""What the exporters' HTTP client leaves as it is in a URL."""
_CREDENTIAL = re.compile("auth|key|token|secret|password|cookie", re.IGNORECASE)
"""In the name of a header: of others, such as a tenant's, the value may be a common word."""


def exporter(environment: Mapping[str, str], signal: str) -> str:
    return environment.get(f"OTEL_{signal}_EXPORTER") or "otlp"


def _in_force(environment: Mapping[str, str]) -> Iterator[tuple[str, str, Check, str]]:
    """(variable, what is behind `OTLP`, what is expected of it, its value)"""
    for signal in SIGNALS:
        if exporter(environment, signal) != "otlp":
            continue
        for name, check in OTLP_CHECKS.items():
            variable = next(filter(environment.get, (f"{OTLP}{signal}_{name}", f"{OTLP}{name}")), None)
            if variable is not None:
                yield variable, name, check, environment[variable]


def check(environment: Mapping[str, str]) -> None:
    """Raises ValueError for the first variable that is wrong. An empty one counts as not there."""
    for variable, (expected, holds) in CHECKS.items():
        value = environment.get(variable)
        if value and not holds(value):
            raise ValueError(f"{variable}: expected {expected}, not {value!r}")
    for variable, name, (expected, holds), value in _in_force(environment):
        if not holds(value):
            told = "" if name in (ENDPOINT, HEADERS) else f", not {value!r}"
            raise ValueError(f"{variable}: expected {expected}{told}")
    queue, batch = (int(environment.get(name) or default) for name, default in ((QUEUE, QUEUE_SPANS), (BATCH, 1)))
    if batch > queue:
        raise ValueError(f"{BATCH}: expected at most {QUEUE}, {queue}, not {batch}")


def batch_spans(environment: Mapping[str, str]) -> int:
    """How many spans go out together: OpenTelemetry's own default does not know of a smaller queue."""
    queue = int(environment.get(QUEUE) or QUEUE_SPANS)
    return int(environment.get(BATCH) or min(BATCH_SPANS, queue))


def secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """What must not be told, in each form in which somebody may tell it of an export that failed."""
    for _, name, _, value in _in_force(environment):
        if name == HEADERS:
            for part in value.split(","):
                header, _, text = part.partition("=")
                if _CREDENTIAL.search(header):
                    yield from (text.strip(), unquote(text).strip(), repr(unquote(text).strip())[1:-1])
        elif name == ENDPOINT:
            url = urlsplit(value)
            yield from (url.query, quote(url.query, safe=_AS_SENT), *(text for _, text in parse_qsl(url.query)))
            yield from (url.netloc.rpartition("@")[0], url.password or "", unquote(url.password or ""))
