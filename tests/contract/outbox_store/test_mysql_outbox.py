"""On MariaDB the relay finds rows by their index, keeps out of the writers' way, and outlives its connections."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from inorder.database.database import Result, Transaction
from inorder.database.mysql import connect
from inorder.embedded import MariaDB
from inorder.model.errors import ConfigurationError, TransientError, UnreachableError
from inorder.model.message import Message
from inorder.model.partitioning import Shard, shard_of
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.relay.drain import DrainClaims
from inorder.relay.marker import Marker
from inorder.relay.scan import MISSING_LIMIT
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.ports import Scan
from tests.conftest import Eventually
from tests.contract.outbox_store.making import MAKERS, SqlPlace
from tests.selection import few

ROWS = 12_000
LEADER = uuid4()


@pytest.fixture(params=few(["native", "debezium"], "native"))
def any_place(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    with ExitStack() as stack:
        yield MAKERS["mariadb"](request, request.param, stack)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    with ExitStack() as stack:
        yield MAKERS["mariadb"](request, "native", stack)


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MySQLOutboxStore]:
    with closing(MySQLOutboxStore(mariadb_url, "outbox")) as found:
        yield found


def fill(place: SqlPlace, rows: int) -> None:
    columns, values = {
        "native": ("topic, `key`, `value`", "'t', seq, REPEAT('x', 100)"),
        "debezium": ("id, aggregatetype, aggregateid, type, payload", "UUID(), 'a', seq, 't', '1'"),
    }[place.layout]
    place.run(f"INSERT INTO outbox ({columns}) SELECT {values} FROM seq_1_to_{rows}")
    place.run("ANALYZE TABLE outbox")


class Explained(MySQLOutboxStore):
    """A store that asks for the plan of each statement before it runs it."""

    def __init__(self, url: str, layout: str, shard: Shard) -> None:
        super().__init__(url, "outbox", layout=layout, shard=shard)
        self.plans: list[tuple[str, tuple[Any, ...]]] = []

    def _execute(self, transaction: Transaction, name: str, **bound: Any) -> Result:
        plan = transaction.execute(f"EXPLAIN {self._statement(transaction, name)}", bound)
        self.plans += [(name, line) for line in plan.rows if line[2] == "outbox"]
        return super()._execute(transaction, name, **bound)

    def check(self, index: str) -> None:
        """Columns of a plan: id, select_type, table, type, possible_keys, key, …"""
        assert self.plans
        for name, line in self.plans:
            # Unmarked rows are looked for along the index, from the oldest row on, until there are enough.
            along = ("range", "eq_ref", "index" if name == "find_unmarked" else "eq_ref")
            assert (line[3] in along, line[5]) == (True, index), (name, line)


@pytest.mark.parametrize("shard", few([Shard(), Shard(1, 4)], Shard(1, 4)), ids=["whole", "shard"])
def test_no_statement_of_the_relay_walks_the_table(any_place: SqlPlace, mariadb_url: str, shard: Shard) -> None:
    fill(any_place, ROWS)
    with closing(Explained(mariadb_url, any_place.layout, shard)) as store:
        store.read(Scan(0), 10_000)
        store.read(Scan(ROWS - 10), 10_000)
        store.read(Scan(ROWS - 10, probes=tuple(range(1, 200))), 10_000)
        store.read(Scan(ROWS - 10, probes=tuple(range(1, ROWS - 100))), 10_000)
        store.read(Scan(100, walk=True), 100)
        if any_place.layout == "native":
            store.mark(LEADER, 1000)
            store.mark_again(LEADER, range(1, 10_000))
        store.purge(range(1, 10_001))
        store.check("seq" if any_place.layout == "debezium" else "PRIMARY")


class Straddling:
    """Transactions, one after the other, with one row below and one above a row of another writer."""

    def __init__(self, place: SqlPlace, rounds: int) -> None:
        self._place = place
        self._store = place.store()
        self._rounds = rounds
        self.bounds: list[tuple[int, int]] = []
        """Of each round the id that is asked for and the id that is read on from."""

    def run(self) -> None:
        for _ in range(self._rounds):
            self._place.insert("both", "below")
            self._place.insert("middle", "middle")
            self._place.end("middle")
            last = self._store.read(Scan(0), 10_000).top
            self._place.insert("both", "above")
            self.bounds.append((last - 1, last))
            self._place.end("both")


@pytest.mark.parametrize("count", few([1, 2], 2), ids=["whole", "shard"])
def test_one_look_shows_all_rows_of_a_transaction_or_none(place: SqlPlace, mariadb_url: str, count: int) -> None:
    ours = Shard(shard_of("t", b"k", 0, count), count)
    writing, seen = Straddling(place, 150), set()
    with closing(MySQLOutboxStore(mariadb_url, "outbox", shard=ours)) as store, ThreadPoolExecutor(1) as pool:
        done = pool.submit(writing.run)
        while not done.done():
            if writing.bounds:
                below, last = writing.bounds[-1]
                rows = store.read(Scan(last, probes=(below,)), 1).rows
                seen.add(tuple(row.id - last for row in rows))
        done.result()
    assert (-1, 1) in seen
    assert seen <= {(), (-1, 1)}


def test_more_ids_are_purged_than_one_statement_takes(place: SqlPlace, store: MySQLOutboxStore) -> None:
    fill(place, 25_000)
    assert store.purge(range(1, 30_000)) == 25_000
    assert store.read(Scan(0), 1).rows == []


@pytest.mark.parametrize("rows", few([10, 100, ROWS], 10, ROWS))
def test_neither_marks_nor_purges_wait_for_rows_that_are_still_to_be_committed(
    any_place: SqlPlace, mariadb_url: str, rows: int
) -> None:
    """Whatever the optimiser thinks of a table that is about to be emptied."""
    any_place.insert("open", "x")
    fill(any_place, rows)
    any_place.insert("open", "y")
    with closing(MySQLOutboxStore(mariadb_url, "outbox", layout=any_place.layout)) as store:
        ids = [row.id for row in store.read(Scan(0), ROWS).rows]
        if any_place.layout == "native":
            assert [row.id for row in store.mark(LEADER, rows).rows] == ids
            assert len(store.mark_again(uuid4(), ids).rows) == rows
            assert store.reset(LEADER) == 0
        assert store.purge(ids) == rows
        any_place.end("open")
        assert any_place.values(store.read(Scan(0), 10).rows) == ["x", "y"]


def test_writers_go_on_while_a_mark_is_open(place: SqlPlace, store: MySQLOutboxStore) -> None:
    place.write("a", "b")
    place.run("SET SESSION innodb_lock_wait_timeout = 1")
    writer = place.writer("writer").cursor()
    writer.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with store._marks() as transaction:
        assert [row.id for row in store._claim(transaction, LEADER, [1, 2]).rows] == [1, 2]
        place.write("c", "d")
        assert place.values(store.read(Scan(0), 10).rows) == ["a", "b", "c", "d"]
    assert place.values(store.mark(LEADER, 10).rows) == ["c", "d"]


def test_a_mark_that_fails_halfway_marks_nothing(place: SqlPlace, store: MySQLOutboxStore) -> None:
    place.write("a", "b")

    def begin_and_fail() -> None:
        with store._marks() as transaction:
            store._claim(transaction, LEADER, [1, 2])
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        begin_and_fail()
    assert place.values(store.mark(LEADER, 10).rows) == ["a", "b"]


def test_the_shard_of_any_row_is_that_of_the_rule_in_python(place: SqlPlace, mariadb_url: str) -> None:
    chance = random.Random(4)
    keys = [None, b"", b"\0", b"\xff\xfe", *(chance.randbytes(chance.randint(0, 60)) for _ in range(400))]
    writer = place.writer("writer")
    Outbox().publish_list(writer, [Message(f"t.{n % 5}", key=key, value="x") for n, key in enumerate(keys)])
    writer.commit()
    for count in (2, 3, 7):
        for index in range(count):
            with closing(MySQLOutboxStore(mariadb_url, "outbox", shard=Shard(index, count))) as store:
                rows = store.read(Scan(0), 1000).rows
                assert rows
                assert all(shard_of(row.topic, row.key, row.id, count) == index for row in rows)


def test_a_missing_table_is_named_with_the_command_that_makes_it(mariadb_url: str) -> None:
    with closing(MySQLOutboxStore(mariadb_url, "nowhere")) as store, pytest.raises(ConfigurationError) as caught:
        store.read(Scan(0), 1)
    assert "'nowhere'" in caught.value.message
    assert "inorder schema install" in caught.value.hint


def kill(place: SqlPlace, what: str, condition: str) -> bool:
    """KILL or KILL QUERY for the connections of this test's store; whether there were any."""
    cursor = place.writer("operator").cursor()
    own = "user = 'root' AND db = DATABASE() AND id <> CONNECTION_ID()"
    cursor.execute(f"SELECT id FROM information_schema.processlist WHERE {own} AND {condition}")
    found = cursor.fetchall()
    for (id,) in found:
        cursor.execute(f"{what} {id}")
    return bool(found)


