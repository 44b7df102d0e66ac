"""What operators do with exceeded events: list, retry, discard, and record the reason. The rows stay in their table."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from inorder.relay.stores.exceeded import ExceededFilter
from inorder.relay.stores.polling import PollingExceededStore
from inorder.relay.stores.ports import Exceeding, MissingEvent, Settlement
from inorder.settings import Settings
from tests.contract.polling_store.places import SqlPlace
from tests.operating import exceeded_rows, install_schema, settle_exceeded

HEADER = 'UPDATE outbox_events SET header = \'{"h": "x"}\' WHERE id = 1'
GIVEN_UP = [(1, "RECORD-001: too large"), (2, "RECORD-002: no such thing"), (9, "It never became visible.")]


@pytest.fixture
def admin(sql_place: SqlPlace) -> PollingExceededStore:
    """Three rows, of which the first two are exceeded, and an exceeded id that has no row."""
    for topic, key in (("t", "ä"), ("u", "b"), ("t", "ä")):
        sql_place.insert(topic, key, value=f"{topic}{key}")
    sql_place.run(HEADER)
    missed = [MissingEvent(id, 5, exception_thrown=True) for id, _ in GIVEN_UP]
    sql_place.store().settle(Settlement(0, 9, missed=missed, exceeded=GIVEN_UP))
    return PollingExceededStore(sql_place.opened(), sql_place.table)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (ExceededFilter(), [1, 2, 9]),
        (ExceededFilter(id=2), [2]),
        (ExceededFilter(id=3), []),
        (ExceededFilter(topic="t"), [1]),
        (ExceededFilter(topic="T"), []),
        (ExceededFilter(key="ä".encode()), [1]),
        (ExceededFilter(key=b"\xff"), []),
        (ExceededFilter(code="RECORD-002"), [2]),
        (ExceededFilter(code="RECORD"), []),
        (ExceededFilter(topic="t", key=b"b"), []),
    ],
)
def test_people_find_what_they_look_for(admin: PollingExceededStore, wanted: ExceededFilter, ids: list[int]) -> None:
    assert [row.id for row in admin.rows(wanted)] == ids


def test_what_would_have_been_sent_is_shown_with_code_and_reason(admin: PollingExceededStore) -> None:
    row, _, never_seen = admin.rows(ExceededFilter())
    assert (row.topic, row.key, row.value, row.headers) == ("t", "ä".encode(), "tä".encode(), '[["h","x"]]')
    assert (row.attempts, row.code, row.reason, row.parks) == (5, "RECORD-001", "too large", True)
    assert (never_seen.topic, never_seen.key, never_seen.value, never_seen.parks) == ("", None, None, False)
    assert (never_seen.code, never_seen.reason) == ("", "It never became visible.")


def test_sizes_count_events_and_the_keys_that_wait_for_them(admin: PollingExceededStore) -> None:
    sizes = admin.sizes()
    assert (sizes.rows, dict(sizes.keys)) == (3, {"t": 1, "u": 1})


def test_pages_are_by_id_and_groups_count_by_code_and_topic(admin: PollingExceededStore) -> None:
    assert [row.id for row in admin.page(ExceededFilter(), 0, 2)] == [1, 2]
    assert [row.id for row in admin.page(ExceededFilter(), 2, 2)] == [9]
    groups = {(each.code, each.topic): each.count for each in admin.groups(ExceededFilter())}
    assert groups == {("RECORD-001", "t"): 1, ("RECORD-002", "u"): 1, ("", ""): 1}
    assert [each.topic for each in admin.groups(ExceededFilter(code="RECORD-002"))] == ["u"]


def test_times_are_told_in_utc(admin: PollingExceededStore) -> None:
    row, _, never_seen = admin.rows(ExceededFilter())
    assert row.created_at is not None
    assert never_seen.created_at is None
    for moment in (row.created_at, row.exceeded_at, never_seen.exceeded_at):
        assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)


def test_a_retried_event_is_missing_again_with_all_its_attempts(
    admin: PollingExceededStore, sql_place: SqlPlace
) -> None:
    assert admin.parked() == {("t", "ä".encode()): (1,), ("u", b"b"): (2,)}
    assert [row.id for row in admin.settle(ExceededFilter(topic="t"), "retry", "limit raised")] == [1]
    assert admin.parked() == {("u", b"b"): (2,)}
    found = [(event.id, event.retry_count, event.exception_thrown) for event in sql_place.store().missing(0, 9)]
    assert found == [(1, 0, False)]
    assert sql_place.run("SELECT COUNT(*) FROM outbox_events") == [(3,)]


def test_a_discarded_event_is_gone_but_for_its_row(admin: PollingExceededStore, sql_place: SqlPlace) -> None:
    assert [row.id for row in admin.settle(ExceededFilter(id=9), "discard", "a test")] == [9]
    assert [row.id for row in admin.settle(ExceededFilter(topic="u"), "discard", "a test")] == [2]
    assert [row.id for row in admin.rows(ExceededFilter())] == [1]
    assert sql_place.store().missing(0, 9) == []
    assert sql_place.store().offset() == 9
    assert sql_place.run("SELECT COUNT(*) FROM outbox_events") == [(3,)]


def test_what_was_done_is_noted_with_its_reason(admin: PollingExceededStore, sql_place: SqlPlace) -> None:
    admin.settle(ExceededFilter(id=1), "retry", "limit raised")
    admin.settle(ExceededFilter(id=9), "discard", "of no use")
    noted = sql_place.run("SELECT outbox, id, topic, action, reason FROM inorder_exceeded_action ORDER BY id")
    assert noted == [
        ("outbox_events", 1, "t", "retry", "limit raised"),
        ("outbox_events", 9, "", "discard", "of no use"),
    ]


def test_two_people_who_retry_at_once_retry_each_event_once(admin: PollingExceededStore, sql_place: SqlPlace) -> None:
    together = threading.Barrier(2)

    def retry(one: PollingExceededStore) -> list[int]:
        together.wait()
        return [row.id for row in one.settle(ExceededFilter(), "retry", "")]

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(retry, [PollingExceededStore(sql_place.opened(), sql_place.table) for _ in range(2)]))
    assert sorted(id for ids in done for id in ids) == [1, 2, 9]
    assert [event.id for event in sql_place.store().missing(0, 9)] == [1, 2, 9]


def test_a_row_is_set_aside_with_its_code_and_doing_it_again_changes_nothing(
    admin: PollingExceededStore, sql_place: SqlPlace
) -> None:
    for _ in range(2):
        admin.exceed(Exceeding(3, 4, "RECORD-001", "too large", parks=True))
    (row,) = admin.rows(ExceededFilter(id=3))
    assert (row.attempts, row.code, row.reason) == (4, "RECORD-001", "too large")
    assert admin.parked()["t", "ä".encode()] == (1, 3)
    assert sql_place.store().missing(0, 9) == []


def test_the_commands_find_these_events_where_the_strategy_is_polling(database_url: str, sql_place: SqlPlace) -> None:
    sides = {"missing_table": "waiting", "exceeded_table": "given_up", "offset_table": "place"}
    relay = {"layout": "trendyol", "strategy": "polling", "table": "events", "polling": sides}
    settings = Settings.load(database={"url": database_url}, relay=relay)
    install_schema(settings, "trendyol")
    assert exceeded_rows(settings) == []
    sql_place.table, sql_place.sides = "events", settings.relay.polling.side_tables
    sql_place.insert()
    sql_place.store().settle(Settlement(0, 1, missed=[MissingEvent(1)], exceeded=[(1, "x")]))
    assert [row.id for row in exceeded_rows(settings, topic="t")] == [1]
    assert [row.id for row in settle_exceeded(settings, "retry", "")] == [1]
    assert [event.id for event in sql_place.store().missing(0, 9)] == [1]


def test_events_that_are_retried_are_found_wherever_they_are(admin: PollingExceededStore, sql_place: SqlPlace) -> None:
    admin.settle(ExceededFilter(), "retry", "mended")
    assert admin.whereabouts([1, 2, 9]) == dict.fromkeys([1, 2, 9], "waiting")
    sql_place.store().settle(Settlement(9, 9, delivered=[1], exceeded=GIVEN_UP[1:]))
    admin.settle(ExceededFilter(id=9), "discard", "there is no row")
    assert admin.whereabouts([1, 2, 9]) == {1: "arrived", 2: "refused again", 9: "discarded"}
