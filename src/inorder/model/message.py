"""A message as applications write it, the record of bytes that it becomes, and the outbox row that carries it.

`encode` is the only way from a message to a record. It checks everything that can be known without a server, so a
message that Kafka could never accept is refused in the caller's transaction and not hours later in the relay.

Headers are stored in one text column, as JSON that people can read and that restores the exact bytes (`to_text`,
`from_text`):

    [["trace", "4bf92f35"], ["digest", {"base64": "/wA="}], ["flag", null]]

A value that is UTF-8 is stored as text, any other as base64, a missing one as null. Order and repeated names are kept.
No headers are SQL NULL.

orjson is the only JSON codec of inorder, and the only import here from outside the standard library: it writes bytes,
not text, it refuses what JSON cannot represent, and the same value gives the same bytes everywhere.
"""

from __future__ import annotations

import binascii
import dataclasses
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from reprlib import Repr
from typing import NamedTuple
from uuid import UUID

import orjson

from inorder.model.errors import PermanentError, ValidationError

MessageKey = str | bytes | int | UUID
HeaderValue = str | bytes | None
MessageHeaders = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]
RecordHeaders = tuple[tuple[str, bytes | None], ...]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")
_TOPIC_CHARACTERS = 249
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
# Two varints of at most five bytes: what Kafka's record format adds to each header.
_HEADER_OVERHEAD_BYTES = 10

_repr = Repr()
_repr.maxstring = _repr.maxother = 80


@dataclass(frozen=True, slots=True)
class Message:
    """One event for a topic; it is checked and encoded when it is published.

    `key` decides the partition and so the order: messages of one key stay in order. `value` is sent unchanged if it is
    bytes, as UTF-8 if it is text, and as JSON otherwise; `None` is a tombstone. `timestamp` is an aware datetime or
    milliseconds since 1970; without it the relay's producer sets the time of sending. A broker refuses times further
    ahead than its `message.timestamp.after.max.ms`, an hour by default.

    >>> Message("orders", key=42, value={"id": 42, "enabled": True}).topic
    'orders'
    """

    topic: str
    key: MessageKey | None = None
    value: object = None
    headers: MessageHeaders | None = None
    partition: int | None = None
    timestamp: datetime | int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A message as the bytes that Kafka carries."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    partition: int | None
    timestamp_ms: int | None


class OutboxRow(NamedTuple):
    """One row of an outbox, decoded; a named tuple because a relay creates a hundred thousand of them per second."""

    id: int
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None
    flaw: str = ""
    """Why this row cannot be sent: another program wrote it wrongly."""
    partition_key: bytes | None = None
    """What decides the partition instead of the key, where the layout has such a column."""

    @property
    def routed_by(self) -> bytes | None:
        """What the partition is chosen by, where none is given."""
        return self.key if self.partition_key is None else self.partition_key


@dataclass(frozen=True, slots=True)
class Limits:
    """How large the parts of a message may be.

    Kafka limits the whole record batch (`max.message.bytes`, 1,048,588 by default) and librdkafka the whole
    message (`message.max.bytes`, 1,000,000 by default). These defaults add up to 999,152, so a message that
    reaches all three still fits both, with room for the framing, and no server or client needs another
    setting. Raise them together with the topic's and the producer's limit.
    """

    max_value_bytes: int = 950_000
    max_key_bytes: int = 16_384
    max_headers_bytes: int = 32_768


def encode(message: Message, limits: Limits) -> Record:
    """The record of a message; raises `ValidationError` naming the field that Kafka or JSON would refuse.

    >>> encode(Message("orders", key=42, value={"id": 42}), Limits()).value
    b'{"id":42}'
    """
    return Record(
        topic=_topic(message.topic),
        key=_key(message.key, limits.max_key_bytes),
        value=_value(message.value, limits.max_value_bytes),
        headers=_headers(message.headers, limits.max_headers_bytes),
        partition=_partition(message.partition),
        timestamp_ms=_timestamp_ms(message.timestamp),
    )


def _topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise ValidationError("topic", f"{_describe(topic)} is not text.")
    if not topic:
        raise ValidationError("topic", "'' is empty.", hint="Name the Kafka topic of the message.")
    if len(topic) > _TOPIC_CHARACTERS:
        raise ValidationError("topic", f"{topic_flaw(topic)}.")
    if is_reserved(topic):
        raise ValidationError("topic", f"{topic_flaw(topic)}.", hint="Choose another name.")
    if flaw := topic_flaw(topic):
        hint = "Use only letters a-z and A-Z, digits, '.', '_' and '-', and not '.' or '..' alone."
        raise ValidationError("topic", f"{flaw}.", hint=hint)
    return topic


