"""Events and snapshots as lines of JSON: what `inorder journal append` reads and `inorder journal read` prints.

Bytes are written as `{"base64": "..."}` beside `"payload_type": "binary"`; text needs `"payload_type": "text"`. All
else is JSON. So what was printed can be appended again.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

from inorder.model.errors import ValidationError
from inorder.model.journal import Event, EventRecord, Payload, PayloadType, SeqNr, Snapshot
from inorder.model.journal.event import json_payload, json_value, payload_type
from inorder.model.journal.seq_nr import checked_seq_nr

_KNOWN = frozenset({"seq_nr", "payload", "payload_type", "tags"})
_KNOWN_OF_SNAPSHOT = frozenset({"seq_nr", "payload", "payload_type", "metadata"})
_PRINTED = frozenset({"timestamp", "partition", "offset", "origin", "version", "metadata", "headers"})


def event_of_line(line: str, number: int) -> Event:
    """The event of a line; `ValidationError` names the line and what is wrong with it."""
    place = f"line {number}"
    fields = _fields(line, place, _KNOWN)
    seq_nr = checked_seq_nr(fields.get("seq_nr"), f"{place}, seq_nr")
    return Event(seq_nr, _payload(fields, place), frozenset(_tags(fields, place)))


def line_of_event(record: EventRecord) -> dict[str, Any]:
    """An event with everything that is known of it."""
    event = record.event
    return {
        "seq_nr": event.seq_nr,
        **_payload_fields(event.payload),
        "tags": sorted(event.tags),
        "timestamp": record.timestamp.isoformat(),
        "partition": record.partition_offset.partition,
        "offset": record.offset,
        "origin": record.origin,
        "version": record.version,
        "metadata": {"header": record.metadata.header, "data": record.metadata.payload.data},
        "headers": dict(record.headers),
    }


def snapshot_of_line(text: str) -> tuple[SeqNr, Payload, object]:
    """Number, payload and metadata of a snapshot; `ValidationError` says what is wrong with it."""
    fields = _fields(text, "stdin", _KNOWN_OF_SNAPSHOT)
    return checked_seq_nr(fields.get("seq_nr")), _payload(fields, "stdin"), fields.get("metadata")


def line_of_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot with everything that is known of it."""
    return {
        "seq_nr": snapshot.seq_nr,
        **_payload_fields(snapshot.payload),
        "metadata": snapshot.metadata,
        "timestamp": snapshot.timestamp.isoformat(),
        "origin": snapshot.origin,
        "version": snapshot.version,
    }


def _fields(text: str, place: str, known: frozenset[str]) -> dict[str, Any]:
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValidationError(place, f"it is not JSON: {error}.", hint='Write {"seq_nr": 1, "payload": {}}.') from error
    if not isinstance(fields, dict):
        raise ValidationError(place, f"{text.strip()[:80]!r} is not an object.")
    if unknown := sorted(set(fields) - known - _PRINTED):
        raise ValidationError(place, f"{unknown[0]!r} is not known.", hint=f"Known are {', '.join(sorted(known))}.")
    return fields


def _payload_fields(payload: Payload) -> dict[str, Any]:
    kind = payload_type(payload)
    return {} if kind is None else {"payload_type": kind.value, "payload": _shown(payload)}


def _shown(payload: Payload) -> object:
    if isinstance(payload, bytes):
        return {"base64": base64.b64encode(payload).decode()}
    return payload if isinstance(payload, str) else json_value(payload)


def _payload(fields: dict[str, Any], place: str) -> Payload:
    if "payload" not in fields:
        return None
    value, kind = fields["payload"], fields.get("payload_type", PayloadType.JSON)
    match kind:
        case PayloadType.JSON:
            return json_payload(value)
        case PayloadType.TEXT if isinstance(value, str):
            return value
        case PayloadType.BINARY if isinstance(value, dict) and isinstance(value.get("base64"), str):
            return _bytes(value["base64"], place)
    expected = {PayloadType.TEXT: "a text", PayloadType.BINARY: 'an object {"base64": "..."}'}
    if kind not in expected:
        raise ValidationError(place, f"payload_type {kind!r} is not known.", hint="It is json, text or binary.")
    raise ValidationError(place, f"its payload is not {expected[kind]}, as payload_type {kind!r} wants.")


def _bytes(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValidationError(place, f"its payload is not base64: {error}.") from error


def _tags(fields: dict[str, Any], place: str) -> list[str]:
    tags = fields.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ValidationError(place, f"tags {tags!r} is not a list of texts.")
    return tags
