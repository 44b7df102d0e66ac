"""A row of the table `journal` as an event: what all stores share of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from inorder.journal.codec.columns import PayloadColumns, from_columns, to_columns
from inorder.journal.codec.metadata import from_column, to_column
from inorder.model.errors import GuaranteeError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, RecordMetadata, SeqNr


def stored_event(
    seq_nr: SeqNr,
    timestamp: datetime,
    partition: int,
    offset: int,
    origin: str | None,
    version: str | None,
    tags: Iterable[str] | None,
    metadata: str | None,
    payload_type: str | None,
    payload_txt: str | None,
    payload_bin: bytes | None,
    headers: Mapping[str, str],
) -> EventRecord:
    """The event of a row; raises `PermanentError` where its columns contradict each other."""
    payload = from_columns(PayloadColumns(payload_type, payload_txt, payload_bin))
    return EventRecord(
        Event(seq_nr, payload, frozenset(tags or ())),
        timestamp,
        PartitionOffset(partition, offset),
        origin,
        version,
        _metadata(metadata),
        headers,
    )


class EventColumns(NamedTuple):
    """The columns of an event's row, but for those that place it; as `stored_event` takes them back."""

    partition: int
    offset: int
    origin: str | None
    version: str | None
    tags: frozenset[str]
    metadata: str
    payload_type: str | None
    payload_txt: str | None
    payload_bin: bytes | None
    headers: Mapping[str, str]


def event_columns(record: EventRecord) -> EventColumns:
    """What is stored of an event."""
    payload = to_columns(record.event.payload)
    return EventColumns(
        record.partition_offset.partition,
        record.partition_offset.offset,
        record.origin,
        record.version,
        record.event.tags,
        to_column(record.metadata),
        payload.type,
        payload.text,
        payload.binary,
        record.headers,
    )


def check_unique(key: Key, before: SeqNr, seq_nr: SeqNr) -> None:
    """Raises `GuaranteeError` if a store has two events of one number."""
    if seq_nr <= before:
        raise GuaranteeError(
            f"The store has seq_nr {seq_nr} of journal {key} twice.",
            hint="Two writers may have appended it, before a version of the replicator that lets the first one win.",
        )


# Events of one append, and often of a whole journal, have the same; parsing it again would be most of a read.
@lru_cache(maxsize=256)
def _metadata(column: str | None) -> RecordMetadata:
    return from_column(column)
