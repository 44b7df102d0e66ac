"""Actions as Kafka records, and records as actions.

A record that is none of ours is no error: one without a key, a time or the header `journal.action`, an append without a
value, an action of a later version. A record that is ours and cannot be read is refused with its coordinates, whatever
the fault: leaving it out would show a journal with a hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from inorder.journal.action import Action, Append
from inorder.journal.codec.payload import from_header, from_value, to_header, to_value
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError, ValidationError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, RecordMetadata, checked_events, range_of
from inorder.model.message import Limits, Message, Record, encode

ACTION_HEADER: Final = "journal.action"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Sender(NamedTuple):
    """Who writes records: the host, and the version of this library."""

    origin: str | None = None
    version: str | None = None


def append_record(
    key: Key,
    events: Iterable[Event],
    timestamp: datetime,
    sender: Sender,
    metadata: RecordMetadata,
    headers: Mapping[str, str],
    limits: Limits,
) -> Record:
    """The record of an append; raises `ValidationError` for anything that it could not carry."""
    checked = checked_events(events)
    if ACTION_HEADER in headers:
        raise ValidationError("headers", f"{ACTION_HEADER!r} is taken by the journal itself.", hint="Choose another.")
    kind, value = to_value(checked, metadata.payload)
    action = Append(range_of(checked), kind, sender.origin, sender.version, metadata.header)
    return action_record(key, action, timestamp, limits, value=value, headers=headers)


def action_record(
    key: Key,
    action: Action,
    timestamp: datetime,
    limits: Limits,
    *,
    value: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Record:
    """The record of an action; only an append has a value and headers of the application's own."""
    all_headers: dict[str, str | bytes | None] = {ACTION_HEADER: to_header(action), **(headers or {})}
    return encode(Message(key.topic, key=key.id, value=value, headers=all_headers, timestamp=timestamp), limits)


def action_of(record: LogRecord, topic: str, partition: int) -> Action | None:
    """The action of a record; None for one that is not ours, `DamagedRecordError` for one that cannot be read."""
    header = next((value for name, value in record.headers if name == ACTION_HEADER), None)
    if header is None or record.key is None or record.timestamp_ms is None:
        return None
    try:
        action = from_header(header)
    except ValueError as error:
        raise _damaged(f"its header {ACTION_HEADER}", error, record, topic, partition) from error
    return None if isinstance(action, Append) and record.value is None else action


def events_of(action: Append, record: LogRecord, topic: str, partition: int) -> list[EventRecord]:
    """The events of an append's record; `DamagedRecordError` where they cannot be read."""
    try:
        events, metadata = from_value(action.payload_type, record.value or b"")
        headers = {name: (value or b"").decode() for name, value in record.headers if name != ACTION_HEADER}
    except ValueError as error:
        raise _damaged("it", error, record, topic, partition) from error
    place = PartitionOffset(partition, record.offset)
    time = timestamp_of(record)
    about = RecordMetadata(action.metadata, metadata)
    return [EventRecord(event, time, place, action.origin, action.version, about, headers) for event in events]


def timestamp_of(record: LogRecord) -> datetime:
    """When a record was written."""
    return _EPOCH + timedelta(milliseconds=record.timestamp_ms or 0)


def _damaged(what: str, error: ValueError, record: LogRecord, topic: str, partition: int) -> DamagedRecordError:
    return DamagedRecordError(
        f"The record {topic}[{partition}] offset {record.offset} of key {(record.key or b'')!r} cannot be read:"
        f" {what} is damaged: {error}.",
        hint="Other journals are not affected. Find its writer; a purge of this journal lets it begin anew.",
        topic=topic,
        partition=partition,
        offset=record.offset,
    )
