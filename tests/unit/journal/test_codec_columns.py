"""Payloads and metadata as a store's columns: each comes back, old spellings are read, a mismatch is named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from inorder.journal.stores.rows import PayloadColumns, decode_metadata, decode_payload, encode_metadata, encode_payload
from inorder.model.errors import PermanentError
from inorder.model.journal import Json, Payload, PayloadMetadata, RecordMetadata


@pytest.mark.parametrize(
    ("payload", "columns"),
    [
        (None, PayloadColumns()),
        ("text", PayloadColumns("text", "text")),
        ("", PayloadColumns("text", "")),
        ({"key": "value"}, PayloadColumns("json", '{"key":"value"}')),
        (Json("text"), PayloadColumns("json", '"text"')),
        (Json(None), PayloadColumns("json", "null")),
        (b"bytes", PayloadColumns("binary", None, b"bytes")),
        (b"", PayloadColumns("binary", None, b"")),
    ],
)
def test_a_payload_comes_back(payload: Payload, columns: PayloadColumns) -> None:
    assert encode_payload(payload) == columns
    assert decode_payload(columns) == payload


def test_bytes_that_are_missing_are_none_and_unknown_types_are_bytes() -> None:
    assert decode_payload(PayloadColumns("binary")) == b""
    assert decode_payload(PayloadColumns("new", None, b"x")) == b"x"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (PayloadColumns("json", None, b"{}"), "Text expected"),
        (PayloadColumns("text", None, b"{}"), "Text expected"),
        (PayloadColumns("binary", "text"), "Bytes expected"),
        (PayloadColumns("json", "{"), "damaged"),
    ],
)
def test_a_type_that_does_not_fit_is_named(columns: PayloadColumns, text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        decode_payload(columns)


@pytest.mark.parametrize(
    ("metadata", "column"),
    [
        (RecordMetadata(), '{"header":{},"payload":{}}'),
        (
            RecordMetadata({"a": 1}, PayloadMetadata(timedelta(days=1), {"b": 2})),
            '{"header":{"data":{"a":1}},"payload":{"expireAfter":"1 day","data":{"b":2}}}',
        ),
    ],
)
def test_metadata_comes_back(metadata: RecordMetadata, column: str) -> None:
    assert encode_metadata(metadata) == column
    assert decode_metadata(column) == metadata


@pytest.mark.parametrize(
    ("column", "metadata"),
    [
        (None, RecordMetadata()),
        ("{}", RecordMetadata()),
        ('{"data":{"a":1}}', RecordMetadata({"a": 1})),
        ('{"header":{"data":1}}', RecordMetadata(1)),
    ],
)
def test_metadata_of_old_versions_is_read(column: str | None, metadata: RecordMetadata) -> None:
    assert decode_metadata(column) == metadata
