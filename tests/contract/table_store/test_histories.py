"""Random histories, written by two writers in slices cut anywhere: the table always equals the sequential model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings

from inorder.pipeline.slice import apply_slice
from tests.contract.table_store.histories import HISTORIES, History, check
from tests.contract.table_store.places import MAPPING, Memory, Place, Sql
from tests.fakes.table_store import message, slice_of
from tests.selection import examples

# Examples of a real server share a database, which is emptied before each.
_ON_SERVERS = settings(examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[Sql]:
    with closing(Sql(postgres_url)) as place:
        yield place


@pytest.fixture
def mariadb_place(mariadb_url: str) -> Iterator[Sql]:
    with closing(Sql(mariadb_url)) as place:
        yield place


@pytest.mark.full
@_ON_SERVERS
@given(HISTORIES)
def test_the_table_equals_the_model_on_postgresql(postgres_place: Sql, history: History) -> None:
    postgres_place.truncate()
    check(postgres_place, history)


@_ON_SERVERS
@given(HISTORIES)
def test_the_table_equals_the_model_on_mariadb(mariadb_place: Sql, history: History) -> None:
    mariadb_place.truncate()
    check(mariadb_place, history)


@examples(400)
@given(HISTORIES)
def test_the_table_equals_the_model_in_memory(history: History) -> None:
    check(Memory(), history)


def test_a_concurrent_reader_never_sees_a_version_go_back(database: Place) -> None:
    records = [(offset, message(offset % 5, data=str(offset))) for offset in range(300)]
    first = database.open()
    apply_slice(first, MAPPING, slice_of(*records[:10]))
    done = threading.Event()

    def write(writer: int) -> None:
        store = database.open()
        # Both write everything, cut differently, so each slice meets a pointer that the other one moves.
        size = 7 + 4 * writer
        for start in range(0, 300, size):
            apply_slice(store, MAPPING, slice_of(*records[start : start + size]))

    def read() -> int:
        seen: dict[object, int] = {}
        looks = 0
        while not done.is_set() or looks < 2:
            versions = {key: int(str(row[-1])) for key, row in database.rows().items()}
            assert all(versions[key] >= version for key, version in seen.items())
            seen, looks = versions, looks + 1
        return looks

    with ThreadPoolExecutor(3) as threads:
        reading = threads.submit(read)
        for writing in [threads.submit(write, writer) for writer in range(2)]:
            writing.result(timeout=60)
        done.set()
        assert reading.result(timeout=60) > 1
    assert {key: row[-1] for key, row in database.rows().items()} == {key: 295 + key for key in range(5)}
    assert database.counted() == 300
