"""Whatever a table, a topic, a header or a setting holds, a decoder returns or raises one of our errors.

An example is a seed, and a seed is twenty inputs: valid ones in which bytes, tokens or JSON values are replaced by what
decoders trip over. That is much faster than a Hypothesis strategy for documents, so that many inputs are tried. Each
input that broke a decoder is in `BROKE`.
"""

from __future__ import annotations

import json
import os
import random
import string
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.database.credentials import read_login
from inorder.journal.action import Append
from inorder.journal.codec import ACTION_HEADER, CONDITION_HEADER, action_of, events_of
from inorder.journal.stores.cassandra import decode_gaps
from inorder.journal.stores.kafka_notices import parse_notice
from inorder.journal.stores.ports import LogRecord
from inorder.journal.stores.rows import PayloadColumns, SnapshotColumns, quarantined_of, stored_snapshot
from inorder.model.errors import InorderError
from inorder.model.message import from_text
from inorder.outbox.layouts import rows
from inorder.pipeline import delta
from inorder.pipeline.decoding import Decoder, Ignored, Rejected, RowDelete, RowUpdate
from inorder.pipeline.mapping import FIELD_TYPES, TableMapping
from inorder.pipeline.stores.batch_log import progress_of
from inorder.relay.marker import Marker
from inorder.relay.stores.kafka_lease import sent_by
from inorder.relay.stores.ports import Exceeding
from inorder.settings import Settings
from inorder.topics import generations
from tests.selection import examples

