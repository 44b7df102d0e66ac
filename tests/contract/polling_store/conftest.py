"""Offset, missing and exceeded events of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from inorder.relay.stores.ports import PollingStore
from tests.contract.polling_store.places import MemoryPlace, Place, SqlPlace
from tests.selection import few

KINDS = ["memory", "postgres", "mariadb", "sqlite"]


@pytest.fixture(params=few(KINDS, "memory", "postgres", "sqlite"))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """In memory, and in each database."""
    with ExitStack() as stack:
        url = "" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
        yield SqlPlace(url, stack) if url else MemoryPlace()


@pytest.fixture
def store(place: Place) -> PollingStore:
    """One instance's view of it."""
    return place.store()


@pytest.fixture
def sql_place(database_url: str) -> Iterator[SqlPlace]:
    """In each database."""
    with ExitStack() as stack:
        yield SqlPlace(database_url, stack)
