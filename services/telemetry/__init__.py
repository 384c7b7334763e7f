"""Logs, metrics and traces of a process. Off, nothing of OpenTelemetry is even imported, and a call costs a comparison.

**Logs** are lines on stderr through the standard library's logging: JSON, or text for people at a terminal. What a call
passes as ``extra={"place": 17}`` becomes a field (`services.telemetry.logs`).

**Metrics** are the instruments in this module: ``telemetry.COMMITS.add(1, writer="binder")``.

**Traces.** A commit batches many gangs, so no context can be carried for each of them. A gang's trace is *computed*
instead: its id is a hash of cluster, group and the place of the group's first fact, which every service knows from the
log. Each emits its part into that trace, ingest → plan → permit → bind, and nothing is handed over (`services.tracing`):

    with telemetry.span("append", writer="planner.0") as traceparent:  # one commit, many gangs
        await log.append(..., traceparent=traceparent)                 # travels in the message's headers
    for group in placed:
        telemetry.gang_span("plan", group.key, group.since, start_ns, end_ns, link=traceparent)

The binder emits the trace's root, ``gang``, when the gang is settled. All services sample alike, by the trace id.

Exporters, endpoints, sampling and resource attributes are OpenTelemetry's own environment variables
(``OTEL_TRACES_EXPORTER`` and ``OTEL_METRICS_EXPORTER``: otlp, console or none; ``OTEL_EXPORTER_OTLP_ENDPOINT``, …).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal

from services.telemetry import logs

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from services.telemetry.sdk import Sdk

Attribute = str | int | float | bool

DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAITS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""Of what waits for others to end."""


class Instrument:
    """A counter (`add`), a gauge (`set`) or a histogram (`record`) of OpenTelemetry, or nothing while that is off."""

    __slots__ = ("_live", "bounds", "description", "kind", "name", "unit")

    def __init__(
        self,
        kind: Literal["counter", "gauge", "histogram"],
        name: str,
        unit: str,
        description: str,
        bounds: Sequence[float] = DURATIONS_S,
    ) -> None:
        """`bounds`: a histogram's, in its unit."""
        self.kind, self.name, self.unit, self.description, self.bounds = kind, name, unit, description, bounds
        self._live: Callable[..., None] | None = None

    def add(self, value: float, **attributes: Attribute) -> None:
        if self._live is not None:
            self._live(value, attributes)

    set = record = add

    def connect(self, meter: Meter | None) -> None:
        """From here on into this meter; None: into nothing."""
        if meter is None:
            self._live = None
        elif self.kind == "counter":
            self._live = meter.create_counter(self.name, self.unit, self.description).add
        elif self.kind == "gauge":
            self._live = meter.create_gauge(self.name, self.unit, self.description).set
        else:
            self._live = meter.create_histogram(
                self.name, self.unit, self.description, explicit_bucket_boundaries_advisory=self.bounds
            ).record


LAG = Instrument("gauge", "muster.log.lag", "{commit}", "Commits in the log that this service has not read yet")
COMMITS = Instrument("counter", "muster.log.commits", "{commit}", "Commits appended, by writer and cause")
EVENTS = Instrument("counter", "muster.log.events", "{event}", "Events appended, by writer")
CONFLICTS = Instrument("counter", "muster.log.conflicts", "{conflict}", "Appends refused: another writer took over")
SET_ASIDE = Instrument("counter", "muster.log.set_aside", "{commit}", "Messages in the log that are no writer's commit")
CYCLE_S = Instrument("histogram", "muster.cycle.duration", "s", "One cycle of deciding, from basis to acknowledgement")
PODS = Instrument("counter", "muster.pods", "{pod}", "Pods, by outcome: placed, refused, bound, failed")
BIND_S = Instrument("histogram", "muster.bind.duration", "s", "One Binding, from request to definite answer")
BOUND_S = Instrument("histogram", "muster.pod.bound.duration", "s", "From a pod's creation to its binding", WAITS_S)
REQUESTS = Instrument("counter", "muster.kubernetes.requests", "{request}", "Requests to the API, by verb and status")
FEED_PLACE = Instrument("gauge", "muster.feed.place", "{commit}", "Sequence of the last commit in the feed")
FEED_MESSAGES = Instrument("counter", "muster.feed.messages", "{message}", "Messages published to the feed")

INSTRUMENTS = tuple(thing for thing in vars().copy().values() if isinstance(thing, Instrument))

_NO_SPAN = nullcontext("")
_sdk: Sdk | None = None


def configure(
    service: str,
    *,
    cluster: str,
    log_level: str = "info",
    log_format: str = "auto",
    mode: str = "auto",
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Sets up this process's logs, and metrics and traces where `mode` (auto, on, off) and the environment say so.

    Raises ValueError that names the variable of OpenTelemetry's that is wrong.
    """
    logs.configure(service, cluster, log_level, log_format)
    if wanted(mode, environment):
        from services.telemetry.environment import check, secrets

        check(environment)
        logs.hide(secrets(environment))
        try:
            from services.telemetry.sdk import Sdk, exporters

            attach(Sdk(service, cluster, *exporters(environment)))
        except Exception as error:  # plugins that other variables name
            raise ValueError(f"OTEL_…: OpenTelemetry does not start: {type(error).__name__}: {error}") from error


def wanted(mode: str, environment: Mapping[str, str]) -> bool:
    """auto: on when a standard variable names an exporter (other than none) or an endpoint."""
    if mode == "off" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    given = {name: value for name, value in environment.items() if value}  # an empty one counts as not there
    named = [given.get(f"OTEL_{signal}_EXPORTER", "none") for signal in ("TRACES", "METRICS")]
    endpoint = any(f"OTEL_EXPORTER_OTLP_{of}ENDPOINT" in given for of in ("", "TRACES_", "METRICS_"))
    return mode == "on" or endpoint or any(name != "none" for name in named)


def attach(sdk: Sdk | None) -> None:
    """From here on into this SDK; None: off."""
    global _sdk  # noqa: PLW0603  # one for the process, as logging is
    _sdk = sdk
    for instrument in INSTRUMENTS:
        instrument.connect(sdk.meter if sdk is not None else None)


def is_on() -> bool:
    return _sdk is not None


def shutdown() -> None:
    """Sends what is pending, and off."""
    sdk = _sdk
    attach(None)
    if sdk is not None:
        sdk.shutdown()


def span(name: str, **attributes: Attribute) -> AbstractContextManager[str]:
    """A span around a block; gives its W3C traceparent, for the commit's headers; ``""`` when off.

    An exception that leaves the block is recorded.
    """
    return _NO_SPAN if _sdk is None else _sdk.span(name, attributes)


def gang_span(
    name: str,
    group: str,
    first_place: int,
    start_ns: int,
    end_ns: int,
    *,
    link: str = "",
    root: bool = False,
    **attributes: Attribute,
) -> None:
    """A finished span in the trace of `group`.

    `first_place` is the sequence of the group's first fact: a gang that comes again under its name is another one.
    `link` is the traceparent of a commit's span. `root` is the span under which all others stand: once for a gang.
    """
    if _sdk is not None:
        _sdk.gang_span(name, group, first_place, start_ns, end_ns, link, root, attributes)
