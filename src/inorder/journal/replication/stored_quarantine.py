"""A row of the table `quarantine` as a record, byte for byte as it came: what all stores share of it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

from inorder.journal.codec.records import timestamp_of
from inorder.journal.replication.quarantine import Quarantined
from inorder.model.journal import Key
from inorder.ports.journal_log import LogRecord

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
