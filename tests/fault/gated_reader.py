"""A reader that follows the generations of a topic through the gate, and records the order of every key."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from types import TracebackType
from typing import Self

from confluent_kafka import TopicPartition

from inorder.database.database import open_database
from inorder.kafka.readers import committed_consumer
from inorder.settings import Settings
from inorder.testing.checker import Event
from inorder.topics.gate import may_apply
from inorder.topics.generations import Generation, TopicState
from inorder.topics.stores.generations import SqlTopicGenerations

PARTITIONS = 4


class GatedReader:
    """Reads for the duration of the block; keeps pointers in memory, as an engine keeps them in the table."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._stop = threading.Event()
        self._pointers: dict[str, dict[int, int]] = defaultdict(dict)
        self._reading: Future[None] | None = None
        self.seen: list[Event] = []
        self.places: dict[str, list[tuple[bytes | None, int]]] = defaultdict(list)
        """For each generation's topic, the keys with the partitions in which they were seen."""

    def __enter__(self) -> Self:
        pool = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self._reading = pool.submit(self._run)
        pool.shutdown(wait=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._reading is not None
        self._reading.result()

    def _run(self) -> None:
        database = open_database(self._settings.database.require_url(), "test")
        with closing(SqlTopicGenerations(database)) as authority:
            while not self._stop.is_set():
                first = TopicState(self._topic, (Generation(0, self._topic, PARTITIONS),))
                state = authority.read(self._topic) or first
                self._read(may_apply(state, lambda topic: self._pointers[topic]))

    def _read(self, generation: Generation) -> None:
        """Reads all partitions from the pointers for a moment, before the gate is checked again."""
        pointers = self._pointers[generation.topic]
        consumer = committed_consumer(self._settings.kafka.properties, "reader")
        with closing(consumer):
            consumer.assign(
                [
                    TopicPartition(generation.topic, partition, pointers.get(partition, 0))
                    for partition in range(generation.partitions)
                ]
            )
            for _ in range(20):
                for message in consumer.consume(1000, 0.05):
                    if message.error() is None:
                        key, partition = message.key(), message.partition() or 0
                        self.seen.append((key, int(message.value() or b"0")))
                        self.places[generation.topic].append((key, partition))
                        pointers[partition] = (message.offset() or 0) + 1
