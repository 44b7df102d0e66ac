"""The replicator without an engine: a thread reads a topic and applies its slices until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from inorder.engines.partition_reader import KafkaSource
from inorder.journal.replication.job import Announcer, ReplicateWork
from inorder.journal.stores.opening import JournalReplicas


class Replicator:
    """Replicates one topic on a thread for the duration of the block."""

    def __init__(
        self,
        properties: dict[str, object],
        url: str,
        topic: str,
        *,
        segment_size: int = 10_000,
        announcers: Callable[[], Announcer] | None = None,
    ) -> None:
        self._source = KafkaSource(properties)
        self._topic = topic
        self._work = ReplicateWork((topic,), JournalReplicas(url), segment_size, announcers=announcers)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Replicator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with closing(self._work.open()) as worker:
            pointers = worker.pointers(self._topic)
            partitions = self._source.partitions(self._topic) or 0
            starts = {
                (self._topic, number): pointers[number].next_offset if number in pointers else None
                for number in range(partitions)
            }
            with closing(self._source.open(starts, headers=True)) as reader:
                while not self._stop.is_set():
                    for batch in reader.read(1000, 0.1).slices:
                        worker.apply(batch, expected=0)
