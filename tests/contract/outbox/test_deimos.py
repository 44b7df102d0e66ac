"""Publishing into the tables of Deimos: in the caller's transaction, as everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from inorder.model.errors import ValidationError
from inorder.model.message import Message
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Client

OUTBOX = Outbox("kafka_messages", layout="deimos")


def stored(client: Client) -> list[tuple[Any, ...]]:
    with create_engine(client.url, poolclass=NullPool).connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM kafka_messages ORDER BY id").mappings().all()
    assert all(row["created_at"] and row["updated_at"] for row in rows)
    assert all(row["session_id"] is None and row["partition_key"] is None for row in rows)
    return [(row["topic"], row["key"], row["message"]) for row in rows]


def test_messages_appear_with_the_caller_s_commit_in_the_order_of_the_list(deimos_client: Client) -> None:
    messages = [Message("orders", key=number, value=b"\x00\xff%d" % number) for number in range(50)]
    deimos_client.publish_list(messages, OUTBOX)
    deimos_client.publish(Message("orders", key="k"), OUTBOX)
    deimos_client.publish(Message("orders", value="no key"), OUTBOX)
    assert stored(deimos_client) == []
    deimos_client.commit()
    assert stored(deimos_client) == [
        *(("orders", b"%d" % number, b"\x00\xff%d" % number) for number in range(50)),
        ("orders", b"k", None),
        ("orders", None, b"no key"),
    ]


def test_a_rollback_leaves_no_message(deimos_client: Client) -> None:
    deimos_client.publish(Message("orders", value="gone"), OUTBOX)
    deimos_client.rollback()
    deimos_client.publish(Message("orders", value="kept"), OUTBOX)
    deimos_client.commit()
    assert stored(deimos_client) == [("orders", None, b"kept")]


def test_what_has_no_column_keeps_the_whole_list_out(deimos_client: Client) -> None:
    with pytest.raises(ValidationError) as caught:
        deimos_client.publish_list([Message("orders"), Message("orders", headers={"a": "b"})], OUTBOX)
    deimos_client.commit()
    assert caught.value.field == "messages[1].headers"
    assert stored(deimos_client) == []
