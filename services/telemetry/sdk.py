"""OpenTelemetry itself: imported only by a process whose telemetry is on."""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from threading import Thread
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.telemetry.environment import SIGNALS, batch_spans, exporter

SENT_WITHIN_S = 5.0
"""What no collector has taken by then is lost: whoever runs a service does not wait for it, nor does its standby."""
Attributes = Mapping[str, str | int | float | bool]

_logger = logging.getLogger("muster.telemetry")
_propagator = TraceContextTextMapPropagator()
_fixed: ContextVar[SpanContext | None] = ContextVar("fixed", default=None)


class _Ids(RandomIdGenerator):
    """Random ids, but for the root of a gang's trace, whose ids are computed."""

    def generate_span_id(self) -> int:
        fixed = _fixed.get()
        return fixed.span_id if fixed is not None else super().generate_span_id()

    def generate_trace_id(self) -> int:
        fixed = _fixed.get()
        return fixed.trace_id if fixed is not None else super().generate_trace_id()


class Sdk:
    """Tracer and meter of one process."""

    def __init__(
        self, service: str, cluster: str, processors: Sequence[SpanProcessor], readers: Sequence[MetricReader]
    ) -> None:
        ours = {"service.namespace": "muster", "service.name": service, "service.version": version("muster")}
        told = OTELResourceDetector().detect().attributes  # what the environment says goes before
        resource = Resource.create({**ours, **told, "muster.cluster": cluster})
        self.cluster = cluster
        self._tracing = bool(processors)
        self._traces = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        for processor in processors:
            self._traces.add_span_processor(processor)
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        self.meter = self._metrics.get_meter("muster")
        self._tracer = self._traces.get_tracer("muster")

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[str]:
        if not self._tracing:
            yield ""
            return
        with self._tracer.start_as_current_span(name, attributes=attributes) as current:
            yield _traceparent(current.get_span_context())

    def gang_span(
        self,
        name: str,
        group: str,
        first_place: int,
        start_ns: int,
        end_ns: int,
        link: str,
        root: bool,
        attributes: Attributes,
    ) -> None:
        """A part of a gang's trace, by the wall clock. `link`: its commit's traceparent. `root`: the whole of it."""
        if not self._tracing:
            return
        origin = self.gang_context(group, first_place)
        if not origin.trace_flags.sampled:
            return
        linked = get_current_span(_propagator.extract({"traceparent": link}, Context())).get_span_context()
        context = Context() if root else set_span_in_context(NonRecordingSpan(origin), Context())
        token = _fixed.set(origin if root else None)
        try:
            span = self._tracer.start_span(
                name,
                context,
                attributes={"muster.group": group, **attributes},
                links=[Link(linked)] if linked.is_valid else [],
                start_time=start_ns,
            )
        finally:
            _fixed.reset(token)
        span.end(end_ns)

    def gang_context(self, group: str, first_place: int) -> SpanContext:
        """The root of a gang's trace, the same in every process; sampled or not by what the sampler says of its id."""
        key = "\0".join((self.cluster, group, str(first_place)))
        digest = hashlib.blake2b(key.encode(), digest_size=24).digest()
        trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")
        decision = self._traces.sampler.should_sample(Context(), trace_id, "gang").decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)

    def shutdown(self) -> None:
        """Sends what is pending. OpenTelemetry's own goes on for a minute where no collector takes it."""
        sending = [Thread(target=provider.shutdown, daemon=True) for provider in (self._traces, self._metrics)]
        for each in sending:
            each.start()
        until_s = time.monotonic() + SENT_WITHIN_S
        for each in sending:
            each.join(max(0.0, until_s - time.monotonic()))
        if any(each.is_alive() for each in sending):
            _logger.warning("no collector took what was pending within %g s: it is lost", SENT_WITHIN_S)


def exporters(environment: Mapping[str, str]) -> tuple[list[SpanProcessor], list[MetricReader]]:
    """As OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER say. Raises whatever an exporter of OpenTelemetry's raises."""
    traces, metrics = (exporter(environment, signal) for signal in SIGNALS)
    processors: list[SpanProcessor] = []
    readers: list[MetricReader] = []
    batch = batch_spans(environment)
    if traces == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        processors.append(BatchSpanProcessor(OTLPSpanExporter(), max_export_batch_size=batch))
    elif traces == "console":
        spans = ConsoleSpanExporter(out=sys.stderr, formatter=_line)
        processors.append(BatchSpanProcessor(spans, max_export_batch_size=batch))
    if metrics == "otlp":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    elif metrics == "console":
        readers.append(PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr, formatter=_line)))
    return processors, readers


def _line(exported: ReadableSpan | MetricsData) -> str:
    """Among the lines of the log."""
    return f"{exported.to_json(indent=None)}\n"


def _traceparent(context: Any) -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, set_span_in_context(NonRecordingSpan(context), Context()))
    return carrier.get("traceparent", "")
