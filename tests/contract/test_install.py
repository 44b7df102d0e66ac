"""Any number of instances may start at once on an empty database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import inorder
from inorder.stores.postgres.exceeded import Filter, PostgresExceededStore, list_exceeded
from inorder.stores.postgres.lease import PostgresLease
from inorder.wiring import install_schema

INSTANCES = 8


def lease(url: str, number: int) -> None:
    found = PostgresLease(url, name="group.0", owner=str(number))
    found.acquire()
    found.release()


def exceeded(url: str, number: int) -> None:
    store = PostgresExceededStore(url, "outbox")
    assert store.parked() == {}
    store.close()
    assert list_exceeded(url, "outbox", Filter()) == []


def schema(url: str, number: int) -> None:
    settings = inorder.Settings.load(database={"url": url})
    install_schema(settings, "native" if number % 2 else "table")


@pytest.mark.parametrize("start", [lease, exceeded, schema])
def test_tables_are_made_once_by_whoever_comes_first(start: Callable[[str, int], None], postgres_url: str) -> None:
    together = threading.Barrier(INSTANCES)

    def run(number: int) -> None:
        together.wait()
        start(postgres_url, number)

    with ThreadPoolExecutor(INSTANCES) as pool:
        for job in [pool.submit(run, number) for number in range(INSTANCES)]:
            job.result()
