"""Where spans and metrics go in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services import telemetry
from services.telemetry.sdk import Sdk


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def metrics() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def on(spans: InMemorySpanExporter, metrics: InMemoryMetricReader) -> Iterator[None]:
    """Telemetry is on, and collected in these two."""
    telemetry.attach(Sdk("test", "test", [SimpleSpanProcessor(spans)], [metrics]))
    yield
    telemetry.attach(None)
