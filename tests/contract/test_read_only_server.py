"""A server that becomes read-only under live sessions is left by everything that opens a database.

Each test makes its server read-only and writable again in place of a failover: what must be new afterwards is the
session. `tests/fault/test_switchover.py` moves to another server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from inorder.database.database import Database, dialect_of, open_database
from inorder.embedded import MariaDB, Postgres
from inorder.journal.stores.postgres import PostgresJournal
from inorder.journal.stores.postgres_replica import PostgresReplica
from inorder.model.errors import ReadOnlyServerError, UnreachableError
from inorder.operate.doctor import examine_database
from inorder.outbox.layouts import install_statements
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.table import SqlTableStores
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.ports import LAST_ID, Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from inorder.relay.stores.sql_lease import SqlLease
from inorder.settings import Settings
from tests.conftest import Eventually
from tests.fakes.table_store import message, slice_of

SESSION = {"postgres": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}
EVERYTHING = Scan(0)


@dataclass(frozen=True)
class OwnServer:
    """A server of its own, with a database for this test."""

    url: str
    switch: Callable[[bool], None]

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuses writes for the duration of the block; its sessions stay."""
        self.switch(True)
        try:
            yield
        finally:
            self.switch(False)

    def outbox_store(self) -> PostgresOutboxStore | MySQLOutboxStore:
        kind = PostgresOutboxStore if dialect_of(self.url) == "postgres" else MySQLOutboxStore
        return kind(self.url, "outbox")


@pytest.fixture(scope="module")
def started(servers_folder: Path) -> Iterator[Callable[[str], Postgres | MariaDB]]:
    """Starts a server of a kind at the first request."""
    kinds: dict[str, Any] = {"postgres": Postgres, "mariadb": MariaDB}
    found: dict[str, Any] = {}
    with ExitStack() as stack:

        def start(kind: str) -> Any:
            if kind not in found:
                found[kind] = stack.enter_context(kinds[kind](servers_folder / f"read-only-{kind}"))
            return found[kind]

        yield start


