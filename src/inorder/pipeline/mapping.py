"""Which fields of a JSON record go to which columns of the target table: mapping, keys and field types.

**Keys.** A key of one column is its text, `7` or `anna`; a key of several columns is a JSON array of them in order,
`[7,"anna"]`, without blanks. All records of a key must be in one partition, and the record key decides the partition.
So a record whose key differs from the key in its document is refused, and so is a record without a key in a topic of
several partitions (`keyless`). What cannot be seen in a record is a producer that sends one key to several partitions,
by `partition` or by another hash: its records are found stale, and the log names their keys.

**Field types.** Each type has one rule, `convert`: it returns the value to store, or raises `Refused`. Values for which
JSON has no type are stored as text in one canonical form, so that equal values have equal texts; a `numeric` keeps the
digits after its point, as `1.50` and `1.5` differ to those who read them. `is_plain` is a short
cut: it is called for whole columns, and is true only where `convert` would return every value unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson

from inorder.model.errors import ConfigurationError
from inorder.model.names import RESERVED_COLUMNS
from inorder.pipeline.stores.ports import RowKey, Value

MODES: Final = ("upsert", "insert", "update")
DELETES: Final = ("tombstone", "reject")
NULLS: Final = ("ignore", "write")
KEYLESS: Final = ("reject", "apply")

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class TableMapping:
    """One pipeline: a topic, its target table, and the fields it carries.

    >>> TableMapping("demo", "upsert", "messages").fields
    (('enabled', 'boolean'), ('data', 'text'))
    >>> TableMapping("demo", "seats", "seats", key=("flight", "seat"), key_type=("bigint", "text")).key_columns
    (('flight', 'bigint'), ('seat', 'text'))
    """

    pipeline: str
    """Names the pointers and dead letters; two pipelines on one topic are independent of each other."""
    topic: str
    table: str
    key: str | tuple[str, ...] = "id"
    key_type: str | tuple[str, ...] = "bigint"
    """One for each column of the key, or one for all of them."""
    fields: tuple[tuple[str, str], ...] = (("enabled", "boolean"), ("data", "text"))
    mode: str = "upsert"
    """`insert` never changes a row, `update` never creates one."""
    max_value_bytes: int = 1_000_000
    """A larger record is not parsed; it becomes a dead letter."""
    schema: str = ""
    """The text of the JSON Schema of the records, so that it is pickled with the mapping; empty for none."""
    deletes: str = "tombstone"
    """What a record without a value does: delete its row (`tombstone`), or be rejected."""
    nulls: str = "ignore"
    """What a null field does: nothing, or set the column to null."""
    empty_texts: str = "ignore"
    """What an empty text in a field of the type `text` does: nothing, or set the column to it."""
    keyless: str = "reject"
    """What a record without a key does in a topic of several partitions; where there is one, it is applied."""
    max_attempts: int = 3
    """How often a row that the database refuses is tried before its records become dead letters."""
    max_refused_share: float = 0.5
    """If more of a slice, or of the last minute, is refused with one code, the partition waits (`brake.py`)."""
    target: str = ""
    """Where the rows are if not in a table of the database: `delta:` and the path of a Delta table (`delta.py`)."""

    def __post_init__(self) -> None:
        _check_known("mode", self.mode, MODES)
        _check_known("value of deletes", self.deletes, DELETES)
        _check_known("value of nulls", self.nulls, NULLS)
        _check_known("value of empty_texts", self.empty_texts, NULLS)
        _check_known("value of keyless", self.keyless, KEYLESS)
        self._check_columns()
        for name, kind in self.key_columns:
            _check_known(f"type of key {name!r}", kind, KEY_TYPES)
        for name, kind in self.fields:
            _check_known(f"type of field {name!r}", kind, tuple(FIELD_TYPES))
        self._check_at_least_one("max_value_bytes", self.max_value_bytes, 1_000_000)
        self._check_at_least_one("max_attempts", self.max_attempts, 3)
        if not 0 < self.max_refused_share <= 1:
            raise ConfigurationError(
                f"max_refused_share is {self.max_refused_share} in pipeline {self.pipeline!r}.",
                hint="Give a share above 0 and at most 1; with 1 no partition waits.",
            )

    @property
    def key_columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types."""
        names = (self.key,) if isinstance(self.key, str) else self.key
        kinds = (self.key_type,) * len(names) if isinstance(self.key_type, str) else self.key_type
        return tuple(zip(names, kinds, strict=True))

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns, in the order of `FoldedRow.values`."""
        return tuple(name for name, _ in self.fields)

    @property
    def can_delete(self) -> bool:
        """Whether a record without a value deletes its row; in mode `insert` it never does."""
        return self.deletes == "tombstone" and self.mode != "insert"

    def _check_at_least_one(self, name: str, value: int, default: int) -> None:
        if value < 1:
            raise ConfigurationError(
                f"{name} is {value} in pipeline {self.pipeline!r}.",
                hint=f"Give at least 1; the default is {default}.",
            )

    def _check_columns(self) -> None:
        if not self.fields:
            raise ConfigurationError(
                f"Pipeline {self.pipeline!r} has no fields, so no record could change table {self.table!r}.",
                hint='Name some, for example fields = { enabled = "boolean", data = "text" }.',
            )
        names = (self.key,) if isinstance(self.key, str) else self.key
        if not names or not (isinstance(self.key_type, str) or len(self.key_type) == len(names)):
            raise ConfigurationError(
                f"key = {self.key!r} and key_type = {self.key_type!r} do not match (table {self.table!r}).",
                hint="Name one type for each column of the key, or one for all.",
            )
        seen: set[str] = set()
        for name in (*self.key_names, *self.columns):
            self._check_column(name, seen)
            seen.add(name)

    def _check_column(self, name: str, seen: set[str]) -> None:
        if not _COLUMN.match(name):
            raise ConfigurationError(
                f"{name!r} is not a column name (table {self.table!r}).", hint="Use letters, digits and _."
            )
        if name in RESERVED_COLUMNS:
            raise ConfigurationError(
                f"{name!r} is a column that inorder writes itself (table {self.table!r}).", hint="Rename the field."
            )
        if name in seen:
            raise ConfigurationError(f"{name!r} is named twice (table {self.table!r}).", hint="Name each column once.")


def _check_known(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{value!r} is not a known {what}.", hint=f"Use one of: {', '.join(known)}.")


# Keys.

KEY_BYTES_LIMIT: Final = 1024
"""Longer text keys do not fit the index of every database, and one of them would stop a whole slice."""

_SHOWN = 80

KeyOf: TypeAlias = Callable[[Any], RowKey]


def encode_key(key: RowKey) -> bytes:
    """The key as a record key, and as tombstones store it."""
    return orjson.dumps(key) if isinstance(key, tuple) else str(key).encode()


class KeyReader:
    """Reads keys of one mapping; raises `Refused`, which names the column."""

    def __init__(self, mapping: TableMapping) -> None:
        self._columns = tuple((name, FIELD_TYPES[kind].convert) for name, kind in mapping.key_columns)
        self._types = tuple(kind for _, kind in mapping.key_columns)
        self._names = ", ".join(repr(name) for name in mapping.key_names)

    def from_document(self, record_key: bytes | None, document: dict[str, Any]) -> RowKey:
        """The key in the document; a record key must be the same."""
        key = self._build([document.get(name) for name, _ in self._columns])
        expected = encode_key(key)
        if len(expected) > KEY_BYTES_LIMIT:
            raise Refused("key-too-long", f"{self._names} has {len(expected)} bytes, the limit is {KEY_BYTES_LIMIT}.")
        if record_key is not None and record_key != expected:
            shown = f"The record key is {shorten(record_key)}, {self._names} is {key!r:.{_SHOWN}}."
            raise Refused("key-mismatch", shown)
        return key

    def from_record(self, record_key: bytes) -> RowKey:
        """The key of a record without a value, from its record key alone."""
        try:
            key = self._build(self._parts(record_key))
        except (ValueError, Refused) as error:
            shown = f"The record has no value, and its key {shorten(record_key)} is not one of {self._names}."
            raise Refused("key-mismatch", shown) from error
        if encode_key(key) != record_key or len(record_key) > KEY_BYTES_LIMIT:
            shown = f"The record has no value, and its key {shorten(record_key)} is not the canonical {self._names}."
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

    def _build(self, parts: list[Any]) -> RowKey:
        found: list[int | str] = []
        for (name, convert), part in zip(self._columns, parts, strict=True):
            if part is None or part == "":
                raise Refused("missing-key", f"The field {name!r} is absent or empty.")
            try:
                found.append(convert(part))  # type: ignore[arg-type]  # key types convert to int and str only
            except Refused as refused:
                raise Refused(refused.code, f"The field {name!r} {refused.detail}.") from None
        return found[0] if len(found) == 1 else tuple(found)


# Field types.

_DECIMAL = re.compile(r"(?P<sign>-?)0*(?P<whole>[0-9]+?)(?:\.(?P<fraction>[0-9]+))?\Z")
_WHOLE_DIGITS, _FRACTION_DIGITS = 35, 30
"""What DECIMAL of MySQL can hold; it would round a wider number silently."""
_NUMERIC_CHARACTERS = 350
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of U+0000 in a JSON text, and not a backslash followed by u0000."""