NASTY: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63) - 1, 1e308, float("nan"), float("inf"), "", "\0", "\ud800",
    "é" * 300,
    "9" * 5000, "-0", "1e999999999", "0x10", "{}", "12:34:56", "9999-12-31T23:59:59+14:00", [], {}, [[]], {"": None},
    "00000000-0000-0000-0000-00000000000g", "1-2-3", "5-1", "0-18446744073709551615", "=", "AAAA",
    [None] * 50, {"a": {"a": {}}},
]  # fmt: skip
TOKENS = [
    b"null", b"NaN", b"1e999", b"-1", b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"\xff\xfe", b"\x00",
    b"]}",
    b"18446744073709551616", b"\\u0000", b"\xed\xa0\x80", b"1-9223372036854775807", b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A decoder of bytes, and inputs that it accepts."""

    decode: Callable[[bytes], object]
    valid: tuple[bytes, ...]


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data.decode(errors="surrogateescape"))


def _record(value: bytes | None, header: bytes, *more: tuple[str, bytes | None]) -> LogRecord:
    return LogRecord(0, 1_700_000_000_000, b"a", value, ((ACTION_HEADER, header), *more))


APPEND = b'{"append":{"range":{"from":1,"to":1},"origin":"h","payloadType":"%s","metadata":{"data":{}}}}'
CONDITION = b'{"life":"8be4df61-93ca-11d2-aa0d-00e098032b8c","seq_nr":5,"seen":"0:41"}'
EVENTS = (
    b'{"events":[{"seqNr":1,"tags":["a"],"payloadType":"json","payload":{"n":1}}],"metadata":{"expireAfter":"1 day"}}'
)
BINARY = bytes.fromhex("000001000000010000001a0000000000000001000000000100000005") + b"hello"


def _journal_header(data: bytes) -> object:
    action_of(_record(b"{}", APPEND % b"json", (CONDITION_HEADER, data)), "t", 0)
    return action_of(_record(b"{}", data), "t", 0)


def _journal_value(kind: bytes) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        record = _record(data, APPEND % kind)
        action = action_of(record, "t", 0)
        assert isinstance(action, Append)
        return events_of(action, record, "t", 0)

    return decode


FIELDS = tuple((f"f_{kind}", kind) for kind in FIELD_TYPES)
MAPPINGS = [
    TableMapping("p", "t", "x", key=key, key_type=kind, fields=FIELDS, nulls=nulls, empty_texts=nulls)
    for key, kind in (("id", "bigint"), ("id", "uuid"), (("id", "b"), ("text", "integer")))
    for nulls in ("ignore", "write")
]
DOCUMENT = {
    "id": 7, "b": 1, "f_boolean": True, "f_integer": 1, "f_bigint": 2, "f_double": 1.5, "f_numeric": "1.50",
    "f_text": "x",
    "f_timestamp": "2026-01-31T12:00:00Z", "f_date": "2026-01-31", "f_json": {"a": [1]},
    "f_uuid": "8be4df61-93ca-11d2-aa0d-00e098032b8c",
}  # fmt: skip
ARRIVED = (RowUpdate, RowDelete, Rejected, Ignored)


def _pipeline(data: bytes) -> object:
    for mapping in random.Random(data).sample(MAPPINGS, 2):
        decided = [Decoder(mapping).decode(key, value) for key, value in ((None, data), (b"7", data), (data, None))]
        assert all(isinstance(one, ARRIVED) for one in decided)
        unexpected = [one for one in decided if isinstance(one, Rejected) and one.code == "unexpected"]
        assert unexpected == [], "a rule says what is wrong with it"
        assert all(len(one.detail) < 2_000 for one in decided if isinstance(one, Rejected)), "it goes into a log"
    return None


LAYOUTS = {
    rows.native_row: (1, "t", b"k", b"v", '[["a","b"]]', 0, 1),
    rows.goharvest_row: (1, "t", "k", "v", '["a"]', '["b"]'),
    rows.deimos_row: (1, "t", b"k", b"v", None),
    rows.debezium_row: (1, "t", "k", b"v", "8be4df61-93ca-11d2-aa0d-00e098032b8c"),
    rows.trendyol_row: (1, "t", "k", "v", '{"a":"b"}'),
}


def _outbox(data: bytes) -> object:
    chance = random.Random(data)
    kinds: list[Any] = [data, data.decode(errors="replace"), memoryview(data), chance.choice(NASTY), 10**30, -1, [data]]
    for decode, valid in LAYOUTS.items():
        row = list(valid)
        row[chance.randrange(1, len(row))] = chance.choice(kinds)
        [found] = rows.decode_rows(decode, [row])
        assert found.id == 1
        assert isinstance(found.flaw, str)
        assert isinstance(found.topic, str)
    return None


STATE = generations.TopicState(
    "orders",
    (generations.Generation(0, "orders", 4, (1, 2, 3, 4)), generations.Generation(1, "orders.1", 8, None)),
    generations.Phase.STEADY,
    None,
    3,
)
MARKER = Marker(
    ((1, 3), (7, 7)),
    2,
    Exceeding(row_id=4, attempts=5, code="x", reason="y", parks=True),
    "outbox",
    None,
    7,
    "server",
    ((9, 9),),
)


def _file(decode: Callable[[Path], object]) -> Callable[[bytes], object]:
    def write_and_decode(data: bytes) -> object:
        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return decode(Path(file.name))

    return write_and_decode


def _settings_variable(data: bytes) -> object:
    # No variable of a process can hold a NUL.
    text = data.replace(b"\0", b"").decode(errors="surrogateescape")
    name = random.Random(data).choice(("KAFKA", "TOPICS", "PIPELINE", "PIPELINE__UPSERT", "JOURNAL__CASSANDRA"))
    with mock.patch.dict(os.environ, {f"INORDER_{name}": text}):
        return Settings.load(os.devnull)


def _snapshot(text: str) -> object:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    for payload in (PayloadColumns("json", text), PayloadColumns("text", text), PayloadColumns(text, None, b"")):
        stored_snapshot(SnapshotColumns(1, at, None, None, None, *payload))
    return stored_snapshot(SnapshotColumns(1, at, "h", "1", text, None, None, None))


def _quarantined(text: str) -> object:
    return quarantined_of("t", "a", 0, "reason", 7, None, b"a", b"v", text)


TOML = b"""
[kafka]
"bootstrap.servers" = "broker:9092"
sasl.password = "hunter2"

[relay]
shards = 4

[topics.orders]
partitioner = "murmur2_random"
"""

DECODERS = {
    "settings, JSON of a variable": Fuzzed(
        _settings_variable,
        (
            b'{"bootstrap.servers":"broker:1","sasl":{"password":"hunter2"}}',
            b'{"orders":{"partitioner":"murmur2_random"}}',
            b'{"upsert":{"topic":"t","table":"t","fields":{"a":"text"}}}',
            b'{"topic":"t","fields":{"a":"text"}}',
            b'{"tls":true,"tls_ca":"/ca.pem"}',
        ),
    ),
    "settings, TOML of the file": Fuzzed(_file(Settings.load), (TOML,)),
    "credentials file": Fuzzed(
        _file(read_login), (b'{"user":"me","password":"hunter2"}', b'user = "me"\npassword = "hunter2"\n')
    ),
    "headers of the outbox": Fuzzed(
        _text(from_text), (b'[["trace","x"],["digest",{"base64":"/wA="}],["flag",null]]', b"[]")
    ),
    "marker": Fuzzed(Marker.decode, (MARKER.encode(), Marker(((1, 2),), 0, proofs=(1, 2)).encode())),
    "heartbeat": Fuzzed(lambda data: sent_by("me", data), (b'{"name":"me","sent":1.5}',)),
    "notice of a replicator": Fuzzed(
        lambda data: (parse_notice(b"9f/journal/3", data), parse_notice(data, b'{"offset":41}')),
        (b'{"offset":41}', b"9f/journal/3"),
    ),
    "generations of a topic": Fuzzed(generations.decode, (generations.encode(STATE).encode(),)),
    "progress of a lane": Fuzzed(_text(lambda text: progress_of(8, text)), (b'{"query":"q","records":3,"keys":17}',)),
    "pointers in a commit of Delta": Fuzzed(
        _text(lambda text: delta.decode_metadata("upsert:a", text)),
        (b'{"inorder":1,"pipeline":"upsert:a","number":3,"base":7,"pointers":{"t":{"0":[5,1,"id"]}}}',),
    ),
    "snapshot of a store": Fuzzed(_text(_snapshot), (b'{"a":[1]}', b'"x"', b"text")),
    "quarantined record of a store": Fuzzed(_text(_quarantined), (b'[["a","eA=="],["inorder.time","MTc="]]', b"[]")),
    "gaps of a journal": Fuzzed(_text(decode_gaps), (b"1-9,11-11",)),
    "header of a journal": Fuzzed(
        _journal_header, (APPEND % b"json", b'{"delete":{"to":3,"origin":"h"}}', b'{"mark":{"id":"x"}}', CONDITION)
    ),
    "events of a journal, JSON": Fuzzed(_journal_value(b"json"), (EVENTS,)),
    "events of a journal, binary": Fuzzed(_journal_value(b"binary"), (BINARY,)),
    "record of a pipeline": Fuzzed(_pipeline, (json.dumps(DOCUMENT).encode(), b'["a",1]', b"7")),
    "row of the outbox": Fuzzed(_outbox, (b'[["a","b"]]', b'{"a":"b"}', b'["a"]', b"t")),
}

BROKE: dict[str, list[bytes]] = {
    "settings, JSON of a variable": [b"[" * 3000, b'{"a":' * 3000, b'{"a":' * 900 + b"1" + b"}" * 900],
    "settings, TOML of the file": [
        b"a = " + b"[" * 3000,
        b"kafka.a" + b".a" * 900 + b" = 1",
        b"relay.shards = " + b"9" * 5000,
        b"relay.group = " + b"[" * 80 + b"]" * 80,
        b'relay.group = """' + b"x" * 5000 + b'"""',
    ],
    "credentials file": [b"[" * 3000, b'{"user":' + b"[" * 3000, b"user = " + b"[" * 3000],
    "generations of a topic": [
        b"[" * 3000,
        b'{"topic": "' + b"x" * 5000,
        b'{"topic":7,"generations":[{"number":0,"topic":[],"partitions":true,"ends":null}],"phase":"steady","target":null}',
    ],
    "marker": [
        b'{"version":' + b"9" * 4000 + b',"published":"","floor":0}',
        b'{"version":1,"published":"","floor":1e999}',
        b'{"version":1,"published":"1-9223372036854775807","floor":0}',
        b'{"version":1,"published":"","floor":' + b"[" * 3000,
    ],
    "heartbeat": [b'{"name":"me","sent":1e300}', b'{"name":' + b"[" * 3000],
    "headers of the outbox": [rb'[["a\u0000","b"]]', b'[["a",' + b"[" * 1_000 + b"]" * 1_000 + b"]]"],
    "header of a journal": [
        b"[]",
        b'{"append":null}',
        b'{"append":{"range":{"from":1,"to":9223372036854775807},"origin":"h","payloadType":"json"}}',
        b'{"append":{"range":{"from":1,"to":1},"metadata":{"data":NaN}}}',
        b'{"append":{"range":{"from":1,"to":1},"metadata":{"data":' + b"[" * 1_100 + b"]" * 1_100 + b"}}}",
    ],
    "events of a journal, JSON": [
        EVENTS.replace(b'{"n":1}', b"NaN"),
        EVENTS.replace(b'{"n":1}', rb'"\ud800"'),
        EVENTS.replace(b'{"n":1}', b"[" * 300 + b"]" * 300),
        EVENTS.replace(b'{"n":1}', b"[" * 1_100 + b"]" * 1_100),
        EVENTS.replace(b'"seqNr":1', b'"seqNr":500'),
        EVENTS.replace(b"1 day", b"9" * 1_000_000),
        EVENTS.replace(b'"1 day"', b"9" * 1_000_000),
    ],
    "record of a pipeline": [
        *(b'{"id":1,"f_json":%s%s}' % (b"[" * levels, b"]" * levels) for levels in (940, 980, 1_020)),
        *(b'{"id":%s%s}' % (b"[" * levels, b"]" * levels) for levels in (940, 980, 1_020)),
        *(b"[" * levels + b"]" * levels for levels in (940, 980, 1_020)),
        b'{"id":1,"f_timestamp":"0001-01-01T00:00:00+14:00"}',
    ],
    "row of the outbox": [
        *(b'{"a":%s1%s}' % (b'{"a":' * levels, b"}" * levels) for levels in (990, 1_005, 1_020)),
        b"t" * 513,
        b"t\0",
    ],
    "notice of a replicator": [b'{"offset":-7}', b"9f/journal/-3"],
    "progress of a lane": [b"?", b'{"query":"q"}', b"[" * 3000, b'{"query":1,"records":"a","keys":null}'],
    "quarantined record of a store": [b"?", b'{"a":1}', b'[["a",1]]', b"[" * 3000],
}


def test_numbers_in_columns_of_text_are_a_flaw_and_not_that_many_bytes() -> None:
    """SQLite keeps any type in any column: two thousand million became as many zeros."""
    for decode, valid in LAYOUTS.items():
        row = [1, 2**31, *valid[2:]]
        [found] = rows.decode_rows(decode, [row])
        assert "is a int and not text" in found.flaw
        assert len(found.topic) < 100


def mutate(chance: random.Random, valid: tuple[bytes, ...]) -> bytes:
    """An input that resembles a valid one, or nothing at all."""
    found = chance.choice(valid)
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(64))
        case 1 | 2:
            return _with_a_nasty_value(chance, found)
        case _:
            for _ in range(chance.randrange(1, 4)):
                found = _damage(chance, found)
            return found


def _damage(chance: random.Random, data: bytes) -> bytes:
    at, to = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
    match chance.randrange(4):
        case 0:
            return data[:at] + chance.choice(TOKENS) + data[at:]
        case 1:
            return data[:at] + data[to:]
        case 2:
            return data[:at] + data[at:to] * 2 + data[to:]
        case _:
            return data[:at] + chance.choice(string.printable).encode() + data[at + 1 :]


def _with_a_nasty_value(chance: random.Random, data: bytes) -> bytes:
    """The JSON with one of its values replaced; other data with a token in it."""
    try:
        document = json.loads(data)
    except ValueError:
        return _damage(chance, data)
    places = list(_places(document))
    if not places:
        return json.dumps(chance.choice(NASTY)).encode()
    holder, name = chance.choice(places)
    match chance.randrange(3):
        case 0 if isinstance(holder, dict):
            del holder[name]
        case _:
            holder[name] = chance.choice(NASTY)
    return json.dumps(document).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for name, each in inner for place in [(value, name), *_places(each)]]


def check(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except InorderError as error:
        assert len(str(error)) < 2_000, "an error goes into a log"  # noqa: PT017 - any of our errors will do


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_takes_what_it_is_given(name: str) -> None:
    for data in DECODERS[name].valid:
        check(DECODERS[name].decode, data)


@pytest.mark.parametrize("name", DECODERS)
@examples(500)
@given(seed=st.integers(0, 2**32))
def test_no_input_raises_anything_but_our_errors(name: str, seed: int) -> None:
    fuzzed, chance = DECODERS[name], random.Random(seed)
    for _ in range(20):
        data = mutate(chance, fuzzed.valid)
        try:
            check(fuzzed.decode, data)
        except Exception as error:
            error.add_note(f"{name}: {data[:300]!r}")
            raise


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, found in BROKE.items() for data in found])
def test_what_once_broke_a_decoder_does_not_break_it_again(name: str, data: bytes) -> None:
    check(DECODERS[name].decode, data)


def shapes(size: int) -> dict[str, bytes]:
    """Inputs of about so many bytes."""
    return {
        "deep lists": b"[" * size,
        "deep objects": b'{"a":' * (size // 5),
        "a long number": b"9" * size,
        "many commas": b"[" + b"1," * (size // 2),
        "a long string": b'"' + b"\\u0000" * (size // 6) + b'"',
        "empty lists": b"[" + b"[]," * (size // 3) + b"[]]",
        "empty objects": b"[" + b"{}," * (size // 3) + b"{}]",
        "many names": b"{" + b",".join(b'"%x":1' % number for number in range(size // 10)) + b"}",
        "many spans": b'{"version":1,"published":"' + b"1," * (size // 2) + b'","floor":0}',
    }


BIG = shapes(1_000_000)
SMALLER = shapes(100_000)


MOST_SECONDS = 5.0
"""Of CPU time for a megabyte, the best of three tries: more than any decoder needs on a busy machine, and less than one
needs whose time grows with the square of its input."""
MOST_BYTES = 160
"""Of memory, for each byte of the input: Python needs 64 for a `[]` of two, and some decoders have two forms of it."""


@pytest.mark.parametrize("shape", BIG)
@pytest.mark.parametrize("name", DECODERS)
def test_a_megabyte_of_anything_is_refused_or_read(name: str, shape: str) -> None:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        check(DECODERS[name].decode, BIG[shape])
        best = min(best, time.process_time() - began)
        if best < MOST_SECONDS:
            return
    pytest.fail(f"{best:.1f} s of CPU time for a megabyte")


@pytest.mark.full
@pytest.mark.parametrize("shape", SMALLER)
@pytest.mark.parametrize("name", DECODERS)
def test_anything_takes_memory_in_proportion_to_its_size(name: str, shape: str) -> None:
    check(DECODERS[name].decode, DECODERS[name].valid[0])  # what is imported and cached once does not count
    tracemalloc.start()
    try:
        check(DECODERS[name].decode, SMALLER[shape])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < MOST_BYTES * len(SMALLER[shape])
