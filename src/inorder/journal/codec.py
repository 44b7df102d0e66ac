"""From actions to Kafka records and back, byte for byte as Kafka Journal writes them.

A record that is not of a journal is no error: one without a key, a time or the header `journal.action`, an append
without a value, an action of a later version. A journal's record that cannot be read raises `DamagedRecordError` with
its coordinates: leaving it out would show a journal with a hole.

**One boundary.** Anyone who may write to the topic chooses these bytes. So whatever decoding a record raises is that
record's damage and no other's: `action_of` and `events_of` raise `DamagedRecordError` for every error that is not
of the machine (`is_of_record`). What would be expensive or overflow is bounded before anything is computed from it:
nesting, numbers that are not finite, times, durations, the length of a key.

**The header** `journal.action` is the action as JSON. What is absent is left out. An unknown root is an action of a
later version, and ignored.

    {"append":{"range":{"from":1,"to":5},"origin":"h","version":"0.0.1","payloadType":"json","metadata":{"data":{}}}}
    {"delete":{"to":3,"origin":"h"}}     {"purge":{}}     {"mark":{"id":"…"}}

**Two headers of inorder's own** come after it. Kafka Journal takes them for headers of the application, and does
nothing with them. `inorder.append` is the id of an append; `inorder.if` is the condition of an action (`action.py`),
what does not matter left out. A condition of a later version is damage: to ignore it could let a void action count.

    {"life":"6fa4…","seq_nr":5,"seen":"0:41"}

**The value** of an append holds its events, as JSON, or binary if any payload is:

    {"events":[{"seqNr":1,"tags":["a"],"payloadType":"text","payload":"…"}],"metadata":{…}}

Binary, big endian: a version byte; the number of events; for each its size, number, tags, kind of payload and payload;
then the metadata as JSON up to the end. Version 0 has no metadata. An unknown version is read like 0, so that what a
later one adds at the end does no harm.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, whatever its module calls it
from typing import Final, NamedTuple, assert_never
from uuid import UUID

import orjson

from inorder.journal.action import Action, Append, Condition, Delete, Mark, Purge, format_duration, parse_duration
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError, InorderError, RejectedError, ValidationError
from inorder.model.journal import (
    MIN_SEQ_NR,
    Event,
    EventRecord,
    Key,
    PartitionOffset,
    Payload,
    PayloadMetadata,
    PayloadType,
    RecordMetadata,
    SeqRange,
    check_events,
    check_seq_nr,
    json_payload,
    json_value,
    payload_type,
    range_of,
)
from inorder.model.message import Limits, Message, Record, RecordHeaders, encode, json_bytes, utf8

ACTION_HEADER: Final = "journal.action"
APPEND_HEADER: Final = "inorder.append"
CONDITION_HEADER: Final = "inorder.if"
JOURNAL_HEADERS: Final = frozenset((ACTION_HEADER, APPEND_HEADER, CONDITION_HEADER))
"""Headers of the journal itself; all others are the application's."""
MAX_APPEND_ID: Final = 200
MAX_DEPTH: Final = 254
"""How deep JSON may be nested: what the encoder of the stores can write."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TIMES: Final = range((_EARLIEST - _EPOCH) // _MILLISECOND, (_LATEST - _EPOCH) // _MILLISECOND)
_MOST_CHARACTERS: Final = 300
"""Of an error's text, and of a key in it: both may hold what a writer has sent."""


class RecordSender(NamedTuple):
    """The writer of a record: its host, and the version of this library."""

    origin: str | None = None
    version: str | None = None


def append_record(
    key: Key,
    events: Iterable[Event],
    timestamp: datetime,
    sender: RecordSender,
    metadata: RecordMetadata,
    headers: Mapping[str, str],
    limits: Limits,
    *,
    append_id: str | None = None,
    condition: Condition | None = None,
) -> Record:
    """The record of an append; raises `ValidationError` for anything that a record cannot carry."""
    checked = check_events(events)
    if taken := sorted(JOURNAL_HEADERS & headers.keys()):
        raise ValidationError("headers", f"{taken[0]!r} is taken by the journal itself.", hint="Choose another.")
    if append_id is not None and not 0 < len(append_id) <= MAX_APPEND_ID:
        raise ValidationError("append_id", f"an id has 1 to {MAX_APPEND_ID} characters, not {len(append_id)}.")
    kind, value = to_value(checked, metadata.payload)
    action = Append(range_of(checked), kind, *sender, metadata.header, append_id, condition)
    return action_record(key, action, timestamp, limits, value=value, headers=headers)


