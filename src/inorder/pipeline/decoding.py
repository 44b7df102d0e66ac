"""From a slice to rows: decodes every record, and folds the records of a key into one row.

**One record** (`Decoder`). An absent field is not touched; nor is one that is null or an empty text, unless the mapping
says that a null empties its column. Fields that the mapping does not name are ignored, and counted by name: a producer
may have begun to send what the table lacks. A record without a value deletes its row. Publishers run the same code
before they send (`checks.py`). Any error that decoding raises is that record's own: it becomes its dead letter, so no
record ends the job, not even by a flaw of ours or of a library.

**A record without a key** is refused where the caller says that records need one (`NeedsKey`): in a topic of several
partitions nothing decides which of them it is in, so it has no order among the other records of its row.

**Records of one key** (`fold`). A row is folded in offset order, and the result is what the records would have left one
by one. In mode `insert` that is the first of them. In mode `update` nothing follows a delete, because a row that is
gone is not created again.

**Speed** (`_PlainReader`). Nearly always every record of a slice is plain: it has a value, which is a JSON object with
the right types. Then the slice is read column by column, by functions that run in C. A block with any other record is
read record by record by `Decoder`, which is the rule; the short cut gives the same result or gives up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from inorder.engines.slice_work import Slice
from inorder.model.errors import ConfigurationError, InorderError, last_line
from inorder.pipeline.mapping import (
    FIELD_TYPES,
    KEY_BYTES_LIMIT,
    FieldType,
    KeyReader,
    Refused,
    TableMapping,
    encode_key,
    json_type,
    shorten,
)
from inorder.pipeline.stores.ports import NULL, Assigned, DeadLetter, FoldedRow, RowKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_RECORD_KEY: Final = "no-record-key"
_BLOCK = 1000
"""How many records are read together: few enough for the processor's cache."""

UNEXPECTED = "unexpected-error"
"""The code of a record at which our own code, or that of a library, fails."""


class RowUpdate(NamedTuple):
    """A valid record: `values` follow the mapping's fields, None keeps the column, NULL empties it."""

    key: RowKey
    values: tuple[Assigned, ...]


class RowDelete(NamedTuple):
    """A valid record without a value: it deletes the row."""

    key: RowKey


class Rejected(NamedTuple):
    """A record that cannot be applied, with a stable code for programs and a detail for people."""

    code: str
    detail: str


class Ignored(NamedTuple):
    """A valid record with a key only: it changes nothing."""


IGNORED = Ignored()
Decision: TypeAlias = RowUpdate | RowDelete | Rejected | Ignored
Values: TypeAlias = tuple[Assigned, ...]
Change: TypeAlias = tuple[RowKey, int, Values | None]
"""A key, an offset, and the values of an update; None deletes."""
NeedsKey: TypeAlias = Callable[[], bool]
"""Whether a record without a key is refused; called only where there is one."""


def needs_no_key() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Decoded:
    """The changes of the new part of a slice; a record in neither list changes nothing."""

    rows: list[FoldedRow]
    letters: list[DeadLetter]
    records: int
    """The number of records of the new part."""
    unknown: Counter[str] = field(default_factory=Counter)
    """The fields of valid records that the mapping does not name, each with the number of records."""


def decode_from(from_offset: int, mapping: TableMapping, batch: Slice, needs_key: NeedsKey = needs_no_key) -> Decoded:
    """Decodes the part of a slice that is new into rows and dead letters."""
    first = bisect_left(batch.offsets, from_offset)
    decoded = Decoded([], [], len(batch) - first)
    decoded.rows[:] = fold(changes_of(mapping, batch, first, needs_key, decoded), mapping.mode)
    return decoded


def changes_of(
    mapping: TableMapping, batch: Slice, first: int, needs_key: NeedsKey, decoded: Decoded
) -> Iterator[Change]:
    """The changes of a slice from one of its records on; letters and unknown fields are added to `decoded`."""
    return chain.from_iterable(_blocks(mapping, batch, first, needs_key, decoded))


