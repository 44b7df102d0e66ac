"""One trace from the span that published a message to its row: publish, send, apply."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import inorder
from inorder.database.postgres import connect
from inorder.engines.in_process import InProcess
from inorder.engines.partition_reader import KafkaSource
from inorder.kafka.admin import ensure_topic
from inorder.kafka.readers import read_back
from inorder.pipeline.job import upsert_work
from tests.conftest import Eventually
from tests.operating import install_schema


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Gets the spans of this process, whose provider an application would have set."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return found


@contextmanager
def applying(settings: inorder.Settings) -> Iterator[None]:
    """The job `upsert` in this process."""
    stop, source = threading.Event(), KafkaSource(dict(settings.kafka.properties))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(InProcess(upsert_work(settings), source).run, stop)
        try:
            yield
        finally:
            stop.set()
        done.result(60)


@pytest.mark.parametrize("delivery", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.full)])
def test_publish_send_and_apply_are_one_trace(
    postgres_url: str,
    kafka_bootstrap: str,
    unique: str,
    exporter: InMemorySpanExporter,
    eventually: Eventually,
    delivery: str,
) -> None:
    settings = inorder.Settings.load(
        kafka={"bootstrap.servers": kafka_bootstrap},
        database={"url": postgres_url},
        relay={"group": unique, "leadership": "none", "delivery": delivery},
        pipeline={"upsert": {"topic": unique, "table": "orders"}},
        observe={"traces": True},
    )
    ensure_topic(settings.kafka.properties, unique, 1)
    for layout in ("native", "table"):
        install_schema(settings, layout)
    tracer = trace.get_tracer_provider().get_tracer("the application")
    outbox = inorder.Outbox("outbox", traces=True)
    with inorder.Publisher(settings) as publisher, connect(postgres_url, "test") as connection:
        with tracer.start_as_current_span("request"):
            publisher.publish(inorder.Message(unique, key="1", value={"id": 1, "data": "a"}), connection)
        publisher.publish(inorder.Message(unique, key="2", value={"id": 2, "data": "b"}), connection)
        with tracer.start_as_current_span("another request"):
            outbox.publish(connection, inorder.Message(unique, key="3", value={"id": 3, "data": "c"}))

    def spans(name: str) -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    with inorder.Relay(settings), applying(settings):
        eventually(lambda: len(spans("apply orders")) == 2 and len(spans(f"send {unique}")) == 2)
    for request, offset in (("request", 0), ("another request", 2)):
        [published] = spans(request)
        of_it = [
            span
            for span in exporter.get_finished_spans()
            if span.parent is not None and span.parent.span_id == published.context.span_id
        ]
        assert sorted(span.name for span in of_it) == ["apply orders", f"send {unique}"]
        assert {span.context.trace_id for span in of_it} == {published.context.trace_id}
        [applied] = [span for span in of_it if span.name == "apply orders"]
        assert (applied.attributes or {})["messaging.kafka.offset"] == offset
    assert len(exporter.get_finished_spans()) == 6, "a message that was published outside of a span has none"
    headers = [dict(record.headers) for record in read_back(settings.kafka.properties, unique)]
    assert ["traceparent" in each for each in headers] == [True, False, True]
