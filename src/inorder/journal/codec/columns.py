"""A payload as the columns `payload_type`, `payload_txt` and `payload_bin` of a store."""

from __future__ import annotations

from typing import NamedTuple

from inorder.journal.codec.header import parsed
from inorder.model.errors import PermanentError
from inorder.model.journal import Payload, PayloadType
from inorder.model.journal.event import json_payload, json_value
from inorder.model.message import json_bytes


class PayloadColumns(NamedTuple):
    """All are None where there is no payload."""

    type: str | None = None
    text: str | None = None
    binary: bytes | None = None


def to_columns(payload: Payload) -> PayloadColumns:
    """What is stored of a payload.

    >>> to_columns({"key": "value"})
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


def from_columns(columns: PayloadColumns) -> Payload:
    """The payload that is stored; an unknown type is read as binary, and bytes that are missing as none.

    Raises `PermanentError` where type and column do not fit.
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
        return json_payload(parsed(text))
    except ValueError as error:
        raise PermanentError(f"A stored payload of type 'json' is damaged: {error}.") from error
