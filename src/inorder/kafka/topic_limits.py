"""How large a request each topic takes, learnt when a topic first refuses one.

A broker measures a batch of records as a whole. So many small records that the client has packed together can be too
large for a topic whose `max.message.bytes` is low, and one large record takes its neighbours with it. Once a limit is
known, `batch.size` is kept below the smallest one. Then only a record that is too large by itself can be refused, and
it is alone in its batch, so that it is known which one it was.

Compression may make a record fit that looks too large. So where the client compresses, the broker is asked once about
each such record; what it refused is refused here from then on. Before that the limit is read again, since somebody may
have raised it.

A client without the right to read a topic's settings learns nothing, and goes on as if there were no limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import KafkaError

from inorder.kafka.admin import Cluster
from inorder.kafka.errors import FOR_SIZE
from inorder.model.errors import InorderError, RejectedError
from inorder.ports.outbox_store import OutboxRow

BATCH_OVERHEAD_BYTES = 61
FIXED_FIELDS_BYTES = 3
"""Attributes, and differences of time and offset that are zero in the first record of a batch."""
DEFAULT_BATCH_SIZE = 1_000_000


class TopicLimits:
    """What is known of the limits of the topics that one shard log writes to; it outlives its producers."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        self._properties = properties
        self._batch_size = int(str(properties.get("batch.size", DEFAULT_BATCH_SIZE)))
        compression = properties.get("compression.type", properties.get("compression.codec", "lz4"))
        self._compresses = compression != "none"
        self._limits: dict[str, int] = {}
        self._refused: set[tuple[int, int]] = set()

    def learn(self, topics: Collection[str]) -> bool:
        """Reads the limits of topics; True if producers must pack less into a batch than before."""
        before = self.batch_size
        for topic in topics:
            try:
                self._limits[topic] = int(Cluster(self._properties).topic_settings(topic)["max.message.bytes"])
            except InorderError:
                continue
        return self.batch_size < before

    @property
    def batch_size(self) -> int:
        """What producers may pack into a batch."""
        return min([self._batch_size, *self._limits.values()])

    def judge(self, refused: Sequence[OutboxRow], error: KafkaError) -> tuple[OutboxRow | None, bool]:
        """Which of the refused rows is guilty, if that is clear, and whether batches must be smaller from now on."""
        is_for_size = error.code() in FOR_SIZE
        learnt = is_for_size and self.learn({row.topic for row in refused})
        guilty = refused[0] if len(refused) == 1 else None
        if guilty is None and not learnt:
            # The limit was kept, so each of these was alone in its batch.
            guilty = next((row for row in refused if self._is_above(row)), None)
        if guilty is not None and is_for_size:
            self._refused.add((guilty.id, size_of(guilty)))
        return guilty, learnt

    def require(self, rows: Sequence[OutboxRow]) -> None:
        """Raises `RejectedError` for the first row that its topic is sure to refuse."""
        if not self._limits:
            return
        for row in rows:
            if self._is_hopeless(row):
                self.learn([row.topic])
                if self._is_hopeless(row):
                    raise self._refusal(row)

    def _is_above(self, row: OutboxRow) -> bool:
        limit = self._limits.get(row.topic)
        return limit is not None and size_of(row) > limit

    def _is_hopeless(self, row: OutboxRow) -> bool:
        return self._is_above(row) and (not self._compresses or (row.id, size_of(row)) in self._refused)

    def _refusal(self, row: OutboxRow) -> RejectedError:
        sizes = f"{size_of(row)} bytes; topic {row.topic!r} takes {self._limits[row.topic]}"
        text = f"Outbox row {row.id} has {sizes} (MSG_SIZE_TOO_LARGE)."
        return RejectedError(text, hint="Raise the topic's max.message.bytes, or repair the row.", row_id=row.id)


def size_of(row: OutboxRow) -> int:
    """How many bytes a batch has that carries nothing but this row, uncompressed: the measure of the broker."""
    fields = [row.key, row.value, *(part for name, value in row.headers for part in (name.encode(), value))]
    record = FIXED_FIELDS_BYTES + sum(_field(field) for field in fields) + _varint(len(row.headers))
    return BATCH_OVERHEAD_BYTES + _varint(record) + record


def _field(content: bytes | None) -> int:
    """A length and the content; the length of nothing is -1."""
    return _varint(-1) if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """How many bytes a number takes in Kafka's records: seven bits in each, small negative numbers small too."""
    folded = 2 * number if number >= 0 else -2 * number - 1
    return max(1, (folded.bit_length() + 6) // 7)
