"""The `upsert` job's decisions: what a record asks for, and what many records of one key amount to.

A field that is absent, null or an empty text is not touched; fields the mapping does not know are ignored.
So None can stand for "keep" from here to the database, because no message can ask for a null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import orjson

from inorder.pipeline.mapping import TableMapping
from inorder.ports.table_store import FoldedRow, RowKey, Value

KEY_BYTES_LIMIT = 1024
"""Longer text keys do not fit every database's index, and one of them would stop a whole slice."""

_SHOWN = 80


class Update(NamedTuple):
    """A valid record: `values` follow the mapping's fields, None keeps the column."""

    key: RowKey
    values: tuple[Value | None, ...]


class Rejected(NamedTuple):
    """A record that cannot be applied, with a stable code for programs and a detail for people."""

    code: str
    detail: str


class Ignored(NamedTuple):
    """A valid record that asks for nothing: only a key."""


IGNORED = Ignored()
Decoded: TypeAlias = Update | Rejected | Ignored
_Refusal: TypeAlias = tuple[str, str]
_Check: TypeAlias = Callable[[Any], _Refusal | None]


class Decoder:
    """Turns records into updates by one mapping; made once per slice, called once per record."""

    def __init__(self, mapping: TableMapping) -> None:
        self._limit = mapping.max_value_bytes
        self._key = mapping.key
        self._check_key = _CHECKS[mapping.key_type]
        self._fields = tuple((name, _CHECKS[kind]) for name, kind in mapping.fields)
        self._nothing = (None,) * len(mapping.fields)

    def decode(self, key: bytes | None, value: bytes | None) -> Decoded:
        """What the record asks for; it never raises."""
        if value is None:
            return Rejected("null-value", "The record has no value; deletes are not part of mode 'upsert'.")
        if len(value) > self._limit:
            return Rejected("too-large", f"The value has {len(value)} bytes, the limit is {self._limit}.")
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            return Rejected("not-json", f"{error}; it begins {shortened(value)}.")
        if type(document) is not dict:
            return Rejected("not-an-object", f"The value is a JSON {_json_type(document)}: {shortened(document)}.")
        identity: Any = document.get(self._key)
        if (refusal := self._refuse_key(key, identity)) is not None:
            return refusal
        return self._update(identity, document)

    def _refuse_key(self, key: bytes | None, identity: Any) -> Rejected | None:
        if identity is None or identity == "":
            return Rejected("missing-key", f"The field {self._key!r} is absent or empty.")
        if (refusal := self._check_key(identity)) is not None:
            return Rejected(refusal[0], f"The field {self._key!r} {refusal[1]}.")
        expected = str(identity).encode()
        if len(expected) > KEY_BYTES_LIMIT:
            return Rejected("key-too-long", f"{self._key!r} has {len(expected)} bytes, the limit is {KEY_BYTES_LIMIT}.")
        if key is not None and key != expected:
            return Rejected(
                "key-mismatch",
                f"The record key is {shortened(key)}, {self._key!r} is {identity!r:.{_SHOWN}}.",
            )
        return None

    def _update(self, identity: RowKey, document: dict[str, Any]) -> Decoded:
        values: list[Value | None] = []
        for name, check in self._fields:
            value = document.get(name)
            if not value and (value is None or value == ""):
                values.append(None)
            elif (refusal := check(value)) is None:
                values.append(value)
            else:
                return Rejected(refusal[0], f"The field {name!r} {refusal[1]}.")
        update = Update(identity, tuple(values))
        return IGNORED if update.values == self._nothing else update


def fold(updates: Iterable[tuple[int, Update]]) -> list[FoldedRow]:
    """One row per key, keys ascending, from (offset, update) pairs in offset order."""
    rows: dict[RowKey, tuple[tuple[Value | None, ...], int, int, bool]] = {}
    for offset, (key, values) in updates:
        before = rows.get(key)
        if before is None:
            rows[key] = (values, offset, 1, False)
            continue
        older, _, records, wavered = before
        merged = values if None not in values else _laid_over(older, values)
        rows[key] = (merged, offset, records + 1, wavered or _disagree(older, values))
    return [FoldedRow(key, *rows[key]) for key in sorted(rows)]


def _disagree(older: tuple[Value | None, ...], newer: tuple[Value | None, ...]) -> bool:
    pairs = zip(older, newer, strict=True)
    return any(old is not None and new is not None and old != new for old, new in pairs)


def _laid_over(older: tuple[Value | None, ...], newer: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    return tuple(old if new is None else new for old, new in zip(older, newer, strict=True))


def shortened(value: object) -> str:
    """A value as it may stand in a log line or a dead letter's detail."""
    text = repr(value[:_SHOWN]) if isinstance(value, bytes | str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check_boolean(value: Any) -> _Refusal | None:
    return None if value is True or value is False else _wrong_type(value, "boolean")


def _check_whole(kind: str, bits: int) -> _Check:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def check(value: Any) -> _Refusal | None:
        if type(value) is int:
            return None if low <= value <= high else ("out-of-range", f"is {value}, outside {kind}")
        if type(value) is float and abs(value) > high:  # orjson reads whole numbers beyond 64 bits as floats
            return "out-of-range", f"is {value}, outside {kind}"
        return _wrong_type(value, kind)

    return check


def _check_double(value: Any) -> _Refusal | None:
    return None if type(value) in (float, int) else _wrong_type(value, "double")


def _check_text(value: Any) -> _Refusal | None:
    if type(value) is not str:
        return _wrong_type(value, "text")
    return ("nul-character", "holds the character U+0000, which tables cannot store") if "\0" in value else None


def _wrong_type(value: object, kind: str) -> _Refusal:
    return "wrong-type", f"is a JSON {_json_type(value)}, not {kind}: {shortened(value)}"


def _json_type(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


_CHECKS: dict[str, _Check] = {
    "boolean": _check_boolean,
    "integer": _check_whole("integer", 32),
    "bigint": _check_whole("bigint", 64),
    "double": _check_double,
    "text": _check_text,
}
