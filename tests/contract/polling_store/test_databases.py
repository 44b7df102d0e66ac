"""What only real tables can show: that a settlement is one transaction, that it is quick, and who waits for whom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from inorder.model.errors import ConfigurationError, FencedError, InorderError, UnreachableError
from inorder.model.names import SideTables
from inorder.relay.stores.polling import SqlPollingStore
from inorder.relay.stores.ports import MissingEvent, Settlement, Setup
from inorder.relay.stores.registry import SqlRegistry
from inorder.settings import Settings
from tests.contract.conftest import DatabaseOf
from tests.contract.polling_store.places import Recorded, SqlPlace
from tests.operating import reshard

MANY = range(1, 10_001)


def test_ten_thousand_ids_take_a_handful_of_statements(sql_place: SqlPlace) -> None:
    recorded = Recorded(sql_place.opened())
    store = SqlPollingStore(recorded, sql_place.table)
    store.settle(Settlement(0, 20_000, missed=[MissingEvent(id) for id in MANY]))
    assert recorded.statements <= 2
    store.settle(Settlement(20_000, 20_000, failed=MANY[::2], waited=MANY[1::2]))
    store.settle(Settlement(20_000, 20_001, delivered=MANY[:5_000], exceeded=[(id, "gone") for id in MANY[5_000:]]))
    assert recorded.statements <= 11
    state = store.state()
    assert (state.missing, state.exceeded) == (0, 5_000)


def test_more_ids_than_a_statement_takes_are_cut(sql_place: SqlPlace) -> None:
    store = sql_place.store()
    store.settle(Settlement(0, 30_000, missed=[MissingEvent(id) for id in range(1, 25_001)]))
    assert store.state().missing == 25_000
    store.settle(Settlement(30_000, 30_000, delivered=range(1, 25_001)))
    assert store.state().missing == 0


def test_only_the_offset_takes_one_statement(sql_place: SqlPlace) -> None:
    recorded = Recorded(sql_place.opened())
    SqlPollingStore(recorded, sql_place.table).settle(Settlement(0, 1))
    assert recorded.statements == 1


@pytest.mark.parametrize("delivered", [[], [1]])
def test_a_lost_answer_to_the_commit_changes_nothing(sql_place: SqlPlace, delivered: list[int]) -> None:
    recorded = Recorded(sql_place.opened())
    store = SqlPollingStore(recorded, sql_place.table)
    store.settle(Settlement(0, 2, missed=[MissingEvent(1), MissingEvent(2)]))
    settlement = Settlement(2, 5, failed=[2] if delivered else [], delivered=delivered)
    recorded.loses_answers = True
    with pytest.raises(UnreachableError):
        store.settle(settlement)
    store.settle(settlement)
    assert store.offset() == 5
    found = [(event.id, event.retry_count) for event in store.missing(0, 9)]
    assert found == ([(2, 1)] if delivered else [(1, 0), (2, 0)])


def test_nothing_is_written_where_not_all_can_be(sql_place: SqlPlace) -> None:
    store = sql_place.store()
    store.settle(Settlement(0, 2, missed=[MissingEvent(1)]))
    sql_place.database.install(["DROP TABLE exceeded_outbox_events"])
    with pytest.raises(InorderError, match="exceeded_outbox_events"):
        store.settle(Settlement(2, 5, missed=[MissingEvent(4)], failed=[1], exceeded=[(1, "x")]))
    assert store.offset() == 2
    assert [(event.id, event.retry_count) for event in store.missing(0, 9)] == [(1, 0)]


def test_of_two_instances_at_once_one_moves_the_offset(sql_place: SqlPlace) -> None:
    together = threading.Barrier(2)

    def settle(to: int) -> bool:
        store = sql_place.store()
        assert store.offset() == 0
        together.wait()
        try:
            store.settle(Settlement(0, to, missed=[MissingEvent(to)]))
        except FencedError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        done = dict(zip((3, 4), pool.map(settle, (3, 4)), strict=True))
    (winner,) = [to for to, is_done in done.items() if is_done]
    store = sql_place.store()
    assert store.offset() == winner
    assert [event.id for event in store.missing(0, 9)] == [winner]


def test_whoever_settles_holds_the_offset_until_the_end(sql_place: SqlPlace) -> None:
    """Also where it does not move: a second instance decides on what the first one has written."""
    if sql_place.database.dialect == "sqlite":
        return  # one transaction writes at a time anyway
    store, other = sql_place.store(), sql_place.opened()
    began = threading.Event()

    def settle() -> None:
        began.set()
        store.settle(Settlement(0, 0, missed=[MissingEvent(1)]))

    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as transaction:
            transaction.execute(SqlPollingStore(other, sql_place.table)._tables._statements["hold"])
            settled = pool.submit(settle)
            assert began.wait(60)
            assert not threading.Event().wait(0.2)
            assert not settled.done()
        settled.result(60)


NAMES = SideTables("waiting", "given_up", "place")


def test_tables_may_have_other_names(database_url: str, sql_place: SqlPlace) -> None:
    sql_place.sides, sql_place.table = NAMES, "events"
    sql_place.install()
    sql_place.insert(key="a")
    store = sql_place.store()
    store.check()
    store.settle(Settlement(0, 1, missed=[MissingEvent(1)], exceeded=[(1, "x")]))
    assert store.parked() == {("t", b"a"): (1,)}
    assert SqlPollingStore(sql_place.opened(), "outbox_events").offset() == 0


@pytest.mark.parametrize(
    "table", ["outbox_events", "missing_outbox_events", "exceeded_outbox_events", "outbox_offsets"]
)
def test_a_table_that_is_not_there_is_named_with_the_command_that_makes_it(sql_place: SqlPlace, table: str) -> None:
    sql_place.database.install([f"DROP TABLE {table}"])
    with pytest.raises(ConfigurationError, match=table) as refused:
        sql_place.store().check()
    assert "inorder schema install --layout trendyol" in refused.value.hint
    sql_place.install()
    sql_place.store().check()


@pytest.mark.parametrize(
    ("statement", "found"),
    [("DELETE FROM outbox_offsets", "no row"), ("INSERT INTO outbox_offsets VALUES (7)", "more than one row")],
)
def test_there_must_be_one_offset(sql_place: SqlPlace, statement: str, found: str) -> None:
    sql_place.run(statement)
    store = sql_place.store()
    for ask in (store.check, store.offset, lambda: store.settle(Settlement(3, 3))):
        with pytest.raises(ConfigurationError, match=f"'outbox_offsets' has {found}"):
            ask()


def test_installing_again_leaves_the_offset_where_it_is(sql_place: SqlPlace) -> None:
    sql_place.store().settle(Settlement(0, 41))
    sql_place.install()
    assert sql_place.store().offset() == 41


def test_whoever_is_paused_while_it_settles_loses_its_locks_after_ten_seconds(
    postgres_url: str, mariadb_url: str, database_of: DatabaseOf
) -> None:
    """MySQL itself has no such thing: there a paused owner holds the offset until its connection ends."""
    assert database_of(postgres_url).execute("SHOW idle_in_transaction_session_timeout").rows == [("10s",)]
    assert database_of(mariadb_url).execute("SELECT @@session.idle_transaction_timeout").rows == [(10,)]


FILL = """
INSERT INTO outbox_events (topic, key, value)
SELECT 't', 'k' || n %% 100, repeat('x', 100) FROM generate_series(1, 50000) AS n
"""


@pytest.mark.parametrize("name", ["parked", "state"])
def test_a_long_table_is_never_walked(postgres_url: str, name: str) -> None:
    """Rows stay, so it may be very long; of these tables only the statistics of the events are known."""
    with ExitStack() as stack:
        place = SqlPlace(postgres_url, stack)
        place.run(FILL)
        place.database.execute("ANALYZE outbox_events")
        place.store().settle(
            Settlement(0, 49_990, missed=[MissingEvent(1), MissingEvent(2)], exceeded=[(1, "x"), (2, "y")])
        )
        rows = place.run(f"EXPLAIN {place.store()._tables._statements[name]}")
    plan = "\n".join(line for (line,) in rows)
    assert "outbox_events_pkey" in plan
    assert "Seq Scan on outbox_events" not in plan, plan


def test_what_is_published_and_still_there_is_found(sql_place: SqlPlace) -> None:
    store = sql_place.store()
    for _ in range(3):
        sql_place.insert()
    assert not store.keeps_published()
    store.settle(Settlement(0, 2, missed=[MissingEvent(1), MissingEvent(2)], exceeded=[(2, "x")]))
    assert not store.keeps_published(), "one waits and one was given up"
    store.settle(Settlement(2, 2, delivered=[1]))
    assert store.keeps_published()


def test_rows_that_polling_published_are_not_handed_to_another_strategy(database_url: str, sql_place: SqlPlace) -> None:
    with closing(SqlRegistry(sql_place.opened(), sql_place.table)) as registry:
        registry.register(Setup("orders", "polling", 1))
    sql_place.insert()
    sql_place.store().settle(Settlement(0, 1))
    settings = Settings.load(database={"url": database_url}, relay={"layout": "trendyol", "strategy": "drain"})
    with pytest.raises(ConfigurationError, match="'drain' would publish them again") as refused:
        reshard(settings)
    assert "delete the rows up to the offset in outbox_offsets" in refused.value.hint
