"""The key of a row, in a document and as the key of a Kafka record.

One column is its text, `7` or `anna`; several are a JSON array of them in order, `[7,"anna"]`, without blanks. All
records of a key must be in one partition, and the record key decides the partition. So a record key that says something
else than the document is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import orjson

from inorder.pipeline.field_types import FIELD_TYPES, Refused, shortened
from inorder.pipeline.mapping import TableMapping
from inorder.ports.table_store import RowKey

KEY_BYTES_LIMIT: Final = 1024
"""Longer text keys do not fit every database's index, and one of them would stop a whole slice."""

_SHOWN = 80

KeyOf: TypeAlias = Callable[[Any], RowKey]


def encoded_key(key: RowKey) -> bytes:
    """The key as the key of a record, and as tombstones keep it."""
    return orjson.dumps(key) if isinstance(key, tuple) else str(key).encode()


class KeyReader:
    """Reads the key of one mapping; what it refuses it raises as `Refused`, the column named."""

    def __init__(self, mapping: TableMapping) -> None:
        self._columns = tuple((name, FIELD_TYPES[kind].convert) for name, kind in mapping.key_columns)
        self._types = tuple(kind for _, kind in mapping.key_columns)
        self._names = ", ".join(repr(name) for name in mapping.key_names)

    def from_document(self, record_key: bytes | None, document: dict[str, Any]) -> RowKey:
        """The key that the document names; a record key must be the same."""
        key = self._made([document.get(name) for name, _ in self._columns])
        expected = encoded_key(key)
        if len(expected) > KEY_BYTES_LIMIT:
            raise Refused("key-too-long", f"{self._names} has {len(expected)} bytes, the limit is {KEY_BYTES_LIMIT}.")
        if record_key is not None and record_key != expected:
            shown = f"The record key is {shortened(record_key)}, {self._names} is {key!r:.{_SHOWN}}."
            raise Refused("key-mismatch", shown)
        return key

    def from_record(self, record_key: bytes) -> RowKey:
        """The key that a record without a value names, by its record key alone."""
        try:
            key = self._made(self._parts(record_key))
        except (ValueError, Refused) as error:
            shown = f"The record has no value, and its key {shortened(record_key)} is not one of {self._names}."
            raise Refused("key-mismatch", shown) from error
        if encoded_key(key) != record_key or len(record_key) > KEY_BYTES_LIMIT:
            shown = f"The record has no value, and its key {shortened(record_key)} is not written as {self._names} is."
            raise Refused("key-mismatch", shown)
        return key

    def _parts(self, record_key: bytes) -> list[Any]:
        if len(self._columns) == 1:
            text = record_key.decode()
            return [text if self._types[0] in ("text", "uuid") else int(text)]
        parts = orjson.loads(record_key)
        if type(parts) is not list or len(parts) != len(self._columns):
            raise ValueError(parts)
        return parts

    def _made(self, parts: list[Any]) -> RowKey:
        found: list[int | str] = []
        for (name, convert), part in zip(self._columns, parts, strict=True):
            if part is None or part == "":
                raise Refused("missing-key", f"The field {name!r} is absent or empty.")
            try:
                found.append(convert(part))  # type: ignore[arg-type]  # types of keys convert to int and str only
            except Refused as refused:
                raise Refused(refused.code, f"The field {name!r} {refused.detail}.") from None
        return found[0] if len(found) == 1 else tuple(found)