@pytest.mark.parametrize(("what", "error"), [("KILL", UnreachableError), ("KILL QUERY", TransientError)])
def test_a_read_that_is_killed_is_an_error_of_the_environment_and_the_next_one_works(
    place: SqlPlace, store: MySQLOutboxStore, eventually: Eventually, what: str, error: type[TransientError]
) -> None:
    place.write("a")
    assert len(store.read(Scan(0), 10).rows) == 1
    blocker = place.writer("blocker").cursor()
    blocker.execute("LOCK TABLES outbox WRITE")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.read, Scan(0), 10)
        eventually(lambda: kill(place, what, "state LIKE 'Waiting for table metadata lock%'"))
        with pytest.raises(error):
            reading.result(60)
    blocker.execute("UNLOCK TABLES")
    assert place.values(store.read(Scan(0), 10).rows) == ["a"]


def test_idle_connections_that_are_killed_cost_one_failed_call_each(place: SqlPlace, store: MySQLOutboxStore) -> None:
    place.write("a", "b", "c")
    store.read(Scan(0), 1)
    store.purge([1])
    store.mark(LEADER, 1)
    assert kill(place, "KILL", "command = 'Sleep'")
    calls: list[Callable[[], object]] = [
        lambda: store.read(Scan(0), 1),
        lambda: store.purge([2]),
        lambda: store.mark(LEADER, 1),
    ]
    for call in calls:
        with pytest.raises(UnreachableError):
            call()
        call()


