"""The keyspace of journals: made once, migrated step by step, left alone where it is newer than we are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from inorder.embedded import Cassandra
from inorder.journal.stores.cassandra import CassandraJournal
from inorder.journal.stores.cassandra_session import CassandraSession, install

OLD_TABLES = (
    "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
    """CREATE TABLE {}.journal (
        id text, topic text, segment bigint, seq_nr bigint, partition int, offset bigint, timestamp timestamp,
        origin text, tags set<text>, metadata text, payload_type text, payload_txt text, payload_bin blob,
        PRIMARY KEY ((id, topic, segment), seq_nr, timestamp))""",
    """CREATE TABLE {}.metajournal (
        topic text, segment bigint, id text, partition int, offset bigint, segment_size int, seq_nr bigint,
        delete_to bigint, created timestamp, created_date date, updated timestamp, expire_after duration,
        expire_on date, origin text, properties map<text, text>, metadata text, PRIMARY KEY ((topic, segment), id))""",
    "CREATE TABLE {}.metadata (id text PRIMARY KEY)",
    "CREATE TABLE {}.pointer (topic text, partition int, offset bigint, PRIMARY KEY (topic, partition))",
    "CREATE TABLE {}.setting (key text PRIMARY KEY, value text, timestamp timestamp, origin text, metadata text)",
    "CREATE TABLE {}.locks (id text PRIMARY KEY, expiry_ms bigint, timestamp timestamp, metadata text)",
)


class Watched(CassandraSession):
    """A session that notes what is run: the names of statements, the versions that are written, and DDL as it is."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.ran: list[str] = []

    def execute(self, name: str, *bound: Any, serial: bool = False) -> Any:
        self.ran.append(f"version {bound[1]}" if name == "set_setting" else name)
        return super().execute(name, *bound, serial=serial)

    def execute_ddl(self, statement: str) -> None:
        self.ran.append(statement)
        super().execute_ddl(statement)

    def columns(self, table: str) -> set[str] | None:
        """The columns of a table; None where there is no such table."""
        cluster = self.session.cluster
        cluster.refresh_schema_metadata()
        found = cluster.metadata.keyspaces[self.keyspace.strip('"')].tables.get(table)
        return None if found is None else set(found.columns)

    def version(self) -> str:
        return str(super().execute("setting", "schema-version").one()[0])


@pytest.fixture
def url(cassandra: Cassandra) -> str:
    return f"{cassandra.url}/schema{uuid.uuid4().hex[:8]}"


@pytest.fixture
def session(url: str) -> Iterator[Watched]:
    with closing(Watched(url)) as session:
        yield session
        session.execute_ddl(f"DROP KEYSPACE IF EXISTS {session.keyspace}")


def steps(session: Watched) -> list[str]:
    """What was run from the lock to the last version."""
    last = max(number for number, ran in enumerate(session.ran) if ran.startswith("version "))
    return session.ran[session.ran.index("lock") + 1 : last + 1]


def migrations(session: Watched, *numbers: int) -> list[str]:
    """The version is read once more under the lock, then each step is followed by its number."""
    each = [(session.rendered(f"migrate_{number}"), f"version {number}") for number in numbers]
    return ["setting", *(step for pair in each for step in pair)]


@pytest.fixture
def old(session: Watched) -> Watched:
    """A keyspace as the first versions made it."""
    for statement in OLD_TABLES:
        session.execute_ddl(statement.format(session.keyspace))
    session.ran.clear()
    return session


@pytest.mark.full
def test_a_fresh_keyspace_begins_with_the_last_version_and_no_migration(session: Watched) -> None:
    made = install(session)
    assert [ran for ran in session.ran if ran.startswith(("lock", "version ", "ALTER", "DROP"))] == [
        "lock",
        "version 8",
    ]
    assert {"journal", "metajournal", "pointer2", "setting", "locks", "snapshot"} == {
        name for name in ("journal", "metajournal", "pointer2", "setting", "locks", "snapshot", "pointer", "metadata")
        if session.columns(name)
    }  # fmt: skip
    assert any("CREATE TABLE" in statement for statement in made)
    session.ran.clear()
    assert install(session) == []
    assert session.ran == ["setting"]


@pytest.mark.full
def test_one_without_a_version_gets_every_step_each_followed_by_its_number(old: Watched) -> None:
    install(old)
    assert steps(old) == migrations(old, *range(9))
    assert {"headers", "version", "meta_record_id"} <= (old.columns("journal") or set())
    assert "record_id" in (old.columns("metajournal") or set())
    assert (old.columns("metadata"), old.columns("pointer")) == (None, None)
    assert old.columns("snapshot")


@pytest.mark.full
def test_one_of_version_6_gets_the_two_that_it_lacks(old: Watched) -> None:
    for number in (0, 1, 3, 4, 5):
        old.execute_ddl(old.rendered(f"migrate_{number}"))
    old.execute("set_setting", "schema-version", "6", None, "test")
    old.ran.clear()
    install(old)
    assert steps(old) == migrations(old, 7, 8)
    assert (old.columns("metadata"), old.columns("pointer")) == (None, None)


@pytest.mark.full
def test_a_step_that_was_done_before_its_number_was_written_is_no_error(old: Watched) -> None:
    old.execute_ddl(old.rendered("migrate_0"))
    install(old)
    assert old.version() == "8"


@pytest.mark.full
@pytest.mark.parametrize("version", ["8", "9"])
def test_one_that_is_as_new_or_newer_gets_our_own_tables_and_is_left_alone_then(old: Watched, version: str) -> None:
    old.execute("set_setting", "schema-version", version, None, "test")
    ours = ("clock", "journal_topic", "quarantine", "snapshot")
    assert install(old) == [old.rendered(f"create_{table}") for table in ours]
    old.ran.clear()
    assert install(old) == []
    assert (old.ran, old.version()) == (["setting"], version)


@pytest.mark.full
def test_two_installers_at_once_make_one_schema(url: str, session: Watched) -> None:
    with closing(CassandraJournal(url)) as first, closing(CassandraJournal(url)) as second:
        with ThreadPoolExecutor(2) as pool:
            made = [future.result(60) for future in [pool.submit(store.install) for store in (first, second)]]
        tables = [statement for statements in made for statement in statements if ".metajournal (" in statement]
        assert len([statement for statement in tables if "CREATE TABLE" in statement]) == 1
    assert session.version() == "8"


@pytest.mark.full
def test_snapshots_of_our_first_version_get_their_columns_and_no_number(session: Watched) -> None:
    install(session)
    for column in ("partition", "offset", "meta_record_id"):
        session.execute_ddl(f"ALTER TABLE {session.keyspace}.snapshot DROP {column}")
    assert install(session) == [session.rendered("add_snapshot_place")]
    assert {"partition", "offset", "meta_record_id"} <= (session.columns("snapshot") or set())
    assert (install(session), session.version()) == ([], "8")


@pytest.mark.full
def test_one_of_our_first_version_keeps_its_times(session: Watched) -> None:
    install(session)
    session.execute_ddl(f"DROP TABLE {session.keyspace}.clock")
    assert install(session) == []
    assert session.columns("clock") is None
    session.execute_ddl(f"DROP TABLE {session.keyspace}.snapshot")
    assert install(session) == [session.rendered("create_snapshot")]
    assert not session.has_clock
