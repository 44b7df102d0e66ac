"""On MariaDB a transaction is named from before it takes an id until its rows are visible or gone, or none is."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from inorder.database.mysql import Connection, connect
from inorder.embedded import MariaDB
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.relay.scan import Horizon, after_scan, is_watching, next_scan, observe
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.ports import Scan
from tests.conftest import Eventually
from tests.contract.outbox_store.making import MAKERS, SqlPlace


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[SqlPlace]:
    with ExitStack() as stack:
        yield MAKERS["mariadb"](request, "native", stack)


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MySQLOutboxStore]:
    with closing(MySQLOutboxStore(mariadb_url, "outbox")) as found:
        yield found


def known(store: MySQLOutboxStore) -> frozenset[str]:
    found = store.holders()
    assert found is not None, "the server keeps no list of locks"
    return found


def seen(store: MySQLOutboxStore) -> list[bytes | None]:
    return [row.value for row in store.read(Scan(0), 100).rows]


def test_a_transaction_that_commits_late_is_named_until_then(place: SqlPlace, store: MySQLOutboxStore) -> None:
    place.insert("late", "late")
    place.write("early")
    late = known(store)
    assert len(late) == 1
    assert seen(store) == [b"early"]
    place.insert("late", "more of it")
    assert known(store) == late, "its name does not change"
    place.end("late")
    assert known(store) == frozenset()
    assert seen(store) == [b"late", b"early", b"more of it"]


def test_the_next_transaction_of_a_pooled_connection_has_another_name(place: SqlPlace, store: MySQLOutboxStore) -> None:
    names: set[str] = set()
    for _ in range(5):
        place.insert("pooled", "x")
        names |= known(store)
        place.end("pooled")
    assert len(names) == 5


def test_a_transaction_that_only_looked_is_not_named(place: SqlPlace, store: MySQLOutboxStore) -> None:
    reader = place.writer("reader")
    reader.cursor().execute("SELECT * FROM outbox")
    assert known(store) == frozenset()
    place.insert("reader", "now it writes")
    assert len(known(store)) == 1


def test_work_undone_to_a_savepoint_frees_the_name_with_the_ids(place: SqlPlace, store: MySQLOutboxStore) -> None:
    cursor = place.writer("careful").cursor()
    cursor.execute("BEGIN")
    cursor.execute("SAVEPOINT before_it")
    place.insert("careful", "undone")
    first = known(store)
    cursor.execute("ROLLBACK TO SAVEPOINT before_it")
    assert known(store) == frozenset()
    place.insert("careful", "kept")
    assert not known(store) & first
    place.end("careful")
    assert seen(store) == [b"kept"]


def test_a_writer_that_locked_the_whole_table_is_named(place: SqlPlace, store: MySQLOutboxStore) -> None:
    cursor = place.writer("greedy").cursor()
    cursor.execute("SET autocommit = 0")
    cursor.execute("LOCK TABLES outbox WRITE")
    assert len(known(store)) == 1
    cursor.execute("UNLOCK TABLES")
    assert known(store) == frozenset()


def test_a_writer_of_another_table_of_that_name_is_not_named(
    place: SqlPlace, store: MySQLOutboxStore, mariadb: MariaDB, unique: str
) -> None:
    elsewhere = f"{unique}_2"
    with closing(connect(mariadb.create_database(elsewhere), "test")) as writer:
        for statement in install_statements("native", "mysql", "outbox"):
            writer.cursor().execute(statement)
        Outbox().publish(writer, Message("t", key="k", value="x"))
        assert known(store) == frozenset()
        with closing(MySQLOutboxStore(mariadb.url, f"{elsewhere}.outbox")) as theirs:
            assert len(known(theirs)) == 1
    mariadb.drop_database(elsewhere)


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own: a prepared transaction makes every relay of a server unsure."""
    with MariaDB(tmp_path) as server:
        url = server.create_database("shop")
        with closing(connect(url, "test")) as connection:
            for statement in install_statements("native", "mysql", "outbox"):
                connection.cursor().execute(statement)
        yield url


def test_a_prepared_transaction_whose_connection_is_gone_leaves_nobody_sure(own_url: str, unique: str) -> None:
    with closing(MySQLOutboxStore(own_url, "outbox")) as store:
        leave_in_doubt(own_url, store, unique)
        assert store.holders() is None
        with closing(connect(own_url, "test", autocommit=True)) as other:
            other.cursor().execute(f"XA COMMIT '{unique}'")
        assert known(store) == frozenset()
        assert seen(store) == [b"in doubt"]


