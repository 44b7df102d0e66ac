"""Where every statement commits alone, publishing is refused, and the refusal says what to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest
from django import db as django_db  # type: ignore[import-untyped]  # Django ships no types
from sqlalchemy import create_engine, event, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from inorder.model.errors import ConfigurationError
from inorder.model.message import Message
from inorder.outbox import Outbox

if TYPE_CHECKING:
    from tests.contract.outbox.conftest import Tools

MESSAGE = Message("orders", value="x")


@contextmanager
def refused(tools: Tools, url: str, hint: str) -> Iterator[None]:
    with pytest.raises(ConfigurationError, match="autocommit") as caught:
        yield
    assert hint in caught.value.hint
    assert tools.stored(url) == []


def test_psycopg(tools: Tools, outbox_url: str) -> None:
    with closing(psycopg.connect(tools.plain(outbox_url), autocommit=True)) as connection:
        with refused(tools, outbox_url, "connection.transaction()"):
            Outbox().publish(connection, MESSAGE)
        with connection.transaction():
            Outbox().publish(connection, MESSAGE)
            assert tools.stored(outbox_url) == []
        assert len(tools.stored(outbox_url)) == 1


def test_psycopg_async(tools: Tools, outbox_url: str) -> None:
    async def scenario() -> None:
        connection = await psycopg.AsyncConnection.connect(tools.plain(outbox_url), autocommit=True)
        async with connection:
            with refused(tools, outbox_url, "connection.transaction()"):
                await Outbox().publish(connection, MESSAGE)
            async with connection.transaction():
                await Outbox().publish(connection, MESSAGE)
                assert tools.stored(outbox_url) == []

    asyncio.run(scenario())
    assert len(tools.stored(outbox_url)) == 1


def test_psycopg_in_a_pipeline(tools: Tools, outbox_url: str) -> None:
    with closing(psycopg.connect(tools.plain(outbox_url), autocommit=True)) as connection:
        with connection.pipeline(), connection.transaction():
            Outbox().publish(connection, MESSAGE)
            Outbox().publish(connection, MESSAGE)
            assert tools.stored(outbox_url) == []
        assert len(tools.stored(outbox_url)) == 2


def test_pymysql(tools: Tools, mariadb_url: str) -> None:
    tools.install(mariadb_url)
    with closing(pymysql.connect(**tools.mysql_arguments(mariadb_url), autocommit=True)) as connection:
        with refused(tools, mariadb_url, "connection.begin()"):
            Outbox().publish(connection, MESSAGE)
        connection.begin()
        Outbox().publish(connection, MESSAGE)
        assert tools.stored(mariadb_url) == []
        connection.commit()
        assert len(tools.stored(mariadb_url)) == 1


def test_sqlite(tools: Tools, sqlite_url: str) -> None:
    tools.install(sqlite_url)
    file = make_url(sqlite_url).database or ""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with refused(tools, sqlite_url, '"BEGIN"'):
            Outbox().publish(connection, MESSAGE)
        connection.execute("BEGIN")
        Outbox().publish(connection, MESSAGE)
        assert tools.stored(sqlite_url) == []
        connection.execute("COMMIT")
        assert len(tools.stored(sqlite_url)) == 1


@pytest.mark.parametrize("fixture", ["postgres_url", "sqlite_url"])
def test_django_outside_atomic(tools: Tools, fixture: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(fixture)
    tools.install(url)
    with tools.django_configured(url):
        with refused(tools, url, "transaction.atomic()"):
            Outbox().publish(django_db.connection, MESSAGE)
        with django_db.transaction.atomic():
            Outbox().publish(django_db.connection, MESSAGE)
            assert tools.stored(url) == []
        assert len(tools.stored(url)) == 1


def test_django_with_autocommit_switched_off(tools: Tools, outbox_url: str) -> None:
    with tools.django_configured(outbox_url):
        django_db.transaction.set_autocommit(False)
        Outbox().publish(django_db.connection, MESSAGE)
        assert tools.stored(outbox_url) == []
        django_db.transaction.commit()
        assert len(tools.stored(outbox_url)) == 1


@pytest.mark.parametrize("on", ["engine", "connection"])
def test_sqlalchemy_on_each_database(tools: Tools, database_url: str, on: str) -> None:
    tools.install(database_url)
    engine = create_engine(database_url, poolclass=NullPool)
    if on == "engine":
        engine = create_engine(database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if on == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with refused(tools, database_url, "AUTOCOMMIT"):
            Outbox().publish(connection, MESSAGE)
    with (
        Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session,
        refused(tools, database_url, "AUTOCOMMIT"),
    ):
        Outbox().publish(session, MESSAGE)


@pytest.mark.parametrize("fixture", ["postgres_url", "sqlite_url"])
def test_sqlalchemy_async(tools: Tools, fixture: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(fixture)
    tools.install(url)

    async def scenario() -> None:
        engine = create_async_engine(
            url.replace("sqlite:", "sqlite+aiosqlite:"), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        async with engine.connect() as connection, AsyncSession(engine) as session:
            with refused(tools, url, "AUTOCOMMIT"):
                await Outbox().publish(connection, MESSAGE)
            with refused(tools, url, "AUTOCOMMIT"):
                await Outbox().publish_list(session, [MESSAGE])

    asyncio.run(scenario())


def test_sqlalchemy_s_recipe_for_sqlite_transactions_is_no_autocommit(tools: Tools, sqlite_url: str) -> None:
    tools.install(sqlite_url)
    engine = create_engine(sqlite_url, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def leave_begin_to_us(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        Outbox().publish(connection, MESSAGE)
        assert tools.stored(sqlite_url) == []
        connection.commit()
    with Session(engine) as session:
        Outbox().publish(session, MESSAGE)
        session.rollback()
    assert len(tools.stored(sqlite_url)) == 1
