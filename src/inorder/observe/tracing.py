"""Traces with OpenTelemetry: from the span that published a message to its sending and its row.

    your span ──publish──▶ headers of the row: traceparent, tracestate
        ├── send TOPIC    the relay, when Kafka has acknowledged the row
        └── apply TABLE   the job `upsert`, when the transaction of its slice is committed

`publish` takes the context of the current span into the headers of the message, as W3C Trace Context has it. Headers
are part of the row, so the context survives every restart and arrives in Kafka unchanged, for other consumers too. The
spans of relay and job are children of that context: one trace shows the whole path, and the gaps between its spans are
the time in the outbox and in Kafka.

A span is written after the fact, with the times of the batch or slice. So nothing waits for it, a batch that fails has
none, and one that is repeated may have two. Spans are hints: an error in here is logged and changes nothing.

Nothing of this is imported unless traces are on: `Outbox(traces=True)`, `[observe] traces`. The application owns the
tracer provider of its process. In the processes of `inorder relay run` and of Spark's tasks no application is there to
configure one: `provide` sets one up that exports by OTLP over HTTP, as the variables `OTEL_*` say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from inorder.model.message import OutboxRow, RecordHeaders

log = logging.getLogger("inorder.observe")

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FLUSH_MILLIS: Final = 2_000


def with_context(headers: RecordHeaders) -> RecordHeaders:
    """The headers with the context of the current span; unchanged outside of a span, and where they have one."""
    if any(name == PARENT for name, _ in headers):
        return headers
    found: dict[str, str] = {}
    _PROPAGATOR.inject(found)
    return (*headers, *((name, text.encode()) for name, text in found.items()))


def context_of(headers: RecordHeaders) -> Context | None:
    """The context that a message was published in; None where it has none, or one that cannot be read."""
    found = {name: value.decode("latin-1") for name, value in headers if name in (PARENT, STATE) and value is not None}
    if PARENT not in found:
        return None
    context = _PROPAGATOR.extract(found, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def provide(service: str) -> None:
    """Exports spans by OTLP over HTTP, unless this process has a tracer provider already."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider as ExportingProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The variables win: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
    resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
    provider = ExportingProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Exports what waits, for a process that may end without notice."""
    if force := getattr(trace.get_tracer_provider(), "force_flush", None):
        force(_FLUSH_MILLIS)


class SentTraces:
    """The spans of rows that a relay has sent."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """By default with the tracer provider of the process."""
        self._tracer = _tracer(provider)

    def sent(self, rows: Iterable[OutboxRow], began: int) -> None:
        """A span for each row that has a context, from `began` (nanoseconds since 1970) until now."""
        ended = time.time_ns()
        try:
            for row in rows:
                if row.headers and (context := context_of(row.headers)) is not None:
                    about = _about(row.topic, "send") | {"inorder.outbox.id": row.id}
                    _write(self._tracer, f"send {row.topic}", context, SpanKind.PRODUCER, about, (began, ended))
        except Exception:
            log.exception("observe.trace_failed")


class AppliedTraces:
    """The spans of records that a job has applied."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """By default with the tracer provider of the process."""
        self._tracer = _tracer(provider)

    def applied(
        self, table: str, place: tuple[str, int], offsets: Sequence[int], headers: Sequence[RecordHeaders], began: int
    ) -> None:
        """A span for each record that has a context, from `began` (nanoseconds since 1970) until now."""
        ended, (topic, partition) = time.time_ns(), place
        try:
            for offset, found in zip(offsets, headers, strict=True):
                if found and (context := context_of(found)) is not None:
                    about = _about(topic, "process") | {
                        "messaging.destination.partition.id": str(partition),
                        "messaging.kafka.offset": offset,
                        "inorder.table": table,
                    }
                    _write(self._tracer, f"apply {table}", context, SpanKind.CONSUMER, about, (began, ended))
        except Exception:
            log.exception("observe.trace_failed")


def _tracer(provider: TracerProvider | None) -> Tracer:
    return (provider or trace.get_tracer_provider()).get_tracer("inorder")


def _about(topic: str, operation: str) -> dict[str, str | int]:
    """The attributes that OpenTelemetry's conventions for messaging name; never a key or a payload."""
    return {"messaging.system": "kafka", "messaging.destination.name": topic, "messaging.operation.type": operation}


def _write(
    tracer: Tracer, name: str, context: Context, kind: SpanKind, about: dict[str, str | int], times: tuple[int, int]
) -> None:
    began, ended = times
    tracer.start_span(name, context, kind, about, start_time=began).end(ended)
