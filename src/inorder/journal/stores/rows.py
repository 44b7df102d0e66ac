"""A row of the table `journal` as an event: what all stores share of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from inorder.journal.codec.payload import PayloadColumns, from_column, from_columns, parsed, to_column, to_columns
from inorder.journal.codec.records import timestamp_of
from inorder.journal.replication.replica import Quarantined
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import GuaranteeError, PermanentError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, RecordMetadata, SeqNr, Snapshot
from inorder.model.message import json_bytes, utf8


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


# A row of the table `quarantine` as a record, byte for byte as it came: what all stores share of it.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def header_column(record: LogRecord) -> str:
    """The headers as JSON, values in base64: they may hold anything, and a name may come twice."""
    return json.dumps(
        [(name, None if value is None else base64.b64encode(value).decode()) for name, value in record.headers]
    )


def time_column(record: LogRecord) -> datetime | None:
    """When the record was written, if Kafka knows."""
    return None if record.timestamp_ms is None else timestamp_of(record)


def quarantined_of(
    topic: str,
    id: str,
    partition: int,
    reason: str,
    offset: int,
    timestamp: datetime | None,
    key: bytes | None,
    value: bytes | None,
    headers: str,
) -> Quarantined:
    """The record of a row."""
    time = None if timestamp is None else (timestamp - _EPOCH) // timedelta(milliseconds=1)
    found = tuple((name, None if text is None else base64.b64decode(text)) for name, text in json.loads(headers))
    return Quarantined(Key(id, topic), partition, reason, LogRecord(offset, time, key, value, found))


# A row of the table `snapshot` as a snapshot: what all stores share of it.


class SnapshotColumns(NamedTuple):
    """The columns of a snapshot's row, but for those that place it; as `stored_snapshot` takes them back."""

    seq_nr: SeqNr
    timestamp: datetime
    origin: str | None
    version: str | None
    metadata: str | None
    payload_type: str | None
    payload_txt: str | None
    payload_bin: bytes | None


def snapshot_columns(snapshot: Snapshot) -> SnapshotColumns:
    """What is stored of a snapshot; `ValidationError` for what JSON cannot carry."""
    if isinstance(snapshot.payload, str):
        utf8("payload", snapshot.payload)
    metadata = None if snapshot.metadata is None else json_bytes(snapshot.metadata).decode()
    about = snapshot.seq_nr, snapshot.timestamp, snapshot.origin, snapshot.version, metadata
    return SnapshotColumns(*about, *to_columns(snapshot.payload))


def stored_snapshot(columns: SnapshotColumns) -> Snapshot:
    """The snapshot of a row; raises `PermanentError` where its columns contradict each other."""
    payload = PayloadColumns(columns.payload_type, columns.payload_txt, columns.payload_bin)
    return Snapshot(
        columns.seq_nr,
        from_columns(payload),
        columns.timestamp,
        _stored_metadata(columns.metadata),
        columns.origin,
        columns.version,
    )


def _stored_metadata(column: str | None) -> object:
    try:
        return None if column is None else parsed(column)
    except ValueError as error:
        raise PermanentError(f"The stored metadata of a snapshot is damaged: {error}.") from error
