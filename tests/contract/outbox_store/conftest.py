"""Each outbox store in turn, each with each layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from inorder.outbox.layouts import LAYOUTS
from tests.contract.outbox_store.making import MAKERS, MemoryPlace, Place, SqlPlace
from tests.selection import few

# The tables of Deimos are read by topic and under locks: `tests/contract/topic_store`.
READ_ON = [layout for layout in LAYOUTS if layout != "deimos"]
SQL_PLACES = [f"{name} {layout}" for name in MAKERS for layout in READ_ON]
FEW_PLACES = ["postgres native", "postgres trendyol", "mariadb goharvest", "sqlite debezium"]
"""Each database once, and each layout once."""


def made(request: pytest.FixtureRequest, stack: ExitStack) -> SqlPlace:
    name, layout = request.param.split()
    return MAKERS[name](request, layout, stack)


@pytest.fixture(params=few(["memory", *SQL_PLACES], "memory", *FEW_PLACES))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty outbox table."""
    with ExitStack() as stack:
        yield MemoryPlace() if request.param == "memory" else made(request, stack)


MARKABLE = [name for name in SQL_PLACES if name.endswith((" native", " goharvest"))]


@pytest.fixture(params=few(["memory", *MARKABLE], "memory", "postgres native", "mariadb goharvest", "sqlite native"))
def markable(request: pytest.FixtureRequest) -> Iterator[Place]:
    """One whose layout has a `leader_id`."""
    with ExitStack() as stack:
        yield MemoryPlace() if request.param == "memory" else made(request, stack)


@pytest.fixture(params=few(SQL_PLACES, *FEW_PLACES))
def sql_place(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """One in a database."""
    with ExitStack() as stack:
        yield made(request, stack)


@pytest.fixture(params=few(MAKERS, "postgres", "sqlite"))
def native(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """The native layout in each database."""
    with ExitStack() as stack:
        yield MAKERS[request.param](request, "native", stack)


@pytest.fixture(params=few(MAKERS, "postgres", "sqlite"))
def goharvest(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """The goharvest layout in each database."""
    with ExitStack() as stack:
        yield MAKERS[request.param](request, "goharvest", stack)


@pytest.fixture(params=few(MAKERS, "postgres", "sqlite"))
def trendyol(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """The trendyol layout in each database."""
    with ExitStack() as stack:
        yield MAKERS[request.param](request, "trendyol", stack)


@pytest.fixture(params=READ_ON)
def any_on_postgres(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """Each layout in PostgreSQL."""
    with ExitStack() as stack:
        yield MAKERS["postgres"](request, request.param, stack)


@pytest.fixture
def debezium_on_postgres(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """The debezium layout in PostgreSQL, where a payload may be of many types."""
    with ExitStack() as stack:
        yield MAKERS["postgres"](request, "debezium", stack)


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """The native layout in PostgreSQL, for what only its publishers do."""
    with ExitStack() as stack:
        yield MAKERS["postgres"](request, "native", stack)
