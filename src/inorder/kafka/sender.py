"""Handing rows to the producer in order, by its batch call wherever that can carry them.

The batch call is a third faster than one call a record. It carries neither headers nor timestamps, and it takes a
partition for the whole batch only (one given with a message is ignored). So rows are cut into runs of one form, in
their order, and a run with chosen partitions is split by partition, within which the order stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from inorder.kafka.errors import error_of, meaning
from inorder.model.errors import InorderError, RejectedError, TransientError
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.outbox_store import OutboxRow

Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)

METADATA_SECONDS = 5.0
BY_THE_CLIENT = -1
"""The partition that lets the client choose one by the key."""


class Sender:
    """Sends rows with one producer. `partitioners` names the topics whose partitions we choose ourselves."""

    def __init__(self, partitioners: Mapping[str, Partitioner]) -> None:
        self._partitioners = partitioners
        self._counts: dict[str, int] = {}

    def send(self, producer: Producer, rows: Sequence[OutboxRow]) -> None:
        """Queues all rows; an `InorderError` names the row that could not be, and the rest must not be committed."""
        for topic, of_topic in _grouped(rows, _topic).items():
            placed = [(row, self._partition(producer, row)) for row in of_topic]
            for (is_plain, _), run in groupby(placed, key=_form):
                if is_plain:
                    self._send_together(producer, topic, list(run))
                else:
                    self._send_each(producer, topic, run)

    def forget(self) -> None:
        """Asks for partition counts again."""
        self._counts.clear()

    def _send_together(self, producer: Producer, topic: str, run: list[tuple[OutboxRow, int]]) -> None:
        for partition, placed in _grouped(run, _place).items():
            messages: list[dict[str, object]] = [{"key": row.key, "value": row.value} for row, _ in placed]
            if producer.produce_batch(topic, messages, partition=partition) != len(messages):
                answered = zip(placed, messages, strict=True)
                raise _refusal(*next((row, each["_error"]) for (row, _), each in answered if "_error" in each))

    def _send_each(self, producer: Producer, topic: str, run: Iterable[tuple[OutboxRow, int]]) -> None:
        for row, partition in run:
            # The client takes 0 for "now".
            at = row.timestamp_ms or 0
            try:
                producer.produce(topic, row.value, row.key, partition, timestamp=at, headers=list(row.headers))
            except KafkaException as exception:
                raise _refusal(row, error_of(exception)) from exception
            except BufferError as error:
                raise TransientError(f"The producer's queue is full at outbox row {row.id}.") from error

    def _partition(self, producer: Producer, row: OutboxRow) -> int:
        if row.partition is not None:
            return row.partition
        if row.topic not in self._partitioners:
            return BY_THE_CLIENT
        chosen = partition_of(row.key, self._count(producer, row.topic), self._partitioners[row.topic])
        return BY_THE_CLIENT if chosen is None else chosen

    def _count(self, producer: Producer, topic: str) -> int:
        if topic not in self._counts:
            found = producer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            self._counts[topic] = len(found.partitions)
        return self._counts[topic]


def _form(placed: tuple[OutboxRow, int]) -> tuple[bool, bool]:
    """What keeps rows in one call: no headers or timestamp, and a partition chosen by us or by the client."""
    row, partition = placed
    return not row.headers and row.timestamp_ms is None, partition == BY_THE_CLIENT


def _grouped(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    groups: dict[Group, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _topic(row: OutboxRow) -> str:
    return row.topic


def _place(placed: tuple[OutboxRow, int]) -> int:
    return placed[1]


def _refusal(row: OutboxRow, error: object) -> InorderError:
    doing = f"Sending outbox row {row.id} to topic {row.topic!r}"
    if not isinstance(error, KafkaError):
        return TransientError(f"{doing}: {error}.")
    found = meaning(error, doing)
    if isinstance(found, RejectedError):
        return RejectedError(found.message, row_id=row.id)
    return TransientError(found.message)
