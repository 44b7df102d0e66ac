"""Rows of the debezium layout, as Debezium's outbox event router sends them with its defaults.

The topic is `outbox.event.<aggregatetype>`, the key `aggregateid`, the value `payload` and the header `id` that of the
event; a null payload is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from inorder.outbox.layouts import reading
from inorder.ports.outbox_store import OutboxRow

TOPIC_PREFIX = "outbox.event."

_UUID_BYTES = 16


def decode(row: Sequence[Any]) -> OutboxRow:
    """Columns: seq, aggregatetype, aggregateid, payload, id."""
    seq, aggregate_type, aggregate_id, payload, event_id = row
    flaws: list[str] = []
    route = reading.topic(aggregate_type, "aggregatetype", flaws)
    key = reading.text_bytes(aggregate_id, "aggregateid", flaws)
    value = payload.encode() if isinstance(payload, str) else payload
    headers = (("id", _event_id(event_id, flaws)),)
    return OutboxRow(seq, f"{TOPIC_PREFIX}{route}" if route else "", key, value, headers, None, None, "; ".join(flaws))


def _event_id(stored: Any, flaws: list[str]) -> bytes | None:
    """The uuid as text; databases without that type keep it as text or as its 16 bytes."""
    if isinstance(stored, bytes) and len(stored) == _UUID_BYTES:
        return str(UUID(bytes=stored)).encode()
    return reading.text_bytes(stored, "id", flaws)
