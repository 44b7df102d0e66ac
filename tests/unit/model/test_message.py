"""What a message becomes, and what is refused before anything is written."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Limits, Message, Record, encode

NO_LIMITS = Limits()


@dataclass
class Order:
    id: int
    total: float | None


class Colour(Enum):
    RED = "red"
    NOTHING = math.nan


class Number(IntEnum):
    SEVEN = 7


def refused(message: Message, limits: Limits = NO_LIMITS) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        encode(message, limits)
    return caught.value


def test_a_whole_message_becomes_a_record_of_bytes() -> None:
    message = Message(
        "orders",
        key=42,
        value={"id": 42, "enabled": True},
        headers={"trace": "abc", "raw": b"\xff", "none": None},
        partition=3,
        timestamp=1_700_000_000_123,
    )
    assert encode(message, NO_LIMITS) == Record(
        topic="orders",
        key=b"42",
        value=b'{"id":42,"enabled":true}',
        headers=(("trace", b"abc"), ("raw", b"\xff"), ("none", None)),
        partition=3,
        timestamp_ms=1_700_000_000_123,
    )


def test_only_the_topic_is_required() -> None:
    assert encode(Message("orders"), NO_LIMITS) == Record("orders", None, None, (), None, None)


def test_messages_and_records_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Message("orders").topic = "other"  # type: ignore[misc]  # the point of the test
    with pytest.raises(FrozenInstanceError):
        encode(Message("orders"), NO_LIMITS).topic = "other"  # type: ignore[misc]  # the point of the test


def test_messages_travel_between_processes() -> None:
    message = Message("orders", key=UUID(int=1), value=[1], headers=[("a", "b")])
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301  # our own bytes


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (None, None),
        ("", b""),
        (b"", b""),
        ("é", b"\xc3\xa9"),
        (b"\xff\x00", b"\xff\x00"),
        (0, b"0"),
        (42, b"42"),
        (-7, b"-7"),
        (2**70, b"1180591620717411303424"),
        (Number.SEVEN, b"7"),
        (UUID("12345678-1234-5678-1234-567812345678"), b"12345678-1234-5678-1234-567812345678"),
    ],
)
def test_keys(key: Any, data: bytes | None) -> None:
    assert encode(Message("t", key=key), NO_LIMITS).key == data


@pytest.mark.parametrize("key", [True, 1.5, Decimal(1), ["a"], object(), bytearray(b"a"), "\ud800"])
def test_keys_that_identify_nothing_are_refused(key: Any) -> None:
    assert refused(Message("t", key=key)).field == "key"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        (b"", b""),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("text é", "text é".encode()),
        ("", b""),
        ({}, b"{}"),
        ([1, None, "é"], '[1,null,"é"]'.encode()),
        (1, b"1"),
        (False, b"false"),
        (1.5, b"1.5"),
        (Order(1, None), b'{"id":1,"total":null}'),
        ({"colour": Colour.RED}, b'{"colour":"red"}'),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "none": None},
            b'{"at":"2026-01-02T00:00:00+00:00","none":null}',
        ),
    ],
)
def test_values(value: object, data: bytes | None) -> None:
    assert encode(Message("t", value=value), NO_LIMITS).value == data


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        ({"a": {1, 2}}, "set"),
        ([Decimal("NaN")], "Decimal"),
        ({1: "a"}, "key must be str"),
        (2**64, "64-bit"),
    ],
)
def test_values_that_json_cannot_carry_are_refused_by_type(value: object, named: str) -> None:
    error = refused(Message("t", value=value))
    assert error.field == "value"
    assert named in error.message
    assert type(value).__name__ in error.message


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert refused(Message("t", value=ring)).field == "value"


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        {"a": [1, -math.inf]},
        [Order(1, math.nan)],
        {"colour": Colour.NOTHING},
        {"at": datetime(2026, 1, 1, tzinfo=UTC), "deep": {"er": (math.nan,)}},
    ],
)
def test_nan_never_turns_into_null_in_silence(value: object) -> None:
    error = refused(Message("t", value=value))
    assert error.field == "value"
    assert "NaN" in error.message


_plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    _plain | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_json.filter(lambda value: value is not None and not isinstance(value, str)))
def test_json_values_come_back_as_they_were(value: object) -> None:
    data = encode(Message("t", value=value), NO_LIMITS).value
    assert data is not None
    assert orjson.loads(data) == value


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "...", "x" * 249])
def test_legal_topics(topic: str) -> None:
    assert encode(Message(topic), NO_LIMITS).topic == topic


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("", "empty"),
        ("x" * 250, "250"),
        (".", "'.'"),
        ("..", "'..'"),
        ("a b", "'a b'"),
        ("a/b", "'a/b'"),
        ("größe", "'größe'"),
        ("orders\n", r"orders\n"),
        (None, "NoneType"),
        (b"orders", "bytes"),
    ],
)
def test_illegal_topics_are_refused_by_name(topic: Any, said: str) -> None:
    error = refused(Message(topic))
    assert error.field == "topic"
    assert said in error.message


@pytest.mark.parametrize("headers", [None, {}, [], ()])
def test_no_headers(headers: Any) -> None:
    assert encode(Message("t", headers=headers), NO_LIMITS).headers == ()


def test_a_list_of_headers_keeps_order_and_repeated_names() -> None:
    headers: list[tuple[str, str | bytes | None]] = [("b", "1"), ("a", b"2"), ("b", None), ("é", "ü")]
    assert encode(Message("t", headers=headers), NO_LIMITS).headers == (
        ("b", b"1"),
        ("a", b"2"),
        ("b", None),
        ("é", "ü".encode()),
    )


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("text", "mapping"),
        (b"bytes", "mapping"),
        (5, "mapping"),
        ({1: "a"}, "1 (int)"),
        ({"a": 1}, "'a'"),
        ({"a": 1.5}, "1.5 (float)"),
        ([("a", "b", "c")], "item 0"),
        ([("a", "b"), "ab"], "item 1"),
        ({"a\0b": "c"}, "NUL"),
        ({"\ud800": "c"}, "surrogate"),
        ({"a": "\ud800"}, "surrogate"),
    ],
)
def test_headers_that_kafka_cannot_carry_are_refused(headers: Any, said: str) -> None:
    error = refused(Message("t", headers=headers))
    assert error.field == "headers"
    assert said in error.message


@pytest.mark.parametrize("partition", [-1, 2**31, True, 1.0, "1"])
def test_partitions_that_do_not_exist_are_refused(partition: Any) -> None:
    error = refused(Message("t", partition=partition))
    assert error.field == "partition"
    assert str(partition) in error.message


def test_an_aware_datetime_becomes_milliseconds_whatever_its_zone() -> None:
    at = datetime(2026, 5, 4, 3, 2, 1, 999_999, tzinfo=timezone(timedelta(hours=5)))
    assert encode(Message("t", timestamp=at), NO_LIMITS).timestamp_ms == 1_777_845_721_999


@given(st.datetimes(datetime(1970, 1, 2), timezones=st.just(UTC)))
def test_milliseconds_are_exact_and_never_rounded_up(at: datetime) -> None:
    milliseconds = encode(Message("t", timestamp=at), NO_LIMITS).timestamp_ms
    assert milliseconds is not None
    rest = at - datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=milliseconds)
    assert timedelta(0) <= rest < timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        (datetime(2026, 1, 1), "2026-01-01T00:00:00 has no time zone"),
        (datetime(1969, 12, 31, tzinfo=UTC), "1969"),
        (0, "0"),
        (-1, "-1"),
        (2**63, "too large"),
        (True, "bool"),
        (1.5, "float"),
        ("2026-01-01", "str"),
    ],
)
def test_timestamps_that_are_no_moment_are_refused(timestamp: Any, said: str) -> None:
    error = refused(Message("t", timestamp=timestamp))
    assert error.field == "timestamp"
    assert said in error.message


def test_a_value_at_the_limit_passes_and_one_byte_more_is_refused_with_both_sizes() -> None:
    limits = Limits(max_value_bytes=1000)
    assert encode(Message("t", value=b"x" * 1000), limits).value == b"x" * 1000
    error = refused(Message("t", value=b"x" * 1001), limits)
    assert error.field == "value"
    assert "1,001" in error.message
    assert "1,000" in error.message
    assert "max_value_bytes" in error.hint


def test_the_limit_counts_bytes_and_not_characters() -> None:
    assert refused(Message("t", value="é" * 6), Limits(max_value_bytes=10)).field == "value"


def test_keys_and_headers_have_limits_too() -> None:
    assert refused(Message("t", key="k" * 11), Limits(max_key_bytes=10)).field == "key"
    assert refused(Message("t", headers={"name": "v" * 50}), Limits(max_headers_bytes=60)).field == "headers"
    assert encode(Message("t", headers={"name": "v" * 46}), Limits(max_headers_bytes=60)).headers


def test_the_default_limits_together_fit_the_smaller_of_kafka_s_and_librdkafka_s() -> None:
    total = NO_LIMITS.max_value_bytes + NO_LIMITS.max_key_bytes + NO_LIMITS.max_headers_bytes
    assert total + 200 < min(1_000_000, 1_048_588)


def test_a_refusal_is_the_caller_s_to_fix() -> None:
    error = refused(Message(""))
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith("topic: ")


def test_an_integer_that_python_will_not_write_out_is_refused() -> None:
    assert refused(Message("t", key=10**5000)).field == "key"


class Line(BaseModel):
    price: Decimal
    colour: Colour = Colour.RED


def test_decimals_and_pydantic_models_become_json_with_every_digit() -> None:
    value = {"price": Decimal("1.50"), "small": Decimal("1E-7"), "lines": [Line(price=Decimal("2.00"))]}
    found = encode(Message("t", value=value), NO_LIMITS).value
    assert found == b'{"price":"1.50","small":"0.0000001","lines":[{"price":"2.00","colour":"red"}]}'
    assert encode(Message("t", value=Line(price=Decimal(3))), NO_LIMITS).value == b'{"price":"3","colour":"red"}'
    assert encode(Message("t", value=[None, Line(price=Decimal(3))]), NO_LIMITS).value is not None


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": 1, "b": object()}, "b is <object"),
        ({"items": [1, {"price": {1}}]}, "items[1].price is {1} (set)"),
        ([Order(1, {2})], "[0].total is {2} (set)"),  # type: ignore[arg-type]
        ({"price": Decimal("NaN")}, "price is Decimal('NaN') (Decimal)"),
    ],
)
def test_the_field_that_cannot_be_json_is_named(value: object, place: str) -> None:
    error = refused(Message("t", value=value))
    assert error.field == "value"
    assert place in error.message
