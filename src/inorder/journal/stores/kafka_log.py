"""The topics of journals on a Kafka cluster: a `JournalLog`.

A consumer costs a connection and some round trips before its first record. So consumers that read short windows are
pooled for the next reader, and closed after some idle time. There are at most `max_consumers` at once, since each has
threads, buffers and connections; a reader waits for one within its own time limit. Each is assigned one partition by
hand, for one window, and joins no group.

**Sending.** Each record is acknowledged by all replicas, and the caller gets a future of its place. The client packs
what several threads send at once into one batch, and a broker refuses a batch as a whole. So that an append that is too
large does not fail others with it, a topic's limit is read before its first record is sent. A larger record is refused
here, measured without compression. Topics with a limit below the client's own batch have a producer whose batches stay
below it. There is one producer for a topic, idempotent, so the records that a thread sends to a partition arrive in its
order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.database.pool import OnLent, Pool, ignore_loan
from inorder.journal.stores.ports import LogRecord, TopicTail, Window
from inorder.journal.topic_identity import TopicGuard
from inorder.kafka.admin import Cluster, check_properties, require_uncompacted
from inorder.kafka.errors import (
    BEING_MADE,
    CLIENT_LOG,
    TOPIC_ERRORS,
    UNANSWERED_ERRORS,
    describe,
    error_of,
    meaning,
    topic_unavailable,
)
from inorder.kafka.readers import committed_consumer
from inorder.kafka.topic_facts import DEFAULT_BATCH_SIZE, size_of
from inorder.model.deadline import Deadline
from inorder.model.errors import (
    InorderError,
    RecordsLostError,
    RejectedError,
    TopicUnavailableError,
    TransientError,
    UnknownOutcomeError,
)
from inorder.model.journal import PartitionOffset
from inorder.model.message import OutboxRow, Record, RecordHeaders
from inorder.model.partitioning import Partitioner, partition_of

GROUP = "inorder.journal"
"""The client requires a group's name; no group is joined, and no offset is committed."""
MAX_CONSUMERS = 64
CHUNK = 2_000
LOOK_SECONDS = 0.1

PROPERTIES: Mapping[str, object] = {
    # Records that retention has removed are an error; jumping to the first remaining one would hide them.
    "auto.offset.reset": "error",
    # Windows are short; what is fetched beyond them is thrown away.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
}

OFFSET_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def consumer_pool(
    properties: Mapping[str, Any], on_lent: OnLent = ignore_loan, most: int = MAX_CONSUMERS
) -> Pool[Consumer]:
    return Pool(lambda: committed_consumer(properties, GROUP, PROPERTIES), Consumer.close, on_lent=on_lent, most=most)


def window_records(consumer: Consumer, window: Window, key: bytes, deadline: Deadline) -> Iterator[LogRecord]:
    """The records with this key in a window; see `JournalLog.records`."""
    try:
        consumer.assign([TopicPartition(window.topic, window.partition, window.first)])
        while True:
            # The client waits until it has as many as requested, so only the first is waited for.
            messages = consumer.consume(1, min(LOOK_SECONDS, deadline.remaining()))
            messages += consumer.consume(CHUNK, 0) if messages else []
            for message in messages:
                error = message.error()
                # An end before the window's is that of an open transaction; what is after it comes when it has ended.
                if (message.offset() or 0) > window.last and (error is None or _is_end(error)):
                    return
                if error is None:
                    if message.key() == key:
                        yield record_of(message)
                elif not _is_end(error):
                    continue_or_raise(consumer, error, window.topic, window.partition, window.first)
            if messages:
                deadline.renew()
    except KafkaException as exception:
        raise meaning(error_of(exception), f"Reading {window}") from exception
    finally:
        consumer.unassign()  # or it would keep fetching


def record_of(message: Message) -> LogRecord:
    # The client's stubs allow more shapes of headers than a received message has.
    headers = cast("RecordHeaders", tuple(message.headers() or ()))
    return LogRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers)


def continue_or_raise(consumer: Consumer, error: KafkaError, topic: str, partition: int, wanted: int) -> None:
    """Returns if the client recovers by itself, else raises."""
    if error.code() in OFFSET_GONE:
        raise lost_error(consumer, topic, partition, wanted)
    if error.code() in BEING_MADE:
        raise topic_unavailable(topic, error)
    if error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
        return
    raise meaning(error, f"Reading {topic}[{partition}]")


def lost_error(consumer: Consumer, topic: str, partition: int, wanted: int) -> InorderError:
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
    except KafkaException as exception:
        return TransientError(f"Reading {topic}[{partition}]: {describe(error_of(exception))}")
    return RecordsLostError(
        f"{topic}[{partition}] holds offsets {first} to {end}; offset {wanted} is gone, and was not replicated.",
        hint="Retention removed records before the replicator read them; `inorder journal lag` shows its position.",
        wanted=wanted,
        first=first,
    )


