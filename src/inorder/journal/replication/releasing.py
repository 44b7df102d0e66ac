"""Applies late what was in quarantine: in the order of the offsets, all of a journal or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from inorder.journal.replication.collapse import Acted
from inorder.journal.replication.quarantine import Quarantine, Quarantined, by_partition
from inorder.journal.replication.replica import ReplicaSlice
from inorder.journal.replication.replicate import Place, opened, replicated
from inorder.model.errors import ConfigurationError
from inorder.model.journal import Key
from inorder.ports.journal_log import LogRecord
from inorder.ports.journal_store import JournalHead


def release(store: Quarantine, key: Key, segment_size: int) -> int:
    """Applies the records of a parked journal; returns how many there were.

    Raises `DamagedRecordError` where one still cannot be read: nothing has changed then. Replicators wait meanwhile
    (PostgreSQL), or what they add stays in quarantine for another release (Cassandra).
    """
    found = by_partition(store.quarantined(key.topic, key.id))
    if not found:
        raise ConfigurationError(
            f"The journal {key} has nothing in quarantine.", hint="`inorder journal quarantine list` tells what has."
        )
    with store.slice(key.topic, found[-1][0]) as writing:
        writing.lock_offset()
        records = store.quarantined(key.topic, key.id)
        head = writing.heads([key]).get(key)
        for partition, some in by_partition(records):
            head = _apply(writing, Place(key.topic, partition, segment_size), key, head, some)
        for each in records:
            writing.lift(key, each.partition, each.offset)
    return len(records)


def _apply(
    writing: ReplicaSlice, place: Place, key: Key, head: JournalHead | None, records: Sequence[Quarantined]
) -> JournalHead | None:
    change = replicated(place, key, head, list(_opened(place, records))).change
    if change.statements:
        writing.carry_out([change])
    return change.head


def _opened(place: Place, records: Sequence[Quarantined]) -> list[Acted[LogRecord]]:
    actions = [(each.record, opened(each.record, place.topic, place.partition)) for each in records]
    return [Acted(record.offset, action, record) for record, action in actions if action is not None]
