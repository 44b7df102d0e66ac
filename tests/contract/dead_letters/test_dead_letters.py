"""What people do with dead letters: find them, look at them, give them up, and say why."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from inorder.database.database import Database
from inorder.pipeline.stores.dead_letters import SqlDeadLetters, settle
from inorder.pipeline.stores.ports import LetterFilter, LetterPlace, LetterPosition, SettledLetter
from tests.contract.conftest import Databases
from tests.contract.dead_letters.letters import Letter, actions, bury

HERE = LetterPlace("upsert:messages", "orders", 0)
ALL = LetterFilter()


@pytest.fixture
def store(database: Database) -> SqlDeadLetters:
    """Three letters of one partition, one of another, one of another topic and pipeline."""
    bury(
        database,
        Letter(5, key=b"a"),
        Letter(9, key=None, value=None, code="null-value"),
        Letter(12, key=b"\x00\xff", value=b"\xfe\x00" * 10, code="not-json"),
        Letter(5, partition=3, key=b"b", generation=2),
        Letter(7, topic="Orders", pipeline="upsert:other", code="wrong-type"),
    )
    return SqlDeadLetters(database)


def found(store: SqlDeadLetters, wanted: LetterFilter) -> list[str]:
    return [letter.id for place in store.places(wanted) for letter in store.page(place, wanted)]


SOUGHT = {
    ALL: {"orders:0:5", "orders:0:9", "orders:0:12", "orders:3:5", "Orders:0:7"},
    LetterFilter(pipeline="upsert:other"): {"Orders:0:7"},
    LetterFilter(topic="orders"): {"orders:0:5", "orders:0:9", "orders:0:12", "orders:3:5"},
    LetterFilter(partition=3): {"orders:3:5"},
    LetterFilter(offset=5): {"orders:0:5", "orders:3:5"},
    LetterFilter(code="wrong-type"): {"Orders:0:7"},
    LetterFilter(key=b"a"): {"orders:0:5"},
    LetterFilter(key=b"\x00\xff"): {"orders:0:12"},
    LetterFilter(key=b"A"): set(),
    LetterFilter(topic="orders", partition=0, offset=9): {"orders:0:9"},
}


def test_people_find_what_they_look_for(store: SqlDeadLetters) -> None:
    for wanted, ids in SOUGHT.items():
        assert set(found(store, wanted)) == ids, wanted
        assert sum(store.counts(wanted).values()) == len(ids), wanted


def test_pages_of_all_partitions_follow_the_primary_key(store: SqlDeadLetters) -> None:
    whole = [letter.position for letter in store.after(LetterPosition(), ALL, 9)]
    assert whole == sorted(whole)
    assert len(whole) == 5
    by_two, behind = [], LetterPosition()
    while page := store.after(behind, ALL, 2):
        by_two += page
        behind = page[-1].position
    assert [letter.position for letter in by_two] == whole
    for wanted, ids in SOUGHT.items():
        assert {letter.id for letter in store.after(LetterPosition(), wanted, 9)} == ids, wanted


def test_letters_are_counted_up_to_a_bound(store: SqlDeadLetters) -> None:
    everything = sum(store.counts(ALL).values())
    assert [store.count(ALL, most) for most in (1, everything, 1000)] == [1, everything, everything]
    assert store.count(LetterFilter(key=b"no such key"), 1000) == 0


def test_groups_are_by_pipeline_topic_and_code(store: SqlDeadLetters) -> None:
    found = [(each.pipeline, each.topic, each.code, each.count) for each in store.groups(ALL)]
    assert found == [
        ("upsert:messages", "orders", "not-json", 3),
        ("upsert:messages", "orders", "null-value", 1),
        ("upsert:other", "Orders", "wrong-type", 1),
    ]
    assert all(abs(datetime.now(UTC) - each.oldest) < timedelta(minutes=1) for each in store.groups(ALL))


def test_counts_are_told_by_code_the_most_frequent_first(store: SqlDeadLetters) -> None:
    assert list(store.counts(ALL).items()) == [("not-json", 3), ("null-value", 1), ("wrong-type", 1)]


def test_a_letter_is_shown_as_it_was_buried(store: SqlDeadLetters) -> None:
    [letter] = store.page(HERE, LetterFilter(offset=12))
    assert (letter.key, letter.value, letter.generation) == (b"\x00\xff", b"\xfe\x00" * 10, 0)
    assert (letter.code, letter.detail, letter.record_timestamp) == ("not-json", "unexpected character", None)
    assert abs(datetime.now(UTC) - letter.recorded_at) < timedelta(minutes=5)
    [nothing] = store.page(HERE, LetterFilter(offset=9))
    assert (nothing.key, nothing.value) == (None, None)


def test_pages_go_on_where_the_last_one_ended(store: SqlDeadLetters) -> None:
    first = store.page(HERE, ALL, most=2)
    assert [letter.offset for letter in first] == [5, 9]
    assert [letter.offset for letter in store.page(HERE, ALL, above=9, most=2)] == [12]
    assert store.page(HERE, ALL, above=12) == []


def test_discarded_letters_are_gone_and_noted_with_the_reason(store: SqlDeadLetters, database: Database) -> None:
    assert store.discard(LetterFilter(topic="orders", partition=0, code="not-json"), "of no use; it's garbage") == 2
    assert set(found(store, ALL)) == {"orders:0:9", "orders:3:5", "Orders:0:7"}
    assert actions(database) == [
        ("orders", 5, "not-json", "discard", "of no use; it's garbage"),
        ("orders", 12, "not-json", "discard", "of no use; it's garbage"),
    ]
    assert store.discard(LetterFilter(topic="orders", partition=0, code="not-json"), "again") == 0


def test_what_was_discarded_is_listed_up_to_a_bound(store: SqlDeadLetters) -> None:
    assert store.discard_listed(LetterFilter(code="wrong-type"), "old", 9) == (
        1,
        [SettledLetter("upsert:other", "Orders", 0, 7, "wrong-type", b"1")],
    )
    count, listed = store.discard_listed(LetterFilter(partition=0), "old", 2)
    assert (count, [one.id for one in listed]) == (3, ["orders:0:5", "orders:0:9"])
    assert store.discard_listed(LetterFilter(partition=0), "old", 9) == (0, [])
    assert found(store, ALL) == ["orders:3:5"]


def test_a_letter_that_came_back_may_be_discarded_again(store: SqlDeadLetters, database: Database) -> None:
    for _ in range(2):
        assert store.discard(LetterFilter(key=b"a"), "") == 1
        bury(database, Letter(5, key=b"a"))
    assert len(actions(database)) == 2


def test_a_letter_stays_where_the_transaction_that_settled_it_fails(store: SqlDeadLetters, database: Database) -> None:
    def interrupted() -> None:
        with database.transaction() as transaction:
            assert settle(lambda *a: transaction.execute(*a).count, database.dialect, HERE, 5, "retry", "")
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        interrupted()
    assert "orders:0:5" in found(store, ALL)
    assert actions(database) == []


def test_settling_takes_one_letter_inside_a_transaction_of_somebody_else(
    store: SqlDeadLetters, database: Database
) -> None:
    with database.transaction() as transaction:
        taken = [
            settle(lambda *a: transaction.execute(*a).count, database.dialect, HERE, offset, "retry", "mended")
            for offset in (5, 5, 6)
        ]
    assert taken == [True, False, False]
    assert actions(database) == [("orders", 5, "not-json", "retry", "mended")]
    assert "orders:3:5" in found(store, ALL)


def test_of_two_who_settle_a_letter_at_once_one_does(databases: Databases, store: SqlDeadLetters) -> None:
    together = threading.Barrier(2)

    def discard(database: Database) -> int:
        together.wait(timeout=60)
        return SqlDeadLetters(database).discard(LetterFilter(key=b"a"), "")

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(discard, [databases(), databases()], timeout=60)) == [0, 1]
    assert len(actions(databases())) == 1


def test_records_in_no_table_are_letters_and_discarded_ones_but_not_retried_ones(
    store: SqlDeadLetters, database: Database
) -> None:
    store.discard(LetterFilter(offset=9), "of no use")
    with database.transaction() as transaction:
        settle(lambda *a: transaction.execute(*a).count, database.dialect, HERE, 12, "retry", "")
    bury(database, Letter(20))
    assert store.never_applied(HERE, 5) == {9, 20}
    assert store.never_applied(HERE, 4) == {5, 9, 20}


def test_the_newest_generation_is_that_of_the_pipeline_s_pointers(store: SqlDeadLetters, database: Database) -> None:
    assert store.newest_generation("upsert:messages") == 0
    quote = "`" if database.dialect == "mysql" else '"'
    for topic, generation in (("orders", 0), ("orders.1", 1)):
        database.execute(
            f"INSERT INTO inorder_pointer (pipeline, topic, {quote}partition{quote}, generation, next_offset)"
            " VALUES ('upsert:messages', %(topic)s, 0, %(generation)s, 5)",
            {"topic": topic, "generation": generation},
        )
    assert store.newest_generation("upsert:messages") == 1
    assert store.newest_generation("upsert:other") == 0


def test_thousands_of_letters_are_discarded_in_one_go(database: Database) -> None:
    bury(database, *(Letter(offset, partition=offset % 4) for offset in range(3_000)))
    store = SqlDeadLetters(database)
    assert store.discard(LetterFilter(partition=1), "garbage") == 750
    assert sum(store.counts(ALL).values()) == 2_250
