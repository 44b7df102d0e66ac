"""Every kind of connection that `publish` accepts, on every database, behind one face."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from django import conf as django_conf  # type: ignore[import-untyped]  # Django ships no types
from django import db as django_db
from django import setup as django_setup
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from inorder.model.message import Record, from_text
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from tests.selection import few

DATABASES = {"postgresql": "postgres_url", "mysql": "mariadb_url", "sqlite": "sqlite_url"}


@dataclass
class Client:
    """An application with an open connection: it publishes through it, and it alone commits."""

    connection: Any
    commit: Callable[[], object]
    rollback: Callable[[], object]
    settle: Callable[[Any], object] = lambda outcome: outcome
    url: str = ""

    def publish(self, message: Any, outbox: Outbox | None = None) -> None:
        self.settle((outbox or Outbox()).publish(self.connection, message))

    def publish_list(self, messages: Any, outbox: Outbox | None = None) -> None:
        self.settle((outbox or Outbox()).publish_list(self.connection, messages))

    def stored(self, table: str = "outbox") -> list[tuple[int, Record]]:
        """What another connection sees in the table: committed rows, by id."""
        return stored(self.url, table)


def stored(url: str, table: str = "outbox") -> list[tuple[int, Record]]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY id").mappings().all()
    return [
        (
            row["id"],
            Record(
                topic=row["topic"],
                key=row["key"],
                value=row["value"],
                headers=from_text(row["headers"]),
                partition=row["partition"],
                timestamp_ms=row["timestamp"],
            ),
        )
        for row in rows
    ]


def install(url: str, table: str = "outbox", layout: str = "native") -> None:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in install_statements(layout, engine.dialect.name, table):
            connection.exec_driver_sql(statement)


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Client]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        yield Client(connection, connection.commit, connection.rollback)


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Client]:
    with Session(create_engine(url, poolclass=NullPool)) as session:
        yield Client(session, session.commit, session.rollback)


@contextmanager
def sqlalchemy_scoped_session(url: str) -> Iterator[Client]:
    session = scoped_session(sessionmaker(create_engine(url, poolclass=NullPool)))
    yield Client(session, session.commit, session.rollback)
    session.remove()


@contextmanager
def sqlalchemy_async_connection(url: str) -> Iterator[Client]:
    with asyncio.Runner() as runner:
        connection = create_async_engine(_async(url), poolclass=NullPool).connect()
        runner.run(_awaited(connection.start()))
        yield _async_client(runner, connection)
        runner.run(connection.close())


@contextmanager
def sqlalchemy_async_session(url: str) -> Iterator[Client]:
    with asyncio.Runner() as runner:
        session = AsyncSession(create_async_engine(_async(url), poolclass=NullPool))
        yield _async_client(runner, session)
        runner.run(session.close())


@contextmanager
def psycopg_connection(url: str) -> Iterator[Client]:
    with closing(psycopg.connect(plain(url))) as connection:
        yield Client(connection, connection.commit, connection.rollback)


@contextmanager
def psycopg_async_connection(url: str) -> Iterator[Client]:
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(plain(url)))
        yield _async_client(runner, connection)
        runner.run(connection.close())


@contextmanager
def pymysql_connection(url: str) -> Iterator[Client]:
    with closing(pymysql.connect(**mysql_arguments(url))) as connection:
        yield Client(connection, connection.commit, connection.rollback)


@contextmanager
def sqlite_connection(url: str) -> Iterator[Client]:
    with closing(sqlite3.connect(make_url(url).database or "")) as connection:
        yield Client(connection, connection.commit, connection.rollback)


@contextmanager
def django(url: str) -> Iterator[Client]:
    """`django.db.connection` in an atomic block, which commits on exit and is then entered again."""
    with django_configured(url):
        block = django_db.transaction.atomic()
        block.__enter__()

        def leave(error: BaseException | None = None) -> None:
            block.__exit__(type(error) if error else None, error, None)
            block.__enter__()

        yield Client(django_db.connection, leave, lambda: leave(RuntimeError("rolled back")))
        block.__exit__(None, None, None)


@contextmanager
def django_configured(url: str) -> Iterator[None]:
    """Points Django's default database at this one; its settings exist once a process."""
    if not django_conf.settings.configured:
        django_conf.settings.configure(USE_TZ=True)
        django_setup()
    parts = make_url(url)
    engine = {"postgresql": "postgresql", "sqlite": "sqlite3"}[parts.get_backend_name()]
    database = {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": parts.database,
        "USER": parts.username or "",
    }
    database |= {"HOST": parts.host or "", "PORT": str(parts.port or ""), "PASSWORD": parts.password or ""}
    django_db.connections.settings = django_db.connections.configure_settings({"default": database})
    try:
        yield
    finally:
        django_db.connection.close()
        del django_db.connections["default"]


