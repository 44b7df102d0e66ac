"""Rows of the tables `journal`, `quarantine` and `snapshot` as values: what all stores share."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from inorder.journal.codec import (
    JOURNAL_HEADERS,
    data_of,
    has_time,
    parse_json,
    payload_metadata,
    payload_metadata_json,
    require_object,
    timestamp_of,
    with_data,
)
from inorder.journal.replication.actions import id_of, shorten_id
from inorder.journal.replication.store_port import Quarantined
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import GuaranteeError, PermanentError
from inorder.model.journal import (
    Event,
    EventRecord,
    Key,
    PartitionOffset,
    Payload,
    PayloadType,
    RecordMetadata,
    SeqNr,
    Snapshot,
    json_payload,
    json_value,
)
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
    """The event of a row; raises `PermanentError` if its columns contradict each other."""
    payload = decode_payload(PayloadColumns(payload_type, payload_txt, payload_bin))
    return EventRecord(
        Event(seq_nr, payload, frozenset(tags or ())),
        timestamp,
        PartitionOffset(partition, offset),
        origin,
        version,
        _metadata(metadata),
        without_own_headers(headers),
    )


def without_own_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers of the application: Kafka Journal's replicator stores those of the journal with them."""
    if JOURNAL_HEADERS.isdisjoint(headers):
        return headers
    return {name: value for name, value in headers.items() if name not in JOURNAL_HEADERS}


class EventColumns(NamedTuple):
    """The columns of an event's row after its key, in the order of `stored_event`."""

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
    payload = encode_payload(record.event.payload)
    return EventColumns(
        record.partition_offset.partition,
        record.partition_offset.offset,
        record.origin,
        record.version,
        record.event.tags,
        encode_metadata(record.metadata),
        payload.type,
        payload.text,
        payload.binary,
        record.headers,
    )


def require_unique(key: Key, before: SeqNr, seq_nr: SeqNr) -> None:
    """Raises `GuaranteeError` if a store has two events of one number."""
    if seq_nr <= before:
        raise GuaranteeError(
            f"The store has seq_nr {seq_nr} of journal {key} twice.",
            hint="Two writers may have appended it, before a version of the replicator that lets the first one win.",
        )


# Events of one append, and often of a whole journal, share it; parsing it for each would dominate a read.
@lru_cache(maxsize=256)
def _metadata(column: str | None) -> RecordMetadata:
    return decode_metadata(column)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_TIME_HEADER: Final = "inorder.timestamp_ms"
"""Holds the time of a record in quarantine if no date does."""
_REASON_CHARACTERS: Final = 1_000


def header_column(record: LogRecord) -> str:
    """The headers as JSON, values in base64: they may hold any bytes, and a name may occur twice."""
    headers = list(record.headers)
    if record.timestamp_ms is not None and not has_time(record):
        headers.append((_TIME_HEADER, str(record.timestamp_ms).encode()))
    return json.dumps([(name, None if value is None else base64.b64encode(value).decode()) for name, value in headers])


def time_column(record: LogRecord) -> datetime | None:
    return timestamp_of(record) if has_time(record) else None


def reason_column(each: Quarantined) -> str:
    """The reason as a text that every store holds: an error may quote anything that a writer has sent."""
    text = each.reason.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return text[:_REASON_CHARACTERS]


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
    """The record of a row; raises `PermanentError` if its headers are not those that `quarantine` writes."""
    time = None if timestamp is None else (timestamp - _EPOCH) // timedelta(milliseconds=1)
    try:
        found = tuple((name, None if text is None else base64.b64decode(text)) for name, text in json.loads(headers))
        if time is None and found and found[-1][0] == _TIME_HEADER:
            time, found = int(found[-1][1] or b"0"), found[:-1]
    except (ValueError, TypeError, RecursionError) as error:
        raise PermanentError(f"The stored headers of a quarantined record are damaged: {str(error)[:200]}.") from error
    if key is not None and id == shorten_id(id_of(key)):
        id = id_of(key)  # the store has cut a long id
    return Quarantined(Key(id, topic), partition, reason, LogRecord(offset, time, key, value, found))