def _blocks(
    mapping: TableMapping, batch: Slice, first: int, needs_key: NeedsKey, decoded: Decoded
) -> Iterator[Iterable[Change]]:
    """The changes, block by block, so that a record that is not plain slows down only its own block."""
    reader = _plain_reader(mapping)
    decoder: Decoder | None = None
    for start in range(first, len(batch), _BLOCK):
        block = slice(start, start + _BLOCK)
        offsets, keys, values = batch.offsets[block], batch.keys[block], batch.values[block]
        changes = reader.changes(offsets, keys, values, needs_key, decoded.unknown)
        if changes is None:
            decoder = decoder or Decoder(mapping, needs_key, decoded.unknown)
            changes = _decode_each(decoder, batch, range(start, start + len(offsets)), decoded.letters)
        yield changes


def decode_changes(
    keys: set[RowKey], from_offset: int, mapping: TableMapping, batch: Slice, needs_key: NeedsKey = needs_no_key
) -> Iterator[tuple[int, Change]]:
    """The changes of some keys one by one, each with its index in the slice."""
    decode = Decoder(mapping, needs_key).decode
    for index in range(bisect_left(batch.offsets, from_offset), len(batch)):
        decoded = decode(batch.keys[index], batch.values[index])
        if isinstance(decoded, RowUpdate | RowDelete) and decoded.key in keys:
            yield index, (decoded.key, batch.offsets[index], decoded.values if isinstance(decoded, RowUpdate) else None)


def dead_letter(batch: Slice, index: int, code: str, detail: str) -> DeadLetter:
    """The letter of a record; nothing in it keeps it from being stored."""
    storable = detail.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    moment = _moment(batch.timestamps[index])
    return DeadLetter(batch.offsets[index], code, storable, batch.keys[index], batch.values[index], moment)


def _moment(micros: int | None) -> datetime | None:
    """A record's timestamp; None for one before the year 1 or after 9999, which producers may send."""
    try:
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _decode_each(decoder: Decoder, batch: Slice, places: range, letters: list[DeadLetter]) -> Iterator[Change]:
    decode = decoder.decode
    offsets, keys, values = batch.offsets, batch.keys, batch.values
    for index in places:
        decoded = decode(keys[index], values[index])
        if type(decoded) is RowUpdate:
            yield decoded.key, offsets[index], decoded.values
        elif type(decoded) is RowDelete:
            yield decoded.key, offsets[index], None
        elif type(decoded) is Rejected:
            letters.append(dead_letter(batch, index, decoded.code, decoded.detail))


def fold(changes: Iterable[Change], mode: str = "upsert") -> list[FoldedRow]:
    """The rows, keys ascending; they do not count changes that the mode leaves out."""
    # A list per key: values, offset, records, wavered. This is the innermost loop of the job, so it is flat.
    rows: dict[RowKey, list[object]] = {}
    find, is_insert, is_update = rows.get, mode == "insert", mode == "update"
    for key, offset, values in changes:
        row = find(key)
        if row is None:
            rows[key] = [values, offset, 1, False]
            continue
        older: Values | None = row[0]  # type: ignore[assignment]  # lists have the types given above
        if is_insert or (is_update and older is None and values is not None):
            continue
        row[1] = offset
        row[2] += 1  # type: ignore[operator]  # as above
        if older is None or values is None:
            row[0], row[3] = _after_delete(values), row[3] or values is not older
            continue
        if not row[3]:
            row[3] = _disagree(older, values)
        row[0] = values if None not in values else _overlay(older, values)
    return [FoldedRow(key, *rows[key]) for key in sorted(rows)]  # type: ignore[arg-type]  # as above


def _after_delete(values: Values | None) -> Values | None:
    """A row that is created again begins with nulls."""
    return None if values is None else tuple([NULL if value is None else value for value in values])


def _disagree(older: Values, newer: Values) -> bool:
    for old, new in zip(older, newer, strict=True):  # noqa: SIM110 - any() with a generator takes three times as long
        if old is not None and new is not None and old != new:
            return True
    return False


def _overlay(older: Values, newer: Values) -> Values:
    return tuple([old if new is None else new for old, new in zip(older, newer, strict=True)])


def _known_fields(mapping: TableMapping) -> frozenset[str]:
    return frozenset((*mapping.key_names, *mapping.columns))


