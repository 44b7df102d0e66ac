"""Publishing into the events of PollingOutboxPublisher: in the caller's transaction, as everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from inorder.database.database import moment
from inorder.model.errors import ValidationError
from inorder.model.message import Message
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Client

OUTBOX = Outbox("outbox_events", layout="trendyol")


def rows(client: Client) -> Any:
    with create_engine(client.url, poolclass=NullPool).connect() as connection:
        return connection.exec_driver_sql("SELECT * FROM outbox_events ORDER BY id").mappings().all()


def stored(client: Client) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["key"], row["value"], row["header"]) for row in rows(client)]


def test_messages_appear_with_the_caller_s_commit_in_the_order_of_the_list(trendyol_client: Client) -> None:
    messages = [Message("orders", key=number, value={"n": number}, headers={"ü": "1"}) for number in range(50)]
    trendyol_client.publish_list(messages, OUTBOX)
    trendyol_client.publish(Message("orders", key="ü" * 200, value="€ %s 'x'"), OUTBOX)
    trendyol_client.publish(Message("orders", value=""), OUTBOX)
    assert stored(trendyol_client) == []
    trendyol_client.commit()
    assert stored(trendyol_client) == [
        *(("orders", str(number), f'{{"n":{number}}}', '{"ü":"1"}') for number in range(50)),
        ("orders", "ü" * 200, "€ %s 'x'", None),
        ("orders", None, "", None),
    ]


def test_when_a_row_was_written_is_told_in_utc_and_by_whom_is_left_open(trendyol_client: Client) -> None:
    trendyol_client.publish(Message("orders", value="v"), OUTBOX)
    trendyol_client.commit()
    (row,) = rows(trendyol_client)
    assert abs(datetime.now(UTC) - moment(row["created_date"])) < timedelta(minutes=1)
    assert row["created_by"] is None


def test_a_rollback_leaves_no_message(trendyol_client: Client) -> None:
    trendyol_client.publish(Message("orders", value="gone"), OUTBOX)
    trendyol_client.rollback()
    trendyol_client.publish(Message("orders", value="kept"), OUTBOX)
    trendyol_client.commit()
    assert stored(trendyol_client) == [("orders", None, "kept", None)]


def test_what_a_column_cannot_hold_keeps_the_whole_list_out(trendyol_client: Client) -> None:
    with pytest.raises(ValidationError) as caught:
        trendyol_client.publish_list([Message("orders", value="v"), Message("orders", value=b"\xff")], OUTBOX)
    trendyol_client.commit()
    assert caught.value.field == "messages[1].value"
    assert stored(trendyol_client) == []