class SnapshotColumns(NamedTuple):
    """The columns of a snapshot's row after its key, as `stored_snapshot` takes them."""

    seq_nr: SeqNr
    timestamp: datetime
    origin: str | None
    version: str | None
    metadata: str | None
    payload_type: str | None
    payload_txt: str | None
    payload_bin: bytes | None


def snapshot_columns(snapshot: Snapshot) -> SnapshotColumns:
    """The columns of a snapshot; raises `ValidationError` for what JSON cannot carry."""
    if isinstance(snapshot.payload, str):
        utf8("payload", snapshot.payload)
    metadata = None if snapshot.metadata is None else json_bytes(snapshot.metadata).decode()
    about = snapshot.seq_nr, snapshot.timestamp, snapshot.origin, snapshot.version, metadata
    return SnapshotColumns(*about, *encode_payload(snapshot.payload))


def stored_snapshot(columns: SnapshotColumns) -> Snapshot:
    """The snapshot of a row; raises `PermanentError` if its columns contradict each other."""
    payload = PayloadColumns(columns.payload_type, columns.payload_txt, columns.payload_bin)
    return Snapshot(
        columns.seq_nr,
        decode_payload(payload),
        columns.timestamp,
        _stored_metadata(columns.metadata),
        columns.origin,
        columns.version,
    )


def _stored_metadata(column: str | None) -> object:
    try:
        return None if column is None else parse_json(column)
    except ValueError as error:
        raise PermanentError(f"The stored metadata of a snapshot is damaged: {error}.") from error


def encode_metadata(metadata: RecordMetadata) -> str:
    """The text of the column `metadata`.

    >>> encode_metadata(RecordMetadata())
    '{"header":{},"payload":{}}'
    """
    content = {"header": with_data(metadata.header), "payload": payload_metadata_json(metadata.payload)}
    return json_bytes(content).decode()


def decode_metadata(text: str | None) -> RecordMetadata:
    """The metadata of the column, in old spellings too; raises `ValueError`.

    >>> decode_metadata('{"data":{"a":1}}')
    RecordMetadata(header={'a': 1}, payload=PayloadMetadata(expire_after=None, data=None))
    """
    if text is None:
        return RecordMetadata()
    content = require_object(parse_json(text), "metadata")
    if "data" in content:
        return RecordMetadata(header=content["data"])
    return RecordMetadata(_header(content), payload_metadata(content.get("payload")))


def _header(content: Mapping[str, object]) -> object:
    return data_of(content.get("header"))


class PayloadColumns(NamedTuple):
    """A payload as the columns `payload_type`, `payload_txt` and `payload_bin`; all are None without a payload."""

    type: str | None = None
    text: str | None = None
    binary: bytes | None = None


def encode_payload(payload: Payload) -> PayloadColumns:
    """The columns of a payload.

    >>> encode_payload({"key": "value"})
    PayloadColumns(type='json', text='{"key":"value"}', binary=None)
    """
    match payload:
        case None:
            return PayloadColumns()
        case bytes():
            return PayloadColumns(PayloadType.BINARY.value, None, payload)
        case str():
            return PayloadColumns(PayloadType.TEXT.value, payload)
    return PayloadColumns(PayloadType.JSON.value, json_bytes(json_value(payload)).decode())


def decode_payload(columns: PayloadColumns) -> Payload:
    """The payload of the columns; an unknown type is read as binary, and missing bytes as no bytes.

    Raises `PermanentError` if type and column do not match.
    """
    if columns.type is None:
        return None
    if columns.type not in (PayloadType.TEXT, PayloadType.JSON):
        if columns.text is not None:
            raise PermanentError(f"Bytes expected for a payload of type {columns.type!r}, but its text column is set.")
        return bytes(columns.binary or b"")
    if columns.text is None:
        raise PermanentError(f"Text expected for a payload of type {columns.type!r}, but its text column is empty.")
    return columns.text if columns.type == PayloadType.TEXT else _json(columns.text)


def _json(text: str) -> Payload:
    try:
        return json_payload(parse_json(text))
    except ValueError as error:
        raise PermanentError(f"A stored payload of type 'json' is damaged: {error}.") from error
