"""What each hop knows of one key.

Each hop is looked at once, one after the other in the direction of the flow, and nothing is locked or written. So a
record that moves meanwhile may be seen at two hops; one that is there is never seen at none, because what leaves a hop
is at the next one already, though perhaps in a transaction that the broker has not quite ended: that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row of the outbox that is not published yet, or not purged."""

    id: int
    topic: str
    written_at: datetime | None


@dataclass(frozen=True, slots=True)
class SetAside:
    """A row that used up its attempts."""

    id: int
    topic: str
    code: str
    reason: str
    parks: bool
    """Whether later rows of the key wait for it."""


@dataclass(frozen=True, slots=True)
class OutboxHop:
    """The key in the outbox: how many rows, the first of them, and what was set aside."""

    table: str
    rows: int = 0
    first: tuple[WaitingRow, ...] = ()
    exceeded: tuple[SetAside, ...] = ()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record of the key in its topic."""

    offset: int
    timestamp_ms: int | None
    bytes: int | None
    """How long its value is; None for a record without one, which deletes."""


@dataclass(frozen=True, slots=True)
class TopicHop:
    """The key in one partition of one Kafka topic."""

    topic: str
    generation: int
    partition: int
    first_offset: int
    end_offset: int
    """The partition's: behind its last committed record."""
    records: int = 0
    newest: tuple[Sighting, ...] = ()
    """The last few, oldest first."""
    undecided: int = 0
    """Offsets behind the end, of transactions that are still open or wait for one."""

    @property
    def last(self) -> Sighting | None:
        """The newest record of the key; None where the topic has none."""
        return self.newest[-1] if self.newest else None


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the key that was rejected."""

    id: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class TableHop:
    """The key in a target table, and how far the pipeline that fills it has come."""

    table: str
    pipeline: str
    row: Mapping[str, Any] | None = None
    version: tuple[int, int] | None = None
    """Generation and offset of the record that the row shows; or of the one that deleted it."""
    is_deleted: bool = False
    due: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """For each partition of each Kafka topic of the key, the offset that is applied next."""
    letters: tuple[Letter, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalHop:
    """A journal with the key as its id, in the store."""

    topic: str
    seq_nr: int | None = None
    delete_to: int | None = None
    offset: int | None = None
    """The last action of the journal that is in the store; None where the store has no such journal."""
    replicated: int | None = None
    """The partition's replicated offset."""
    parked: str | None = None
    """Why nothing more is replicated."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A key at every hop."""

    key: str
    outbox: OutboxHop | None = None
    topics: tuple[TopicHop, ...] = ()
    tables: tuple[TableHop, ...] = ()
    journals: tuple[JournalHop, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Hops that could not be looked at, and why."""
