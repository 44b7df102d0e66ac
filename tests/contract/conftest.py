"""Databases for the contract suites, one of each dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from inorder.database.database import Database, open_database
from tests.selection import few

Databases = Callable[[], Database]
DatabaseOf = Callable[[str], Database]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh SQLite file."""
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=few(["postgres", "mariadb", "sqlite"], "mariadb", "sqlite"))
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh, empty database of each dialect in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def database_of() -> Iterator[DatabaseOf]:
    """Opens a database by its URL, and closes it after the test."""
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(closing(open_database(url, "test")))


@pytest.fixture
def databases(database_url: str, database_of: DatabaseOf) -> Databases:
    """Opens one connection for each instance in a test."""
    return lambda: database_of(database_url)


@pytest.fixture
def database(databases: Databases) -> Database:
    """The connection of one instance."""
    return databases()


@pytest.fixture(scope="session", autouse=True)
def new_topics(topics_on_demand: None) -> None:
    """Of every test here."""