def leave_in_doubt(url: str, store: MySQLOutboxStore, name: str) -> None:
    """Prepares a transaction and goes away."""
    with closing(connect(url, "test", autocommit=True)) as writer:
        cursor = writer.cursor()
        cursor.execute(f"XA START '{name}'")
        Outbox().publish(writer, Message("t", key="k", value="in doubt"))
        assert len(known(store)) == 1
        cursor.execute(f"XA END '{name}'")
        cursor.execute(f"XA PREPARE '{name}'")
        assert store.holders() is None


def test_without_the_right_to_look_nobody_is_named_and_rows_are_read(
    place: SqlPlace, mariadb: MariaDB, unique: str
) -> None:
    place.write("a")
    for statement in (f"CREATE USER '{unique}'@'%%'", f"GRANT ALL ON `{unique}`.* TO '{unique}'@'%%'"):
        place.run(statement)
    with closing(MySQLOutboxStore(mariadb.url_of(unique).replace("root@", f"{unique}@"), "outbox")) as modest:
        assert modest.holders() is None
        assert seen(modest) == [b"a"]
        assert modest.purge([1]) == 1
    place.run(f"DROP USER '{unique}'@'%%'")


class WithoutList(MariaDB):
    """As MariaDB is by itself."""

    extra: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [word for word in super().command() if not word.startswith("--performance-schema")] + [*self.extra]


class WithShortList(WithoutList):
    """One whose list is full at once."""

    extra = (
        "--performance-schema=ON",
        "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
        "--performance-schema-max-metadata-locks=1",
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", [WithoutList, WithShortList])
def test_a_server_without_a_list_or_with_too_short_a_one_names_nobody(kind: type[MariaDB], tmp_path: Path) -> None:
    with kind(tmp_path) as server:
        url = server.create_database("shop")
        with closing(connect(url, "test")) as writer, closing(MySQLOutboxStore(url, "shop.outbox")) as store:
            for statement in install_statements("native", "mysql", "outbox"):
                writer.cursor().execute(statement)
            Outbox().publish(writer, Message("t", key="k", value="a"))
            assert store.holders() is None
            writer.commit()
            assert seen(store) == [b"a"]


WRITERS = 4
TRANSACTIONS = 60


class Writers:
    """Several connections that write at once; some transactions are rolled back, some end long after others began."""

    def __init__(self, url: str) -> None:
        self.committed: set[bytes] = set()
        self._threads = [threading.Thread(target=self._write, args=(connect(url, "test"), n)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def are_busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _write(self, connection: Connection, number: int) -> None:
        chance, pause = random.Random(number), threading.Event()
        with closing(connection):
            for turn in range(TRANSACTIONS):
                values = [f"{number}:{turn}:{part}".encode() for part in range(chance.randint(1, 4))]
                for value in values:
                    Outbox().publish(connection, Message("t", key=str(number), value=value))
                    pause.wait(chance.choice([0, 0, 0.001, 0.01]))
                if chance.random() < 0.3:
                    connection.rollback()
                else:
                    connection.commit()
                    self.committed.update(values)


def test_reading_on_by_what_holders_tell_misses_nothing_and_leaves_ids_behind(
    place: SqlPlace, store: MySQLOutboxStore, mariadb_url: str, eventually: Eventually
) -> None:
    """Scans as the relay makes them, without the sweeps that would hide a row that was left behind."""
    writers, horizon = Writers(mariadb_url), Horizon(0, 0, ())
    found: list[bytes | None] = []

    def look() -> None:
        nonlocal horizon
        scan = next_scan(horizon)
        assert not scan.walk
        page = store.read(scan, 50)
        found.extend(row.value for row in page.rows)
        horizon = after_scan(horizon, scan, page)
        if is_watching(horizon):
            horizon = observe(horizon, store.holders())

    while writers.are_busy():
        look()
    assert horizon.floor > 0, "no id was ever left behind while they wrote"

    def is_finished() -> bool:
        look()
        return not is_watching(horizon)

    eventually(is_finished)
    assert len(found) == len(set(found)), "a row was found twice"
    assert set(found) == writers.committed
    places = [tuple(map(int, (value or b"").split(b":"))) for value in found]
    for number in range(WRITERS):
        own = [place for place in places if place[0] == number]
        assert own == sorted(own), "a row overtook an earlier one of its key"
