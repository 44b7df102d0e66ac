"""The topics of journals in memory, for tests without a broker; Kafka passes the same contract."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future

from inorder.model.errors import RecordsLostError
from inorder.model.journal import PartitionOffset
from inorder.model.message import Record
from inorder.model.partition import Partitioner, partition_of
from inorder.ports.deadline import Deadline
from inorder.ports.journal_log import LogRecord, Window


class MemoryJournalLog:
    """Every record is acknowledged at once, after `on_sent` has run; `doubled` delivers each record twice."""

    def __init__(self, partitions: int = 1, *, doubled: bool = False) -> None:
        self._partitions = partitions
        self._copies = 2 if doubled else 1
        self._records: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
        self._first: dict[tuple[str, int], int] = defaultdict(int)
        self._changed = threading.Condition()
        self.on_sent: Callable[[str, int], object] = lambda *place: place
        self.windows: list[Window] = []
        """Every window that was read, for tests of what is spared."""

    def send(self, record: Record) -> Future[PartitionOffset]:
        """Appends the record."""
        partition = self.partition_of(record.topic, record.key or b"")
        future: Future[PartitionOffset] = Future()
        with self._changed:
            offset = self.write(record, partition)
            self._changed.notify_all()
        self.on_sent(record.topic, partition)
        future.set_result(PartitionOffset(partition, offset))
        return future

    def write(self, record: Record, partition: int) -> int:
        """Puts a record at the end of a partition and returns its offset."""
        lying = self._records[record.topic, partition]
        lying.append(LogRecord(len(lying), record.timestamp_ms, record.key, record.value, record.headers))
        return len(lying) - 1

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record gets."""
        return len(self._records[topic, partition])

    def lying(self, topic: str, partition: int, first: int, end: int) -> list[LogRecord]:
        """The records from one offset to below another, whoever they belong to."""
        return self._records[topic, partition][first:end]

    def forget(self, topic: str, partition: int, first: int) -> None:
        """Removes the records below an offset, as retention does."""
        self._first[topic, partition] = first

    def partition_of(self, topic: str, key: bytes) -> int:  # noqa: ARG002 - all topics have the same partitions
        """As Java's producer chooses it."""
        return partition_of(key, self._partitions, Partitioner.MURMUR2) or 0

    def records(self, window: Window, key: bytes, deadline: Deadline) -> Generator[LogRecord, None, None]:
        """The records with this key in the window."""
        place = window.topic, window.partition
        self.windows.append(window)
        if (first := self._first[place]) > window.first:
            raise RecordsLostError(f"{window}: the partition begins at {first}.", wanted=window.first, first=first)
        for offset in range(window.first, window.last + 1):
            deadline.remaining()
            record = self._records[place][offset]
            if record.key == key:
                for _ in range(self._copies):
                    yield record

    def tail(self, topic: str) -> MemoryTail:
        """Follows a topic."""
        return MemoryTail(self, topic, self._partitions, self._changed)

    def first(self, topic: str, partition: int) -> int:
        """The lowest offset that is still there."""
        return self._first[topic, partition]

    def close(self) -> None:
        """Nothing is held."""


class MemoryTail:
    """Follows the partitions of a topic in memory."""

    def __init__(self, log: MemoryJournalLog, topic: str, partitions: int, changed: threading.Condition) -> None:
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._changed = changed
        self._next: dict[int, int] = {}

    def partitions(self) -> Sequence[int]:
        """All of them."""
        return range(self._partitions)

    def start(self, offsets: Mapping[int, int]) -> None:
        """Goes to these offsets."""
        for partition, wanted in offsets.items():
            first = self._log.first(self._topic, partition)
            if first > wanted:
                text = f"{self._topic}[{partition}] begins at {first}, not at {wanted}."
                raise RecordsLostError(text, wanted=wanted, first=first)
        self._next = dict(offsets)

    def poll(self, timeout_seconds: float) -> Mapping[int, Sequence[LogRecord]]:
        """What has arrived since; waits for something to arrive."""
        with self._changed:
            self._changed.wait_for(self._has_more, timeout_seconds)
            return {partition: records for partition in self._next if (records := self._take(partition))}

    def close(self) -> None:
        """Nothing is held."""

    def _has_more(self) -> bool:
        return any(self._log.end(self._topic, partition) > offset for partition, offset in self._next.items())

    def _take(self, partition: int) -> list[LogRecord]:
        end = self._log.end(self._topic, partition)
        records = self._log.lying(self._topic, partition, self._next[partition], end)
        self._next[partition] = max(end, self._next[partition])
        return records
