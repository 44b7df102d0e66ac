"""One worker at a time has a topic: the lock row decides, and the database's clock says how long it holds."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from inorder.model.errors import RejectedError
from tests.contract.topic_store.places import Place, SqlPlace

ONE, TWO = uuid4(), uuid4()


def test_of_two_workers_one_gets_the_lock(place: Place) -> None:
    first, second = place.store(), place.store()
    assert first.lock("t", ONE)
    assert not second.lock("t", TWO)
    row = place.lock_row("t")
    assert (row.locked_by, row.error, row.retries) == (str(ONE), False, 0)
    assert row.locked_at is not None
    assert abs(datetime.now(UTC) - row.locked_at) < timedelta(seconds=30)


def test_a_lock_of_one_topic_is_none_of_another(place: Place) -> None:
    assert place.store().lock("t", ONE)
    assert place.store().lock("u", TWO)


def test_a_worker_may_lock_again_what_it_has_since_an_answer_may_be_lost(place: Place) -> None:
    store = place.store()
    assert store.lock("t", ONE)
    assert store.lock("t", ONE)


def test_a_lock_that_was_given_up_is_free(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    store.unlock("t", ONE)
    assert store.lock("t", TWO)


def test_a_lock_older_than_a_minute_is_free_and_a_younger_one_is_not(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    place.age_lock("t", 30)
    assert not store.lock("t", TWO)
    place.age_lock("t", 31)
    assert store.lock("t", TWO)
    assert not store.heartbeat("t", ONE), "the old holder can tell"


def test_a_topic_rests_for_a_minute_after_an_error_and_recovers_by_itself(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    store.fail("t", ONE)
    row = place.lock_row("t")
    assert (row.locked_by, row.error, row.retries) == (None, True, 1)
    assert row.locked_at is not None, "without a time it would rest for ever"
    assert not store.lock("t", TWO)
    place.age_lock("t", 61)
    assert store.lock("t", TWO)
    row = place.lock_row("t")
    assert (row.error, row.retries) == (False, 1), "errors are counted until it is sent to the end"


def test_errors_are_counted_until_the_topic_is_sent_to_the_end(place: Place) -> None:
    store = place.store()
    for retries in (1, 2):
        assert store.lock("t", ONE)
        store.fail("t", ONE)
        assert place.lock_row("t").retries == retries
        place.age_lock("t", 61)
    store.lock("t", ONE)
    store.unlock("t", ONE)
    row = place.lock_row("t")
    assert (row.locked_by, row.locked_at, row.error, row.retries) == (None, None, False, 0)
    assert row.last_processed_at is not None


def test_an_error_without_a_time_is_for_people_to_look_at(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    place.set_lock("t", locked_by=None, locked_at=None, error=True)
    assert not store.lock("t", TWO)


def test_giving_up_touches_no_lock_but_ones_own(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    store.lock("u", TWO)
    store.unlock("t", TWO)
    store.fail("t", TWO)
    store.unlock("u", TWO)
    row = place.lock_row("t")
    assert (row.locked_by, row.error, row.retries, row.last_processed_at) == (str(ONE), False, 0, None)
    assert place.lock_row("u").locked_by is None


def test_a_heartbeat_makes_a_lock_young_again(place: Place) -> None:
    store = place.store()
    store.lock("t", ONE)
    place.age_lock("t", 70)
    assert store.heartbeat("t", ONE), "no worker took it meanwhile"
    assert not store.lock("t", TWO)
    assert not store.heartbeat("t", TWO)
    assert not store.heartbeat("unknown", ONE)


def test_topics_without_work_are_touched_unless_locked_or_excepted(place: Place) -> None:
    store = place.store()
    for topic, worker in (("idle", ONE), ("busy", ONE), ("locked", TWO)):
        store.lock(topic, worker)
        place.set_lock(topic, last_processed_at=None)
    place.set_lock("idle", locked_by=None, locked_at=None)
    place.set_lock("busy", locked_by=None, locked_at=None)
    store.touch_empty(["busy", "never seen"])
    touched = {state.topic for state in store.pending() if state.last_processed_at is not None}
    assert touched == {"idle"}
    store.touch_empty([])
    assert place.lock_row("busy").last_processed_at is not None


def test_of_many_workers_at_once_one_gets_each_topic(place: Place) -> None:
    topics = [f"t{number}" for number in range(5)]
    won: list[tuple[str, str]] = []
    start = threading.Barrier(6)

    def work() -> None:
        store, worker = place.store(), uuid4()
        start.wait()
        won.extend((topic, str(worker)) for topic in topics if store.lock(topic, worker))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(topic for topic, _ in won) == topics
    assert {state.topic: state.locked_by for state in place.store().pending()} == dict(won)


def test_how_long_a_lock_holds_can_be_set(sql_place: SqlPlace) -> None:
    assert sql_place.store().lock("t", ONE)
    sql_place.age_lock("t", 100)
    assert not sql_place.store(stale_seconds=200).lock("t", TWO)
    assert sql_place.store(stale_seconds=99.5).lock("t", TWO)


FORBIDDEN = {
    "postgres": "ALTER TABLE kafka_topic_info ADD CONSTRAINT allowed CHECK (topic <> 'forbidden')",
    "mysql": "ALTER TABLE kafka_topic_info ADD CONSTRAINT allowed CHECK (topic <> 'forbidden')",
    "sqlite": (
        "CREATE TRIGGER allowed BEFORE INSERT ON kafka_topic_info WHEN NEW.topic = 'forbidden'"
        " BEGIN SELECT RAISE(ABORT, 'not allowed'); END"
    ),
}


def test_a_lock_row_that_cannot_be_made_is_an_error(sql_place: SqlPlace) -> None:
    sql_place.database.install([FORBIDDEN[sql_place.database.dialect]])
    with pytest.raises(RejectedError):
        sql_place.store().lock("forbidden", ONE)
