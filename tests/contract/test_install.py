"""Any number of instances may start at once on an empty database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

import inorder
from inorder.database.database import open_database
from inorder.journal.stores.projection_store import ProjectionStore
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from inorder.relay.stores.ports import Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.relay.stores.sql_lease import SqlLease
from tests.operating import install_schema

INSTANCES = 8


def lease(url: str, number: int) -> None:
    found = SqlLease(open_database(url, "test"), name="group.0", owner=str(number))
    found.acquire()
    found.release()


def exceeded(url: str, number: int) -> None:
    store = SqlExceededStore(open_database(url, "test"), "outbox")
    assert store.parked() == {}
    assert store.rows(ExceededFilter()) == []
    store.close()


def registry(url: str, number: int) -> None:
    found = SqlRegistry(open_database(url, "test"), "outbox")
    found.register(Setup("group", "drain", number))
    found.close()


def schema(url: str, number: int) -> None:
    settings = inorder.Settings.load(database={"url": url})
    install_schema(settings, "native" if number % 2 else "table")


def projection(url: str, number: int) -> None:
    with closing(open_database(url, "test")) as database:
        ProjectionStore(database, "view").begin(("journal", number), 0, None)
        assert ("journal", number, 0) in [row[:3] for row in ProjectionStore(database, "view").rows()]


def start_together(start: Callable[[str, int], None], url: str) -> None:
    together = threading.Barrier(INSTANCES)

    def run(number: int) -> None:
        together.wait()
        start(url, number)

    with ThreadPoolExecutor(INSTANCES) as pool:
        for job in [pool.submit(run, number) for number in range(INSTANCES)]:
            job.result()


@pytest.mark.parametrize("start", [lease, exceeded, registry, projection])
def test_tables_are_made_once_by_whoever_comes_first(start: Callable[[str, int], None], database_url: str) -> None:
    start_together(start, database_url)


def test_a_schema_is_installed_once_by_whoever_comes_first(postgres_url: str) -> None:
    start_together(schema, postgres_url)
