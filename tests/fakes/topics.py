"""Messages and lock rows in memory, for simulations; the databases' stores pass the same contract suite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from tests.fakes.outbox import within

from inorder.model.errors import FencedError
from inorder.model.message import OutboxRow
from inorder.relay.stores.outbox_store import marked_page
from inorder.relay.stores.ports import LAST_ID, Exceeding, Key, Page, TopicBacklog


@dataclass
class MemoryTopicTables:
    """What the stores of one database share: messages, their sessions, lock rows, and what was set aside."""

    clock: Callable[[], float] = time.time
    rows: dict[int, OutboxRow] = field(default_factory=dict)
    written: dict[int, float] = field(default_factory=dict)
    sessions: dict[int, UUID] = field(default_factory=dict)
    locks: dict[str, TopicBacklog] = field(default_factory=dict)
    exceeded: dict[int, tuple[OutboxRow, Exceeding]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    last_id: int = 0

    def insert(self, topic: str, key: bytes | None, value: bytes | None, *, flaw: str = "") -> int:
        with self.changed:
            self.last_id += 1
            self.rows[self.last_id] = OutboxRow(self.last_id, topic, key, value, (), None, None, flaw)
            self.written[self.last_id] = self.clock()
            self.changed.notify_all()
            return self.last_id

    def exceed(self, exceeding: Exceeding) -> None:
        """As an `ExceededStore`: moves the row if it is still there."""
        with self.changed:
            row = self.rows.pop(exceeding.row_id, None)
            if row is not None:
                self.exceeded[row.id] = (row, exceeding)

    def parked(self) -> dict[Key, tuple[int, ...]]:
        """As an `ExceededStore`: keys that wait."""
        with self.changed:
            found: dict[Key, tuple[int, ...]] = {}
            for id, (row, exceeding) in sorted(self.exceeded.items()):
                if exceeding.parks and row.key is not None:
                    found[row.topic, row.key] = (*found.get((row.topic, row.key), ()), id)
            return found

    def retry(self, id: int) -> None:
        """Puts an exceeded row back in its old place."""
        with self.changed:
            self.rows[id] = self.exceeded.pop(id)[0]

    def begin_sleep(self) -> bool:
        return True

    def wait(self, seconds: float) -> bool:
        with self.changed:
            return self.changed.wait(seconds)

    def end_sleep(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.clock(), UTC)


class MemoryTopicStore:
    """One worker's view of the tables."""

    def __init__(self, tables: MemoryTopicTables, *, stale_seconds: float = 60.0) -> None:
        self._tables = tables
        self._stale_seconds = stale_seconds

    def check(self) -> None:
        """All columns are there."""

    def topics(self) -> list[str]:
        with self._tables.changed:
            return sorted({row.topic for row in self._tables.rows.values()})

    def lock(self, topic: str, worker: UUID) -> bool:
        """One look and one write under the lock."""
        with self._tables.changed:
            row = self._tables.locks.setdefault(topic, TopicBacklog(topic))
            is_free = row.locked_by is None and not row.error
            if not (is_free or row.locked_by == str(worker) or self._is_stale(row)):
                return False
            self._write(row, locked_by=str(worker), locked_at=self._tables.moment(), error=False)
            return True

    def read(self, topic: str, limit: int, max_bytes: int = LAST_ID) -> Page:
        with self._tables.changed:
            parked = self._tables.parked()
            found = (row for _, row in sorted(self._tables.rows.items()) if row.topic == topic)
            rows = [row for row in found if row.key is None or (topic, row.key) not in parked][:limit]
            return marked_page(within(rows, max_bytes), limit)

    def stamp(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        with self._tables.changed:
            self._require(topic, worker)
            found = [id for id in ids if id in self._tables.rows and self._tables.rows[id].topic == topic]
            self._tables.sessions.update(dict.fromkeys(found, session))
            return len(found)

    def delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int], group_size: int) -> int:
        return sum(
            self._delete(topic, worker, session, ids[start : start + group_size])
            for start in range(0, len(ids), group_size)
        )

    def heartbeat(self, topic: str, worker: UUID) -> bool:
        with self._tables.changed:
            row = self._ours(topic, worker)
            if row is not None:
                self._write(row, locked_at=self._tables.moment())
            return row is not None

    def unlock(self, topic: str, worker: UUID) -> None:
        with self._tables.changed:
            row = self._ours(topic, worker)
            if row is not None:
                done = self._tables.moment()
                self._write(row, locked_by=None, locked_at=None, error=False, retries=0, last_processed_at=done)

    def fail(self, topic: str, worker: UUID) -> None:
        with self._tables.changed:
            row = self._ours(topic, worker)
            if row is not None:
                now = self._tables.moment()
                self._write(row, locked_by=None, locked_at=now, error=True, retries=row.retries + 1)

    def touch_empty(self, except_topics: Collection[str]) -> None:
        with self._tables.changed:
            for row in list(self._tables.locks.values()):
                if row.locked_by is None and row.topic not in except_topics:
                    self._write(row, last_processed_at=self._tables.moment())

    def pending(self) -> list[TopicBacklog]:
        with self._tables.changed:
            names = sorted({*self.topics(), *self._tables.locks})
            return [self._pending(self._tables.locks.get(name, TopicBacklog(name))) for name in names]

    def close(self) -> None:
        """Nothing to close."""

    def _delete(self, topic: str, worker: UUID, session: UUID, ids: Sequence[int]) -> int:
        with self._tables.changed:
            self._require(topic, worker)
            found = [id for id in ids if id in self._tables.rows and self._tables.sessions.get(id) == session]
            for id in found:
                del self._tables.rows[id]
            return len(found)

    def _pending(self, row: TopicBacklog) -> TopicBacklog:
        ids = [id for id, found in self._tables.rows.items() if found.topic == row.topic]
        times = [self._tables.written[id] for id in ids]
        oldest = datetime.fromtimestamp(min(times), UTC) if times else None
        return replace(row, messages=len(ids), oldest=oldest)

    def _ours(self, topic: str, worker: UUID) -> TopicBacklog | None:
        row = self._tables.locks.get(topic)
        return row if row is not None and row.locked_by == str(worker) else None

    def _require(self, topic: str, worker: UUID) -> None:
        if not self.heartbeat(topic, worker):
            raise FencedError(f"The lock of topic {topic!r} was taken from worker {worker}.")

    def _is_stale(self, row: TopicBacklog) -> bool:
        if row.locked_at is None:
            return False
        return row.locked_at.timestamp() < self._tables.clock() - self._stale_seconds

    def _write(self, row: TopicBacklog, **changes: object) -> None:
        self._tables.locks[row.topic] = replace(row, **changes)  # type: ignore[arg-type]  # fields of TopicState
