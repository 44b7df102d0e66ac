"""Reads partitions with librdkafka and returns their records as slices.

A read waits for one record only and then takes what else has been fetched meanwhile. So a single record is on its way
at once, and a backlog arrives in slices of the largest size.

No record is skipped silently: where the broker no longer holds the next offset, the client fails
(`auto.offset.reset = error`) instead of jumping to another one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar, cast, overload

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Reading, Slice
from inorder.engines.survey import accept_loss
from inorder.kafka.admin import Cluster
from inorder.kafka.errors import BEING_MADE, UNREACHABLE, describe, error_of, meaning
from inorder.kafka.readers import committed_consumer
from inorder.model.errors import GuaranteeError, InorderError, TransientError
from inorder.model.message import RecordHeaders
from inorder.model.partitioning import Extent, Place

GROUP = "inorder.pipeline"
"""librdkafka requires a group name; the consumer joins no group and commits no offset to it."""

_PROPERTIES = {"auto.offset.reset": "error", "queued.max.messages.kbytes": 64 * 1024}
# The broker answers as soon as there is a record; only an idle partition, and the event of its end, waits so long.
_PATIENT = {"fetch.wait.max.ms": 500, "enable.partition.eof": False}
# Only the first record of each partition is wanted, however much there is.
_FRUGAL = {"fetch.message.max.bytes": 16 * 1024, "queued.max.messages.kbytes": 1024}
_FIRST_SECONDS = 5.0
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})

_ANEW = " The offset exists again, with another record: add --from-first."

T = TypeVar("T")


@dataclass(frozen=True)
class KafkaSource:
    """A cluster, reached with librdkafka's properties, which may hold a password and are not shown."""

    properties: Mapping[str, Any] = field(repr=False)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return Cluster(self.properties).extents(topic)

    def partitions(self, topic: str) -> int | None:
        return Cluster(self.properties).partitions(topic)

    def topic_id(self, topic: str) -> str | None:
        return Cluster(self.properties).topic_id(topic)

    def written_ends(self, topic: str) -> Mapping[int, int]:
        cluster = Cluster(self.properties)
        return cluster.written_ends(topic, cluster.partitions(topic) or 0)

    def first_times(self, starts: Mapping[Place, int], *, committed: bool = True) -> Mapping[Place, int]:
        level = {} if committed else {"isolation.level": "read_uncommitted"}
        consumer = committed_consumer(self.properties, GROUP, _PROPERTIES | _FRUGAL | level) if starts else None
        if consumer is None:
            return {}
        with closing(consumer):
            return _first_times(consumer, starts)

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        consumer = committed_consumer(self.properties, GROUP, _PROPERTIES if reports_ends else _PROPERTIES | _PATIENT)
        try:
            consumer.assign([_start_of(place, start, epochs.get(place)) for place, start in starts.items()])
        except KafkaException as exception:
            consumer.close()
            raise meaning(error_of(exception), f"Reading {_names(starts)}") from exception
        return KafkaPartitionReader(consumer, has_headers=headers)


class KafkaPartitionReader:
    """Some partitions on one consumer."""

    def __init__(self, consumer: Consumer, *, has_headers: bool) -> None:
        self._consumer = consumer
        self._has_headers = has_headers

    def read(self, most: int, seconds: float) -> Reading:
        try:
            messages = self._consumer.consume(1, seconds)
            if messages and most > 1:
                messages += self._consumer.consume(most - 1, 0)
        except KafkaException as exception:
            raise meaning(error_of(exception), "Reading from Kafka") from exception
        ended: set[Place] = set()
        if any(map(Message.error, messages)):
            messages = list(_records(messages, ended))
        return Reading([self._slice(*group) for group in _by_place(messages)], frozenset(ended))

    def close(self) -> None:
        self._consumer.close()

    def _slice(self, place: Place, messages: list[Message]) -> Slice:
        return Slice(
            *place,
            offsets=cast("list[int]", list(map(Message.offset, messages))),
            keys=cast("list[bytes | None]", list(map(Message.key, messages))),
            values=cast("list[bytes | None]", list(map(Message.value, messages))),
            timestamps=_Timestamps(messages),
            headers=[_headers(message) for message in messages] if self._has_headers else (),
            leader_epoch=messages[-1].leader_epoch(),
        )


def _first_times(consumer: Consumer, starts: Mapping[Place, int]) -> dict[Place, int]:
    """Reads until each partition has answered with a record or its end, for a few seconds at most."""
    deadline, open_places, found = time.monotonic() + _FIRST_SECONDS, set(starts), dict[Place, int]()
    try:
        consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
        while open_places and (left := deadline - time.monotonic()) > 0:
            for message in consumer.consume(1, left):
                place, error = _place(message), message.error()
                if place not in open_places:
                    continue
                kind, milliseconds = message.timestamp() if error is None else (TIMESTAMP_NOT_AVAILABLE, 0)
                if kind != TIMESTAMP_NOT_AVAILABLE:
                    found[place] = milliseconds
                open_places.discard(place)
                consumer.pause([TopicPartition(*place)])
    except KafkaException as exception:
        raise meaning(error_of(exception), f"Reading {_names(starts)}") from exception
    return found


class _Timestamps(Sequence["int | None"]):
    """Only dead letters need timestamps, so they are read on access."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> int | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int | None]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int | None] | None:
        if isinstance(index, slice):
            return _Timestamps(self._messages[index])
        kind, milliseconds = self._messages[index].timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


def _by_place(messages: Iterable[Message]) -> Iterable[tuple[Place, list[Message]]]:
    """The messages of each partition; they come in runs, as the client fetched them."""
    groups: dict[Place, list[Message]] = {}
    for topic, some in groupby(messages, Message.topic):
        for number, run in groupby(some, Message.partition):
            groups.setdefault((topic or "", number or 0), []).extend(run)
    return groups.items()


def _records(messages: Iterable[Message], ended: set[Place]) -> Iterator[Message]:
    """Yields the messages that are records, adds ends to `ended` and raises errors."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(_place(message))
        elif error.code() not in UNREACHABLE and not error.retriable():
            raise _fault(message, error)


def _fault(message: Message, error: KafkaError) -> InorderError:
    topic, partition = _place(message)
    if error.code() in _GONE:
        gone = GuaranteeError(
            f"{topic}[{partition}] no longer holds offset {message.offset()}, the next to read: {describe(error)}",
            hint=accept_loss(topic) + _ANEW if error.code() == KafkaError._LOG_TRUNCATION else accept_loss(topic),
        )
        gone.place = topic, partition
        return gone
    if error.code() in BEING_MADE:
        return TransientError(
            f"{topic}[{partition}] does not exist: {describe(error)}", hint="The job waits until it does."
        )
    return meaning(error, f"Reading {topic}[{partition}]")


def _headers(message: Message) -> RecordHeaders:
    # The stubs of the client allow more types of headers than a received message has.
    return cast("RecordHeaders", tuple(message.headers() or ()))


def _place(message: Message) -> Place:
    return message.topic() or "", message.partition() or 0


def _start_of(place: Place, start: int | None, epoch: int | None) -> TopicPartition:
    """Where to begin. With the epoch of the record before it, the client detects a log that was truncated below it."""
    topic, partition = place
    if start is None or epoch is None:
        return TopicPartition(topic, partition, OFFSET_BEGINNING if start is None else start)
    return TopicPartition(topic, partition, start, leader_epoch=epoch)


def _names(starts: Iterable[Place]) -> str:
    return ", ".join(f"{topic}[{partition}]" for topic, partition in starts)
