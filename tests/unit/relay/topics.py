"""Topic workers against tables and a broker in memory, for tests of what they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from inorder.kafka.shard_log import Delivery, Incomplete, ShardLog
from inorder.model.errors import RejectedError
from inorder.model.message import OutboxRow
from inorder.relay.events import BatchProduced
from inorder.relay.options import Pace
from inorder.relay.stores.ports import TopicStore
from inorder.relay.topic_lock import IdlePause, TopicWorker
from inorder.relay.topic_lock_batch import TopicLockOptions
from tests.fakes.log import MemoryBroker, MemoryUnfencedLog
from tests.fakes.topics import MemoryTopicStore, MemoryTopicTables

HASTE = Pace(back_off=0.001, queue=30.0)


@dataclass
class Post:
    """Tables, a broker, and the events that workers reported."""

    tables: MemoryTopicTables = field(default_factory=MemoryTopicTables)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    stop: threading.Event = field(default_factory=threading.Event)
    events: list[BatchProduced] = field(default_factory=list)
    options: TopicLockOptions = field(default_factory=lambda: TopicLockOptions(max_attempts=3, pace=HASTE))

    def write(self, *rows: tuple[str, bytes | None, bytes | None]) -> list[int]:
        """Messages of topic, key and value."""
        return [self.tables.insert(*row) for row in rows]

    def sent(self, topic: str = "t") -> list[bytes | None]:
        return [row.value for row in self.broker.records if row.topic == topic]

    def left(self) -> list[bytes | None]:
        return [row.value for row in self.tables.rows.values()]

    def store(self) -> MemoryTopicStore:
        return MemoryTopicStore(self.tables, stale_seconds=self.options.lock_seconds)

    def worker(
        self,
        *,
        store: TopicStore | None = None,
        log: ShardLog | None = None,
        log_of: Callable[[str], ShardLog] | None = None,
        **options: Any,
    ) -> TopicWorker:
        log = log or MemoryUnfencedLog(self.broker)
        rest = IdlePause(self.tables, stop=self.stop, idle_seconds=0.005)
        chosen = replace(self.options, stop=self.stop, on_event=self.events.append, **options)
        log_of = log_of or (lambda _topic: log)
        return TopicWorker(store or self.store(), self.tables, log_of, rest, chosen)

    def round(self, worker: TopicWorker | None = None, **options: Any) -> TopicWorker:
        """Lets a worker go round once."""
        worker = worker or self.worker(**options)
        try:
            worker._go_round(self.store().topics())
        finally:
            worker.close()
        return worker


@contextmanager
def working(*workers: TopicWorker, stop: threading.Event) -> Iterator[None]:
    """Workers on threads, for as long as the block lasts."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.close()


class Refusing(MemoryUnfencedLog):
    """Refuses records by their value; what else is in the batch arrives, but for later ones of the key."""

    def __init__(self, broker: MemoryBroker, bad: set[bytes], *, names_row: bool = True) -> None:
        super().__init__(broker)
        self.bad = bad
        self._tells = names_row

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> Delivery:
        guilty = next((row for row in rows if row.value in self.bad), None)
        if guilty is None:
            return super().publish(rows, marker)
        before = rows[: rows.index(guilty)]
        arrived = before if self._tells else []
        super().publish(arrived, marker)
        error = RejectedError("Too large.", row_id=guilty.id if self._tells else None)
        return Incomplete(error, frozenset(row.id for row in arrived))