class Decoder:
    """Decodes records by one mapping."""

    def __init__(
        self, mapping: TableMapping, needs_key: NeedsKey = needs_no_key, unknown: Counter[str] | None = None
    ) -> None:
        """`unknown` counts the valid records with a field that the mapping does not name, by field."""
        self._needs_key = needs_key
        self._unknown = Counter[str]() if unknown is None else unknown
        self._known = _known_fields(mapping)
        self._why = f"mode {mapping.mode!r}, deletes {mapping.deletes!r}"
        self._can_delete = mapping.can_delete
        self._limit = mapping.max_value_bytes
        self._schema = schema_check(mapping.schema) if mapping.schema else None
        self._keys = KeyReader(mapping)
        self._fields = tuple((name, FIELD_TYPES[kind].convert) for name, kind in mapping.fields)
        self._null = NULL if mapping.nulls == "write" else None
        self._empty = _written_empty(mapping)
        self._nothing = (None,) * len(mapping.fields)

    def decode(self, key: bytes | None, value: bytes | None) -> Decision:
        """What the record changes; raises only what is not its fault: a lack of memory, and errors of `needs_key`."""
        try:
            if value is None:
                return self._delete(key)
            if len(value) > self._limit:
                return Rejected("too-large", f"The value has {len(value)} bytes, the limit is {self._limit}.")
            document = orjson.loads(value)
            return self._flaw(document) or self._update(key, document)
        except orjson.JSONDecodeError as error:
            return Rejected("not-json", f"{error}; it begins with {shorten(value)}.")
        except Refused as refused:
            return Rejected(refused.code, refused.detail)
        except (MemoryError, InorderError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of one record
            return Rejected(UNEXPECTED, f"Decoding it failed: {last_line(error)}")

    def _delete(self, key: bytes | None) -> Decision:
        if not self._can_delete:
            return Rejected(
                "null-value", f"The record has no value, and this pipeline does not allow deletes ({self._why})."
            )
        if key is None:
            return Rejected("null-value", "The record has neither a value nor a key, so it names no row to delete.")
        return RowDelete(self._keys.from_record(key))

    def _flaw(self, document: Any) -> Rejected | None:
        if type(document) is not dict:
            return Rejected("not-an-object", f"The value is a JSON {json_type(document)}: {shorten(document)}.")
        if self._schema is not None and (flaw := self._schema(document)) is not None:
            return Rejected("schema-mismatch", flaw)
        return None

    def _update(self, record_key: bytes | None, document: dict[str, Any]) -> Decision:
        key = self._keys.from_document(record_key, document)
        if record_key is None and self._needs_key():
            return Rejected(
                NO_RECORD_KEY,
                f"The record of row {shorten(key)} has no Kafka key, and its topic has several partitions: nothing"
                " decides which one it is in, so it cannot be ordered.",
            )
        values: list[Assigned] = []
        for name, convert in self._fields:
            value = document.get(name)
            if value is None:
                values.append(self._null if name in document else None)
            elif value == "" and name not in self._empty:
                values.append(None)
            else:
                try:
                    values.append(convert(value))
                except Refused as refused:
                    return Rejected(refused.code, f"The field {name!r} {refused.detail}.")
        self._unknown.update(document.keys() - self._known)
        update = RowUpdate(key, tuple(values))
        return IGNORED if update.values == self._nothing else update


def _written_empty(mapping: TableMapping) -> frozenset[str]:
    """The fields in which an empty text is a value."""
    writes = mapping.empty_texts == "write"
    return frozenset(name for name, kind in mapping.fields if writes and kind == "text")


class _NotPlain(Exception):  # noqa: N818 - an answer, not an error
    """A record of the block must be decoded by `Decoder`."""


class _PlainReader:
    """Reads slices of one mapping column by column."""

    def __init__(self, mapping: TableMapping) -> None:
        self._limit = mapping.max_value_bytes
        self._known = _known_fields(mapping)
        self._keys = [(name, FIELD_TYPES[kind]) for name, kind in mapping.key_columns]
        self._fields = [(name, FIELD_TYPES[kind]) for name, kind in mapping.fields]
        self._empty = _written_empty(mapping)
        self._nothing = (None,) * len(mapping.fields)
        # A schema checks whole documents, and a null that is written differs from an absent field.
        self._gives_up = bool(mapping.schema) or mapping.nulls == "write"

    def changes(
        self,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        needs_key: NeedsKey,
        unknown: Counter[str],
    ) -> Iterable[Change] | None:
        """The changes of all records; None where one of them is not plain."""
        if self._gives_up:
            return None
        try:
            documents = self._documents(values)
            identities = self._identities(documents, keys, needs_key)
            columns = [self._column(documents, name, kind) for name, kind in self._fields]
        except InorderError:
            raise
        except Exception:  # noqa: BLE001 - `Decoder` decides, and says what is wrong with which record
            return None
        if set().union(*documents) - self._known:
            names = Counter(chain.from_iterable(documents))
            unknown.update({name: number for name, number in names.items() if name not in self._known})
        changes = zip(identities, offsets, zip(*columns, strict=True), strict=True)
        if all(None in column for column in columns) and (nothing := self._nothing) in zip(*columns, strict=True):
            return [change for change in changes if change[2] != nothing]
        return changes

    def _documents(self, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
        if None in values or max(map(len, values)) > self._limit:  # type: ignore[arg-type]  # None is excluded first
            raise _NotPlain
        try:
            documents = list(map(orjson.loads, values))  # type: ignore[arg-type]  # as above
        except orjson.JSONDecodeError:
            raise _NotPlain from None
        if set(map(type, documents)) != {dict}:
            raise _NotPlain
        return documents

    def _identities(
        self, documents: list[dict[str, Any]], keys: Sequence[bytes | None], needs_key: NeedsKey
    ) -> list[RowKey]:
        columns = [self._column(documents, name, kind) for name, kind in self._keys]
        if any(None in column for column in columns):
            raise _NotPlain
        identities: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        # Whole numbers are compared as one text: none contains a comma, so equal texts have equal parts.
        if type(identities[0]) is int and None not in keys:
            if orjson.dumps(identities)[1:-1] != b",".join(keys):  # type: ignore[arg-type]  # None is excluded
                raise _NotPlain
            return identities
        encoded = _encode_keys(identities)
        if max(map(len, encoded)) > KEY_BYTES_LIMIT:
            raise _NotPlain
        if encoded != keys and (any(map(_differ, encoded, keys)) or (None in keys and needs_key())):
            raise _NotPlain
        return identities

    def _column(self, documents: list[dict[str, Any]], name: str, kind: FieldType) -> list[Any]:
        column = [document.get(name) for document in documents]
        types = set(map(type, column))
        if str in types and name not in self._empty and "" in column:
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


def _encode_keys(keys: list[Any]) -> list[bytes]:
    """`encode_key` of each; all have one type."""
    if type(keys[0]) is tuple:
        return list(map(encode_key, keys))
    return list(map(str.encode, map(str, keys)))


def _differ(encoded: bytes, key: bytes | None) -> bool:
    return key is not None and encoded != key


@lru_cache(maxsize=64)
def _plain_reader(mapping: TableMapping) -> _PlainReader:
    return _PlainReader(mapping)


# The JSON Schema of a topic.

SchemaCheck: TypeAlias = Callable[[object], str | None]
"""What is wrong with a document, for people; None where it is valid."""

_SHOWN = 200


@cache
def schema_check(text: str) -> SchemaCheck:
    """The check of a schema, compiled once per process.

    A mapping carries the text of the schema, not the validator: it is pickled to Spark's workers, and equal texts share
    one validator in each. A check takes about half a microsecond. Nothing is fetched: a schema that refers to another
    file is refused when it is compiled, because the checks of a publisher must not depend on a server.

    Raises `ConfigurationError` if the text is no schema, or if the extra is not installed.
    """
    validator = _compile(text)

    def check(document: object) -> str | None:
        return None if validator.is_valid(document) else _flaw(next(validator.iter_errors(document)))

    return check


def _compile(text: str) -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise ConfigurationError(
            "A topic has a json_schema, but the package jsonschema-rs is not installed.",
            hint="Install it with `pip install 'inorder[schema]'`.",
        ) from error
    try:
        return jsonschema_rs.validator_for(text, offline=True)
    except ValueError as error:
        raise ConfigurationError(
            f"The json_schema of a topic is not a valid JSON Schema: {' '.join(str(error).split())}",
            hint="Fix the file; it must be one JSON Schema without references to other files.",
        ) from error


def _flaw(error: Any) -> str:
    """The field, the rule, and the message of the library, which names the value."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    subject = f"The field {place!r}" if place else "The value"
    rule = next((part for part in reversed(error.schema_path) if isinstance(part, str)), "")
    message = error.message if len(error.message) <= _SHOWN else f"{error.message[:_SHOWN]}…"
    return f"{subject} breaks the rule {rule!r} of the topic's schema: {message}."
