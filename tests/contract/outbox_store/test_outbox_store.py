"""Every outbox store shows committed rows only, in id order, and names transactions that may hold invisible ids."""

from __future__ import annotations

import pytest

from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.relay.stores.ports import LAST_ID, Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from tests.conftest import Eventually
from tests.contract.outbox_store.making import Place, SqlPlace, Store


def ids(store: Store) -> list[int]:
    return [row.id for row in store.read(Scan(0), 100).rows]


def test_a_row_comes_back_as_it_was_written(place: Place) -> None:
    place.write("hello", topic="orders", key="schlüssel")
    [row] = place.store().read(Scan(0), 10).rows
    assert (row.topic, row.key, row.flaw) == (place.topic("orders"), "schlüssel".encode(), "")
    assert place.values([row]) == ["hello"]
    assert [name for name, _ in row.headers] == (["id"] if place.layout == "debezium" else [])


def test_rows_come_in_id_order_and_no_more_than_asked_for(place: Place) -> None:
    place.write("a", "b", "c", "d")
    page = place.store().read(Scan(0), 3)
    assert place.values(page.rows) == ["a", "b", "c"]
    assert page.is_full
    assert page.top == page.rows[-1].id
    assert (list(page.others), page.others_to) == ([], LAST_ID)


def test_a_page_that_is_not_full_tells_the_largest_id(place: Place) -> None:
    store = place.store()
    assert store.read(Scan(0), 3).top == 0
    place.write("a", "b")
    page = store.read(Scan(0), 3)
    assert not page.is_full
    assert page.top == page.rows[-1].id


def test_rows_of_an_open_or_rolled_back_transaction_are_not_seen(place: Place) -> None:
    place.insert("undone", "gone")
    place.end("undone", commit=False)
    place.write("seen")
    place.insert("open", "hidden")
    assert place.values(place.store().read(Scan(0), 10).rows) == ["seen"]


def test_missing_ids_and_what_is_above_the_last_come_in_one_look(place: Place) -> None:
    store = place.store()
    place.write("first", "second", "third")
    first, second, last = ids(store)
    place.write("above")
    page = store.read(Scan(above=last, probes=(first, second, LAST_ID - 1)), 1)
    assert place.values(page.rows) == ["first", "second", "above"]
    assert page.is_full, "the limit counts what is above"
    assert not store.read(Scan(above=last, probes=(first, second)), 2).is_full
    assert place.values(store.read(Scan(above=LAST_ID, probes=(second,)), 1).rows) == ["second"]


def test_whoever_may_hold_an_id_is_named_until_it_ends(place: Place) -> None:
    store = place.store()
    assert store.holders() in (None, frozenset())
    if store.holders() is None or not place.writers_at_once:
        return
    place.insert("one", "x")
    one = store.holders()
    place.insert("two", "y")
    both = store.holders()
    assert one is not None
    assert both is not None
    assert len(one) == 1
    assert one < both
    place.end("one")
    assert store.holders() == both - one
    place.end("two", commit=False)
    assert store.holders() == frozenset()


def test_purging_counts_what_was_there_and_forgives_what_was_not(place: Place) -> None:
    store = place.store()
    place.write("a", "b", "c")
    first, second, _ = ids(store)
    assert store.purge([first, second]) == 2
    assert store.purge([first, second, 10_000]) == 0
    assert store.purge([]) == 0
    assert place.values(store.read(Scan(0), 10).rows) == ["c"]


def test_an_id_is_not_given_again_after_its_row_is_purged(place: Place) -> None:
    store = place.store()
    place.write("a")
    before = ids(store)
    store.purge(before)
    place.write("b")
    assert ids(store) > before


def test_where_writers_cannot_wake_us_nobody_falls_asleep(sql_place: SqlPlace) -> None:
    store = sql_place.store()
    assert store.begin_sleep() == (sql_place.layout == "native" and sql_place.dialect == "postgres")
    assert not store.wait(0.01)
    store.end_sleep()
    assert sql_place.values(store.read(Scan(0), 1).rows) == []


def test_an_unknown_layout_is_refused_by_name(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="'columnar' is not a layout"):
        PostgresOutboxStore(postgres_url, "outbox", layout="columnar")


def test_a_lost_connection_is_opened_again(on_postgres: SqlPlace, eventually: Eventually) -> None:
    store = on_postgres.store()
    on_postgres.write("a")
    assert on_postgres.values(store.read(Scan(0), 1).rows) == ["a"]
    on_postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'inorder relay%%' AND datname = current_database()"
    )

    def answers() -> bool:
        try:
            return on_postgres.values(store.read(Scan(0), 1).rows) == ["a"]
        except UnreachableError:
            return False

    def purges() -> bool:
        try:
            return store.purge(ids(store)) == 1
        except UnreachableError:
            return False

    assert eventually(answers)
    assert eventually(purges), "the connection that purges was lost as well"
