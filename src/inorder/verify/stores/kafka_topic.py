"""The topic as a verification uses it: its own consumer, which shares nothing with the readers of the products."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the stubs do not re-export it

from inorder.kafka.errors import CLIENT_LOG, error_of, meaning
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.verify.history import MarkedEvent, RecordRead

_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1
_BROKER_DEFAULT: Final = -1

EventOf = Callable[[bytes | None, bytes | None], MarkedEvent | None]
"""The event of a record's key and value; None for records of others."""


def create_topic(properties: Mapping[str, Any], name: str, partitions: int) -> None:
    """Creates a topic and waits until the broker knows its partitions."""
    admin = AdminClient(dict(properties), logger=CLIENT_LOG)
    with _kafka_errors(f"Creating topic {name!r}"):
        topic = NewTopic(name, num_partitions=partitions, replication_factor=_BROKER_DEFAULT)
        admin.create_topics([topic], request_timeout=_SECONDS)[name].result(_SECONDS + 1)


def delete_topic(properties: Mapping[str, Any], name: str) -> None:
    """Deletes a topic; one that does not exist is no error."""
    admin = AdminClient(dict(properties), logger=CLIENT_LOG)
    with _kafka_errors(f"Deleting topic {name!r}"):
        try:
            admin.delete_topics([name], request_timeout=_SECONDS)[name].result(_SECONDS + 1)
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


class TopicReader:
    """Reads the committed records of all partitions, from where the topic ended when the reader was made."""

    def __init__(self, properties: Mapping[str, Any], topic: str, event_of: EventOf) -> None:
        self._properties = dict(properties)
        self._topic = topic
        self._event_of = event_of
        self._consumer = self._connect()
        with _kafka_errors(f"Looking at topic {topic!r}"):
            self._starts = self._ends(self._consumer, time.monotonic() + _SECONDS)
            self._consumer.assign(self._starts)

    def close(self) -> None:
        self._consumer.close()

    def poll(self, seconds: float) -> Iterator[RecordRead]:
        """What has arrived; waits up to so long for the first record."""
        with _kafka_errors(f"Reading {self._topic!r}"):
            for message in self._consumer.consume(1000, seconds):
                yield from self._read(message)

    def read_again(self, note: Callable[[RecordRead], None], is_over: Callable[[], bool]) -> bool:
        """Notes everything from the start to the present end of each partition; False if that is not reached.

        The end is the one that readers of uncommitted records see. Readers of committed records stop before the first
        open transaction and report an end there, whatever was committed behind it; then this waits until `is_over`.
        """
        with _kafka_errors(f"Reading {self._topic!r} to its end"), ExitStack() as opened:
            uncommitted = opened.enter_context(closing(self._connect("read_uncommitted")))
            unread = {end.partition: end.offset for end in self._ends(uncommitted, time.monotonic() + _SECONDS)}
            consumer = opened.enter_context(closing(self._connect()))
            consumer.assign(self._starts)
            quiet_since = time.monotonic()
            while unread:
                message = consumer.poll(_RETRY_SECONDS)
                if message is not None:
                    for record in self._read(message):
                        note(record)
                if message is None or (position := _position(message)) is None:
                    if is_over() and time.monotonic() > quiet_since + _SECONDS:
                        return False
                    continue
                quiet_since = time.monotonic()
                partition = _whole(message.partition())
                if position >= unread.get(partition, math.inf):
                    del unread[partition]
            return True

    def _read(self, message: KafkaMessage) -> Iterator[RecordRead]:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                raise KafkaException(error)
            return
        event = self._event_of(_raw(message.key()), _raw(message.value()))
        if event is not None:
            yield RecordRead(event, _whole(message.partition()), _whole(message.offset()))

    def _ends(self, consumer: Consumer, deadline: float) -> list[TopicPartition]:
        """Where each partition ends; a topic that was created a moment ago is not known to every broker."""
        while True:
            found = consumer.list_topics(self._topic, timeout=_SECONDS).topics[self._topic]
            try:
                if found.partitions:
                    return [self._end(consumer, partition) for partition in sorted(found.partitions)]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"The topic {self._topic!r} does not exist.",
                    hint="Create it, or leave --topic out: then the verification creates a topic of its own.",
                )
            time.sleep(_RETRY_SECONDS)

    def _end(self, consumer: Consumer, partition: int) -> TopicPartition:
        _, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_SECONDS)
        return TopicPartition(self._topic, partition, end)

    def _connect(self, isolation: str = "read_committed") -> Consumer:
        return Consumer(
            {
                **self._properties,
                "group.id": "inorder-verify",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
            },
            logger=CLIENT_LOG,
        )


def _position(message: KafkaMessage) -> int | None:
    """The offset behind a record, or the one at which the partition ends; None for an error."""
    error = message.error()
    if error is None:
        return _whole(message.offset()) + 1
    return _whole(message.offset()) if error.code() == KafkaError._PARTITION_EOF else None


def _raw(content: object) -> bytes | None:
    return content if isinstance(content, bytes) else None


def _whole(number: int | None) -> int:
    if number is None:
        raise UnreachableError("Kafka's client returned a record without its place.")
    return number


@contextmanager
def _kafka_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        raise meaning(error_of(exception), doing) from exception
    except TimeoutError as error:
        raise UnreachableError(f"{doing}: no answer within {_SECONDS:g} s.") from error
