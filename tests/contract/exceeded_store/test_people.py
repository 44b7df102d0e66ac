"""What operators do with exceeded rows: list, retry, discard, and record the reason."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from inorder.database.database import Database
from inorder.model.errors import PermanentError, RejectedError
from inorder.relay.stores.exceeded import ExceededFilter, ExceededSizes, SqlExceededStore
from tests.contract.conftest import Databases
from tests.contract.exceeded_store.rows import exactly, exceeding, insert, make_table


@pytest.fixture
def store(database: Database) -> SqlExceededStore:
    """One row of topic t that parks its key, and one of topic u that does not."""
    make_table(database)
    insert(database, topic="t", key=b"a", value=b"\xff", headers='[["h","x"]]', partition=3, timestamp=7)
    insert(database, topic="u", key=b"b", value=b"2")
    found = SqlExceededStore(database, "outbox")
    found.exceed(exceeding(1))
    found.exceed(exceeding(2, parks=False))
    return found


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (ExceededFilter(), [1, 2]),
        (ExceededFilter(id=2), [2]),
        (ExceededFilter(topic="t"), [1]),
        (ExceededFilter(topic="T"), []),
        (ExceededFilter(key=b"b"), [2]),
        (ExceededFilter(code="RECORD-001"), [1, 2]),
        (ExceededFilter(topic="t", key=b"b"), []),
    ],
)
def test_people_find_what_they_look_for(store: SqlExceededStore, wanted: ExceededFilter, ids: list[int]) -> None:
    assert [row.id for row in store.rows(wanted)] == ids


def test_what_would_have_been_sent_is_shown_with_the_reason(store: SqlExceededStore) -> None:
    row, other = store.rows(ExceededFilter())
    assert (row.topic, row.key, row.value, row.headers) == ("t", b"a", b"\xff", '[["h","x"]]')
    assert (row.partition, row.timestamp) == (3, 7)
    assert (row.attempts, row.code, row.reason, row.parks, other.parks) == (5, "RECORD-001", "too large", True, False)


def test_pages_are_by_id_and_groups_count_by_code_and_topic(store: SqlExceededStore) -> None:
    assert [row.id for row in store.page(ExceededFilter(), 0, 1)] == [1]
    assert [row.id for row in store.page(ExceededFilter(), 1, 9)] == [2]
    assert store.page(ExceededFilter(topic="t"), 1, 9) == []
    (row,) = store.page(ExceededFilter(topic="t"), 0, 9)
    assert (row.key, row.value, row.headers) == (b"a", None, '[["h","x"]]')
    assert [store.count(ExceededFilter(key=b"b"), most) for most in (0, 1, 9)] == [0, 1, 1]
    assert (store.count(ExceededFilter(), 9), store.count(ExceededFilter(code="none"), 9)) == (2, 0)
    groups = store.groups(ExceededFilter())
    assert [(each.code, each.topic, each.count) for each in groups] == [("RECORD-001", "t", 1), ("RECORD-001", "u", 1)]
    assert groups[0].oldest == row.exceeded_at
    assert store.groups(ExceededFilter(code="RECORD-002")) == []


def test_sizes_count_rows_and_the_keys_that_wait_for_them(database: Database, store: SqlExceededStore) -> None:
    for key in (b"a", b"c", None):
        insert(database, topic="t", key=key, value=b"3")
    for id in (3, 4, 5):
        store.exceed(exceeding(id, parks=id != 5))
    assert store.sizes() == ExceededSizes(5, {"t": 2})


def test_times_are_told_in_utc(store: SqlExceededStore) -> None:
    (row,) = store.rows(ExceededFilter(id=1))
    assert row.created_at is not None
    assert row.created_at <= row.exceeded_at + timedelta(milliseconds=1), "SQLite cuts to milliseconds"
    assert abs(datetime.now(UTC) - row.exceeded_at) < timedelta(minutes=1)


def test_what_was_done_is_noted_with_its_reason(store: SqlExceededStore, database: Database) -> None:
    assert [row.id for row in store.settle(ExceededFilter(topic="t"), "retry", "limit raised")] == [1]
    assert [row.id for row in store.settle(ExceededFilter(topic="u"), "discard", "a test message")] == [2]
    with database.transaction() as transaction:
        noted = transaction.execute("SELECT id, action, reason FROM inorder_exceeded_action ORDER BY id").rows
    assert noted == [(1, "retry", "limit raised"), (2, "discard", "a test message")]
    assert store.rows(ExceededFilter()) == []
    assert [row[0] for row in exactly(database)] == [1]


def test_a_row_that_nothing_waited_for_comes_back_where_the_relay_looks_next(
    store: SqlExceededStore, database: Database
) -> None:
    insert(database, topic="t", key=b"c", value=b"3")
    store.settle(ExceededFilter(), "retry", "")
    rows = exactly(database)
    assert rows[0][0] == 1, "its key waited for it"
    assert rows[1][0] == 3
    assert rows[2][0] > 3, "its key went on without it"
    assert b"2" in rows[2]


def test_an_outbox_does_not_see_the_exceeded_rows_of_another(store: SqlExceededStore, databases: Databases) -> None:
    other = SqlExceededStore(databases(), "other_outbox")
    assert other.rows(ExceededFilter()) == []
    assert other.settle(ExceededFilter(), "retry", "") == []
    assert other.parked() == {}


def test_two_people_who_retry_at_once_put_each_row_back_once(
    store: SqlExceededStore, database: Database, databases: Databases
) -> None:
    together = threading.Barrier(2)

    def retry(one: SqlExceededStore) -> list[int]:
        together.wait()
        return [row.id for row in one.settle(ExceededFilter(), "retry", "")]

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(retry, [SqlExceededStore(databases(), "outbox") for _ in range(2)]))
    assert sorted(id for ids in done for id in ids) == [1, 2]
    assert len(exactly(database)) == 2


def test_two_instances_that_set_one_row_aside_at_once_keep_it_once(
    store: SqlExceededStore, database: Database, databases: Databases
) -> None:
    insert(database, topic="t", key=b"c", value=b"3")
    together = threading.Barrier(2)

    def exceed(one: SqlExceededStore) -> None:
        together.wait()
        one.exceed(exceeding(3))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(exceed, [SqlExceededStore(databases(), "outbox") for _ in range(2)]))
    assert exactly(database) == []
    assert [row.id for row in store.rows(ExceededFilter())] == [1, 2, 3]


def test_a_retry_is_done_for_all_rows_or_for_none(store: SqlExceededStore, database: Database) -> None:
    insert(database, topic="t", key=b"a", value=b"3")
    with database.transaction() as transaction:
        transaction.execute("UPDATE outbox SET id = 1" if database.dialect != "postgres" else RENUMBER)
    with pytest.raises(RejectedError):
        store.settle(ExceededFilter(), "retry", "")
    assert [row.id for row in store.rows(ExceededFilter())] == [1, 2]
    assert [row[0] for row in exactly(database)] == [1]


# PostgreSQL gives such ids itself and lets them be changed only by inserting another row.
RENUMBER = """WITH gone AS (DELETE FROM outbox RETURNING topic)
INSERT INTO outbox (id, topic) OVERRIDING SYSTEM VALUE SELECT 1, topic FROM gone"""


def test_a_row_is_not_lost_because_an_older_one_of_its_id_is_set_aside(
    store: SqlExceededStore, database: Database
) -> None:
    quote = "`" if database.dialect == "mysql" else '"'
    database.install([f"DROP TABLE {quote}outbox{quote}"])
    make_table(database)
    insert(database, topic="t", key=b"new", value=b"begun anew")
    with pytest.raises(PermanentError, match="Row 1 of 'outbox'") as refused:
        store.exceed(exceeding(1))
    assert "inorder exceeded show 1" in refused.value.hint
    assert len(exactly(database)) == 1
    assert [row.key for row in store.rows(ExceededFilter(id=1))] == [b"a"]


def test_nothing_half_done_is_left_when_the_row_cannot_be_kept(database: Database) -> None:
    make_table(database)
    insert(database, topic="t", key=b"a", value=b"1")
    store = SqlExceededStore(database, "outbox")
    store.parked()
    database.install(["DROP TABLE inorder_exceeded"])
    with pytest.raises(Exception, match="inorder_exceeded"):
        store.exceed(exceeding(1))
    assert len(exactly(database)) == 1


def test_rows_that_were_put_back_are_found_wherever_they_are(store: SqlExceededStore, database: Database) -> None:
    for number in range(3, 6):
        insert(database, topic="t", key=b"a", value=str(number).encode())
        store.exceed(exceeding(number))
    store.settle(ExceededFilter(topic="t"), "retry", "limit raised")
    assert store.whereabouts([1, 3, 4, 5]) == dict.fromkeys([1, 3, 4, 5], "waiting")
    for number in (3, 4):
        store.exceed(exceeding(number))
    store.settle(ExceededFilter(id=4), "discard", "hopeless")
    database.execute("DELETE FROM outbox WHERE id = 5")
    assert store.whereabouts([1, 3, 4, 5]) == {1: "waiting", 3: "refused again", 4: "discarded", 5: "arrived"}
    assert store.whereabouts([]) == {}