def _async_client(runner: asyncio.Runner, connection: Any) -> Client:
    def settle(outcome: Awaitable[object]) -> object:
        return runner.run(_awaited(outcome))

    return Client(connection, lambda: settle(connection.commit()), lambda: settle(connection.rollback()), settle)


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable


def _async(url: str) -> URL:
    parts = make_url(url)
    return parts.set(drivername="sqlite+aiosqlite") if parts.get_backend_name() == "sqlite" else parts


def plain(url: str) -> str:
    """The URL as libpq reads it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def mysql_arguments(url: str) -> dict[str, Any]:
    parts = make_url(url).translate_connect_args(username="user")
    return {name: value for name, value in parts.items() if value is not None} | dict(make_url(url).query)


KINDS: dict[str, Callable[[str], Any]] = {
    kind.__name__: kind
    for kind in (
        sqlalchemy_connection,
        sqlalchemy_session,
        sqlalchemy_scoped_session,
        sqlalchemy_async_connection,
        sqlalchemy_async_session,
        psycopg_connection,
        psycopg_async_connection,
        pymysql_connection,
        sqlite_connection,
        django,
    )
}
ANYWHERE = ["sqlalchemy_connection", "sqlalchemy_session", "sqlalchemy_scoped_session"]
ASYNC = ["sqlalchemy_async_connection", "sqlalchemy_async_session"]
CLIENTS = [
    *(("postgresql", kind) for kind in [*ANYWHERE, *ASYNC, "psycopg_connection", "psycopg_async_connection", "django"]),
    *(("mysql", kind) for kind in [*ANYWHERE, "pymysql_connection"]),
    *(("sqlite", kind) for kind in [*ANYWHERE, *ASYNC, "sqlite_connection", "django"]),
]

FEW_CLIENTS = [
    ("postgresql", "sqlalchemy_connection"),
    ("postgresql", "psycopg_async_connection"),
    ("mysql", "pymysql_connection"),
    ("sqlite", "sqlalchemy_scoped_session"),
    ("sqlite", "sqlalchemy_async_connection"),
    ("sqlite", "sqlite_connection"),
    ("sqlite", "django"),
]
"""Each library once, and each database."""


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'outbox.db'}"


@pytest.fixture(params=sorted(DATABASES))
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each dialect."""
    url: str = request.getfixturevalue(DATABASES[request.param])
    return url


@pytest.fixture(params=few(CLIENTS, *FEW_CLIENTS), ids=lambda client: "-".join(client))
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """An application of each kind on each database, with an empty outbox table."""
    dialect, kind = request.param
    url: str = request.getfixturevalue(DATABASES[dialect])
    install(url)
    with KINDS[kind](url) as client:
        client.url = url
        yield client
        client.rollback()


EACH_DRIVER = [
    *(
        ("postgresql", kind)
        for kind in ["sqlalchemy_session", "psycopg_connection", "psycopg_async_connection", "django"]
    ),
    *(("mysql", kind) for kind in ["sqlalchemy_connection", "pymysql_connection"]),
    *(
        ("sqlite", kind)
        for kind in ["sqlalchemy_connection", "sqlalchemy_async_session", "sqlite_connection", "django"]
    ),
]
FEW_DRIVERS = [("postgresql", "psycopg_connection"), ("mysql", "pymysql_connection"), ("sqlite", "sqlite_connection")]


@contextmanager
def client_of(request: pytest.FixtureRequest, table: str, layout: str) -> Iterator[Client]:
    dialect, kind = request.param
    url: str = request.getfixturevalue(DATABASES[dialect])
    install(url, table, layout)
    with KINDS[kind](url) as client:
        client.url = url
        yield client
        client.rollback()


@pytest.fixture(params=few(EACH_DRIVER, *FEW_DRIVERS), ids=lambda client: "-".join(client))
def deimos_client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """An application on each database, with the empty tables of the deimos layout."""
    with client_of(request, "kafka_messages", "deimos") as client:
        yield client


@pytest.fixture(params=few(EACH_DRIVER, *FEW_DRIVERS), ids=lambda client: "-".join(client))
def trendyol_client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """An application on each database, with the empty tables of the trendyol layout."""
    with client_of(request, "outbox_events", "trendyol") as client:
        yield client


@pytest.fixture
def outbox_url(postgres_url: str) -> str:
    """A PostgreSQL database with an empty outbox table."""
    install(postgres_url)
    return postgres_url


class Tools:
    """What single tests need of this file."""

    stored = staticmethod(stored)
    install = staticmethod(install)
    plain = staticmethod(plain)
    mysql_arguments = staticmethod(mysql_arguments)
    django_configured = staticmethod(django_configured)


@pytest.fixture
def tools() -> Tools:
    return Tools()
