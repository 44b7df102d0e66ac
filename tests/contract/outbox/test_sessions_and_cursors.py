"""The caller's own settings on a session or connection neither matter to us nor are touched by us."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql.cursors
import pytest
from django import db as django_db  # type: ignore[import-untyped]  # Django ships no types
from psycopg.rows import class_row, dict_row
from sqlalchemy import Engine, ForeignKey, create_engine, event
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from inorder.model.message import Message
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.conftest import Eventually
    from tests.contract.outbox.conftest import Tools


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    parent: Mapped[int | None] = mapped_column(ForeignKey("orders.id"))
    state: Mapped[str] = mapped_column(default="placed")


def only_with_columns(cursor: Any) -> Any:
    """A row factory as people write them: it does not expect a statement that returns nothing."""
    names = [column.name for column in cursor.description]
    return lambda values: dict(zip(names, values, strict=True))


@pytest.mark.parametrize("factory", [dict_row, class_row(dict), only_with_columns])
def test_any_psycopg_row_factory_will_do(tools: Tools, outbox_url: str, factory: Any) -> None:
    with closing(psycopg.connect(tools.plain(outbox_url), row_factory=factory)) as connection:
        Outbox().publish(connection, Message("orders", value="x"))
        connection.commit()
        assert connection.row_factory is factory
    assert len(tools.stored(outbox_url)) == 1


@pytest.mark.parametrize("factory", [psycopg.ClientCursor, psycopg.RawCursor, psycopg.ServerCursor])
def test_any_psycopg_cursor_factory_will_do(tools: Tools, outbox_url: str, factory: Any) -> None:
    with closing(psycopg.connect(tools.plain(outbox_url))) as connection:
        connection.cursor_factory = factory
        Outbox().publish(connection, Message("orders", value=b"\xff", headers={"a": None}))
        connection.commit()
    assert len(tools.stored(outbox_url)) == 1


@pytest.mark.parametrize("factory", [pymysql.cursors.DictCursor, pymysql.cursors.SSCursor])
def test_any_pymysql_cursor_class_will_do(tools: Tools, mariadb_url: str, factory: Any) -> None:
    tools.install(mariadb_url)
    arguments = tools.mysql_arguments(mariadb_url)
    with closing(pymysql.connect(**arguments, cursorclass=factory)) as connection:
        Outbox().publish_list(connection, [Message("orders", value=b"\xff")] * 3)
        connection.commit()
    assert len(tools.stored(mariadb_url)) == 3


def test_django_s_wrapper_itself_will_do(tools: Tools, outbox_url: str) -> None:
    with tools.django_configured(outbox_url), django_db.transaction.atomic():
        Outbox().publish(django_db.connections["default"], Message("orders", value="x"))
    assert len(tools.stored(outbox_url)) == 1


def test_an_async_scoped_session_will_do(tools: Tools, outbox_url: str) -> None:
    async def scenario() -> None:
        maker = async_sessionmaker(create_async_engine(outbox_url, poolclass=NullPool))
        session = async_scoped_session(maker, scopefunc=asyncio.current_task)
        await Outbox().publish(session, Message("orders", value="x"))
        assert tools.stored(outbox_url) == []
        await session.commit()
        await session.remove()

    asyncio.run(scenario())
    assert len(tools.stored(outbox_url)) == 1


def test_with_flush_off_pending_objects_are_left_pending_and_commit_with_the_message(
    tools: Tools, outbox_url: str
) -> None:
    with Session(orders_at(outbox_url)) as session:
        order = Order()
        session.add(order)
        Outbox().publish(session, Message("orders", value="placed"), flush=False)
        assert order in session.new
        session.commit()
        assert session.query(Order).count() == 1
    assert len(tools.stored(outbox_url)) == 1


def test_a_flush_that_fails_takes_the_message_with_it(tools: Tools, outbox_url: str) -> None:
    with Session(orders_at(outbox_url)) as session:
        session.add(Order(parent=12345))
        Outbox().publish(session, Message("orders", value="placed"), flush=False)
        with pytest.raises(Exception, match="foreign key"):
            session.commit()
    with Session(orders_at(outbox_url)) as session:
        session.add(Order(parent=12345))
        with pytest.raises(Exception, match="foreign key"):
            Outbox().publish(session, Message("orders", value="placed"))
    assert tools.stored(outbox_url) == []


@pytest.mark.parametrize("kind", ["session", "scoped_session"])
def test_a_message_gets_its_id_when_the_changed_row_is_locked(tools: Tools, outbox_url: str, kind: str) -> None:
    engine = orders_at(outbox_url, Order(id=1))
    session: Any = Session(engine) if kind == "session" else scoped_session(sessionmaker(engine))
    session.get(Order, 1).state = "paid"
    Outbox().publish(session, Message("orders", key=1, value="paid"), flush=False)
    assert not is_locked(engine)
    Outbox().publish(session, Message("orders", key=1, value="paid"))
    assert is_locked(engine)
    session.close()


@pytest.mark.parametrize("kind", ["session", "scoped_session"])
def test_a_message_of_an_async_session_gets_its_id_when_the_changed_row_is_locked(
    tools: Tools, outbox_url: str, kind: str
) -> None:
    engine = orders_at(outbox_url, Order(id=1))

    async def scenario() -> None:
        maker = async_sessionmaker(create_async_engine(outbox_url, poolclass=NullPool))
        session: Any = maker() if kind == "session" else async_scoped_session(maker, scopefunc=asyncio.current_task)
        (await session.get(Order, 1)).state = "paid"
        await Outbox().publish(session, Message("orders", key=1, value="paid"), flush=False)
        assert not is_locked(engine)
        await Outbox().publish_list(session, [Message("orders", key=1, value="paid")])
        assert is_locked(engine)
        await session.commit()
        await session.close()

    asyncio.run(scenario())
    assert len(tools.stored(outbox_url)) == 2


def test_messages_of_a_row_are_in_the_order_in_which_it_was_changed(
    tools: Tools, outbox_url: str, eventually: Eventually
) -> None:
    """Two sessions change one row; the first to publish commits last. (Without a flush the row ends as 1, 2, 1.)"""
    engine = orders_at(outbox_url, Order(id=1))

    def change(session: Session, state: str) -> None:
        order = session.get(Order, 1)
        assert order is not None
        order.state = state
        Outbox().publish(session, Message("orders", key=1, value=state))

    def change_and_commit(state: str) -> None:
        with Session(engine) as session:
            change(session, state)
            session.commit()

    with Session(engine) as first, ThreadPoolExecutor(1) as threads:
        change(first, "1")
        second = threads.submit(change_and_commit, "2")
        eventually(lambda: second.done() or waits_for_a_lock(engine))
        first.commit()
        second.result(60)
    with Session(engine) as session:
        order = session.get(Order, 1)
        assert order is not None
        assert [record.value for _, record in tools.stored(outbox_url)][-1] == order.state.encode()


def test_a_listener_may_publish_during_a_flush(tools: Tools, outbox_url: str) -> None:
    with Session(orders_at(outbox_url)) as session:

        @event.listens_for(session, "after_flush")
        def publish(session: Session, _context: object) -> None:
            Outbox().publish(session, Message("orders", value="flushed"))

        session.add(Order())
        session.commit()
    assert [record.value for _, record in tools.stored(outbox_url)] == [b"flushed"]


def orders_at(url: str, *rows: Order) -> Engine:
    engine = create_engine(url, poolclass=NullPool)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(rows)
        session.commit()
    return engine


def is_locked(engine: Engine) -> bool:
    with engine.connect() as connection:
        free = connection.exec_driver_sql("SELECT id FROM orders WHERE id = 1 FOR UPDATE SKIP LOCKED").all()
    return not free


def waits_for_a_lock(engine: Engine) -> bool:
    with engine.connect() as connection:
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(connection.exec_driver_sql(waiting).all())


def test_a_savepoint_rolled_back_takes_only_its_own_messages(tools: Tools, database_url: str) -> None:
    tools.install(database_url)
    with Session(create_engine(database_url, poolclass=NullPool)) as session:
        Outbox().publish(session, Message("orders", value="outer"))
        savepoint = session.begin_nested()
        Outbox().publish(session, Message("orders", value="inner"))
        savepoint.rollback()
        Outbox().publish(session, Message("orders", value="after"))
        session.commit()
    assert [record.value for _, record in tools.stored(database_url)] == [b"outer", b"after"]
