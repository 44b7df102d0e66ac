"""A broker in memory, with fences and transactions or without, for simulations; Kafka passes the same contract."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from inorder.model.errors import FencedError, TopicUnavailableError, UnknownOutcomeError
from inorder.ports.outbox_store import OutboxRow


@dataclass
class MemoryBroker:
    """What is committed, the newest epoch of the one shard that writes, and the topics that nobody can write to."""

    records: list[OutboxRow] = field(default_factory=list)
    marker: bytes | None = None
    epoch: int = 0
    unavailable: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, epoch: int, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Makes rows and marker visible together, unless a newer owner has fenced this one."""
        with self.lock:
            if epoch != self.epoch:
                raise FencedError("A newer owner has taken the shard over.")
            self._require([row.topic for row in rows])
            self.records.extend(rows)
            self.marker = marker

    def take(self, rows: Sequence[OutboxRow]) -> None:
        """Makes rows visible, whoever sends them; those of an unavailable topic stay behind."""
        with self.lock:
            arrived = [row for row in rows if row.topic not in self.unavailable]
            self.records.extend(arrived)
            self._require([row.topic for row in rows], frozenset(row.id for row in arrived))

    def fence(self) -> tuple[int, bytes | None]:
        """A new epoch, and the marker that was committed last."""
        with self.lock:
            self.epoch += 1
            return self.epoch, self.marker

    def _require(self, topics: Sequence[str], arrived: frozenset[int] = frozenset()) -> None:
        topic = next((topic for topic in topics if topic in self.unavailable), None)
        if topic is not None:
            text = f"Topic {topic!r} cannot be written to."
            raise TopicUnavailableError(topic, text, delivered_ids=arrived)


class MemoryShardLog:
    """One owner's producer."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._epoch = 0

    def take_over(self) -> bytes | None:
        """Fences whoever was there."""
        self._epoch, marker = self._broker.fence()
        return marker

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:
        """Commits, or raises `FencedError`."""
        if not self._epoch:
            raise UnknownOutcomeError("The shard was not taken over.")
        self._broker.commit(self._epoch, rows, marker)

    def close(self) -> None:
        """Must take over again before it can publish."""
        self._epoch = 0


class MemoryUnfencedLog:
    """One of perhaps many producers that nobody stops; it keeps no marker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._is_owner = False

    def take_over(self) -> bytes | None:
        """Stops nobody."""
        self._is_owner = True
        return None

    def publish(self, rows: Sequence[OutboxRow], marker: bytes) -> None:  # noqa: ARG002 - the port's signature
        """Delivers all rows."""
        if not self._is_owner:
            raise UnknownOutcomeError("The shard was not taken over.")
        self._broker.take(rows)

    def close(self) -> None:
        """Must take over again before it can publish."""
        self._is_owner = False
