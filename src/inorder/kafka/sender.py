"""Handing rows to the producer in order, by its batch call wherever that can carry them.

The batch call is the fastest for plain records. It carries neither headers nor timestamps, and it takes a partition for
the whole batch only (one given with a message is ignored). So rows are cut into runs of one form, in their order, and a
run with chosen partitions is split by partition, within which the order stays as it was.

The batch call continues after a record that the client finds too large; the single call does not. Within a transaction
that makes no difference, since it is aborted. Elsewhere nothing may overtake such a record, so rows that could be one
are sent singly (`together_bytes`), and a `DeliveryTracker` records which rows were queued and which of them failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from inorder.kafka.errors import error_of, row_error, unexpected
from inorder.kafka.topic_facts import KnownTopics
from inorder.model.errors import InorderError, TransientError
from inorder.model.message import OutboxRow, RecordHeaders
from inorder.model.partitioning import Partitioner, partition_of

Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)

CHOSEN_BY_CLIENT = -1
"""The partition number with which the client chooses the partition by the key."""


@dataclass(slots=True)
class DeliveryTracker:
    """Records which rows the producer queued, and which of them it could not deliver."""

    queued: list[OutboxRow] = field(default_factory=list)
    failed: dict[int, KafkaError] = field(default_factory=dict)

    def delivered(self) -> frozenset[int]:
        """The rows that arrived; valid only once the producer has nothing under way."""
        return frozenset(row.id for row in self.queued if row.id not in self.failed)

    def note(self, id: int, error: KafkaError | None, _message: Message) -> None:
        """Handles the delivery report of a row."""
        if error is not None:
            self.failed[id] = error


class RowSender:
    """Sends rows. `partitioners` names the topics whose partitions we choose ourselves instead of the client."""

    def __init__(
        self,
        partitioners: Mapping[str, Partitioner],
        topics: KnownTopics,
        *,
        together_bytes: int | None = None,
        noun: str = "outbox row",
    ) -> None:
        """`noun` is what error texts call a row."""
        self._partitioners = partitioners
        self._topics = topics
        self._together_bytes = together_bytes
        self._noun = noun

    def send(self, producer: Producer, rows: Sequence[OutboxRow], tracker: DeliveryTracker | None = None) -> None:
        """Queues all rows, or none where a topic is unavailable.

        Any other `InorderError` names the row that could not be queued, and the rest must not be committed. Whatever
        else goes wrong is the fault of a row: a `RejectedError` that names it if it is known.
        """
        try:
            self._send(producer, rows, tracker)
        except (InorderError, KafkaException):
            raise
        except MemoryError as error:
            raise TransientError(f"There is not enough memory to send {len(rows)} rows.") from error
        except Exception as error:
            raise unexpected(rows, error, self._noun) from error

    def _send(self, producer: Producer, rows: Sequence[OutboxRow], tracker: DeliveryTracker | None) -> None:
        topics = _group(rows, _topic)
        self._topics.require(producer, rows, topics)
        for topic, of_topic in topics.items():
            if tracker is None and (messages := self._plain_messages(topic, of_topic)) is not None:
                self._queue(producer, topic, CHOSEN_BY_CLIENT, of_topic, messages)
                continue
            placed = [(row, self._partition(row)) for row in of_topic]
            for (is_plain, _), run in groupby(placed, key=self._form):
                if is_plain:
                    self._send_together(producer, topic, list(run), tracker)
                else:
                    self._send_each(producer, topic, run, tracker)

    def _send_together(
        self, producer: Producer, topic: str, run: list[tuple[OutboxRow, int]], tracker: DeliveryTracker | None
    ) -> None:
        for partition, placed in _group(run, _place).items():
            rows = [row for row, _ in placed]
            self._queue(producer, topic, partition, rows, [_message(row, tracker) for row in rows], tracker)

    def _plain_messages(self, topic: str, rows: Sequence[OutboxRow]) -> list[dict[str, object]] | None:
        """The messages of rows that all go into one batch call, the usual case; None if any needs a look of its own."""
        if topic in self._partitioners or self._together_bytes is not None:
            return None
        messages: list[dict[str, object]] = [
            {"key": key, "value": value}
            for _, _, key, value, headers, partition, at, _, partition_key in rows
            if not headers and partition is None and at is None and partition_key is None
        ]
        return messages if len(messages) == len(rows) else None

    def _queue(
        self,
        producer: Producer,
        topic: str,
        partition: int,
        rows: Sequence[OutboxRow],
        messages: list[dict[str, object]],
        tracker: DeliveryTracker | None = None,
    ) -> None:
        """One batch call; raises the error of the first row that the client did not take."""
        queued = producer.produce_batch(topic, messages, partition=partition)
        answered = list(zip(rows, messages, strict=True)) if tracker is not None or queued != len(messages) else []
        if tracker is not None:
            tracker.queued += [row for row, each in answered if "_error" not in each]
        if queued != len(messages):
            row, error = next((row, each["_error"]) for row, each in answered if "_error" in each)
            raise row_error(row, error, self._noun)

    def _send_each(
        self, producer: Producer, topic: str, run: Iterable[tuple[OutboxRow, int]], tracker: DeliveryTracker | None
    ) -> None:
        produce = producer.produce
        for row, partition in run:
            report = None if tracker is None else partial(tracker.note, row.id)
            # The client takes 0 for "now". Names of arguments would cost it half of the call.
            at = row.timestamp_ms or 0
            try:
                produce(topic, row.value, row.key, partition, report, None, at, list(row.headers))
            except KafkaException as exception:
                raise row_error(row, error_of(exception), self._noun) from exception
            except BufferError as error:
                raise TransientError(f"The producer's queue is full at {self._noun} {row.id}.") from error
            except (ValueError, TypeError, OverflowError, RuntimeError) as error:
                raise unexpected([row], error, self._noun) from error
            if tracker is not None:
                tracker.queued.append(row)

    def _partition(self, row: OutboxRow) -> int:
        if row.partition is not None:
            return row.partition
        if row.topic not in self._partitioners and row.partition_key is None:
            return CHOSEN_BY_CLIENT
        partitioner = self._partitioners.get(row.topic, Partitioner.MURMUR2)
        chosen = partition_of(row.routed_by, self._topics.count(row.topic), partitioner)
        return CHOSEN_BY_CLIENT if chosen is None else chosen

    def _form(self, placed: tuple[OutboxRow, int]) -> tuple[bool, bool]:
        """What rows of one call have in common: whether they are plain, and whether the client partitions them."""
        row, partition = placed
        is_plain = not row.headers and row.timestamp_ms is None
        if self._together_bytes is not None:
            is_plain = is_plain and len(row.value or b"") + len(row.key or b"") <= self._together_bytes
        return is_plain, partition == CHOSEN_BY_CLIENT


# `OutboxRow(…)` without the parsing of its arguments: this runs once for every row that is sent.
_new: Callable[[type[OutboxRow], tuple[object, ...]], OutboxRow] = tuple.__new__


def with_ids(rows: Sequence[OutboxRow], header: str) -> Sequence[OutboxRow]:
    """The rows with their ids in a header of this name, by which readers recognise a repeat; unchanged without a name.

    A row that has a header of this name keeps it: it is the id that its writer chose, as in Debezium's layout. The
    batch call carries no headers, so that a header doubles the processor time of sending a plain row.
    """
    if not header:
        return rows
    return [
        _new(OutboxRow, (id, topic, key, value, _with_id(headers, header, id), partition, at, flaw, partition_key))
        for id, topic, key, value, headers, partition, at, flaw, partition_key in rows
    ]


def _with_id(headers: RecordHeaders, header: str, id: int) -> RecordHeaders:
    if headers and any(name == header for name, _ in headers):
        return headers
    return (*headers, (header, b"%d" % id))


def _message(row: OutboxRow, tracker: DeliveryTracker | None) -> dict[str, object]:
    message: dict[str, object] = {"key": row.key, "value": row.value}
    if tracker is not None:
        message["callback"] = partial(tracker.note, row.id)
    return message


def _group(items: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    groups: dict[Group, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _topic(row: OutboxRow) -> str:
    return row.topic


def _place(placed: tuple[OutboxRow, int]) -> int:
    return placed[1]


TRUSTED_SECONDS = 3600.0
"""How long a broker is assumed to remember a producer that may have been silent."""


class FirstContact:
    """Sends the first record of a producer in each partition alone, so that nothing can overtake it.

    A broker refuses records that do not follow the last sequence number that it has seen of a producer in a partition.
    So after a batch that it refused it refuses everything that was already on the way, and nothing overtakes. But it
    has seen nothing of a producer that is new to the partition, and accepts **any** number as the first: if the very
    first batch is refused, the next ones pass. (Observed on Kafka 4.3, with `enable.gapless.guarantee` and even with
    one request in flight: by then librdkafka has built the next one.)

    So rows go in two waves while a topic has partitions that are new to the producer: first the oldest row of each such
    partition, and all others once those are acknowledged. From then on the broker checks the order. It forgets a
    producer that was silent in a partition for `producer.id.expiration.ms`, a day by default; we start over long
    before.

    A topic may get more partitions while it is in use. `KnownTopics` asks for their number once a minute, and from then
    on the first record in each new one goes alone as well. The client may learn of them earlier by itself; the
    remaining gap is a record that is refused as the very first one of a new partition within that minute.
    """

    def __init__(self, partitioners: Mapping[str, Partitioner], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._partitioners = partitioners
        self._clock = clock
        self._known: dict[str, set[int]] = {}
        self._since = clock()

    def waves(self, rows: Sequence[OutboxRow], counts: Mapping[str, int]) -> list[list[OutboxRow]]:
        """Divides rows into waves, each in order; rows of new topics get their partition.

        `counts` has the current number of partitions of each topic.
        """
        if self._clock() - self._since > TRUSTED_SECONDS:
            self.forget()
        unknown = {topic for topic, partitions in counts.items() if len(self._known.get(topic, ())) < partitions}
        if not unknown:
            return [list(rows)]
        first: dict[tuple[str, int | None], OutboxRow] = {}
        rest = []
        for row in rows:
            placed = self._with_partition(row, counts[row.topic]) if row.topic in unknown else row
            place = (placed.topic, placed.partition)
            if row.topic not in unknown or placed.partition in self._known.get(row.topic, ()) or place in first:
                rest.append(placed)
            else:
                first[place] = placed
        return [wave for wave in (list(first.values()), rest) if wave]

    def note_acknowledged(self, rows: Sequence[OutboxRow]) -> None:
        """The broker has accepted these rows, so it knows the producer in their partitions."""
        for row in rows:
            if row.partition is not None:
                self._known.setdefault(row.topic, set()).add(row.partition)

    def forget(self) -> None:
        """Starts over: the producer is a new one, or the broker may have forgotten it."""
        self._known.clear()
        self._since = self._clock()

    def _with_partition(self, row: OutboxRow, partitions: int) -> OutboxRow:
        if row.partition is not None:
            return row
        chosen = partition_of(row.routed_by, partitions, self._partitioners.get(row.topic, Partitioner.MURMUR2))
        return row._replace(partition=row.id % partitions if chosen is None else chosen)
