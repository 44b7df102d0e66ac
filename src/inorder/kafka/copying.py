"""Copying one Kafka topic into another, each record exactly once and in order per key: `inorder topics migrate`.

Consume, produce and the commit of the source offsets are one transaction. So a record is in the copy if and only if its
offset is committed, and a copier that was killed goes on behind the last record that it copied. The transactional id
names source and destination: a second copier fences the first, and reads the committed offsets behind its own fence.

A key lives in one partition of the source. One producer sends all of it in the order of the offsets, and the
destination's partition follows from the key alone, so a key keeps its order. Headers, timestamp and value stay as they
are; one header more tells where the record came from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, Producer, TopicPartition

from inorder.kafka.client_log import CLIENT_LOG
from inorder.kafka.committed import committed_consumer
from inorder.kafka.errors import error_of, meaning
from inorder.kafka.shard_log import DEFAULTS, OURS
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.partition import Partitioner, partition_of

log = logging.getLogger("inorder.topics")

ORIGIN = "inorder-origin"
"""The header with the coordinates of the original: topic/partition/offset."""
CHUNK = 5_000
INIT_SECONDS = 30.0
COMMIT_SECONDS = 60.0
STEP_SECONDS = 0.05
BY_THE_CLIENT = -1


class Copier:
    """Copies one topic into another; made anew after every error."""

    def __init__(
        self,
        properties: Mapping[str, object],
        source: str,
        destination: str,
        *,
        partitioner: Partitioner = Partitioner.MURMUR2,
    ) -> None:
        self._source = source
        self._destination = destination
        self._partitioner = partitioner
        name = f"inorder.migrate.{source}.{destination}"
        self._consumer = committed_consumer(properties, name)
        self._producer = Producer({**DEFAULTS, **properties, **OURS, "transactional.id": name}, logger=CLIENT_LOG)
        self._unread: set[int] = set()
        self._partitions = 0

    def run(self, ends: Sequence[int] | None, go_on: Callable[[], bool]) -> int:
        """Copies up to the ends, or to what is committed at the end of each partition where there are none.

        Returns how many records were copied. Asks `go_on` between transactions. A failure leaves nothing half done:
        the next copier goes on from the last commit.
        """
        try:
            self._begin(ends)
            copied = 0
            while self._unread and go_on():
                copied += self._copy(self._chunk(), ends)
            return copied
        except KafkaException as exception:
            raise meaning(error_of(exception), f"Copying {self._source!r} to {self._destination!r}") from exception
        finally:
            self._consumer.close()

    def _begin(self, ends: Sequence[int] | None) -> None:
        self._producer.init_transactions(INIT_SECONDS)
        self._partitions = len(self._partitions_of(self._destination))
        places = [TopicPartition(self._source, number) for number in self._partitions_of(self._source)]
        starts = [
            TopicPartition(self._source, place.partition, max(place.offset, 0) or OFFSET_BEGINNING)
            for place in self._committed(places)
            if ends is None or max(place.offset, 0) < ends[place.partition]
        ]
        self._consumer.assign(starts)
        self._unread = {place.partition for place in starts}

    def _committed(self, places: list[TopicPartition]) -> list[TopicPartition]:
        # The coordinator moves when its broker stops, and is nowhere for a moment on a cluster that never had a group.
        deadline = time.monotonic() + INIT_SECONDS
        while True:
            try:
                return self._consumer.committed(places, timeout=INIT_SECONDS)
            except KafkaException as exception:
                passing = isinstance(meaning(error_of(exception), "Asking for offsets"), TransientError)
                if not passing or time.monotonic() > deadline:
                    raise
                time.sleep(STEP_SECONDS)

    def _partitions_of(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, timeout=INIT_SECONDS).topics[topic]
        if found.error is not None:
            raise ConfigurationError(f"There is no topic {topic!r} to copy from or to: {found.error.str()}.")
        return sorted(found.partitions)

    def _chunk(self) -> list[Message]:
        messages: list[Message] = []
        for message in self._consumer.consume(CHUNK, STEP_SECONDS):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)
        return messages

    def _copy(self, found: Sequence[Message], ends: Sequence[int] | None) -> int:
        messages = [each for each in found if ends is None or _offset(each) < ends[each.partition() or 0]]
        if not messages:
            return 0
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._send(message)
        except BufferError as error:
            self._producer.abort_transaction(COMMIT_SECONDS)
            raise TransientError("The producer's queue is full.", hint="Run the command again.") from error
        self._producer.send_offsets_to_transaction(
            self._next_offsets(messages), self._consumer.consumer_group_metadata(), COMMIT_SECONDS
        )
        self._commit()
        log.debug("topics.copied", extra={"source": self._source, "records": len(messages)})
        return len(messages)

    def _send(self, message: Message) -> None:
        origin = f"{self._source}/{message.partition()}/{message.offset()}".encode()
        headers = [*(message.headers() or ()), (ORIGIN, origin)]
        key = message.key()
        place = partition_of(key, self._partitions, self._partitioner)
        self._producer.produce(
            self._destination,
            message.value(),
            key,
            BY_THE_CLIENT if place is None else place,
            timestamp=message.timestamp()[1],
            headers=headers,
        )
        self._producer.poll(0)

    def _next_offsets(self, messages: Sequence[Message]) -> list[TopicPartition]:
        ends = {message.partition() or 0: _offset(message) + 1 for message in messages}
        return [TopicPartition(self._source, partition, offset) for partition, offset in ends.items()]

    def _commit(self) -> None:
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            try:
                self._producer.commit_transaction(COMMIT_SECONDS)
                return
            except KafkaException as exception:
                if not error_of(exception).retriable() or time.monotonic() > deadline:
                    raise


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
