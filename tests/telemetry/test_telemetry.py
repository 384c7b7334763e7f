"""Traces and metrics, read back from the in-memory exporters; and nothing at all when off."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services import telemetry
from services.telemetry.environment import batch_spans, check, secrets
from services.telemetry.sdk import Sdk, exporters

Process = Callable[[str], Sdk]


@pytest.fixture
def process(spans: InMemorySpanExporter) -> Iterator[Process]:
    """From here on this is the process of the service that is named; what it emits goes to `spans`."""

    def become(service: str) -> Sdk:
        sdk = Sdk(service, "prod", [SimpleSpanProcessor(spans)], [])
        telemetry.attach(sdk)
        return sdk

    yield become
    telemetry.attach(None)


def test_a_gangs_trace_is_one_over_all_processes(process: Process, spans: InMemorySpanExporter) -> None:
    for service, name in (("ingest", "ingest"), ("planner", "plan"), ("binder", "permit"), ("binder", "bind")):
        process(service)
        telemetry.gang_span(name, "default/train", 17, 1_000, 2_000, pods=4)
    telemetry.gang_span("gang", "default/train", 17, 500, 3_000, root=True)

    *parts, root = spans.get_finished_spans()
    assert {span.context.trace_id for span in parts} == {root.context.trace_id}
    assert [span.parent.span_id for span in parts if span.parent] == [root.context.span_id] * 4
    assert root.parent is None
    assert len({span.context.span_id for span in (*parts, root)}) == 5
    assert [span.resource.attributes["service.name"] for span in parts] == ["ingest", "planner", "binder", "binder"]
    assert (parts[0].start_time, parts[0].end_time) == (1_000, 2_000)
    assert dict(parts[0].attributes or {}) == {"muster.group": "default/train", "pods": 4}


def test_each_gang_has_a_trace_of_its_own_and_a_later_one_of_that_name_another(
    process: Process, spans: InMemorySpanExporter
) -> None:
    process("planner")
    for group, first_place in (("default/a", 17), ("default/b", 17), ("default/a", 99), ("default/a1", 7)):
        telemetry.gang_span("plan", group, first_place, 1, 2)
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 4


def test_a_gangs_ids_are_those_of_its_root_alone(process: Process, spans: InMemorySpanExporter) -> None:
    """What comes behind it in the same process has ids of its own, and so has the same gang of another cluster."""
    process("binder")
    telemetry.gang_span("gang", "default/a", 17, 1, 2, root=True)
    with telemetry.span("judge"):
        pass
    root, judge = spans.get_finished_spans()
    assert judge.context.trace_id != root.context.trace_id
    assert judge.context.span_id != root.context.span_id
    of = [Sdk("binder", cluster, [], []).gang_context("default/a", 17) for cluster in ("prod", "other")]
    assert of[0].trace_id == root.context.trace_id
    assert len({(each.trace_id, each.span_id) for each in of}) == 2


def test_a_service_without_traces_has_no_context(metrics: InMemoryMetricReader) -> None:
    telemetry.attach(Sdk("planner", "prod", [], [metrics]))
    with telemetry.span("plan") as traceparent:
        telemetry.gang_span("plan", "default/a", 17, 1, 2)
    telemetry.attach(None)
    assert traceparent == ""


def test_a_gangs_span_links_to_the_commit_that_carried_it(process: Process, spans: InMemorySpanExporter) -> None:
    process("planner")
    with telemetry.span("plan cycle", writer="planner.0") as traceparent:
        pass
    telemetry.gang_span("plan", "default/a", 17, 1, 2, link=traceparent)
    cycle, plan = spans.get_finished_spans()
    (link,) = plan.links
    assert link.context.trace_id == cycle.context.trace_id
    assert link.context.span_id == cycle.context.span_id


def test_a_malformed_traceparent_is_no_link(process: Process, spans: InMemorySpanExporter) -> None:
    process("binder")
    telemetry.gang_span("bind", "default/a", 17, 1, 2, link="nonsense")
    (bind,) = spans.get_finished_spans()
    assert not bind.links


def test_an_exception_leaves_the_block_and_its_mark(process: Process, spans: InMemorySpanExporter) -> None:
    process("binder")
    with pytest.raises(KeyError), telemetry.span("judge"):
        raise KeyError("gone")
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok
    assert span.events[0].name == "exception"


def test_all_services_sample_the_same_gangs(
    process: Process, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    gangs = [f"default/gang-{number}" for number in range(64)]
    sampled = []
    for service in ("planner", "binder"):
        process(service)
        spans.clear()
        for gang in gangs:
            telemetry.gang_span("part", gang, 1, 1, 2, root=service == "binder")
        sampled.append({(span.attributes or {})["muster.group"] for span in spans.get_finished_spans()})
    assert sampled[0] == sampled[1]
    assert 0 < len(sampled[0]) < len(gangs)


def test_instruments_count_while_on(metrics: InMemoryMetricReader) -> None:
    telemetry.attach(Sdk("binder", "prod", [], [metrics]))
    telemetry.COMMITS.add(2, writer="binder")
    telemetry.LAG.set(5)
    telemetry.CYCLE_S.record(0.02)
    found = _metrics(metrics)
    telemetry.attach(None)
    telemetry.COMMITS.add(1, writer="binder")

    for counted in (found, _metrics(metrics)):
        (commits,) = counted["muster.log.commits"].data.data_points
        assert (commits.value, dict(commits.attributes)) == (2, {"writer": "binder"})
    assert found["muster.log.lag"].data.data_points[0].value == 5
    (cycle,) = found["muster.cycle.duration"].data.data_points
    assert cycle.explicit_bounds == telemetry.DURATIONS_S
    assert (cycle.count, cycle.sum) == (1, 0.02)


@pytest.mark.parametrize(
    ("mode", "environment", "on"),
    [
        ("auto", {}, False),
        ("auto", {"OTEL_TRACES_EXPORTER": "none"}, False),
        ("auto", {"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ("auto", {"OTEL_TRACES_EXPORTER": "console"}, True),
        ("auto", {"OTEL_METRICS_EXPORTER": "otlp"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://collector:4318"}, False),
        ("auto", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ("on", {}, True),
        ("off", {"OTEL_TRACES_EXPORTER": "console"}, False),
    ],
)
def test_on_or_off_as_the_standard_variables_say(mode: str, environment: dict[str, str], on: bool) -> None:
    assert telemetry.wanted(mode, environment) is on


def test_exporters_as_the_standard_variables_say() -> None:
    none = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    assert exporters(none) == ([], [])
    (processor,), (reader,) = exporters({"OTEL_TRACES_EXPORTER": ""})
    assert type(processor).__name__ == "BatchSpanProcessor"
    assert type(reader).__name__ == "PeriodicExportingMetricReader"
    processor.shutdown()
    MeterProvider(metric_readers=[reader]).shutdown()  # or its thread would speak up in the middle of another test


@pytest.mark.parametrize("exporter", ["otlp", "console"])
def test_a_small_queue_is_no_reason_not_to_start(exporter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry's own default of what goes out together is larger than this."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    (processor,), _ = exporters({**os.environ, "OTEL_TRACES_EXPORTER": exporter, "OTEL_METRICS_EXPORTER": "none"})
    processor.shutdown()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "expected otlp (over http), console or none, not 'zipkin'"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "expected http/protobuf, the one that Muster has, not 'grpc'"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "zip", "expected gzip, deflate or none, not 'zip'"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "-5", "expected seconds, more than 0, not '-5'"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "abc", "expected seconds, more than 0, not 'abc'"),
        ("OTEL_TRACES_SAMPLER", "some", "expected one of always_on, always_off, traceidratio, each also with parentb"),
        ("OTEL_TRACES_SAMPLER", " always_off ", "expected one of always_on, always_off, traceidratio, each also with"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "expected a number from 0 to 1, not '1.5'"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan", "expected a number from 0 to 1, not 'nan'"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "expected milliseconds, a whole number of at least 1, not '0'"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "0", "expected milliseconds, a whole number of at least 1, not '0'"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "0", "expected milliseconds, a whole number of at least 1, not '0'"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", str(2**31), "expected a whole number of at least 1, not '2147483648'"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1", "expected milliseconds, a whole number of at least 1, not '-1'"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "abc", "expected a whole number of at least 1, not 'abc'"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "expected at most OTEL_BSP_MAX_QUEUE_SIZE, 2048, not 4096"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318/hunter2", "expected the URL of a collector, such as http://c"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@h:99999", "expected the URL of a collector, such as h"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318", "expected the URL of a collector, such as http://collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:0", "expected the URL of a collector, such as http://collector"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://hunter2", "expected the URL of a collector, such as http://"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer hunter2", "expected name=value, with commas between"),
    ],
)
def test_a_variable_that_is_wrong_is_named_and_no_secret_is(variable: str, value: str, expected: str) -> None:
    """As it was: the SDK took its default instead, or failed at every export, and told what stood there."""
    environment = {"OTEL_TRACES_EXPORTER": "otlp", variable: value}
    with pytest.raises(ValueError, match=re.escape(f"{variable}: {expected}")) as refused:
        telemetry.configure("feed", cluster="prod", environment=environment)
    assert "hunter2" not in str(refused.value)
    assert not telemetry.is_on()


def test_variables_that_are_right_are_taken() -> None:
    check(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://user:password@[::1]:4318/otlp",
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,Authorization=Bearer%20t==,",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5",
            "OTEL_TRACES_SAMPLER": "ParentBased_TraceIdRatio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
            "OTEL_METRIC_EXPORT_INTERVAL": "",
            "OTEL_METRICS_EXPORTER": "console",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",  # of what does not go out so
            "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        }
    )


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ("http://h", "https://h:1")),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", ("gzip", "Deflate", "none")),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", ("0.001", str(2**31 - 1))),
        ("OTEL_METRIC_EXPORT_INTERVAL", ("1", str(2**31 - 1))),
        ("OTEL_BSP_MAX_QUEUE_SIZE", ("1", str(2**31 - 1))),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", ("1", "2048")),
        ("OTEL_TRACES_SAMPLER_ARG", ("0", "1")),
        ("OTEL_TRACES_EXPORTER", ("otlp", "console", "none")),
    ],
)
def test_what_is_just_right_is_taken(variable: str, values: tuple[str, ...]) -> None:
    for value in values:
        check({variable: value})


def test_a_queue_may_be_smaller_than_what_goes_out_together_by_default() -> None:
    assert batch_spans({}) == 512
    assert batch_spans({"OTEL_BSP_MAX_QUEUE_SIZE": "100"}) == 100
    assert batch_spans({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "7"}) == 7


def test_a_plugin_that_fails_is_told_in_a_line() -> None:
    variable = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER"
    answer = _run_with_a_span({"OTEL_TRACES_EXPORTER": "otlp", variable: "nope"}, check=False)
    assert "ValueError: OTEL_…: OpenTelemetry does not start: " in answer.stderr


def test_a_collector_that_is_away_has_no_secret_told() -> None:
    """The exporter tells each URL that it could not reach."""
    answer = _run_with_a_span(
        {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces?api_key=hunter|2",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://user:hunter3@127.0.0.1:1/v1/metrics",
        }
    )
    assert "/v1/traces?***" in answer.stderr
    assert "hunter" not in answer.stderr


def test_what_is_secret_of_the_variables() -> None:
    found = set(
        secrets(
            {
                "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20hunter%0A2,X-Scope-OrgID=info",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:p%40ss@h?key=a|b",
                "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "api-key=hunter3",
            }
        )
    )
    header = {"Bearer%20hunter%0A2", "Bearer hunter\n2", r"Bearer hunter\n2", "hunter3"}
    assert found == header | {"key=a|b", "key=a%7Cb", "a|b", "u:p%40ss", "p%40ss", "p@ss"}


def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Sdk("planner", "prod", [], [])._traces.resource.attributes
    assert (found["service.name"], found["service.namespace"]) == ("planner", "muster")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ours,muster.cluster=other,rack=7")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "planner-eu")
    found = Sdk("planner", "prod", [], [])._traces.resource.attributes
    named = ("service.name", "service.namespace", "muster.cluster", "rack")
    assert [found[name] for name in named] == ["planner-eu", "ours", "prod", "7"]
    assert found["service.version"]
    assert found["service.instance.id"], "two shards count under the same names"


def test_off_loads_nothing_and_says_nothing() -> None:
    program = """
