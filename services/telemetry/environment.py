"""What OpenTelemetry's variables may say here.

Its SDK takes most wrong values for their defaults, fails at others without a name, and of credentials says what they
are. So what can be wrong is looked at before the SDK is: a message names the variable and what was expected, and never
what may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from re import fullmatch
from urllib.parse import urlsplit

SIGNALS = ("TRACES", "METRICS")
OTLP = "OTEL_EXPORTER_OTLP_"
QUEUE, BATCH = "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
QUEUE_SPANS, BATCH_SPANS = 2_048, 512
"""OpenTelemetry's defaults."""
SAMPLERS = ("always_on", "always_off", "traceidratio")
MOST = 2**31 - 1

Check = tuple[str, Callable[[str], bool]]
"""What is expected, in words, and whether it is there."""


def for_both(name: str) -> tuple[str, ...]:
    """The variable, and those that say it for one signal alone. Logs go to stderr."""
    return (OTLP + name, *(f"{OTLP}{signal}_{name}" for signal in SIGNALS))


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _are_headers(text: str) -> bool:
    return all(fullmatch(r"\s*[!#-'*+.0-9A-Z^-z|~-]+\s*=.*", part) for part in text.split(",") if part.strip())


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
    lambda text: text.strip().lower().removeprefix("parentbased_") in SAMPLERS,
)
ENDPOINTS, HEADERS = for_both("ENDPOINT"), for_both("HEADERS")
CHECKS: Mapping[str, Check] = {
    **{f"OTEL_{signal}_EXPORTER": _EXPORTER for signal in SIGNALS},
    **dict.fromkeys(ENDPOINTS, _URL),
    **dict.fromkeys(HEADERS, _HEADERS),
    **dict.fromkeys(for_both("PROTOCOL"), _PROTOCOL),
    **dict.fromkeys(for_both("COMPRESSION"), _COMPRESSION),
    **dict.fromkeys(for_both("TIMEOUT"), _SECONDS),
    "OTEL_TRACES_SAMPLER": _SAMPLER,
    "OTEL_TRACES_SAMPLER_ARG": _RATIO,
    "OTEL_METRIC_EXPORT_INTERVAL": _MILLISECONDS,
    "OTEL_METRIC_EXPORT_TIMEOUT": _MILLISECONDS,
    "OTEL_BSP_SCHEDULE_DELAY": _MILLISECONDS,
    "OTEL_BSP_EXPORT_TIMEOUT": _MILLISECONDS,
    QUEUE: _SPANS,
    BATCH: _SPANS,
}
_SECRET = frozenset({*ENDPOINTS, *HEADERS})
"""What stands there is not told."""


def check(environment: Mapping[str, str]) -> None:
    """Raises ValueError for the first variable that is wrong. An empty one counts as not there."""
    for name, (expected, holds) in CHECKS.items():
        value = environment.get(name)
        if value and not holds(value):
            told = "" if name in _SECRET else f", not {value!r}"
            raise ValueError(f"{name}: expected {expected}{told}")
    queue, batch = (int(environment.get(name) or default) for name, default in ((QUEUE, QUEUE_SPANS), (BATCH, 1)))
    if batch > queue:
        raise ValueError(f"{BATCH}: expected at most {QUEUE}, {queue}, not {batch}")


def batch_spans(environment: Mapping[str, str]) -> int:
    """How many spans go out together: OpenTelemetry's own default does not know of a smaller queue."""
    queue = int(environment.get(QUEUE) or QUEUE_SPANS)
    return int(environment.get(BATCH) or min(BATCH_SPANS, queue))


def secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """What must not be told, whoever tells of an export that failed."""
    for name in HEADERS:
        for part in environment.get(name, "").split(","):
            yield part.partition("=")[2].strip()
    for name in ENDPOINTS:
        url = urlsplit(environment.get(name, ""))
        yield url.query
        yield url.netloc.rpartition("@")[0]
