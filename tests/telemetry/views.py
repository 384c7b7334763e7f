"""What telemetry has collected, as tests ask for it."""

from __future__ import annotations

from collections import defaultdict

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def by_group(spans: InMemorySpanExporter) -> dict[str, dict[str, ReadableSpan]]:
    """group → its spans by name, none twice."""
    found: dict[str, dict[str, ReadableSpan]] = defaultdict(dict)
    for span in spans.get_finished_spans():
        group = (span.attributes or {}).get("muster.group")
        if isinstance(group, str):
            assert span.name not in found[group]
            found[group][span.name] = span
    return found


def totals(reader: InMemoryMetricReader) -> dict[tuple[str, ...], float]:
    """Sums of counters and counts of histograms, by name alone and by name and attributes (each, and as given)."""
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    amount = getattr(point, "count", None)
                    value = point.value if amount is None else amount  # type: ignore[union-attr]
                    attributes = [str(attribute) for attribute in (point.attributes or {}).values()]
                    for key in {(), tuple(attributes), *((attribute,) for attribute in attributes)}:
                        found[(metric.name, *key)] += value
    return found
