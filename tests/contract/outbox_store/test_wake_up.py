"""Publishers wake relays that sleep, one or several, and no relay falls asleep over a commit that will not wake it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from inorder.model.partitioning import Shard
from inorder.relay.stores.ports import Scan
from tests.contract.outbox_store.making import SqlPlace, Store

HOLDERS = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture
def two(on_postgres: SqlPlace) -> tuple[Store, Store]:
    """The stores of two shards."""
    return on_postgres.store(Shard(0, 2)), on_postgres.store(Shard(1, 2))


def lock_holders(place: SqlPlace) -> int:
    [(count,)] = place.writer("test").execute(HOLDERS).fetchall()
    place.end("test")
    return int(count)


def test_a_publisher_wakes_a_sleeping_relay(on_postgres: SqlPlace) -> None:
    store = on_postgres.store()
    assert store.begin_sleep()
    on_postgres.write("x")
    assert store.wait(60), "at once, or the test runs into its own time limit"
    store.end_sleep()
    assert on_postgres.values(store.read(Scan(0), 1).rows) == ["x"]


def test_nobody_falls_asleep_while_a_publisher_that_did_not_notify_is_about_to_commit(
    on_postgres: SqlPlace, two: tuple[Store, Store]
) -> None:
    on_postgres.insert("awake", "x")
    assert not two[0].begin_sleep()
    assert not two[1].begin_sleep()
    on_postgres.end("awake")
    assert two[0].begin_sleep()
    two[0].end_sleep()


def test_one_publisher_wakes_all_that_sleep(on_postgres: SqlPlace, two: tuple[Store, Store]) -> None:
    assert two[0].begin_sleep()
    assert two[1].begin_sleep(), "another sleeper holds the lock, so publishers notify us as well"
    with ThreadPoolExecutor(2) as pool:
        woken = [pool.submit(store.wait, 60) for store in two]
        on_postgres.write("x")
        assert all(future.result() for future in woken)


def test_when_the_holder_wakes_another_sleeper_takes_its_place(on_postgres: SqlPlace, two: tuple[Store, Store]) -> None:
    holder, other = two
    assert holder.begin_sleep()
    assert other.begin_sleep()
    holder.end_sleep()
    assert other.wait(60), "it has to read again"
    other.end_sleep()
    assert lock_holders(on_postgres) == 0
    assert other.begin_sleep()
    assert lock_holders(on_postgres) == 1
    on_postgres.write("x")
    assert other.wait(60)
    other.end_sleep()


def test_a_relay_is_not_woken_by_itself(two: tuple[Store, Store]) -> None:
    for _ in range(3):
        assert two[0].begin_sleep()
        assert not two[0].wait(0.05)
        two[0].end_sleep()
    assert two[0].begin_sleep()
    assert not two[0].wait(0.05)
    two[0].end_sleep()


def test_the_only_shard_tells_nobody_when_it_wakes(on_postgres: SqlPlace) -> None:
    one, stranger = on_postgres.store(), on_postgres.store()
    assert one.begin_sleep()
    assert stranger.begin_sleep()
    one.end_sleep()
    assert not stranger.wait(0.05)


def test_a_sleeper_whose_lock_is_not_its_own_leaves_it_alone(on_postgres: SqlPlace, two: tuple[Store, Store]) -> None:
    holder, other = two
    assert holder.begin_sleep()
    assert other.begin_sleep()
    other.end_sleep()
    assert lock_holders(on_postgres) == 1
    assert not holder.wait(0.05)
    holder.end_sleep()
    assert lock_holders(on_postgres) == 0
