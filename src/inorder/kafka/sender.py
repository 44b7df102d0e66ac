"""Handing rows to the producer in their order, one call a record.

The client has a call for many records as well. It carries neither headers nor timestamps, takes one partition for all
of them, and goes on behind a record that it finds too large. Nor is it faster: it wants a dict of each record, and
making that takes longer than the calls that it saves. This holds as long as their arguments go by place; names of
arguments cost half of a call.

A record that the client does not take ends the sending, so that nothing passes it. A `Book` tells which rows were
handed over before it, and which of them failed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.kafka.errors import error_of, refusal
from inorder.kafka.known_topics import KnownTopics
from inorder.model.errors import TransientError
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.outbox_store import OutboxRow

BY_THE_CLIENT = -1
"""The partition that lets the client choose one by the key."""

NOW = 0
"""The timestamp that lets the client take the time."""


@dataclass(slots=True)
class Book:
    """Which rows the producer took, and which of them it could not deliver."""

    queued: list[OutboxRow] = field(default_factory=list)
    failed: dict[int, KafkaError] = field(default_factory=dict)

    def delivered(self) -> frozenset[int]:
        """What arrived; true only once the producer has nothing under way."""
        return frozenset(row.id for row in self.queued if row.id not in self.failed)

    def note(self, id: int, error: KafkaError | None, _message: Message) -> None:
        """The delivery report of a row."""
        if error is not None:
            self.failed[id] = error


class Sender:
    """Sends rows with one producer. `partitioners` names the topics whose partitions we choose ourselves."""

    def __init__(
        self, partitioners: Mapping[str, Partitioner], topics: KnownTopics, *, noun: str = "outbox row"
    ) -> None:
        """`noun` is what errors call a row."""
        self._partitioners = partitioners
        self._topics = topics
        self._noun = noun

    def send(self, producer: Producer, rows: Sequence[OutboxRow], book: Book | None = None) -> None:
        """Queues all rows, or none where a topic is unavailable.

        Any other `InorderError` names the row that could not be queued, and the rest must not be committed.
        """
        self._topics.require(producer, rows, dict.fromkeys([row.topic for row in rows]))
        produce, partition_of_row, report = producer.produce, self._partition, None
        for row in rows:
            if book is not None:
                report = partial(book.note, row.id)
            headers: list[tuple[str, str | bytes | None]] | None = list(row.headers) if row.headers else None
            at = row.timestamp_ms or NOW
            try:
                produce(row.topic, row.value, row.key, partition_of_row(row), report, None, at, headers)
            except KafkaException as exception:
                raise refusal(row, error_of(exception), self._noun) from exception
            except BufferError as error:
                raise TransientError(f"The producer's queue is full at {self._noun} {row.id}.") from error
            if book is not None:
                book.queued.append(row)

    def _partition(self, row: OutboxRow) -> int:
        if row.partition is not None:
            return row.partition
        if row.topic not in self._partitioners and row.partition_key is None:
            return BY_THE_CLIENT
        partitioner = self._partitioners.get(row.topic, Partitioner.MURMUR2)
        chosen = partition_of(row.routed_by, self._topics.count(row.topic), partitioner)
        return BY_THE_CLIENT if chosen is None else chosen
