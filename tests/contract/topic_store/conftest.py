"""Messages and lock rows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.topic_store.places import MemoryPlace, Place, SqlPlace
from tests.selection import few


@pytest.fixture(params=few(["memory", "postgres", "mariadb", "sqlite"], "memory", "postgres", "sqlite"))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """In memory, and in each database."""
    if request.param == "memory":
        yield MemoryPlace()
        return
    with ExitStack() as stack:
        yield SqlPlace(request.getfixturevalue(f"{request.param}_url"), stack)


@pytest.fixture
def sql_place(database_url: str) -> Iterator[SqlPlace]:
    """In each database."""
    with ExitStack() as stack:
        yield SqlPlace(database_url, stack)
