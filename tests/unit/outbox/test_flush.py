"""When a session is flushed, and that its errors are not blamed on the outbox table."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.outbox.publisher import MessagePublisher
from inorder.settings import Settings

MESSAGE = Message("orders", key=1, value="placed")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        for statement in install_statements("native", "sqlite", "outbox"):
            connection.exec_driver_sql(statement)
    yield engine
    engine.dispose()


@pytest.fixture
def publisher() -> MessagePublisher:
    return MessagePublisher(Settings.load(publisher={"backend": "db"}), {})


@pytest.mark.parametrize("flush", [True, False])
def test_a_publisher_flushes_unless_it_is_told_not_to(engine: Engine, publisher: MessagePublisher, flush: bool) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Order())
        publisher.publish(MESSAGE, session, flush=flush)
        assert bool(session.new) is not flush
        session.add(Order())
        publisher.publish_list([MESSAGE], session, flush=flush)
        assert bool(session.new) is not flush


def test_a_publisher_flushes_an_async_session(publisher: MessagePublisher) -> None:
    async def scenario() -> None:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
            for statement in install_statements("native", "sqlite", "outbox"):
                await connection.exec_driver_sql(statement)
        async with AsyncSession(engine) as session:
            session.add(Order())
            await publisher.publish(MESSAGE, session, flush=False)
            assert session.new
            await publisher.publish(MESSAGE, session)
            assert not session.new
        await engine.dispose()

    asyncio.run(scenario())


def test_a_table_of_the_application_that_is_missing_is_not_reported_as_ours(
    engine: Engine, publisher: MessagePublisher
) -> None:
    with Session(engine) as session:
        session.add(Order())
        with pytest.raises(OperationalError, match="no such table: orders"):
            publisher.publish(MESSAGE, session)


def test_nothing_is_flushed_for_a_message_that_is_refused(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Order())
        with pytest.raises(ValidationError):
            Outbox().publish(session, Message("", value="x"))
        assert session.new


def test_nothing_is_flushed_where_it_would_be_committed_alone(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        session.add(Order())
        with pytest.raises(ConfigurationError, match="autocommit"):
            Outbox().publish(session, MESSAGE)
        assert session.new