import sys
from services import telemetry
telemetry.configure("binder", cluster="prod", environment={})
with telemetry.span("judge") as traceparent:
    telemetry.gang_span("bind", "a/b", 1, 1, 2)
    telemetry.COMMITS.add(1, writer="binder")
telemetry.shutdown()
print(repr(traceparent), [name for name in sys.modules if name.startswith("opentelemetry")])
"""
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout == "'' []\n"


def test_the_console_exporter_keeps_to_stderr() -> None:
    answer = _run_with_a_span({"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})
    lines = [json.loads(line) for line in answer.stderr.splitlines()]
    span, metrics = sorted(lines, key=lambda line: "resource_metrics" in line)  # at the end both are sent at once
    assert span["name"] == "judge"
    assert metrics["resource_metrics"][0]["scope_metrics"][0]["metrics"][0]["name"] == "muster.log.commits"
    assert answer.stdout == ""


def test_otlp_over_http_reaches_the_collector() -> None:
    received: dict[str, bytes] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            _run_with_a_span(
                {
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
                }
            )
        finally:
            server.shutdown()
            thread.join()
    assert b"judge" in received["/v1/traces"]
    assert b"muster.log.commits" in received["/v1/metrics"]


def test_a_collector_that_hangs_keeps_no_process_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: a service that was told to end, or was replaced, waited for 20 s behind its end."""
    monkeypatch.setattr("services.telemetry.sdk.SENT_WITHIN_S", 0.01)
    answered, sent = threading.Event(), []

    class Hanging(SpanProcessor):
        def shutdown(self) -> None:
            sent.append(answered.wait(60))

    telemetry.attach(Sdk("binder", "prod", [Hanging()], []))
    telemetry.shutdown()
    assert not sent
    answered.set()
    assert "no collector took what was pending" in caplog.text


def _run_with_a_span(environment: dict[str, str], check: bool = True) -> subprocess.CompletedProcess[str]:
    """A process that emits one span and one count, under these standard variables."""
    program = """
from services import telemetry
telemetry.configure("binder", cluster="prod")
with telemetry.span("judge"):
    telemetry.COMMITS.add(1, writer="binder")
telemetry.shutdown()
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", program], check=check, capture_output=True, text=True, env=clean | environment
    )


def _metrics(reader: InMemoryMetricReader) -> dict[str, object]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
