"""Offset, missing and exceeded events in memory, beside an outbox in memory; the databases' pass the same contract."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tests.fakes.outbox import MemoryOutbox

from inorder.model.errors import FencedError
from inorder.model.message import OutboxRow
from inorder.relay.stores.ports import LAST_ID, Key, MissingEvent, OffsetSetBackError, PollingState, Scan, Settlement


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class MemoryPollingTables:
    """What the stores of one database share; the rows are in the outbox."""

    outbox: MemoryOutbox
    now: Callable[[], datetime] = _now
    offset: int = 0
    missing: dict[int, MissingEvent] = field(default_factory=dict)
    exceeded: dict[int, tuple[MissingEvent, str]] = field(default_factory=dict)
    """Each with its reason."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def retry(self, id: int) -> None:
        """As an operator does: the event is missing again, as if it had never been tried."""
        with self.lock:
            del self.exceeded[id]
            self.missing[id] = MissingEvent(id, missed_at=self.now())

    def discard(self, id: int) -> None:
        """As an operator does: the event is given up."""
        with self.lock:
            del self.exceeded[id]

    def rows(self, above: int = -LAST_ID) -> list[OutboxRow]:
        return self.outbox.read(Scan(above=above), LAST_ID).rows


class MemoryPollingStore:
    """One relay's view of the tables."""

    def __init__(self, tables: MemoryPollingTables) -> None:
        self._tables = tables

    def check(self) -> None:
        """All columns are there."""

    def offset(self) -> int:
        return self._tables.offset

    def missing(self, above: int, limit: int) -> list[MissingEvent]:
        with self._tables.lock:
            return [event for id, event in sorted(self._tables.missing.items()) if id > above][:limit]

    def parked(self) -> dict[Key, tuple[int, ...]]:
        with self._tables.lock:
            found: dict[Key, tuple[int, ...]] = {}
            for row in self._tables.rows():
                if row.id in self._tables.exceeded and row.key is not None:
                    found[row.topic, row.key] = (*found.get((row.topic, row.key), ()), row.id)
            return found

    def settle(self, settlement: Settlement) -> None:
        with self._tables.lock:
            if self._tables.offset == settlement.to_offset != settlement.from_offset:
                return
            if self._tables.offset < settlement.from_offset:
                raise OffsetSetBackError(f"The offset is {self._tables.offset}, not {settlement.from_offset}.")
            if self._tables.offset != settlement.from_offset:
                raise FencedError(f"The offset is {self._tables.offset}, not {settlement.from_offset}.")
            self._tables.offset = settlement.to_offset
            self._record(settlement)
            for id in settlement.delivered:
                self._tables.missing.pop(id, None)
                self._tables.exceeded.pop(id, None)
            for id, reason in settlement.exceeded:
                event = self._tables.missing.pop(id, None)
                if event is not None:
                    self._tables.exceeded[id] = (event, reason)

    def state(self) -> PollingState:
        with self._tables.lock:
            rows, missing = self._tables.rows(), self._tables.missing
            return PollingState(
                offset=self._tables.offset,
                newest_id=rows[-1].id if rows else 0,
                missing=len(missing),
                exceeded=len(self._tables.exceeded),
                oldest_missing=min(
                    (event.missed_at or _now() for event in self._tables.missing.values()), default=None
                ),
                behind=sum(row.id > self._tables.offset for row in rows),
            )

    def close(self) -> None:
        """Nothing to close."""

    def _record(self, settlement: Settlement) -> None:
        missing, now = self._tables.missing, self._tables.now()
        for event in settlement.missed:
            missing.setdefault(event.id, replace(event, missed_at=now))
        for id in settlement.failed:
            self._count(id, exception_thrown=True)
        for id in settlement.waited:
            self._count(id, exception_thrown=False)

    def _count(self, id: int, *, exception_thrown: bool) -> None:
        event = self._tables.missing.get(id)
        if event is not None:
            thrown = event.exception_thrown or exception_thrown
            self._tables.missing[id] = replace(event, retry_count=event.retry_count + 1, exception_thrown=thrown)
