"""Messages are read in id order and deleted only by the worker that has the lock of their topic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from inorder.model.errors import ConfigurationError, FencedError
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.ports import Exceeding, TopicStore
from inorder.relay.stores.topic_lock import SqlTopicStore
from tests.contract.conftest import DatabaseOf
from tests.contract.topic_store.places import Place, SqlPlace

ONE, TWO = uuid4(), uuid4()


def values(store: TopicStore, topic: str = "t", limit: int = 100) -> list[bytes | None]:
    return [row.value for row in store.read(topic, limit).rows]


def ids(store: TopicStore, topic: str = "t") -> list[int]:
    return [row.id for row in store.read(topic, 100).rows]


def test_topics_are_those_that_have_messages(place: Place) -> None:
    store = place.store()
    assert store.topics() == []
    for topic in ("b", "a", "b", "C", "b"):
        place.insert(topic)
    assert sorted(store.topics()) == ["C", "a", "b"]
    store.lock("locked", ONE)
    assert sorted(store.topics()) == ["C", "a", "b"]


def test_the_oldest_messages_of_one_topic_are_read_in_id_order(place: Place) -> None:
    store = place.store()
    for number in range(5):
        place.insert("t", b"k", b"%d" % number)
        place.insert("u", b"k", b"other")
    assert values(store, limit=3) == [b"0", b"1", b"2"]
    assert values(store) == [b"0", b"1", b"2", b"3", b"4"]
    assert values(store, "v") == []


@pytest.mark.parametrize(("key", "value"), [(b"\x00\xff", b"\xfe"), (None, b"v"), (b"k", None), (b"", b"")])
def test_a_message_comes_back_as_it_was_written(place: Place, key: bytes | None, value: bytes | None) -> None:
    place.insert("t", key, value)
    [row] = place.store().read("t", 10).rows
    assert (row.topic, row.key, row.value, row.headers, row.partition, row.flaw) == ("t", key, value, (), None, "")


def test_a_read_ends_before_the_message_that_would_be_too_much(place: Place) -> None:
    for number in range(4):
        place.insert("t", b"k", b"%d" % number * 5000)
        place.insert("u", b"k", b"other")
    store = place.store()
    page = store.read("t", 9, 12_500)
    assert [row.value for row in page.rows] == [b"0" * 5000, b"1" * 5000]
    assert (list(page.rest), page.is_full) == (ids(store)[2:], True)
    assert [row.value for row in store.read("t", 9, 1).rows] == [b"0" * 5000]
    page = store.read("t", 9)
    assert (len(page.rows), list(page.rest), page.is_full) == (4, [], False)
    assert store.read("t", 4).is_full


def test_a_batch_is_deleted_by_its_session(place: Place) -> None:
    store, session = place.store(), uuid4()
    for number in range(4):
        place.insert("t", b"k", b"%d" % number)
    store.lock("t", ONE)
    found = ids(store)
    assert store.stamp("t", ONE, session, found[:3]) == 3
    assert store.delete("t", ONE, session, found, 1000) == 3, "the fourth does not carry the session"
    assert values(store) == [b"3"]
    assert store.delete("t", ONE, session, found, 1000) == 0, "a second time is no error"


@pytest.mark.parametrize("group_size", [1, 2, 3, 10])
def test_groups_of_any_size_delete_the_same(place: Place, group_size: int) -> None:
    store, session = place.store(), uuid4()
    for _ in range(5):
        place.insert("t")
    store.lock("t", ONE)
    found = ids(store)
    store.stamp("t", ONE, session, found)
    assert store.delete("t", ONE, session, found, group_size) == 5
    assert store.topics() == []


def test_messages_of_another_topic_are_neither_stamped_nor_deleted(place: Place) -> None:
    store, session = place.store(), uuid4()
    place.insert("u")
    store.lock("t", ONE)
    store.lock("u", ONE)
    found = ids(store, "u")
    assert store.stamp("t", ONE, session, found) == 0
    store.stamp("u", ONE, session, found)
    assert store.delete("t", ONE, uuid4(), found, 10) == 0
    assert ids(store, "u") == found


Doing = Callable[[TopicStore, UUID, list[int]], object]
UNDER_LOCK: dict[str, Doing] = {
    "stamp": lambda store, session, found: store.stamp("t", ONE, session, found),
    "delete": lambda store, session, found: store.delete("t", ONE, session, found, 1),
}


@pytest.mark.parametrize("doing", UNDER_LOCK)
def test_whoever_lost_the_lock_does_nothing_more(place: Place, doing: str) -> None:
    store, session = place.store(), uuid4()
    place.insert("t")
    store.lock("t", ONE)
    found = ids(store)
    store.stamp("t", ONE, session, found)
    place.age_lock("t", 61)
    assert place.store().lock("t", TWO)
    with pytest.raises(FencedError, match="'t'"):
        UNDER_LOCK[doing](store, session, found)
    assert ids(store) == found


def test_a_lock_that_nobody_took_is_still_ours_however_old(place: Place) -> None:
    store, session = place.store(), uuid4()
    place.insert("t")
    store.lock("t", ONE)
    found = ids(store)
    store.stamp("t", ONE, session, found)
    place.age_lock("t", 600)
    assert store.delete("t", ONE, session, found, 10) == 1
    assert not place.store().lock("t", TWO), "and it is young again"


def test_a_successor_stamps_what_its_predecessor_left(place: Place) -> None:
    store, first, second = place.store(), uuid4(), uuid4()
    place.insert("t")
    store.lock("t", ONE)
    found = ids(store)
    store.stamp("t", ONE, first, found)
    store.unlock("t", ONE)
    store.lock("t", TWO)
    assert store.stamp("t", TWO, second, found) == 1
    assert store.delete("t", TWO, first, found, 10) == 0
    assert store.delete("t", TWO, second, found, 10) == 1


def test_messages_of_a_parked_key_wait_and_come_back_in_their_place(place: Place) -> None:
    store = place.store()
    for topic, key in (("t", b"bad"), ("t", b"good"), ("t", b"bad"), ("t", None), ("u", b"bad")):
        place.insert(topic, key, b"%s %s" % (topic.encode(), key or b"-"))
    first, *_ = ids(store)
    place.exceed(Exceeding(first, 5, "RECORD-001", "too large", parks=True))
    assert values(store) == [b"t good", b"t -"]
    assert values(store, "u") == [b"u bad"]
    place.retry(first)
    assert values(store) == [b"t bad", b"t good", b"t bad", b"t -"]


def test_a_message_that_parks_nothing_lets_its_key_go_on(place: Place) -> None:
    store = place.store()
    place.insert("t", b"k", b"1")
    place.insert("t", b"k", b"2")
    place.exceed(Exceeding(ids(store)[0], 5, "RECORD-001", "too large", parks=False))
    assert values(store) == [b"2"]


def test_what_waits_is_told_by_topic(place: Place) -> None:
    store = place.store()
    place.insert("b")
    place.insert("b")
    store.lock("a", ONE)
    a, b = store.pending()
    assert (a.topic, a.messages, a.oldest, a.locked_by) == ("a", 0, None, str(ONE))
    assert (b.topic, b.messages, b.locked_by, b.error, b.retries) == ("b", 2, None, False, 0)
    assert b.oldest is not None
    assert abs(datetime.now(UTC) - b.oldest) < timedelta(seconds=30)


def test_tables_as_they_should_be_pass_the_check(place: Place) -> None:
    place.store().check()


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("DROP TABLE kafka_messages", "kafka_messages"),
        ("DROP TABLE kafka_topic_info", "kafka_topic_info"),
        ("ALTER TABLE kafka_messages DROP COLUMN session_id", "kafka_messages"),
        ("ALTER TABLE kafka_topic_info DROP COLUMN retries", "kafka_topic_info"),
    ],
)
def test_a_missing_table_or_column_is_named_with_what_makes_it(sql_place: SqlPlace, change: str, table: str) -> None:
    sql_place.database.install([change])
    with pytest.raises(ConfigurationError, match=f"'{table}'") as refusal:
        sql_place.store().check()
    assert "inorder schema sql --layout deimos" in refusal.value.hint


def test_a_table_that_deimos_made_gets_the_one_column_it_lacks(sql_place: SqlPlace) -> None:
    sql_place.database.install(["ALTER TABLE kafka_messages DROP COLUMN session_id"])
    sql_place.database.install(install_statements("deimos", sql_place.database.dialect, "kafka_messages"))
    if sql_place.database.dialect == "sqlite":  # it cannot add a column where it may be there
        with pytest.raises(ConfigurationError, match="session_id"):
            sql_place.store().check()
    else:
        sql_place.store().check()


def test_tables_in_a_schema(postgres_url: str, database_of: DatabaseOf) -> None:
    database = database_of(postgres_url)
    database.install(['CREATE SCHEMA "App"', *install_statements("deimos", "postgres", "App.Messages")])
    store = SqlTopicStore(database, "App.Messages")
    store.check()
    assert store.lock("t", ONE)
    assert database.execute('SELECT count(*) FROM "App".kafka_topic_info').rows == [(1,)]