@pytest.mark.full
def test_a_restarted_server_is_found_again_and_gives_no_id_twice(tmp_path: Path) -> None:
    with MariaDB(tmp_path) as server:
        url = server.create_database("shop")
        with closing(MySQLOutboxStore(url, "outbox")) as store:
            publish(url, "a", install=True)
            [first] = store.read(Scan(0), 10).rows
            assert store.purge([first.id]) == 1
            server.stop()
            with pytest.raises(UnreachableError):
                store.read(Scan(0), 10)
            server.start()
            publish(url, "b")
            [second] = store.read(Scan(0), 10).rows
            assert second.id > first.id
            with pytest.raises(UnreachableError):
                store.purge([second.id])
            assert store.purge([second.id]) == 1


def publish(url: str, value: str, *, install: bool = False) -> None:
    with closing(connect(url, "test")) as writer:
        for statement in install_statements("native", "mysql", "outbox") if install else ():
            writer.cursor().execute(statement)
        Outbox().publish(writer, Message("t", key="k", value=value))
        writer.commit()


class Nameless(MySQLOutboxStore):
    """A store of a server that does not list locks, as MariaDB by default: ids that are missing stay so."""

    def holders(self) -> None:
        return None

    def bytes_sent(self) -> int:
        """How many bytes the server has sent to the connection that reads."""
        with self._on(self._reading) as transaction:
            return int(transaction.execute("SHOW SESSION STATUS LIKE 'Bytes_sent'").rows[0][1])


@pytest.mark.parametrize("shard", [Shard(), Shard(0, 2)], ids=["whole", "shard"])
def test_a_walk_does_not_read_again_what_is_in_hand(place: SqlPlace, mariadb_url: str, shard: Shard) -> None:
    """More ids are missing than a scan may look for, so that every scan walks from the head."""
    columns, values = "id, topic, `key`, `value`", f"{MISSING_LIMIT + 1} + seq, 't', seq, REPEAT('x', 10000)"
    place.run(f"INSERT INTO outbox ({columns}) SELECT {values} FROM seq_1_to_200")
    with closing(Nameless(mariadb_url, "outbox", shard=shard)) as store:
        claims = DrainClaims(store, batch_size=1000, clock=lambda: 0.0, shards=shard.count)
        claims.begin(Marker())
        held = frozenset(row.id for row in claims.claim(frozenset).rows)
        assert len(held) > 50
        before = store.bytes_sent()
        assert claims.claim(lambda: held).rows == []
        assert store.bytes_sent() - before < 50_000, "200 rows of 10,000 bytes"
        place.write("new", key="k")
        rows = [*claims.claim(lambda: held).rows]
        assert place.values(rows) == ["new"][: len(rows)]
        assert rows or not shard.is_whole
