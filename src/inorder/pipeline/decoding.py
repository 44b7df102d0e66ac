"""From a slice to rows: all records decoded and folded.

Nearly always every record of a slice is plain: it has a value, which is a JSON object with the right types. Then it is
read column by column, by functions that run in C. A slice with anything odd in it is read record by record by
`Decoder`, which is the rule; the short cut gives the same or gives up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import Any

import orjson

from inorder.pipeline.field_types import FIELD_TYPES, FieldType, Refused
from inorder.pipeline.fold import Change, fold
from inorder.pipeline.keys import KEY_BYTES_LIMIT, encoded_key
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.upsert import Decoder, Delete, Rejected, Update
from inorder.ports.slice_work import Slice
from inorder.ports.table_store import DeadLetter, FoldedRow, RowKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BLOCK = 1000
"""Records that are read together: small enough for the processor's cache."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the new part of a slice asks for; a record that is in neither list asks for nothing."""

    rows: list[FoldedRow]
    letters: list[DeadLetter]
    records: int
    """How many records the new part has."""


def decode_from(from_offset: int, mapping: TableMapping, batch: Slice) -> Decoded:
    """The rows and the dead letters of the part of a slice that is new."""
    first = bisect_left(batch.offsets, from_offset)
    letters: list[DeadLetter] = []
    rows = fold(chain.from_iterable(_blocks(mapping, batch, first, letters)), mapping.mode)
    return Decoded(rows, letters, len(batch) - first)


def _blocks(mapping: TableMapping, batch: Slice, first: int, letters: list[DeadLetter]) -> Iterator[Iterable[Change]]:
    """The changes, block by block: one odd record costs its own block the short cut, and no other."""
    reader = _plain_reader(mapping)
    for start in range(first, len(batch), _BLOCK):
        block = slice(start, start + _BLOCK)
        offsets, keys, values = batch.offsets[block], batch.keys[block], batch.values[block]
        changes = reader.changes(offsets, keys, values)
        yield _careful(mapping, batch, range(start, start + len(offsets)), letters) if changes is None else changes


def changes_of(
    keys: set[RowKey], from_offset: int, mapping: TableMapping, batch: Slice
) -> Iterator[tuple[int, Change]]:
    """The changes of some keys one by one, each with its place in the slice."""
    decode = Decoder(mapping).decode
    for index in range(bisect_left(batch.offsets, from_offset), len(batch)):
        decoded = decode(batch.keys[index], batch.values[index])
        if isinstance(decoded, Update | Delete) and decoded.key in keys:
            yield index, (decoded.key, batch.offsets[index], decoded.values if isinstance(decoded, Update) else None)


def dead_letter(batch: Slice, index: int, code: str, detail: str) -> DeadLetter:
    """A record of a slice as a dead letter."""
    micros = batch.timestamps[index]
    timestamp = None if micros is None else _EPOCH + timedelta(microseconds=micros)
    return DeadLetter(batch.offsets[index], code, detail, batch.keys[index], batch.values[index], timestamp)


def _careful(mapping: TableMapping, batch: Slice, places: range, letters: list[DeadLetter]) -> Iterator[Change]:
    decode = Decoder(mapping).decode
    offsets, keys, values = batch.offsets, batch.keys, batch.values
    for index in places:
        decoded = decode(keys[index], values[index])
        if type(decoded) is Update:
            yield decoded.key, offsets[index], decoded.values
        elif type(decoded) is Delete:
            yield decoded.key, offsets[index], None
        elif type(decoded) is Rejected:
            letters.append(dead_letter(batch, index, decoded.code, decoded.detail))


class _NotPlain(Exception):  # noqa: N818 - an answer, not an error
    """Something in the slice needs a closer look."""


class _PlainReader:
    """Reads slices of one mapping column by column."""

    def __init__(self, mapping: TableMapping) -> None:
        self._limit = mapping.max_value_bytes
        self._keys = [(name, FIELD_TYPES[kind]) for name, kind in mapping.key_columns]
        self._fields = [(name, FIELD_TYPES[kind]) for name, kind in mapping.fields]
        self._nothing = (None,) * len(mapping.fields)
        # A schema looks at whole documents, and a null that is written is not the same as an absent field.
        self._gives_up = bool(mapping.schema) or mapping.nulls == "write"

    def changes(
        self, offsets: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Iterable[Change] | None:
        """All changes that the records ask for; None where one of them is not plain."""
        if self._gives_up:
            return None
        try:
            documents = self._documents(values)
            identities = self._identities(documents, keys)
            columns = [self._column(documents, name, kind) for name, kind in self._fields]
        except (_NotPlain, Refused):
            return None
        changes = zip(identities, offsets, zip(*columns, strict=True), strict=True)
        if all(None in column for column in columns) and (nothing := self._nothing) in zip(*columns, strict=True):
            return [change for change in changes if change[2] != nothing]
        return changes

    def _documents(self, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
        if None in values or max(map(len, values)) > self._limit:  # type: ignore[arg-type]  # no None comes so far
            raise _NotPlain
        try:
            documents = list(map(orjson.loads, values))  # type: ignore[arg-type]  # as above
        except orjson.JSONDecodeError:
            raise _NotPlain from None
        if set(map(type, documents)) != {dict}:
            raise _NotPlain
        return documents

    def _identities(self, documents: list[dict[str, Any]], keys: Sequence[bytes | None]) -> list[RowKey]:
        columns = [self._column(documents, name, kind) for name, kind in self._keys]
        if any(None in column for column in columns):
            raise _NotPlain
        identities: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        encoded = _encoded(identities)
        if max(map(len, encoded)) > KEY_BYTES_LIMIT or (encoded != keys and any(map(_differ, encoded, keys))):
            raise _NotPlain
        return identities

    def _column(self, documents: list[dict[str, Any]], name: str, kind: FieldType) -> list[Any]:
        column = [document.get(name) for document in documents]
        types = set(map(type, column))
        if str in types and "" in column:
            column = [None if value == "" else value for value in column]
            types = set(map(type, column))
        present = column
        if type(None) in types:
            types.discard(type(None))
            present = [value for value in column if value is not None]
        if kind.is_plain(types, present):
            return column
        convert = kind.convert
        return [None if value is None else convert(value) for value in column]


def _encoded(keys: list[Any]) -> list[bytes]:
    """`encoded_key` of each; all are of one type."""
    if type(keys[0]) is tuple:
        return list(map(encoded_key, keys))
    return list(map(str.encode, map(str, keys)))


def _differ(encoded: bytes, key: bytes | None) -> bool:
    return key is not None and encoded != key


@lru_cache(maxsize=64)
def _plain_reader(mapping: TableMapping) -> _PlainReader:
    return _PlainReader(mapping)