@lru_cache(4096)
def topic_flaw(topic: str) -> str:
    """Why a message cannot go to a topic of this name; empty if it can. Cached, as the relay asks for each row."""
    if len(topic) > _TOPIC_CHARACTERS:
        return f"{_repr.repr(topic)} has {len(topic)} characters, Kafka allows {_TOPIC_CHARACTERS}"
    if not _TOPIC.match(topic) or topic in (".", ".."):
        return f"{_repr.repr(topic)} is not a legal topic name"
    return f"{_repr.repr(topic)} {RESERVED}" if is_reserved(topic) else ""


RESERVED_PREFIX = "inorder."
RESERVED = f"is reserved: topics that begin with {RESERVED_PREFIX!r} hold inorder's own records"


def is_reserved(topic: str) -> bool:
    """Whether only inorder itself writes to this topic: markers, heartbeats of leaders, routes, notices, progress.

    A marker says which rows are published and may be deleted, so a message in a marker topic could delete rows that
    were never sent. The prefix covers the topics of every group, and those that later versions add.
    """
    return topic.startswith(RESERVED_PREFIX)


def partition_flaw(partition: int) -> str:
    """Why there is no partition of this number; empty if there may be one."""
    return "" if 0 <= partition <= _INT32 else f"{partition} is not between 0 and {_INT32}"


def _key(key: object, limit: int) -> bytes | None:
    match key:
        case None:
            return None
        case bytes():
            data = key
        case str():
            data = utf8("key", key)
        case int() if not isinstance(key, bool):
            data = _decimal(key)
        case UUID():
            data = str(key).encode()
        case _:
            raise ValidationError(
                "key", f"{_describe(key)} cannot be a key.", hint="A key is str, bytes, int, UUID or None."
            )
    return _within("key", data, limit)


def _decimal(key: int) -> bytes:
    try:
        return b"%d" % key
    except ValueError:
        # Python refuses to convert integers of thousands of digits; no identifier has as many.
        raise ValidationError("key", f"an integer of {key.bit_length()} bits is too large for a key.") from None


def _value(value: object, limit: int) -> bytes | None:
    match value:
        case None:
            return None
        case bytes():
            data = value
        case bytearray() | memoryview():
            data = bytes(value)
        case str():
            data = utf8("value", value)
        case _:
            data = json_bytes(value, _as_json)
    return _within("value", data, limit)


