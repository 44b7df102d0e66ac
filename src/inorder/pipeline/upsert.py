"""The `upsert` job's decisions about one record: what it asks for, or why it cannot be applied.

A field that is absent is not touched; nor is one that is null or an empty text, unless the mapping says that a null
empties its column. Fields that the mapping does not know are ignored. A record without a value deletes its row.
Publishers ask the same code before they send.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import orjson

from inorder.pipeline.field_types import FIELD_TYPES, Refused, json_type, shortened
from inorder.pipeline.json_schema import schema_check
from inorder.pipeline.keys import KEY_BYTES_LIMIT, KeyReader
from inorder.pipeline.mapping import TableMapping
from inorder.ports.table_store import NULL, Assigned, RowKey

__all__ = ["IGNORED", "KEY_BYTES_LIMIT", "Decoded", "Decoder", "Delete", "Ignored", "Rejected", "Update", "shortened"]


class Update(NamedTuple):
    """A valid record: `values` follow the mapping's fields, None keeps the column, NULL empties it."""

    key: RowKey
    values: tuple[Assigned, ...]


class Delete(NamedTuple):
    """A valid record without a value: the row goes."""

    key: RowKey


class Rejected(NamedTuple):
    """A record that cannot be applied, with a stable code for programs and a detail for people."""

    code: str
    detail: str


class Ignored(NamedTuple):
    """A valid record that asks for nothing: only a key."""


IGNORED = Ignored()
Decoded: TypeAlias = Update | Delete | Rejected | Ignored


class Decoder:
    """Decodes records by one mapping; made once per slice, called once per record."""

    def __init__(self, mapping: TableMapping) -> None:
        self._why = f"mode {mapping.mode!r}, deletes {mapping.deletes!r}"
        self._can_delete = mapping.can_delete
        self._limit = mapping.max_value_bytes
        self._schema = schema_check(mapping.schema) if mapping.schema else None
        self._keys = KeyReader(mapping)
        self._fields = tuple((name, FIELD_TYPES[kind].convert) for name, kind in mapping.fields)
        self._null = NULL if mapping.nulls == "write" else None
        self._nothing = (None,) * len(mapping.fields)

    def decode(self, key: bytes | None, value: bytes | None) -> Decoded:
        """What the record asks for; it never raises."""
        try:
            if value is None:
                return self._delete(key)
            if len(value) > self._limit:
                return Rejected("too-large", f"The value has {len(value)} bytes, the limit is {self._limit}.")
            document = orjson.loads(value)
            return self._flaw(document) or self._update(key, document)
        except orjson.JSONDecodeError as error:
            return Rejected("not-json", f"{error}; it begins {shortened(value)}.")
        except Refused as refused:
            return Rejected(refused.code, refused.detail)

    def _delete(self, key: bytes | None) -> Decoded:
        if not self._can_delete:
            return Rejected("null-value", f"The record has no value, and this pipeline takes no deletes ({self._why}).")
        if key is None:
            return Rejected("null-value", "The record has neither a value nor a key, so it names no row to delete.")
        return Delete(self._keys.from_record(key))

    def _flaw(self, document: Any) -> Rejected | None:
        if type(document) is not dict:
            return Rejected("not-an-object", f"The value is a JSON {json_type(document)}: {shortened(document)}.")
        if self._schema is not None and (flaw := self._schema(document)) is not None:
            return Rejected("schema-mismatch", flaw)
        return None

    def _update(self, record_key: bytes | None, document: dict[str, Any]) -> Decoded:
        key = self._keys.from_document(record_key, document)
        values: list[Assigned] = []
        for name, convert in self._fields:
            value = document.get(name)
            if value is None:
                values.append(self._null if name in document else None)
            elif value == "":
                values.append(None)
            else:
                try:
                    values.append(convert(value))
                except Refused as refused:
                    return Rejected(refused.code, f"The field {name!r} {refused.detail}.")
        update = Update(key, tuple(values))
        return IGNORED if update.values == self._nothing else update
