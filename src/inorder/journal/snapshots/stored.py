"""A row of the table `snapshot` as a snapshot: what all stores share of it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from inorder.journal.codec.columns import PayloadColumns, from_columns, to_columns
from inorder.journal.codec.header import parsed
from inorder.model.errors import PermanentError
from inorder.model.journal import SeqNr, Snapshot
from inorder.model.message import json_bytes, utf8


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
        _metadata(columns.metadata),
        columns.origin,
        columns.version,
    )


def _metadata(column: str | None) -> object:
    try:
        return None if column is None else parsed(column)
    except ValueError as error:
        raise PermanentError(f"The stored metadata of a snapshot is damaged: {error}.") from error