def action_record(
    key: Key,
    action: Action,
    timestamp: datetime,
    limits: Limits,
    *,
    value: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Record:
    """The record of an action; only an append has a value and headers of the application's own."""
    all_headers: dict[str, str | bytes | None] = {ACTION_HEADER: to_header(action), **(headers or {})}
    if isinstance(action, Append) and action.id is not None:
        all_headers[APPEND_HEADER] = action.id
    if not isinstance(action, Mark) and action.condition is not None:
        all_headers[CONDITION_HEADER] = to_condition(action.condition)
    return encode(Message(key.topic, key=key.id, value=value, headers=all_headers, timestamp=timestamp), limits)


def with_condition(record: Record, condition: Condition) -> Record:
    """The record with a condition: what it is to count on is read after the record was encoded and checked."""
    return replace(record, headers=(*record.headers, (CONDITION_HEADER, to_condition(condition))))


def action_of(record: LogRecord, topic: str, partition: int) -> Action | None:
    """The action of a record, None if it is not of a journal; raises `DamagedRecordError` if it cannot be read."""
    header = next((value for name, value in record.headers if name == ACTION_HEADER), None)
    if header is None or record.key is None or record.timestamp_ms is None:
        return None
    try:
        action = from_header(header, record.headers)
        if not has_time(record) and not isinstance(action, Mark | None):
            raise ValueError(f"no date has the time of the record, {record.timestamp_ms} ms")
    except Exception as error:
        if not is_of_record(error):
            raise
        raise damaged_error("a header of the journal", error, record, topic, partition) from error
    return None if isinstance(action, Append) and record.value is None else action


def events_of(action: Append, record: LogRecord, topic: str, partition: int) -> list[EventRecord]:
    """The events of an append's record; raises `DamagedRecordError` if they cannot be read."""
    try:
        events, metadata = from_value(action.payload_type, record.value or b"")
        headers = {name: (value or b"").decode() for name, value in record.headers if name not in JOURNAL_HEADERS}
        time = timestamp_of(record)
        after = metadata.expire_after
        if after is not None and not _EARLIEST - time <= after <= _LATEST - time:
            raise ValueError(f"no date is {after} after {time}")
    except Exception as error:
        if not is_of_record(error):
            raise
        raise damaged_error("it", error, record, topic, partition) from error
    place = PartitionOffset(partition, record.offset)
    about = RecordMetadata(action.metadata, metadata)
    return [EventRecord(event, time, place, action.origin, action.version, about, headers) for event in events]


def timestamp_of(record: LogRecord) -> datetime:
    return _EPOCH + timedelta(milliseconds=record.timestamp_ms or 0)


def has_time(record: LogRecord) -> bool:
    """Whether the time of a record is a date; Kafka takes any number."""
    return record.timestamp_ms is not None and record.timestamp_ms in _TIMES


def is_of_record(error: Exception) -> bool:
    """Whether an error while a record was decoded, folded or encoded is about the record, not about the machine."""
    if isinstance(error, InorderError):
        return isinstance(error, DamagedRecordError | RejectedError | ValidationError)
    return not isinstance(error, MemoryError | OSError)


def describe_fault(error: Exception) -> str:
    """What an error says, in one line of bounded length; an unexpected one as the last line of its traceback."""
    if isinstance(error, InorderError):
        text = error.message
    else:
        text = str(error) if isinstance(error, ValueError) else traceback.format_exception_only(error)[-1].strip()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def damaged_error(what: str, error: Exception, record: LogRecord, topic: str, partition: int) -> DamagedRecordError:
    return DamagedRecordError(
        f"The record {topic}[{partition}] offset {record.offset} of key {(record.key or b'')[:_MOST_CHARACTERS]!r}"
        f" cannot be read: {what} is damaged: {describe_fault(error)}.",
        hint="Other journals are not affected. Find its writer; a purge of this journal lets it start over.",
        topic=topic,
        partition=partition,
        offset=record.offset,
    )


_VERSION: Final = 1
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PLAIN: Final = Struct(">iqibi")
"""Size, number, length of the tags, kind and length of the payload: an event up to its payload, if it has no tags."""
_AFTER_SIZE: Final = _PLAIN.size - _INT32.size
_NONE_PLAIN: Final = (0, 0, 0, 0, 0)
_KINDS: Final = {None: 0, PayloadType.BINARY: 1, PayloadType.JSON: 2, PayloadType.TEXT: 3}


class AppendedEvents(NamedTuple):
    events: list[Event]
    metadata: PayloadMetadata


def to_value(events: Sequence[Event], metadata: PayloadMetadata) -> tuple[PayloadType, bytes]:
    """The value of the record, and its kind: binary if any payload is.

    >>> to_value([Event(1, "hello")], PayloadMetadata())[1]
    b'{"events":[{"seqNr":1,"tags":[],"payloadType":"text","payload":"hello"}],"metadata":{}}'
    """
    if any(isinstance(event.payload, bytes) for event in events):
        return PayloadType.BINARY, _to_binary(events, metadata)
    content = {"events": [_json_event(event) for event in events], "metadata": payload_metadata_json(metadata)}
    return PayloadType.JSON, json_bytes(content)


def from_value(kind: PayloadType, value: bytes) -> AppendedEvents:
    """The events of a value; raises `ValueError` if it is damaged."""
    return _from_binary(value) if kind is PayloadType.BINARY else _from_json(value)


def _json_event(event: Event) -> dict[str, object]:
    content: dict[str, object] = {"seqNr": event.seq_nr, "tags": sorted(event.tags)}
    kind = payload_type(event.payload)
    if kind is not None:
        content |= {"payloadType": kind.value, "payload": json_value(event.payload)}
    return content


def _from_json(value: bytes) -> AppendedEvents:
    root = require_object(parse_json(value), "the payload")
    events = root.get("events")
    if not isinstance(events, list) or not events:
        raise ValueError("events is not a list with an event")
    return AppendedEvents(
        [_event(require_object(event, "event")) for event in events], payload_metadata(root.get("metadata"))
    )


def _event(content: Mapping[str, object]) -> Event:
    tags = content.get("tags") or ()
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("tags are not a list of texts")
    return Event(read_seq_nr(content, "seqNr"), _payload(content), frozenset(tags))


def _payload(content: Mapping[str, object]) -> Payload:
    match content.get("payloadType"), content.get("payload"):
        case None, None:
            return None
        case "text", str(text):
            return text
        case None | "json", value:
            return json_payload(value)
    raise ValueError(f"payloadType {content.get('payloadType')!r} does not fit the payload")


def _to_binary(events: Sequence[Event], metadata: PayloadMetadata) -> bytes:
    parts = [bytes([_VERSION]), _INT32.pack(len(events))]
    parts.extend(_sized(b"".join(_binary_event(event))) for event in events)
    parts.append(json_bytes(payload_metadata_json(metadata)))
    return b"".join(parts)


def _binary_event(event: Event) -> Iterator[bytes]:
    yield _INT64.pack(event.seq_nr)
    yield _sized(b"".join(_sized(utf8("tags", tag)) for tag in sorted(event.tags)))
    yield bytes([_KINDS[payload_type(event.payload)]])
    yield _sized(_binary_payload(event.payload))


def _binary_payload(payload: Payload) -> bytes:
    match payload:
        case None:
            return b""
        case bytes():
            return payload
        case str():
            return utf8("payload", payload)
    return json_bytes(json_value(payload))


def _sized(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _from_binary(value: bytes) -> AppendedEvents:
    if not value:
        raise ValueError("a binary payload of no bytes")
    source = _Source(value, 1)
    events = _plain_events(source, source.int32())
    if not events:
        raise ValueError("a binary payload without events")
    tail = source.rest() if value[0] == _VERSION else b""
    return AppendedEvents(events, payload_metadata(parse_json(tail) if tail else None))


def _plain_events(source: _Source, count: int) -> list[Event]:
    """Reads `count` events: bytes without tags, which most are, in one step; any other part by part.

    The long way also finds what is wrong with a damaged one.
    """
    data, at, read = source.data, source.at, _PLAIN.unpack_from
    last, events = len(data) - _PLAIN.size, []
    for _ in range(count):
        size, seq_nr, tags, kind, length = read(data, at) if at <= last else _NONE_PLAIN
        end = at + _PLAIN.size + length
        is_plain = kind == 1 and tags == 0 and size == _AFTER_SIZE + length and length >= 0 and end <= len(data)
        if is_plain and seq_nr >= MIN_SEQ_NR:
            events.append(Event(seq_nr, data[end - length : end]))
            at = end
        else:
            source.at = at
            events.append(_read_event(_Source(source.sized(), 0)))
            at = source.at
    source.at = at
    return events


def _read_event(source: _Source) -> Event:
    seq_nr = source.int64()
    if seq_nr < MIN_SEQ_NR:
        raise ValueError(f"{seq_nr} is not a sequence number")
    tags = _Source(source.sized(), 0)
    texts = frozenset(tag.decode() for tag in tags.all_sized())
    return Event(seq_nr, _read_payload(source.byte(), source.sized()), texts)


def _read_payload(kind: int, data: bytes) -> Payload:
    match kind:
        case 0:
            return None
        case 1:
            return data
        case 2:
            return json_payload(parse_json(data))
        case 3:
            return data.decode()
    raise ValueError(f"{kind} is not a kind of payload")


def pack_payload(payload: Payload) -> bytes:
    """A payload of any kind as bytes, from which `unpack_payload` makes the same.

    >>> [unpack_payload(pack_payload(each)) for each in (None, b"1", "1", 1)]
    [None, b'1', '1', 1]
    """
    return bytes([_KINDS[payload_type(payload)]]) + _binary_payload(payload)


def unpack_payload(data: bytes) -> Payload:
    """The payload that was packed; raises `ValueError` if it is damaged."""
    source = _Source(data, 0)
    return _read_payload(source.byte(), source.rest())


class _Source:
    """Reads bytes from left to right; raises `ValueError` at the end."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.at = position

    def byte(self) -> int:
        return self._take(1)[0]

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def sized(self) -> bytes:
        return self._take(self.int32())

    def all_sized(self) -> Iterator[bytes]:
        while self.at < len(self.data):
            yield self.sized()

    def rest(self) -> bytes:
        return self.data[self.at :]

    def _number(self, layout: Struct) -> int:
        try:
            [number] = layout.unpack_from(self.data, self.at)
        except StructError as error:
            raise ValueError(f"the payload ends at byte {len(self.data)}, in a number") from error
        self.at += layout.size
        return int(number)

    def _take(self, length: int) -> bytes:
        taken = self.data[self.at : self.at + length] if length >= 0 else b""
        if len(taken) != length:
            raise ValueError(f"{length} bytes at {self.at} are not in a payload of {len(self.data)}")
        self.at += length
        return taken


def to_header(action: Action) -> bytes:
    """The value of an action's header.

    >>> to_header(Delete(3, origin="h"))
    b'{"delete":{"to":3,"origin":"h"}}'
    """
    match action:
        case Append():
            content: dict[str, object] = {"range": {"from": action.range.first, "to": action.range.last}}
            content |= _sender(action)
            content |= {"payloadType": action.payload_type.value, "metadata": with_data(action.metadata)}
            return json_bytes({"append": content})
        case Delete():
            return json_bytes({"delete": {"to": action.to, **_sender(action)}})
        case Purge():
            return json_bytes({"purge": _sender(action)})
        case Mark():
            return json_bytes({"mark": {"id": action.id, **_sender(action)}})
    assert_never(action)


def from_header(value: bytes, headers: RecordHeaders = ()) -> Action | None:
    """The action of a header, None if it is of a later version; raises `ValueError` if it is damaged.

    Id and condition are in other headers of the record.

    >>> from_header(b'{"new":{}}'), from_header(b'{"purge":{"origin":"h"}}')
    (None, Purge(origin='h', version=None, condition=None))
    """
    root = require_object(parse_json(value), "the header")
    append_id, condition = _own_headers(headers)
    if "append" in root:
        return _append(require_object(root["append"], "append"), append_id, condition)
    if "mark" in root:
        content = require_object(root["mark"], "mark")
        return Mark(_text(content, "id"), *_read_sender(content))
    if "delete" in root:
        content = require_object(root["delete"], "delete")
        return Delete(read_seq_nr(content, "to"), *_read_sender(content), condition)
    if "purge" in root:
        return Purge(*_read_sender(require_object(root["purge"], "purge")), condition)
    return None


def _own_headers(headers: RecordHeaders) -> tuple[str | None, Condition | None]:
    append_id = condition = None
    for name, value in headers:
        if value is not None and name == APPEND_HEADER:
            append_id = value.decode()
        elif value is not None and name == CONDITION_HEADER:
            condition = from_condition(value)
    return append_id, condition


def to_condition(condition: Condition) -> bytes:
    """The value of a condition's header.

    >>> to_condition(Condition(seq_nr=5, seen=PartitionOffset(0, 41)))
    b'{"seq_nr":5,"seen":"0:41"}'
    """
    life, seq_nr, seen = condition.life, condition.seq_nr, condition.seen
    fields = {
        "life": None if life is None else str(life),
        "seq_nr": seq_nr,
        "seen": None if seen is None else str(seen),
    }
    return json_bytes({name: value for name, value in fields.items() if value is not None})


def from_condition(value: bytes) -> Condition:
    """The inverse of `to_condition`; raises `ValueError` for anything else, a condition of a later version too."""
    content = require_object(parse_json(value), "the condition")
    if unknown := sorted(content.keys() - {"life", "seq_nr", "seen"}):
        raise ValueError(f"the condition {unknown[0][:_MOST_CHARACTERS]!r} is of a later version")
    life, seen = content.get("life"), content.get("seen")
    seq_nr = 0 if content.get("seq_nr") == 0 else read_seq_nr(content, "seq_nr") if "seq_nr" in content else None
    return Condition(
        None if life is None else UUID(_text(content, "life")), seq_nr, None if seen is None else _place(seen)
    )


def _place(value: object) -> PartitionOffset:
    partition, colon, offset = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in (partition, offset)):
        raise ValueError("a place is written as partition:offset")
    return PartitionOffset(int(partition), int(offset))


def parse_json(value: bytes | str) -> object:
    """Parses JSON; half a character, which the strict parser refuses, passes a lenient one, as in the original.

    >>> parse_json(b'"\\\\ud800"') == "\\ud800"
    True
    """
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        try:
            parsed = json.loads(value, parse_constant=_refuse_constant, parse_float=_parse_finite)
        except (ValueError, RecursionError):
            raise ValueError(f"not JSON ({error})") from error
    brackets = (
        value.count(b"[") + value.count(b"{") if isinstance(value, bytes) else value.count("[") + value.count("{")
    )
    if brackets > MAX_DEPTH:
        _require_shallow(parsed)
    return parsed


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:_MOST_CHARACTERS]} is too large")
    return number


def _require_shallow(value: object) -> None:
    """Raises `ValueError` for JSON that is nested deeper than `MAX_DEPTH`."""
    try:
        orjson.dumps(value)
    except TypeError:
        level = [value]
        for _ in range(MAX_DEPTH):
            level = [inner for each in level for inner in _inner(each)]
        if any(isinstance(each, dict | list) for each in level):
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def require_object(value: object, what: str) -> Mapping[str, object]:
    """The value, if it is a JSON object; else `ValueError`."""
    if isinstance(value, dict):
        return value
    raise ValueError(f"{what} is not a JSON object")


def read_seq_nr(content: Mapping[str, object], field: str) -> int:
    """A sequence number among fields; else `ValueError`."""
    try:
        return check_seq_nr(content.get(field), field)
    except ValidationError as error:
        raise ValueError(error.message) from error


def with_data(data: object) -> dict[str, object]:
    """`{"data": …}`, or `{}` for None."""
    return {} if data is None else {"data": data}


def data_of(metadata: object) -> object:
    """The inverse of `with_data`; None for anything else, which old versions wrote."""
    return metadata.get("data") if isinstance(metadata, dict) else None


def _append(content: Mapping[str, object], append_id: str | None, condition: Condition | None) -> Append:
    numbers = require_object(content.get("range"), "range")
    first, last = read_seq_nr(numbers, "from"), read_seq_nr(numbers, "to")
    if first > last:
        raise ValueError(f"range {first} to {last} ends before it begins")
    kind = content.get("payloadType")
    if not isinstance(kind, str) or kind not in (PayloadType.BINARY, PayloadType.JSON):
        raise ValueError(f"payloadType {kind!r} is neither 'binary' nor 'json'")
    origin, version = _read_sender(content)
    metadata = data_of(content.get("metadata"))
    return Append(SeqRange(first, last), PayloadType(kind), origin, version, metadata, append_id, condition)


def _sender(action: Action) -> dict[str, object]:
    fields = {"origin": action.origin, "version": action.version}
    return {name: value for name, value in fields.items() if value is not None}


def _read_sender(content: Mapping[str, object]) -> tuple[str | None, str | None]:
    origin, version = content.get("origin"), content.get("version")
    return (
        None if origin is None else _text(content, "origin"),
        None if version is None else _text(content, "version"),
    )


def _text(content: Mapping[str, object], field: str) -> str:
    value = content.get(field)
    if isinstance(value, str):
        return value
    raise ValueError(f"{field} is not text")


def payload_metadata_json(metadata: PayloadMetadata) -> dict[str, object]:
    """`{"expireAfter":"1 day","data":…}`; what is absent is left out."""
    expiry = {} if metadata.expire_after is None else {"expireAfter": format_duration(metadata.expire_after)}
    return {**expiry, **with_data(metadata.data)}


def payload_metadata(value: object) -> PayloadMetadata:
    """The metadata of a payload; old versions wrote none (None). Raises `ValueError`."""
    if value is None:
        return PayloadMetadata()
    content = require_object(value, "metadata")
    expiry = content.get("expireAfter")
    return PayloadMetadata(None if expiry is None else parse_duration(expiry), content.get("data"))


# A payload as the columns `payload_type`, `payload_txt` and `payload_bin` of a store.