def _is_end(error: KafkaError) -> bool:
    return error.code() == KafkaError._PARTITION_EOF


TAIL_CHUNK = 5_000


class KafkaJournalLog:
    """Sends, reads windows and follows topics; nothing connects before it is needed."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        on_lent: OnLent = ignore_loan,
        guard: TopicGuard | None = None,
        max_consumers: int = MAX_CONSUMERS,
    ) -> None:
        """`on_lent` is called for every loan of a consumer; `guard` decides which topics may be used.

        Reads of the log use at most `max_consumers` at once.
        """
        check_properties(properties)
        self._properties = dict(properties)
        self._producer = JournalProducer(properties)
        self._pool = consumer_pool(properties, on_lent, max_consumers)
        self._guard = guard

    def send(self, record: Record) -> Future[PartitionOffset]:
        if self._guard is not None:
            try:
                self._guard.require(record.topic)
            except InorderError as error:
                refused: Future[PartitionOffset] = Future()
                refused.set_exception(error)
                return refused
        return self._producer.send(record)

    def forget(self, topic: str) -> None:
        """Looks a topic up again before its next record: it is another one now."""
        self._producer.forget(topic)

    def partition_of(self, topic: str, key: bytes) -> int | None:
        partitions = self._producer.partitions(topic)
        return None if partitions is None else partition_of(key, partitions, Partitioner.MURMUR2)

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        try:
            with self._pool.lent(deadline.remaining()) as consumer:
                yield from window_records(consumer, window, key, deadline)
        except (RecordsLostError, TopicUnavailableError):
            self._look_again(window.topic)
            raise

    def tail(self, topic: str) -> TopicTail:
        if self._guard is not None:
            self._guard.require(topic)
        return KafkaTail(self._properties, topic)

    def close(self) -> None:
        if self._guard is not None:
            self._guard.close()
        self._producer.close()
        self._pool.close()

    def _look_again(self, topic: str) -> None:
        """Says so if records are missing because it is another topic."""
        if self._guard is not None:
            self._guard.doubt(topic)
            self._guard.require(topic)


class KafkaTail:
    """Follows all partitions of a topic."""

    def __init__(self, properties: Mapping[str, Any], topic: str, more: Mapping[str, object] = PROPERTIES) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._more = more
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}

    def partitions(self) -> Sequence[int]:
        count = Cluster(self._properties).partitions(self._topic)
        if count is None:
            raise TopicUnavailableError(self._topic, f"Topic {self._topic!r} does not exist.", hint="Create it.")
        return range(count)

    def start(self, offsets: Mapping[int, int]) -> None:
        consumer = self._consumer = self._consumer or committed_consumer(self._properties, GROUP, self._more)
        try:
            for partition, offset in offsets.items():
                first, _ = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=5)
                if first > offset:
                    raise lost_error(consumer, self._topic, partition, offset)
            consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in offsets.items()])
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Following {self._topic!r}") from exception
        self._next = dict(offsets)

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        """Waits for the first record, then takes what is there."""
        assert self._consumer is not None, "start comes first"  # noqa: S101 - the port says so
        found: dict[int, list[LogRecord]] = {}
        try:
            messages = self._consumer.consume(1, timeout_seconds)
            messages += self._consumer.consume(TAIL_CHUNK - 1, 0) if messages else []
            for message in messages:
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    found.setdefault(partition, []).append(record_of(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    continue_or_raise(self._consumer, error, self._topic, partition, self._next.get(partition, 0))
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Following {self._topic!r}") from exception
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
        return found

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


WAIT_SECONDS = 10.0
POLLED = 20_000


class ConsumerCost(NamedTuple):
    """Medians: milliseconds to the first record of a new consumer and of one that seeks, microseconds per record."""

    init_ms: float
    seek_ms: float
    poll_us: float


def consumer_cost(properties: Mapping[str, Any], topic: str, trials: int) -> ConsumerCost:
    """Measures it on the first partition of a topic that has records."""
    inits, seeks = [], []
    for _ in range(trials):
        began = time.perf_counter()
        with closing(committed_consumer(properties, GROUP, PROPERTIES)) as consumer:
            _first_record(consumer, topic, 0)
            inits.append(time.perf_counter() - began)
            began = time.perf_counter()
            _first_record(consumer, topic, 1)
            seeks.append(time.perf_counter() - began)
    with closing(committed_consumer(properties, GROUP, PROPERTIES)) as consumer:
        _first_record(consumer, topic, 0)
        began = time.perf_counter()
        polled = len(consumer.consume(POLLED, 1.0)) or 1
        poll = (time.perf_counter() - began) / polled
    return ConsumerCost(1e3 * median(inits), 1e3 * median(seeks), 1e6 * poll)


def _first_record(consumer: Consumer, topic: str, offset: int) -> Message:
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(WAIT_SECONDS)
    if message is None or message.error():
        raise TransientError(f"{topic}[0] offset {offset} was not read within {WAIT_SECONDS:g} s.")
    return message


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
