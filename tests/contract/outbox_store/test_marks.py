"""Marking claims the oldest rows atomically, whosever they were, and gives each row to one leader at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from inorder.model.errors import ConfigurationError
from inorder.model.partitioning import Shard
from tests.contract.outbox_store.making import Place, SqlPlace

ONE, TWO = uuid4(), uuid4()


def test_the_oldest_rows_are_marked_in_id_order_and_each_only_once(markable: Place) -> None:
    markable.write("a", "b", "c")
    store = markable.store()
    assert markable.values(store.mark(ONE, 2).rows) == ["a", "b"]
    assert markable.values(store.mark(ONE, 2).rows) == ["c"]
    assert store.mark(ONE, 2).rows == []


def test_a_row_that_commits_late_is_marked_next(markable: Place) -> None:
    if not markable.writers_at_once:
        return
    store = markable.store()
    markable.insert("late", "first id")
    markable.write("a")
    assert markable.values(store.mark(ONE, 10).rows) == ["a"]
    markable.end("late")
    assert markable.values(store.mark(ONE, 10).rows) == ["first id"]


def test_a_new_leader_takes_what_an_earlier_one_marked(markable: Place) -> None:
    markable.write("a", "b", "c")
    earlier, later = markable.store(), markable.store()
    assert markable.values(earlier.mark(ONE, 2).rows) == ["a", "b"]
    assert markable.values(later.mark(TWO, 10).rows) == ["a", "b", "c"]


def test_rows_are_claimed_again_by_id_whosever_they_are(markable: Place) -> None:
    markable.write("a", "b", "c")
    store = markable.store()
    first, second = (row.id for row in store.mark(ONE, 2).rows)
    store.purge([first])
    assert markable.values(store.mark_again(TWO, [second, first]).rows) == ["b"]
    assert store.mark_again(TWO, []).rows == []
    assert markable.values(store.mark(TWO, 10).rows) == ["c"], "the claimed row is ours already"


def test_a_reset_frees_what_this_leader_marked_and_nothing_else(markable: Place) -> None:
    markable.write("a", "b", "c")
    store = markable.store()
    store.mark(ONE, 2)
    store.mark_again(TWO, [store.mark(ONE, 1).rows[0].id])
    assert store.reset(ONE) == 2
    assert store.reset(ONE) == 0
    assert markable.values(store.mark(TWO, 10).rows) == ["a", "b"]


def test_rows_are_purged_whosever_mark_they_carry(markable: Place) -> None:
    markable.write("a", "b")
    store = markable.store()
    marked = store.mark(ONE, 1).rows + store.mark(TWO, 1).rows
    assert store.purge([row.id for row in marked]) == 1, "TWO took over the row of ONE"
    assert markable.values(store.mark(TWO, 10).rows) == ["b"]


def test_a_leader_marks_only_rows_of_its_shard(markable: Place) -> None:
    for key in "abcdefgh":
        markable.write(key, key=key)
    marked = [markable.values(markable.store(Shard(index, 2)).mark(ONE, 100).rows) for index in range(2)]
    assert sorted(marked[0] + marked[1]) == list("abcdefgh")
    assert all(marked)


def test_a_leader_claims_only_rows_of_its_shard_again(markable: Place) -> None:
    """The ids of keys that were released reach every shard that knew them as parked."""
    for key in "abcdefgh":
        markable.write(key, key=key)
    ids = [row.id for row in markable.store().mark(ONE, 100).rows]
    stores = [markable.store(Shard(index, 2)) for index in range(2)]
    claimed = [markable.values(store.mark_again(TWO, ids).rows) for store in stores]
    assert sorted(claimed[0] + claimed[1]) == list("abcdefgh")
    assert all(claimed)


def test_two_leaders_at_once_neither_deadlock_nor_share_a_row(markable: Place) -> None:
    markable.write(*(f"{number:03}" for number in range(200)))
    leaders = [(uuid4(), markable.store()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        claims = list(pool.map(lambda leader: leader[1].mark(leader[0], 150).rows, leaders))
    assert all(markable.values(claim) == [f"{number:03}" for number in range(150)] for claim in claims)
    freed = [store.reset(leader_id) for leader_id, store in leaders]
    assert sorted(freed) == [0, 150], "the second one took all of them over"


def test_a_layout_without_a_leader_id_is_refused_by_name(sql_place: SqlPlace) -> None:
    store = sql_place.store()
    if sql_place.layout not in ("debezium", "trendyol"):
        assert store.mark(ONE, 1).rows == []
        return
    with pytest.raises(ConfigurationError, match=f"'{sql_place.layout}'"):
        store.mark(ONE, 1)
    with pytest.raises(ConfigurationError, match=f"'{sql_place.layout}'"):
        store.reset(ONE)
