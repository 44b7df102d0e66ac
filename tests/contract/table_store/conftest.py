"""The databases that hold target tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.table_store.places import Memory, Place, Sql
from tests.selection import few


@pytest.fixture(params=few(["memory", "postgres", "mariadb", "sqlite"], "memory", "postgres", "sqlite"))
def database(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each store in turn."""
    if request.param == "memory":
        yield Memory()
        return
    with closing(Sql(request.getfixturevalue(f"{request.param}_url"))) as place:
        yield place


@pytest.fixture
def sql(database_url: str) -> Iterator[Sql]:
    """Each real database in turn."""
    with closing(Sql(database_url)) as place:
        yield place