@pytest.fixture(params=["postgres", "mariadb"])
def server(
    request: pytest.FixtureRequest, started: Callable[[str], Any], unique: str, eventually: Eventually
) -> Iterator[OwnServer]:
    place = started(request.param)
    if request.param == "postgres":
        url = place.create_database(unique)

        def switch_postgres(is_on: bool) -> None:
            with psycopg.connect(place.url.replace("+psycopg", ""), autocommit=True) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if is_on else 'off'}")
                connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: shown(place.url) == ("on" if is_on else "off"))

        yield OwnServer(url, switch_postgres)
        return
    with pymysql.connect(host="127.0.0.1", port=place.port, user="root", autocommit=True) as connection:
        root = connection.cursor()
        root.execute(f"CREATE DATABASE {unique}")
        root.execute(f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'x'")
        root.execute(f"GRANT ALL ON {unique}.* TO '{unique}'@'%'")
        url = f"mysql+pymysql://{unique}:x@127.0.0.1:{place.port}/{unique}"

        def switch_mariadb(is_on: bool) -> None:
            root.execute(f"SET GLOBAL read_only = {int(is_on)}")

        yield OwnServer(url, switch_mariadb)


def shown(url: str) -> str:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute("SHOW default_transaction_read_only").fetchone()
    return str(row[0]) if row else ""


@pytest.fixture
def database(server: OwnServer) -> Iterator[Database]:
    with closing(open_database(server.url, "test")) as opened:
        opened.install(["CREATE TABLE things (id integer)"])
        yield opened


def session_of(database: Database) -> int:
    return int(database.execute(SESSION[database.dialect]).rows[0][0])


def test_a_session_that_became_read_only_is_left_at_the_first_refused_write(
    server: OwnServer, database: Database
) -> None:
    before = session_of(database)
    with server.read_only(), pytest.raises(ReadOnlyServerError):
        database.execute("INSERT INTO things VALUES (1)")
    database.execute("INSERT INTO things VALUES (2)")
    assert database.execute("SELECT id FROM things").rows == [(2,)]
    assert session_of(database) != before


def test_it_is_left_inside_a_transaction_too(server: OwnServer, database: Database) -> None:
    before = session_of(database)
    with server.read_only(), pytest.raises(ReadOnlyServerError), database.transaction() as transaction:
        transaction.execute("INSERT INTO things VALUES (1)")
    assert session_of(database) != before


def test_a_connection_that_only_reads_notices_it_and_is_left(
    server: OwnServer, database: Database, eventually: Eventually
) -> None:
    before = session_of(database)

    def notices() -> bool:
        try:
            database.execute("SELECT id FROM things")
        except ReadOnlyServerError:
            return True
        return False

    with server.read_only():
        eventually(notices)
    assert session_of(database) != before


def test_while_a_server_is_read_only_it_is_not_used(server: OwnServer, database: Database) -> None:
    database.close()
    with server.read_only(), pytest.raises(UnreachableError, match="read-only"):
        database.execute("SELECT id FROM things")
    database.execute("INSERT INTO things VALUES (1)")


def test_an_outbox_store_that_is_refused_a_purge_leaves_all_its_sessions(server: OwnServer, database: Database) -> None:
    database.install(install_statements("native", database.dialect, "outbox"))
    database.execute("INSERT INTO outbox (topic) VALUES ('t')")
    with closing(server.outbox_store()) as store:
        assert [row.id for row in store.read(EVERYTHING, 10).rows] == [1]
        before = {id(store._reading.get()), id(store._purging.get())}
        kept = store._reading.get(), store._purging.get()  # so that no new one has the identity of an old one
        with server.read_only(), pytest.raises(ReadOnlyServerError):
            store.purge([1])
        assert store.purge([1]) == 1
        assert store.read(EVERYTHING, 10).rows == []
        assert not before & {id(store._reading.get()), id(store._purging.get())}
        del kept


def test_a_lease_is_won_again_after_it(server: OwnServer, unique: str) -> None:
    lease = SqlLease(open_database(server.url, "test"), name=unique, owner="me")
    assert lease.acquire()
    with server.read_only(), pytest.raises(ReadOnlyServerError):
        lease.acquire()
    assert lease.acquire()
    lease.release()


def test_a_pipeline_applies_its_slice_after_it(server: OwnServer) -> None:
    mapping = TableMapping("demo", "upsert", "messages")
    batch = slice_of((0, message(1, data="a")), (1, message(2, data="b")))
    with closing(SqlTableStores(server.url, mapping)()) as store:
        store.install()
        assert apply_slice(store, mapping, batch).applied == 2
        with server.read_only(), pytest.raises(UnreachableError):
            apply_slice(store, mapping, slice_of((2, message(1, data="c"))))
        assert apply_slice(store, mapping, slice_of((2, message(1, data="c")))).applied == 1


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_journal_store_is_written_after_it(server: OwnServer) -> None:
    with closing(PostgresJournal(server.url)) as journal:
        journal.install()
    with closing(PostgresReplica(server.url)) as replica:
        with replica.slice("t", 0) as written:
            assert written.lock_offset() is None
        with server.read_only(), pytest.raises(ReadOnlyServerError), replica.slice("t", 0) as written:
            written.lock_offset()
        with replica.slice("t", 0) as written:
            assert written.lock_offset() is None


def several(*urls: str) -> str:
    """The URL of the first with the hosts of all."""
    parsed = [make_url(url) for url in urls]
    hosts = [f"{url.host}:{url.port}" for url in parsed]
    return urls[0].replace(hosts[0], ",".join(hosts))


def closed_to_all(url: str) -> str:
    """The URL at a port where nothing answers."""
    return make_url(url).set(port=1).render_as_string(hide_password=False)


def test_of_several_hosts_the_first_that_accepts_writes_is_used(
    server: OwnServer, postgres_url: str, mariadb_url: str, unique: str
) -> None:
    other = postgres_url if dialect_of(server.url) == "postgres" else mariadb_url
    assert make_url(other).database == make_url(server.url).database == unique
    if dialect_of(server.url) == "mysql":  # the user of the one server, on the other
        with closing(open_database(other, "test")) as root:
            root.execute(f"CREATE USER '{unique}'@'%%' IDENTIFIED BY 'x'")
            root.execute(f"GRANT ALL ON {unique}.* TO '{unique}'@'%%'")
    url = several(server.url, closed_to_all(server.url), other)
    with server.read_only(), closing(open_database(url, "test")) as database:
        database.execute("CREATE TABLE only_there (id integer)")
    with closing(open_database(url, "test")) as database:
        found = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'only_there'"
        assert database.execute(found).rows == [(0,)], "the first is writable again"


def test_the_doctor_names_a_read_only_server_and_finds_the_primary_of_several(server: OwnServer) -> None:
    settings = Settings.load(database={"url": server.url})
    with server.read_only():
        [check, *_] = examine_database(settings)
    assert check.status == "fail"
    assert "read-only" in check.detail
    [check, *_] = examine_database(Settings.load(database={"url": several(closed_to_all(server.url), server.url)}))
    assert check.status == "ok"
    assert f"{make_url(server.url).port}" in check.detail


@pytest.mark.full
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_replica_may_be_read_only(server: OwnServer, database: Database) -> None:
    database.install(install_statements("native", database.dialect, "outbox"))
    store = MySQLOutboxStore(server.url, "outbox", is_primary=False)
    with server.read_only(), closing(store):
        assert store.read(Scan(above=LAST_ID), 1).rows == []
