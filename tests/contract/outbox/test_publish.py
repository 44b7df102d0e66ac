"""What an application may rely on when it publishes, whatever it holds its transaction with."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from inorder.model.errors import ValidationError
from inorder.model.message import Limits, Message, Record
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Client

EVERYTHING = [
    Message("orders", key="k", value=b"\x00\xff\\x00'\"%s:name{}", headers={"a": "b"}, partition=0, timestamp=1),
    Message("orders"),
    Message("orders", key=b"", value=b""),
    Message("Orders.x_y-z", key="ключ 🔑", value="значение 💡"),
    Message("orders", key=-7, value={"id": 42, "text": "naïve\u0000", "none": None}),
    Message("orders", headers=[("n", None), ("b", b"\xff\xfe"), ("t", "ü🙂\\\"'"), ("n", "twice"), ("z", "\0")]),
    Message("orders", partition=2**31 - 1, timestamp=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
]
STORED = [
    Record("orders", b"k", b"\x00\xff\\x00'\"%s:name{}", (("a", b"b"),), 0, 1),
    Record("orders", None, None, (), None, None),
    Record("orders", b"", b"", (), None, None),
    Record("Orders.x_y-z", "ключ 🔑".encode(), "значение 💡".encode(), (), None, None),
    Record("orders", b"-7", '{"id":42,"text":"naïve\\u0000","none":null}'.encode(), (), None, None),
    Record(
        "orders",
        None,
        None,
        (("n", None), ("b", b"\xff\xfe"), ("t", "ü🙂\\\"'".encode()), ("n", b"twice"), ("z", b"\0")),
        None,
        None,
    ),
    Record("orders", None, None, (), 2**31 - 1, 1767323045678),
]


def values(client: Client) -> list[bytes | None]:
    return [record.value for _, record in client.stored()]


def test_a_message_appears_with_the_caller_s_commit_and_not_before(client: Client) -> None:
    client.publish(Message("orders", key=1, value="first"))
    assert client.stored() == []
    client.commit()
    assert [record for _, record in client.stored()] == [Record("orders", b"1", b"first", (), None, None)]


def test_a_rollback_leaves_no_message(client: Client) -> None:
    client.publish(Message("orders", value="gone"))
    client.publish_list([Message("orders", value="gone too")])
    client.rollback()
    client.publish(Message("orders", value="kept"))
    client.commit()
    assert values(client) == [b"kept"]


def test_everything_a_message_can_hold_comes_back_exactly(client: Client) -> None:
    client.publish_list(EVERYTHING)
    for message in EVERYTHING:
        client.publish(message)
    client.commit()
    assert [record for _, record in client.stored()] == STORED * 2


def test_ids_follow_the_list_and_the_order_of_calls(client: Client) -> None:
    client.publish(Message("orders", value="0"))
    client.publish_list(Message("orders", value=str(number)) for number in range(1, 2501))
    client.publish(Message("orders", value="2501"))
    client.commit()
    rows = client.stored()
    assert [int(record.value or b"-1") for _, record in rows] == list(range(2502))
    assert all(earlier[0] < later[0] for earlier, later in pairwise(rows))


def test_a_list_too_long_for_one_statement_keeps_its_order(client: Client) -> None:
    client.publish_list([Message("orders", key=number, value=b"\\" * 800_000) for number in range(12)])
    client.commit()
    assert [record.key for _, record in client.stored()] == [b"%d" % number for number in range(12)]


def test_a_message_at_all_default_limits_is_stored_whole(client: Client) -> None:
    limits = Limits()
    value = bytes(range(256)) * (limits.max_value_bytes // 256)
    client.publish(Message("orders", key=b"\xff" * limits.max_key_bytes, value=value, headers={"h": b"\xfe" * 32_757}))
    client.commit()
    [(_, record)] = client.stored()
    assert (record.key, record.value) == (b"\xff" * limits.max_key_bytes, value)
    assert record.headers == (("h", b"\xfe" * 32_757),)


def test_one_bad_message_keeps_the_whole_list_out(client: Client) -> None:
    messages = [Message("orders", value=n) for n in range(3)] + [Message("orders", value={1, 2})]
    with pytest.raises(ValidationError) as caught:
        client.publish_list(messages)
    assert caught.value.field == "messages[3].value"
    client.commit()
    assert client.stored() == []


def test_a_refused_message_leaves_the_transaction_usable(client: Client) -> None:
    client.publish(Message("orders", value="before"))
    with pytest.raises(ValidationError):
        client.publish(Message("no such topic", value="refused"))
    client.publish(Message("orders", value="after"))
    client.commit()
    assert values(client) == [b"before", b"after"]


def test_an_empty_list_writes_nothing(client: Client) -> None:
    client.publish_list([])
    client.commit()
    assert client.stored() == []


@pytest.mark.parametrize("wrong", [{"topic": "orders"}, "orders", None])
def test_what_is_no_message_is_refused(client: Client, wrong: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        client.publish_list([Message("orders"), wrong])
    assert caught.value.field == "messages[1]"
    client.commit()
    assert client.stored() == []


def test_the_outbox_s_own_limits_hold(client: Client) -> None:
    outbox = Outbox(limits=Limits(max_value_bytes=3))
    client.publish(Message("orders", value="abc"), outbox)
    with pytest.raises(ValidationError, match="value"):
        client.publish(Message("orders", value="abcd"), outbox)
    client.commit()
    assert values(client) == [b"abc"]
