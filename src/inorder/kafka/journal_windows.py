"""Reading short windows of a partition, on consumers that are kept for the next reader.

A consumer costs a connection and some round trips before its first record. So consumers are lent out and come back,
and what nobody used for a while is closed. Each is assigned one partition by hand, for one window, and joins no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import BEING_MADE, error_of, meaning, unavailable, words
from inorder.model.errors import InorderError, RecordsLostError, TransientError
from inorder.model.message import RecordHeaders
from inorder.ports.deadline import Deadline
from inorder.ports.journal_log import LogRecord, Window
from inorder.ports.pool import OnLent, Pool, untold

GROUP = "inorder.journal"
"""The client wants a group's name; no group is joined, and no offset is committed to it."""
CHUNK = 2_000
LOOK_SECONDS = 0.1

PROPERTIES: Mapping[str, object] = {
    # Records that retention has removed are an error; a jump to the first that is left would hide them.
    "auto.offset.reset": "error",
    # Windows are short; what is fetched beyond them is thrown away.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
}

GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def consumer_pool(properties: Mapping[str, Any], on_lent: OnLent = untold) -> Pool[Consumer]:
    """Consumers for as many readers as there are at once."""
    return Pool(lambda: committed_consumer(properties, GROUP, PROPERTIES), Consumer.close, on_lent=on_lent)


def window_records(consumer: Consumer, window: Window, key: bytes, deadline: Deadline) -> Iterator[LogRecord]:
    """The records with this key in a window; see `JournalLog.records`."""
    try:
        consumer.assign([TopicPartition(window.topic, window.partition, window.first)])
        while True:
            # The client waits until it has all it was asked for, so only the first is waited for.
            messages = consumer.consume(1, min(LOOK_SECONDS, deadline.remaining()))
            messages += consumer.consume(CHUNK, 0) if messages else []
            for message in messages:
                error = message.error()
                # An end before the window's is that of an open transaction; what is behind it comes when it has ended.
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
        consumer.unassign()  # or it would go on fetching while nobody reads


def record_of(message: Message) -> LogRecord:
    """A message as a record."""
    # The client's stubs allow more shapes of headers than a received message has.
    headers = cast("RecordHeaders", tuple(message.headers() or ()))
    return LogRecord(message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers)


def continue_or_raise(consumer: Consumer, error: KafkaError, topic: str, partition: int, wanted: int) -> None:
    """Returns for what the client mends by itself."""
    if error.code() in GONE:
        raise lost(consumer, topic, partition, wanted)
    if error.code() in BEING_MADE:
        raise unavailable(topic, error)
    if error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
        return
    raise meaning(error, f"Reading {topic}[{partition}]")


def lost(consumer: Consumer, topic: str, partition: int, wanted: int) -> InorderError:
    """What it means that an offset is not there any more."""
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
    except KafkaException as exception:
        return TransientError(f"Reading {topic}[{partition}]: {words(error_of(exception))}")
    return RecordsLostError(
        f"{topic}[{partition}] holds offsets {first} to {end}; {wanted} is not there, and it was not replicated.",
        hint="Retention removed records before the replicator read them. `inorder journal lag` shows how far it is.",
        wanted=wanted,
        first=first,
    )


def _is_end(error: KafkaError) -> bool:
    return error.code() == KafkaError._PARTITION_EOF
