"""Tables that the original's script made, with what the original left in them, are taken over by `schema install`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from inorder.relay.stores.exceeded import ExceededFilter
from inorder.relay.stores.polling import PollingExceededStore
from inorder.relay.stores.ports import MissingEvent, Settlement
from tests.contract.polling_store.places import SqlPlace

MISSING = "id bigint, missed_date {moment}, retry_count int DEFAULT 0, exception_thrown boolean DEFAULT false"
# No primary keys, no reason; everything may be null.
SCRIPT = {
    "missing_outbox_events": f"({MISSING})",
    "exceeded_outbox_events": f"({MISSING}, exceeded_date {{moment}})",
    "outbox_offsets": "({offset} bigint)",
}
WORDS = {
    "postgres": {"moment": "timestamp", "offset": '"offset"'},
    "mariadb": {"moment": "datetime", "offset": "`offset`"},
}
LEFT = (
    "INSERT INTO outbox_offsets VALUES (100)",
    "INSERT INTO missing_outbox_events VALUES (7, '2024-01-01', 1, false), (7, '2024-01-02', 3, true)",
    "INSERT INTO missing_outbox_events VALUES (3, NULL, NULL, NULL)",
    "INSERT INTO exceeded_outbox_events VALUES (1, '2023-01-01', 5, true, '2023-01-02'), (1, NULL, 5, true, NULL)",
)


@pytest.fixture(params=WORDS)
def original(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    """With an id that is missing twice, as after a crash of the original, and one that is exceeded twice."""
    with ExitStack() as stack:
        place = SqlPlace(request.getfixturevalue(f"{request.param}_url"), stack)
        for table, columns in SCRIPT.items():
            made = f"CREATE TABLE {table} {columns.format(**WORDS[request.param])}"
            place.database.install([f"DROP TABLE {table}", made])
        place.database.install(LEFT)
        place.install()
        yield place


def test_what_was_left_is_read_once_an_id(original: SqlPlace) -> None:
    store = original.store()
    store.check()
    assert store.offset() == 100
    found = [(event.id, event.retry_count, event.exception_thrown) for event in store.missing(0, 9)]
    assert found == [(3, 0, False), (7, 3, True)]
    assert (store.state().missing, store.state().exceeded) == (2, 1)


def test_a_settlement_takes_both_rows_of_an_id(original: SqlPlace) -> None:
    store = original.store()
    store.settle(Settlement(100, 101, missed=[MissingEvent(7), MissingEvent(101)], failed=[3]))
    assert [(event.id, event.retry_count) for event in store.missing(0, 9)] == [(3, 1), (7, 3), (101, 0)]
    store.settle(Settlement(101, 101, delivered=[3], exceeded=[(7, "still refused")]))
    assert [event.id for event in store.missing(0, 9)] == [101]
    assert original.exceeded()[-1] == (7, 3, True, "still refused")


def test_keys_that_the_original_gave_up_have_gone_on(original: SqlPlace) -> None:
    original.insert(key="a")
    store = original.store()
    assert store.parked() == {}
    admin = PollingExceededStore(original.opened(), "outbox_events")
    (row,) = admin.rows(ExceededFilter())
    assert (row.id, row.key, row.reason, row.code, row.parks) == (1, b"a", "", "", False)
    assert row.exceeded_at.isoformat() == "2023-01-02T00:00:00+00:00"
    assert [row.id for row in admin.settle(ExceededFilter(), "retry", "")] == [1]
    assert [event.id for event in store.missing(0, 9)] == [1, 3, 7]
    assert store.state().exceeded == 0


def test_ten_thousand_ids_need_no_index(original: SqlPlace) -> None:
    store, ids = original.store(), range(1000, 11_000)
    store.settle(Settlement(100, 11_000, missed=[MissingEvent(id) for id in ids]))
    store.settle(Settlement(11_000, 11_000, missed=[MissingEvent(id) for id in ids], waited=ids))
    store.settle(Settlement(11_000, 11_001, delivered=ids[:5_000], exceeded=[(id, "gone") for id in ids[5_000:]]))
    assert store.state().missing == 2
