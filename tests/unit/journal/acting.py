"""Short words for actions, events and heads in tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from inorder.journal.action import Append
from inorder.journal.replication.transition import ActionPlace
from inorder.journal.stores.ports import Expiry, JournalHead
from inorder.model.journal import (
    Event,
    EventRecord,
    PartitionOffset,
    PayloadMetadata,
    PayloadType,
    RecordMetadata,
    SeqRange,
)

TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIFE = UUID(int=1)
NEXT_LIFE = UUID(int=2)


def appended(first: int, last: int | None = None) -> Append:
    return Append(SeqRange(first, last or first), PayloadType.JSON)


def at(offset: int) -> ActionPlace:
    return ActionPlace(PartitionOffset(0, offset), TIME)


def record(seq_nr: int, offset: int, expire_after: timedelta | None = None) -> EventRecord:
    metadata = RecordMetadata(payload=PayloadMetadata(expire_after))
    return EventRecord(Event(seq_nr), TIME, PartitionOffset(0, offset), "host", metadata=metadata)


def head(
    offset: int,
    seq_nr: int,
    delete_to: int | None = None,
    *,
    size: int = 10,
    record_id: UUID | None = LIFE,
    expiry: Expiry | None = None,
) -> JournalHead:
    return JournalHead(PartitionOffset(0, offset), size, seq_nr, delete_to, expiry, record_id)