def _as_json(value: object) -> object:
    """What orjson cannot encode itself: a decimal number as its text, which keeps every digit, and a pydantic model."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise TypeError(f"{value} is not a number that JSON can represent")
        return format(value, "f")
    # Recognised by its method, so that pydantic is not imported here.
    dump = getattr(type(value), "model_dump", None)
    if dump is None:
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return dump(value, mode="json")


def json_bytes(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """The JSON of a value; raises `ValidationError` for what JSON cannot represent, NaN included.

    `default` turns values of other types into such that JSON has.
    """
    try:
        data = orjson.dumps(value, default=default)
    except TypeError as error:
        place, found = _unencodable(value, default)
        what = f"{place} is {_describe(found)}" if place else str(error)
        raise ValidationError(
            "value",
            f"a {type(value).__name__} cannot be written as JSON: {what}.",
            hint="Give dict, list, text, numbers, dataclasses or pydantic models, or encode it to bytes yourself.",
        ) from error
    # orjson writes NaN and the infinities as null, which would change the event silently. So where the result has a
    # null, the strict encoder of the standard library checks the value again.
    if b"null" in data:
        _refuse_not_a_number(value)
    return data


_DEEPEST = 300
"""orjson refuses what is nested more deeply than 254 levels."""


def _unencodable(value: object, default: Callable[[object], object] | None) -> tuple[str, object]:
    """The place of the first value that cannot be encoded, such as `items[2].price`; empty for the value itself."""
    place = ""
    for _ in range(_DEEPEST):
        for name, part in _parts(value):
            if not _is_encodable(part, default):
                place, value = f"{place}{name}", part
                break
        else:
            break
    return place.removeprefix("."), value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f".{_repr.repr(name).strip(chr(39))}", part) for name, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{position}]", part) for position, part in enumerate(value))
    elif dataclasses.is_dataclass(value):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value))


def _is_encodable(value: object, default: Callable[[object], object] | None) -> bool:
    try:
        orjson.dumps(value, default=default)
    except TypeError:
        return False
    return True


def _refuse_not_a_number(value: object) -> None:
    try:
        json.dumps(value, allow_nan=False, default=_to_plain)
    except ValueError as error:
        raise ValidationError(
            "value", f"a {type(value).__name__} holds NaN or an infinity, which JSON cannot represent."
        ) from error


def _to_plain(value: object) -> object:
    """Values that orjson can encode and the standard encoder cannot."""
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: getattr(value, name, None) for name in names}
    if hasattr(type(value), "model_dump"):
        return type(value).model_dump(value)  # type: ignore[attr-defined]  # as in _as_json
    return value.value if isinstance(value, Enum) else None


def _headers(headers: object, limit: int) -> RecordHeaders:
    if not headers and (headers is None or isinstance(headers, Mapping | list | tuple)):
        return ()
    record = tuple(_header(position, pair) for position, pair in enumerate(_pairs(headers)))
    size = sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in record)
    if size > limit:
        raise ValidationError("headers", f"{size:,} bytes with their framing are over the limit of {limit:,}.")
    return record


def _pairs(headers: object) -> Sequence[object]:
    if isinstance(headers, Mapping):
        return tuple(headers.items())
    if isinstance(headers, Sequence) and not isinstance(headers, str | bytes | bytearray | memoryview):
        return headers
    raise ValidationError(
        "headers",
        f"{_describe(headers)} is neither a mapping nor a list of pairs.",
        hint='Write {"name": "value"} or [("name", "value")].',
    )


def _header(position: int, pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValidationError("headers", f"item {position} is {_describe(pair)}, not a pair of name and value.")
    name, value = pair
    if not isinstance(name, str):
        raise ValidationError("headers", f"the name of item {position} is {_describe(name)}, not text.")
    if "\0" in name:
        # The C client takes names as C strings and would truncate this one.
        raise ValidationError("headers", f"the name of item {position}, {_repr.repr(name)}, holds a NUL.")
    utf8("headers", name)
    match value:
        case None | bytes():
            return name, value
        case str():
            return name, utf8("headers", value)
    raise ValidationError("headers", f"the value of {_repr.repr(name)} is {_describe(value)}, not text, bytes or None.")


def _partition(partition: object) -> int | None:
    if partition is None:
        return None
    if not isinstance(partition, int) or isinstance(partition, bool):
        raise ValidationError("partition", f"{_describe(partition)} is not an int.")
    if flaw := partition_flaw(partition):
        raise ValidationError("partition", f"{flaw}.")
    return int(partition)


def _timestamp_ms(timestamp: object) -> int | None:
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        milliseconds = _since_epoch(timestamp)
    elif isinstance(timestamp, int) and not isinstance(timestamp, bool):
        milliseconds = int(timestamp)
    else:
        raise ValidationError("timestamp", f"{_describe(timestamp)} is not an aware datetime or int milliseconds.")
    # librdkafka reads 0 as "now", so the first millisecond of 1970 cannot be sent either.
    if not 0 < milliseconds <= _INT64:
        raise ValidationError("timestamp", f"{timestamp} is not after 1970-01-01T00:00:00Z, or too large.")
    return milliseconds


def _since_epoch(timestamp: datetime) -> int:
    if timestamp.utcoffset() is None:
        raise ValidationError(
            "timestamp",
            f"{timestamp.isoformat()} has no time zone.",
            hint="Use an aware datetime, for example datetime.now(UTC).",
        )
    return (timestamp - _EPOCH) // timedelta(milliseconds=1)


def utf8(field: str, text: str) -> bytes:
    """The UTF-8 bytes of a text; raises `ValidationError` for lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(field, f"{_repr.repr(text)} holds a lone surrogate, which is not UTF-8.") from error


def _within(field: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValidationError(
            field,
            f"{len(data):,} bytes are over the limit of {limit:,}.",
            hint=f"Publish a reference, or raise max_{field}_bytes and the topic's max.message.bytes.",
        )
    return data


def _describe(value: object) -> str:
    return f"{_repr.repr(value)} ({type(value).__name__})"


_PARTS = 2
"""A name and a value."""


def to_text(headers: RecordHeaders) -> str | None:
    """The text that stores these headers; None when there are none."""
    if not headers:
        return None
    return orjson.dumps([(name, _stored(value)) for name, value in headers]).decode()


def from_text(text: str | None) -> RecordHeaders:
    """The headers that `to_text` stored; raises `PermanentError` for damaged text."""
    if text is None:
        return ()
    try:
        items = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _damaged(text, f"not JSON ({error})") from error
    if not isinstance(items, list):
        raise _damaged(text, "not a list")
    headers: list[tuple[str, bytes | None]] = []
    for item in items:
        # Nearly every header is a name with text, and a relay reads a hundred thousand of them per second.
        if item.__class__ is list and len(item) == _PARTS and item[0].__class__ is item[1].__class__ is str:
            headers.append((item[0], item[1].encode()))
        else:
            headers.append(_stored_header(text, len(headers), item))
    return tuple(headers)


def _stored(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def _stored_header(text: str, position: int, item: object) -> tuple[str, bytes | None]:
    match item:
        case [str(name), None]:
            return name, None
        case [str(name), {"base64": str(value), **rest}] if not rest:
            return name, _decode_base64(text, position, value)
    raise _damaged(text, f"item {position} is not a name with text, base64 or null")


def _decode_base64(text: str, position: int, value: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _damaged(text, f"item {position} is not base64 ({error})") from error


def _damaged(text: str, what: str) -> PermanentError:
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    return PermanentError(
        f"Stored headers are damaged: {what}: {shown!r}.",
        hint="Correct the row's headers column, or set it to NULL to send the record without headers.",
    )