class Refused(Exception):  # noqa: N818 - caught where a record is decoded
    """A value that its field does not accept."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


Convert: TypeAlias = Callable[[Any], Value]
IsPlain: TypeAlias = Callable[[set[type], Sequence[Any]], bool]


def _never_plain(_types: set[type], _present: Sequence[Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class FieldType:
    """The rule of a type, and a short cut if it has one."""

    convert: Convert
    is_plain: IsPlain = _never_plain
    """Called with the types in a column and its values, without nulls."""


def shorten(value: object) -> str:
    """A value for a log line or the detail of a dead letter."""
    try:
        text = repr(value[:_SHOWN]) if isinstance(value, bytes | str) else repr(value)
    except RecursionError:  # JSON may be nested more deeply than Python shows
        return f"a JSON {json_type(value)} that is nested too deeply to be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def json_type(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _wrong_type(value: object, kind: str) -> Refused:
    return Refused("wrong-type", f"is a JSON {json_type(value)}, not {kind}: {shorten(value)}")


def _boolean() -> FieldType:
    def convert(value: Any) -> Value:
        if value is True or value is False:
            return value
        raise _wrong_type(value, "boolean")

    return FieldType(convert, lambda types, _: types <= {bool})


def _whole(kind: str, bits: int) -> FieldType:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> Value:
        if type(value) is int and low <= value <= high:
            return value
        # orjson reads whole numbers beyond 64 bits as floats
        if type(value) is int or (type(value) is float and abs(value) > high):
            raise Refused("out-of-range", f"is {value}, outside {kind}")
        raise _wrong_type(value, kind)

    def is_plain(types: set[type], present: Sequence[Any]) -> bool:
        return not types or (types == {int} and low <= min(present) and max(present) <= high)

    return FieldType(convert, is_plain)


def _double() -> FieldType:
    def convert(value: Any) -> Value:
        if type(value) in (float, int):
            return float(value)
        raise _wrong_type(value, "double")

    return FieldType(convert, lambda types, _: types <= {float})


def _text() -> FieldType:
    def convert(value: Any) -> Value:
        if type(value) is not str:
            raise _wrong_type(value, "text")
        if "\0" in value:
            raise Refused("nul-character", "contains the character U+0000, which tables cannot store")
        return value

    return FieldType(convert, lambda types, present: types <= {str} and "\0" not in "".join(present))


def _numeric(value: Any) -> Value:
    """The digits of a text as they are, so that 1.50 keeps its scale; a JSON number has none."""
    if type(value) not in (str, int, float):
        raise _wrong_type(value, "numeric")
    digits = value if type(value) is str else format(Decimal(repr(value)), "f")
    found = _DECIMAL.match(digits) if len(digits) <= _NUMERIC_CHARACTERS else None
    if found is None:
        raise Refused("wrong-type", f"is not a decimal number: {shorten(value)}")
    whole, fraction = found["whole"], found["fraction"] or ""
    if type(value) is float or len(fraction) > _FRACTION_DIGITS:
        fraction = fraction.rstrip("0")
    if len(whole) > _WHOLE_DIGITS or len(fraction) > _FRACTION_DIGITS:
        limits = f"{_WHOLE_DIGITS} digits before the point and {_FRACTION_DIGITS} after it"
        raise Refused("out-of-range", f"is {shorten(value)}, and numeric allows at most {limits}")
    number = f"{whole}.{fraction}" if fraction else whole
    return f"{found['sign']}{number}" if number.strip("0.") else number


def _timestamp(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "timestamp")
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise Refused("wrong-type", f"is a time without a time zone (write 2026-01-31T12:00:00Z): {shorten(value)}")
        return moment.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    except (ValueError, OverflowError) as error:
        raise Refused("wrong-type", f"is not an RFC 3339 time: {shorten(value)}") from error


def _date(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "date")
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError as error:
        raise Refused("wrong-type", f"is not a date (write 2026-01-31): {shorten(value)}") from error


def _uuid(value: Any) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "uuid")
    try:
        return str(UUID(value))
    except ValueError as error:
        raise Refused("wrong-type", f"is not a uuid: {shorten(value)}") from error


def _json(value: Any) -> Value:
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise Refused("wrong-type", f"is JSON nested too deeply to be stored: {shorten(value)}") from error
    if _NUL.search(text):
        raise Refused("nul-character", "contains the character U+0000, which tables cannot store")
    return text


FIELD_TYPES: Final[dict[str, FieldType]] = {
    "boolean": _boolean(),
    "integer": _whole("integer", 32),
    "bigint": _whole("bigint", 64),
    "double": _double(),
    "numeric": FieldType(_numeric),
    "text": _text(),
    "timestamp": FieldType(_timestamp),
    "date": FieldType(_date),
    "uuid": FieldType(_uuid),
    "json": FieldType(_json),
}
KEY_TYPES: Final = ("bigint", "integer", "text", "uuid")
