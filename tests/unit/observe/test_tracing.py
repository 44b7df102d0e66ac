"""The context of a span in headers: taken once, read back, and never a reason to fail. Off, nothing is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow, RecordHeaders
from inorder.observe.tracing import AppliedTraces, SentTraces, context_of, with_context
from inorder.outbox import Outbox
from inorder.settings import Settings

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPAN = SpanContext(
    0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, TraceFlags(1), TraceState([("vendor", "x")])
)


def test_the_context_of_the_current_span_goes_into_the_headers_and_comes_back() -> None:
    with trace.use_span(NonRecordingSpan(SPAN)):
        headers = with_context((("mine", b"1"),))
    assert headers == (("mine", b"1"), ("traceparent", PARENT), ("tracestate", b"vendor=x"))
    found = context_of(headers)
    assert found is not None
    context = trace.get_current_span(found).get_span_context()
    assert (context.trace_id, context.span_id, context.is_remote) == (SPAN.trace_id, SPAN.span_id, True)
    assert context.trace_state.get("vendor") == "x"


def test_outside_of_a_span_and_with_a_context_of_its_own_a_message_keeps_its_headers() -> None:
    assert with_context((("mine", b"1"),)) == (("mine", b"1"),)
    own = (("traceparent", b"00-11111111111111111111111111111111-2222222222222222-00"),)
    with trace.use_span(NonRecordingSpan(SPAN)):
        assert with_context(own) == own


@pytest.mark.parametrize(
    "headers",
    [(), (("traceparent", None),), (("traceparent", b""),), (("traceparent", b"\xff\x00"),), (("tracestate", b"a=b"),)],
)
def test_headers_without_a_readable_context_have_none(headers: RecordHeaders) -> None:
    assert context_of(headers) is None


def test_spans_have_the_times_of_the_batch_and_no_key() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    row = OutboxRow(7, "orders", b"secret key", b"secret value", (("traceparent", PARENT),), None, None)
    SentTraces(provider).sent([row, row._replace(headers=())], 1_000)
    AppliedTraces(provider).applied("t", ("orders", 2), [4, 5], [(("traceparent", PARENT),), ()], 2_000)
    send, apply = exporter.get_finished_spans()
    assert (send.name, send.start_time, apply.name, apply.start_time) == ("send orders", 1_000, "apply t", 2_000)
    for span in (send, apply):
        assert span.parent is not None
        assert (span.parent.span_id, span.context.trace_id) == (SPAN.span_id, SPAN.trace_id)
        assert "secret" not in span.to_json()


def test_an_error_in_a_span_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    AppliedTraces(TracerProvider()).applied("t", ("orders", 2), [4], [], 2_000)
    assert caplog.messages == ["observe.trace_failed"]


def test_a_layout_without_headers_has_no_traces() -> None:
    with pytest.raises(ConfigurationError, match="no column for them"):
        Outbox("messages", layout="deimos", traces=True)
    with pytest.raises(ConfigurationError, match=r"observe\.traces = true needs headers"):
        Settings.load(observe={"traces": True}, relay={"layout": "deimos", "strategy": "topic-lock"})


OFF = """
import sqlite3, sys
import inorder
from inorder.outbox.layouts import install_statements
from inorder.pipeline.job import upsert_work
from inorder.relay.parts import RelayParts
from inorder.relay.options import LoopOptions

settings = inorder.Settings.load(database={"url": "sqlite:///none.db"}, observe={"traces": TRACES})
with sqlite3.connect(":memory:") as connection:
    for statement in install_statements("native", "sqlite", "outbox"):
        connection.execute(statement)
    inorder.Outbox("outbox", traces=TRACES).publish(connection, inorder.Message("t", key="1", value="a"))
inorder.Publisher(settings)
RelayParts(settings).unfenced_log(settings.kafka.properties)
print(upsert_work(settings).needs_headers, any(name.startswith("opentelemetry") for name in sys.modules))
"""


@pytest.mark.parametrize("traces", [False, True])
def test_without_traces_opentelemetry_is_not_imported_and_no_header_is_read(traces: bool) -> None:
    text = OFF.replace("TRACES", str(traces))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == [str(traces), str(traces)], done.stderr
