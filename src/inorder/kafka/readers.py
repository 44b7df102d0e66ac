"""Reading committed records: a whole topic, the last record of a partition, the offsets of a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from inorder.kafka.admin import ASK_AGAIN_SECONDS, end_offset
from inorder.kafka.errors import CLIENT_LOG, error_of, meaning
from inorder.model.errors import RejectedError, TransientError, UnreachableError
from inorder.model.message import RecordHeaders

NO_PROPERTIES: Mapping[str, object] = MappingProxyType({})


def committed_consumer(
    properties: Mapping[str, object], group: str, more: Mapping[str, object] = NO_PROPERTIES
) -> Consumer:
    """Builds a consumer of committed records that is assigned partitions by hand and reports the end of each.

    It commits no offsets, and answers at once when it has reached an end.
    """
    return Consumer(
        {
            **properties,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 2,
            # Half a second of waiting for more would be most of a take-over.
            "fetch.wait.max.ms": 10,
            **more,
        },
        logger=CLIENT_LOG,
    )


TIMEOUT_SECONDS = 30.0
CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record with its coordinates."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    timestamp_ms: int


def read_back(properties: Mapping[str, object], topic: str) -> Iterator[ReadRecord]:
    """Yields every committed record of the topic up to its present end, in offset order within each partition."""
    consumer = committed_consumer(properties, "inorder.read-back")
    try:
        yield from _read_to_the_end(consumer, topic, _partitions(consumer, topic))
    except KafkaException as exception:
        raise meaning(error_of(exception), f"Reading {topic!r} back") from exception
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> set[int]:
    found = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
    return set(found.partitions) if found.error is None else set()


def _read_to_the_end(consumer: Consumer, topic: str, unread: set[int]) -> Iterator[ReadRecord]:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while unread:
        if time.monotonic() > deadline:
            raise UnreachableError(f"The end of {topic!r} was not reached within {TIMEOUT_SECONDS:.0f} s.")
        for message in consumer.consume(CHUNK, 0.02):
            error = message.error()
            if error is None:
                deadline = time.monotonic() + TIMEOUT_SECONDS
                yield _record(topic, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)


def _record(topic: str, message: Message) -> ReadRecord:
    # The client's stubs allow more shapes of headers than a received message has.
    headers = cast("RecordHeaders", tuple(message.headers() or ()))
    partition, offset, timestamp = message.partition() or 0, message.offset() or 0, message.timestamp()[1]
    return ReadRecord(topic, partition, offset, message.key(), message.value(), headers, timestamp)


LAST_RECORD_SECONDS = 20.0
FIRST_LOOK_BACK = 64


def read_last_record(
    consumer: Consumer, topic: str, partition: int, seconds: float = LAST_RECORD_SECONDS
) -> Message | None:
    """Returns the newest committed record; None if there is none.

    The consumer must be a `committed_consumer`, and no transaction may be open on the partition (`require_settled`):
    the record would be the newest one before that transaction. Aborted records and
    transaction markers may follow the record, so this looks at the end first and farther back if it finds none there.
    """
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=seconds)
    look_back = FIRST_LOOK_BACK
    while True:
        start = max(low, high - look_back)
        last = _last_from(consumer, TopicPartition(topic, partition, start), seconds)
        if last is not None or start == low:
            return last
        look_back *= 16


def _last_from(consumer: Consumer, start: TopicPartition, seconds: float) -> Message | None:
    consumer.assign([start])
    last: Message | None = None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            last = message
        elif error.code() == KafkaError._PARTITION_EOF:
            return last
        elif not error.retriable():
            raise KafkaException(error)
    raise UnreachableError(
        f"The end of {start.topic}/{start.partition} was not reached within {seconds:.0f} s.",
        hint="Is the broker that leads this partition up?",
    )


SETTLED_SECONDS = 5.0


def require_settled(properties: Mapping[str, Any], topic: str, partition: int) -> None:
    """Raises `TransientError` while a transaction is open on a partition, so that its last record cannot be known.

    Readers of committed records stop at the first record of an open transaction (the last stable offset) and report
    the end there, whatever was committed behind it. Whether a record behind it is of a committed or of an aborted
    transaction is written in records that the client does not show, so there is nothing to do but wait.
    """
    client, written = AdminClient(dict(properties), logger=CLIENT_LOG), None
    place = TopicPartition(topic, partition)
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        try:
            if written is None:
                written = end_offset(client, place, IsolationLevel.READ_UNCOMMITTED)
            settled = end_offset(client, place, IsolationLevel.READ_COMMITTED)
        except (TransientError, RejectedError) as error:
            # A topic that was created a moment ago is not known everywhere yet, and a permission may be on its way.
            if time.monotonic() > deadline:
                raise TransientError(error.message, hint=error.hint) from error
        else:
            if settled >= written:
                return
            if time.monotonic() > deadline:
                raise _open_transaction(place, settled)
        time.sleep(ASK_AGAIN_SECONDS)


def _open_transaction(place: TopicPartition, offset: int) -> TransientError:
    which = f"--topic {place.topic} --partition {place.partition}"
    return TransientError(
        f"A transaction is open in {place.topic}/{place.partition} from offset {offset} on: until "
        "it ends, what was committed behind it is not known.",
        hint=(
            "The broker ends that of another producer after its transaction.timeout.ms; only inorder should write to"
            f" this topic. `kafka-transactions.sh describe-producers {which}` names the producer id. Do not abort one"
            ' of inorder\'s own: see docs/operations.md, "A commit that a broker did not finish".'
        ),
    )


ANSWER_SECONDS = 30.0


def read_committed_offsets(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """The offsets that the consumer's group has committed; a negative offset means none.

    The group coordinator moves when its broker stops, does not exist for a moment on a cluster that never had a group,
    and gives no answer while the end of a transaction is being written. So the request is repeated.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return consumer.committed(places, timeout=ANSWER_SECONDS)
        except KafkaException as exception:
            is_passing = isinstance(meaning(error_of(exception), "Reading committed offsets"), TransientError)
            if not is_passing or time.monotonic() > deadline:
                raise
            time.sleep(ASK_AGAIN_SECONDS)
