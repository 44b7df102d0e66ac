"""Sends records of journals: each is acknowledged by all replicas, and the caller gets a future of its place.

The client packs what several threads send at once into one batch, and a broker refuses a batch as a whole. So that an
append that is too large does not fail others with it, a topic's limit is read before its first record is sent. A larger
record is refused here, measured without compression. Topics with a limit below the client's own batch have a producer
whose batches stay below it.

Order: one producer for a topic, idempotent, so the records that a thread sends to a partition arrive in its order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.kafka.admin import Cluster, require_uncompacted
from inorder.kafka.errors import (
    CLIENT_LOG,
    TOPIC_ERRORS,
    UNANSWERED_ERRORS,
    describe,
    error_of,
    meaning,
    topic_unavailable,
)
from inorder.kafka.topic_facts import DEFAULT_BATCH_SIZE, size_of
from inorder.model.errors import InorderError, RejectedError, TopicUnavailableError, TransientError, UnknownOutcomeError
from inorder.model.journal import PartitionOffset
from inorder.model.message import OutboxRow, Record

POLL_SECONDS = 0.2
FRAMING_BYTES = 128
"""More than a batch of one record has around its key, value and headers."""
FIELD_BYTES = 10
"""More than the lengths of a header's name and value take."""
CLOSE_SECONDS = 10.0

DEFAULTS: Mapping[str, object] = {
    # An appender waits for the answer; what others append meanwhile fills the next batch.
    "linger.ms": 0,
    "compression.type": "lz4",
    "message.timeout.ms": 30_000,
    "queue.buffering.max.messages": 1_000_000,
}
"""What users may change."""

OURS: Mapping[str, object] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
}
"""What the journal depends on: nothing acknowledged is lost, and every client finds a journal in the same partition."""


UNKNOWN = UNANSWERED_ERRORS | {KafkaError._MSG_TIMED_OUT}
"""A record may have arrived: the client gives up one that was sent and one that was not with the same error."""


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """What was read about a topic before its first record was sent."""

    partitions: int
    max_bytes: int


class JournalProducer:
    """Safe for use by many threads; each underlying producer has a thread for delivery reports."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._lock = threading.Lock()
        self._topics: dict[str, KnownTopic] = {}
        self._by_limit: dict[int, _PolledProducer] = {}
        self._is_closed = False

    def send(self, record: Record) -> Future[PartitionOffset]:
        """Hands a record over; an error is in the future."""
        future: Future[PartitionOffset] = Future()
        try:
            known = self._topics.get(record.topic) or self._learn(record.topic)
            _check_size(record, known)
            self._producer(known.max_bytes).produce(record, future)
        except InorderError as error:
            future.set_exception(error)
        return future

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic had when it was first used; None before that."""
        known = self._topics.get(topic)
        return known.partitions if known else None

    def forget(self, topic: str) -> None:
        """Looks a topic up again before its next record."""
        self._topics.pop(topic, None)

    def close(self) -> None:
        """Waits for records in flight, within a limit; may be called twice."""
        with self._lock:
            self._is_closed = True
            producers = list(self._by_limit.values())
            self._by_limit.clear()
        for producer in producers:
            producer.close()

    def _learn(self, topic: str) -> KnownTopic:
        cluster = Cluster(self._properties)
        partitions = cluster.partitions(topic)
        if partitions is None:
            raise TopicUnavailableError(
                topic, f"Topic {topic!r} does not exist.", hint="Create it; a journal's topic must not be compacted."
            )
        settings = cluster.topic_settings(topic)
        require_uncompacted(topic, settings)
        limit = int(settings["max.message.bytes"])
        known = self._topics[topic] = KnownTopic(partitions, limit)
        return known

    def _producer(self, max_bytes: int) -> _PolledProducer:
        batch = min(max_bytes, int(str(self._properties.get("batch.size", DEFAULT_BATCH_SIZE))))
        with self._lock:
            if self._is_closed:
                raise TransientError("The journal is closed.", hint="Open another.")
            found = self._by_limit.get(batch)
            if found is None or found.is_broken:
                found = self._by_limit[batch] = _PolledProducer({**self._properties, "batch.size": batch})
            return found


class _PolledProducer:
    """A producer and the thread for its delivery reports."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._producer = Producer({**DEFAULTS, **properties, **OURS}, logger=CLIENT_LOG)
        self._stop = threading.Event()
        self.is_broken = False
        """After a fatal error the client sends nothing more, and must be replaced."""
        self._thread = threading.Thread(target=self._poll, name="inorder-journal-producer", daemon=True)
        self._thread.start()

    def produce(self, record: Record, future: Future[PartitionOffset]) -> None:
        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                headers=cast("list[tuple[str, str | bytes | None]]", list(record.headers)),
                timestamp=record.timestamp_ms or 0,
                on_delivery=cast("Callable[..., None]", partial(self._report, record.topic, future)),
            )
        except KafkaException as exception:
            raise self._meaning(record.topic, error_of(exception)) from exception
        except BufferError as error:
            raise TransientError(
                f"The queue to Kafka is full, so nothing was sent to {record.topic!r}.",
                hint='Send less at once, or raise kafka."queue.buffering.max.messages".',
            ) from error

    def close(self) -> None:
        self._producer.flush(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.flush(1.0)
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(POLL_SECONDS)

    def _report(self, topic: str, future: Future[PartitionOffset], error: KafkaError | None, message: Message) -> None:
        if error is None:
            future.set_result(PartitionOffset(message.partition() or 0, message.offset() or 0))
        else:
            future.set_exception(self._meaning(topic, error))

    def _meaning(self, topic: str, error: KafkaError) -> InorderError:
        if error.fatal():
            self.is_broken = True
        if error.code() in TOPIC_ERRORS:
            return topic_unavailable(topic, error)
        if error.fatal() or error.code() in UNKNOWN:
            return UnknownOutcomeError(
                f"Sending to {topic!r}: {describe(error)} It is not known whether it arrived.",
                hint="Check the journal's pointer before you send it again.",
            )
        return meaning(error, f"Sending to {topic!r}")


def _check_size(record: Record, known: KnownTopic) -> None:
    if _max_size(record) <= known.max_bytes:
        return
    size = size_of(OutboxRow(0, record.topic, record.key, record.value, record.headers, None, None))
    if size > known.max_bytes:
        raise RejectedError(
            f"The record of {(record.key or b'')!r} has {size} bytes; topic {record.topic!r} takes {known.max_bytes}.",
            hint="Append fewer events at once, or raise the topic's max.message.bytes.",
        )


def _max_size(record: Record) -> int:
    """A cheap upper bound of a record's size; almost every record is far below the limit."""
    headers = sum(3 * len(name) + len(value or b"") + FIELD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + FRAMING_BYTES
