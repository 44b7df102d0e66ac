"""A row that used up its attempts is in the outbox or set aside, never in both and never in neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from inorder.database.database import open_database
from inorder.model.partitioning import Shard, shard_of
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from inorder.relay.stores.ports import ExceededStore, Scan
from tests.contract.exceeded_store.rows import exactly, exceeding, insert, make_table
from tests.fakes.outbox import MemoryExceeded, MemoryOutbox
from tests.selection import few

ROWS = (b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"4")


@dataclass(frozen=True)
class Case:
    """One implementation with three rows of key a and one of key b in its outbox, ids 1 to 4."""

    values: Callable[[], list[bytes | None]]
    exceeded: ExceededStore
    of_shard: Callable[[Shard], ExceededStore]
    """The same rows, for the owner of one shard."""
    retry: Callable[[int], object]
    discard: Callable[[int], object]


def in_memory() -> Case:
    outbox = MemoryOutbox()
    for key, value in ROWS:
        outbox.insert("t", "t", key, value)
    outbox.end("t")
    memory = MemoryExceeded(outbox)
    return Case(
        lambda: [row.value for row in outbox.read(Scan(0), 10).rows],
        memory,
        lambda shard: MemoryExceeded(outbox, shard, beside=memory),
        memory.retry,
        memory.discard,
    )


@pytest.fixture(params=few(["memory", "postgres", "mariadb", "sqlite"], "memory", "mariadb", "sqlite"))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    if request.param == "memory":
        yield in_memory()
        return
    database = open_database(request.getfixturevalue(f"{request.param}_url"), "test")
    make_table(database)
    for key, value in ROWS:
        insert(database, topic="t", key=key, value=value)
    with closing(SqlExceededStore(database, "outbox")) as store:
        yield Case(
            lambda: [row[3] for row in exactly(database)],
            store,
            lambda shard: SqlExceededStore(database, "outbox", shard=shard),
            lambda id: store.settle(ExceededFilter(id=id), "retry", "repaired"),
            lambda id: store.settle(ExceededFilter(id=id), "discard", "of no use"),
        )


def test_an_exceeded_row_leaves_the_outbox_and_parks_its_key(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    assert case.values() == [b"2", b"3", b"4"]
    assert case.exceeded.parked() == {("t", b"a"): (1,)}


def test_a_skipped_row_parks_nothing(case: Case) -> None:
    case.exceeded.exceed(exceeding(1, parks=False))
    assert case.exceeded.parked() == {}


def test_setting_a_row_aside_twice_changes_nothing(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    case.exceeded.exceed(exceeding(1))
    case.exceeded.exceed(exceeding(99))
    assert case.exceeded.parked() == {("t", b"a"): (1,)}


def test_a_retried_row_is_back_in_its_old_place_and_its_key_free(case: Case) -> None:
    case.exceeded.exceed(exceeding(2))
    case.retry(2)
    assert case.values() == [b"1", b"2", b"3", b"4"]
    assert case.exceeded.parked() == {}


def test_a_discarded_row_is_gone_and_its_key_free(case: Case) -> None:
    case.exceeded.exceed(exceeding(2))
    case.discard(2)
    assert case.values() == [b"1", b"3", b"4"]
    assert case.exceeded.parked() == {}


def test_a_key_waits_for_each_of_its_exceeded_rows(case: Case) -> None:
    case.exceeded.exceed(exceeding(3))
    case.exceeded.exceed(exceeding(4))
    case.exceeded.exceed(exceeding(1))
    assert case.exceeded.parked() == {("t", b"a"): (1, 3), ("t", b"b"): (4,)}
    case.retry(1)
    assert case.exceeded.parked() == {("t", b"a"): (3,), ("t", b"b"): (4,)}


def test_the_owner_of_a_shard_learns_of_its_own_parked_keys(case: Case) -> None:
    for id in (1, 3, 4):
        case.exceeded.exceed(exceeding(id))
    known = [case.of_shard(Shard(index, 3)).parked() for index in range(3)]
    assert {key: ids for found in known for key, ids in found.items()} == {("t", b"a"): (1, 3), ("t", b"b"): (4,)}
    for index, found in enumerate(known):
        assert all(shard_of(topic, key, 0, 3) == index for topic, key in found)


def test_a_row_may_be_set_aside_again_after_a_retry(case: Case) -> None:
    case.exceeded.exceed(exceeding(1))
    case.retry(1)
    case.exceeded.exceed(exceeding(1))
    assert case.exceeded.parked() == {("t", b"a"): (1,)}
    assert case.values() == [b"2", b"3", b"4"]
