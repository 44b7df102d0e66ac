"""A sleeping relay is woken by the commit that gives it work; one that is awake is left in peace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.pool import NullPool

from inorder.model.message import Message
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Tools

KEY = "(1768845170::bigint << 32) | to_regclass('outbox')::oid::bigint"
MESSAGE = Message("orders", value="x")
Connection = psycopg.Connection[Any]


class Relay:
    """A relay as the publisher sees it: it listens, and holds the table's lock while it sleeps."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        [(self.channel,)] = connection.execute("SELECT 'inorder_' || to_regclass('outbox')::oid").fetchall()
        connection.execute(f'LISTEN "{self.channel}"')

    def falls_asleep(self) -> bool:
        [(slept,)] = self._connection.execute(f"SELECT pg_try_advisory_lock({KEY})").fetchall()
        return bool(slept)

    def wakes_up(self) -> None:
        self._connection.execute(f"SELECT pg_advisory_unlock({KEY})")

    def notifications(self, timeout: float = 0.3) -> list[tuple[str, str]]:
        """What has arrived; when one is expected the wait ends with it."""
        arrived = [*self._connection.notifies(timeout=timeout, stop_after=1)]
        arrived += self._connection.notifies(timeout=0)
        return [(notification.channel, notification.payload) for notification in arrived]


@pytest.fixture
def publisher(tools: Tools, outbox_url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(tools.plain(outbox_url))) as connection:
        yield connection


@pytest.fixture
def relay(tools: Tools, outbox_url: str) -> Iterator[Relay]:
    with closing(psycopg.connect(tools.plain(outbox_url), autocommit=True)) as connection:
        yield Relay(connection)


def test_a_sleeping_relay_gets_one_notification_and_gets_it_at_the_commit(publisher: Connection, relay: Relay) -> None:
    assert relay.falls_asleep()
    Outbox().publish_list(publisher, [MESSAGE] * 50)
    Outbox().publish(publisher, MESSAGE)
    assert relay.notifications() == []
    publisher.commit()
    assert relay.notifications(timeout=10) == [(relay.channel, "")]
    assert relay.notifications() == []


def test_nobody_is_notified_while_nobody_sleeps(publisher: Connection, relay: Relay) -> None:
    Outbox().publish_list(publisher, [MESSAGE] * 50)
    publisher.commit()
    assert relay.notifications() == []


def test_a_relay_cannot_fall_asleep_between_a_publish_and_its_commit(publisher: Connection, relay: Relay) -> None:
    Outbox().publish(publisher, MESSAGE)
    assert not relay.falls_asleep()
    publisher.commit()
    assert relay.falls_asleep()


def test_a_rolled_back_publish_wakes_nobody(publisher: Connection, relay: Relay) -> None:
    assert relay.falls_asleep()
    Outbox().publish(publisher, MESSAGE)
    publisher.rollback()
    assert relay.notifications() == []
    relay.wakes_up()
    Outbox().publish(publisher, MESSAGE)
    publisher.rollback()
    assert relay.falls_asleep()


def test_publishers_do_not_hinder_one_another(tools: Tools, outbox_url: str, publisher: Connection) -> None:
    with closing(psycopg.connect(tools.plain(outbox_url), options="-c lock_timeout=2s")) as other:
        Outbox().publish(publisher, MESSAGE)
        Outbox().publish(other, MESSAGE)
        other.commit()
        publisher.commit()
    assert len(tools.stored(outbox_url)) == 2


def test_another_outbox_s_relay_is_not_woken(
    tools: Tools, outbox_url: str, publisher: Connection, relay: Relay
) -> None:
    tools.install(outbox_url, "other_outbox")
    assert relay.falls_asleep()
    Outbox("other_outbox").publish(publisher, MESSAGE)
    publisher.commit()
    assert relay.notifications() == []


@pytest.mark.parametrize("count", [1, 5000])
def test_publishing_costs_one_round_trip(
    tools: Tools, outbox_url: str, relay: Relay, count: int, tmp_path: Any
) -> None:
    assert relay.falls_asleep()
    with (
        closing(psycopg.connect(tools.plain(outbox_url))) as connection,
        (tmp_path / "trace").open("w") as trace,
    ):
        connection.execute("SELECT 1")
        connection.pgconn.trace(trace.fileno())
        Outbox().publish_list(connection, [MESSAGE] * count)
        connection.pgconn.untrace()
        connection.commit()
    answers = (tmp_path / "trace").read_text().count("ReadyForQuery")
    assert answers == 1


def test_publishing_through_sqlalchemy_is_one_statement(outbox_url: str) -> None:
    engine = create_engine(outbox_url, poolclass=NullPool)
    executed: list[str] = []
    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda *arguments: executed.append(arguments[2]))
        Outbox().publish(connection, MESSAGE)
        Outbox().publish_list(connection, [MESSAGE] * 5000)
    assert len(executed) == 2
