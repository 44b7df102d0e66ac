"""What an application says about an append, as JSON: in the payload, and in the column `metadata` of a store."""

from __future__ import annotations

from collections.abc import Mapping

from inorder.journal.codec import durations
from inorder.journal.codec.header import as_object, data_of, parsed, with_data
from inorder.model.journal import PayloadMetadata, RecordMetadata
from inorder.model.message import json_bytes


def payload_metadata_json(metadata: PayloadMetadata) -> dict[str, object]:
    """`{"expireAfter":"1 day","data":…}`, what is absent left out."""
    expiry = {} if metadata.expire_after is None else {"expireAfter": durations.to_text(metadata.expire_after)}
    return {**expiry, **with_data(metadata.data)}


def payload_metadata(value: object) -> PayloadMetadata:
    """The metadata of a payload; None is none at all, which old versions wrote. Raises `ValueError`."""
    if value is None:
        return PayloadMetadata()
    content = as_object(value, "metadata")
    expiry = content.get("expireAfter")
    return PayloadMetadata(None if expiry is None else durations.from_json(expiry), content.get("data"))


def to_column(metadata: RecordMetadata) -> str:
    """The text of the column.

    >>> to_column(RecordMetadata())
    '{"header":{},"payload":{}}'
    """
    content = {"header": with_data(metadata.header), "payload": payload_metadata_json(metadata.payload)}
    return json_bytes(content).decode()


def from_column(text: str | None) -> RecordMetadata:
    """The metadata of the column, in old spellings too; raises `ValueError`.

    >>> from_column('{"data":{"a":1}}')
    RecordMetadata(header={'a': 1}, payload=PayloadMetadata(expire_after=None, data=None))
    """
    if text is None:
        return RecordMetadata()
    content = as_object(parsed(text), "metadata")
    if "data" in content:
        return RecordMetadata(header=content["data"])
    return RecordMetadata(_header(content), payload_metadata(content.get("payload")))


def _header(content: Mapping[str, object]) -> object:
    return data_of(content.get("header"))
