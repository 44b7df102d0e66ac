"""What each database must have for outbox, relay and pipeline.

Drivers are extras, so `doctor` imports this module only for a database that is set.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg

from inorder.database import sql
from inorder.database.database import CursorTransaction, Dialect, Transaction
from inorder.database.mysql import MySQLDatabase, pymysql
from inorder.database.postgres import connect, is_pooled, postgres_errors
from inorder.database.sql import quoted_table
from inorder.database.sqlite import path_of, sqlite_errors
from inorder.model.errors import UnreachableError
from inorder.operate import doctor
from inorder.operate.doctor import Check, fail, ok, unreachable, warn
from inorder.outbox.layouts import Layout, layout
from inorder.relay.stores.mysql_outbox import MySQLOutboxStore
from inorder.relay.stores.server import judge, read_facts
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings

T = TypeVar("T")

NOTIFY_SECONDS = 2.0
OLDEST = 120_000
_TO_THE_PRIMARY: Final = "Point database.url at the primary, or name all hosts in it."


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """The server that answers, and what it allows."""

    version: str
    number: int
    autovacuum: bool
    read_only: bool
    user: str
    schema: str
    may_create: bool


class PostgresQuestions:
    """The queries of `postgres/doctor.sql`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.transaction = CursorTransaction(connection.cursor())
        self._statements = sql.load("inorder.operate", "sql/postgres/doctor.sql")

    def ask(self, name: str, **bound: object) -> list[tuple[Any, ...]]:
        return self.transaction.execute(self._statements[name], bound).rows

    def has(self, table: str) -> bool:
        """Whether a table is there."""
        return bool(self.ask("table_exists", table=sql.quoted(table))[0][0])


def _primary_or_any(connect: Callable[[bool], T]) -> T:
    """A connection to the primary; if there is none, to any server, so that the doctor can say what it is."""
    try:
        return connect(True)
    except UnreachableError:
        return connect(False)


def examine_postgres(shown: str, settings: Settings) -> Iterator[Check]:
    url = settings.database.require_url()
    connecting = _primary_or_any(
        lambda is_primary: connect(url, "inorder doctor", autocommit=True, is_primary=is_primary)
    )
    with postgres_errors(), connecting as connection:
        database = PostgresQuestions(connection)
        if not connection.is_pooled:
            database.ask("limits")
        server = PostgresServer(*database.ask("server")[0])
        yield _server(shown, server)
        yield _product(database.transaction, "postgres", settings)
        yield _notifications(database, settings.relay)
        yield from _outbox(database, settings.relay, server)
        yield from doctor.pipeline_tables(settings, database.has)


def _server(shown: str, server: PostgresServer) -> Check:
    detail = f"PostgreSQL {server.version} at {shown} as {server.user}"
    if server.number < OLDEST:
        return fail("database", detail, "Use PostgreSQL 12 or newer.")
    if server.read_only:
        return fail("database", f"{detail}, read-only", _TO_THE_PRIMARY)
    return ok("database", detail)


def _product(transaction: Transaction, dialect: Dialect, settings: Settings) -> Check:
    """Whether the server gives ids in order and shows all locks, as far as its name tells."""
    found = judge(dialect, read_facts(transaction, dialect))
    if found is None:
        return ok("database kind", "one primary, as far as the server says")
    refused = found.is_refused(single_writer_node=settings.database.single_writer_node)
    return (fail if refused else warn)("database kind", f"{found.name}: {found.why}", found.hint)


def _notifications(database: PostgresQuestions, relay: RelaySettings) -> Check:
    if not layout(relay.layout, "postgresql").wakes_us:
        detail = f"not used: writers of the layout {relay.layout} send none, and the relay polls"
        return ok("database notifications", detail)
    if is_pooled(database.connection):
        return warn(
            "database notifications",
            "a pooler is between, so the relay keeps no session: it polls, and plans are those of the server",
            "It is correct, and slower. Connect the relay to the server directly.",
        )
    database.ask("listen")
    database.ask("notify")
    if any(database.connection.notifies(timeout=NOTIFY_SECONDS, stop_after=1)):
        return ok("database notifications", "LISTEN and NOTIFY work")
    return warn(
        "database notifications",
        "a NOTIFY did not arrive",
        "A pooler in transaction mode loses them; the relay then polls. Connect it to the server directly.",
    )


def _outbox(database: PostgresQuestions, relay: RelaySettings, server: PostgresServer) -> Iterator[Check]:
    if not database.has(relay.table):
        yield doctor.missing_table(relay, _how_to_make(relay, server))
        return
    quoted, found = sql.quoted(relay.table), layout(relay.layout, "postgresql")
    columns = doctor.columns(relay, "postgresql", [name for (name,) in database.ask("columns", table=quoted)])
    yield columns
    if columns.status == "fail":
        return
    is_there = database.ask("index", table=quoted, column=found.id)[0][0]
    yield doctor.index(relay, "postgresql", is_there=is_there)
    yield _ids(database, relay.table, found)
    needed = doctor.needed_rights(relay, "postgresql")
    lacking = database.ask("lacking", table=quoted, rights=list(needed))
    yield doctor.rights(relay, server.user, needed, [right for (right,) in lacking])
    yield _vacuum(database, relay.table, server)
    yield doctor.registration(relay, database.transaction, "postgres", is_there=database.has(doctor.REGISTRY))
    yield _own_tables(database, server)


def _how_to_make(relay: RelaySettings, server: PostgresServer) -> str:
    if server.may_create:
        return ""
    command = f"inorder schema sql --layout {relay.layout}"
    return f"{server.user} may not create tables: give the output of `{command}` to someone who may."


def _ids(database: PostgresQuestions, table: str, layout: Layout) -> Check:
    """Whether ids follow the order of the transactions, as the relay's scan assumes."""
    found = database.ask("sequence", table=sql.quoted(table), column=layout.id)
    if not found:
        hint = f"Make it an identity, or let its sequence belong to it: ALTER SEQUENCE … OWNED BY {table}.{layout.id}."
        return fail("outbox ids", f"{table}.{layout.id} has no sequence of its own", hint)
    name, cache, is_identity = found[0]
    detail = f"{'identity' if is_identity else 'sequence'} with CACHE {cache}"
    if cache == 1:
        return ok("outbox ids", detail)
    hint = f"Run ALTER SEQUENCE {name} CACHE 1; ids must follow the order of the transactions."
    return fail("outbox ids", f"{table}.{layout.id} has {detail}", hint)


def _vacuum(database: PostgresQuestions, table: str, server: PostgresServer) -> Check:
    if server.autovacuum and not database.ask("vacuum_off", table=sql.quoted(table))[0][0]:
        return ok("outbox vacuum", "autovacuum is on")
    hint = "Switch autovacuum on: dead rows of a queue slow it down within hours."
    return warn("outbox vacuum", f"autovacuum is off for {table}", hint)


def _own_tables(database: PostgresQuestions, server: PostgresServer) -> Check:
    """The relay creates missing tables, if it may."""
    missing = [table for table in doctor.OWN_TABLES if not database.has(table)]
    if not missing:
        return ok("relay tables", "all exist")
    if server.may_create:
        return ok("relay tables", f"{server.user} may create them")
    grant = f"GRANT CREATE ON SCHEMA {server.schema} TO {server.user}"
    hint = f"Run `inorder schema install` as a user who may, or {grant}."
    return fail("relay tables", f"{', '.join(missing)} missing, and {server.user} may not create tables", hint)


# MySQL and MariaDB: reachable, the outbox table, its engine and ids, rights, the list of locks.

OLDEST_MYSQL: Final = (8, 0)
OLDEST_MARIADB: Final = (10, 6)

_DENIED: Final = (1142, 1143)
"""No right to the table, or to a column of it."""

_STATEMENTS = sql.load("inorder.operate", "sql/mysql/doctor.sql")


class MySQLQuestions:
    """The queries of `mysql/doctor.sql` about one table."""

    def __init__(self, transaction: Transaction, relay: RelaySettings) -> None:
        self.transaction = transaction
        found = layout(relay.layout, "mysql")
        table = quoted_table("mysql", relay.table)
        self._identifiers = {"table": table, "id": found.id, "leader_id": found.leader_id or found.id}
        self._table = relay.table

    def ask(self, name: str, table: str = "", **bound: object) -> list[tuple[Any, ...]]:
        """The rows of the answer; about the outbox table, where no other is named."""
        schema, _, alone = (table or self._table).rpartition(".")
        statement = _STATEMENTS.render(name, **self._identifiers)
        return self.transaction.execute(statement, {"schema": schema or None, "name": alone, **bound}).rows

    def lacks(self, right: str) -> bool:
        """Whether the server refuses to explain a statement that needs the right."""
        try:
            self.ask(f"try_{right}")
        except pymysql.MySQLError as error:
            if error.args[0] in _DENIED:
                return True
            raise
        return False


def examine_mysql(shown: str, settings: Settings) -> Iterator[Check]:
    url = settings.database.require_url()

    def open_one(is_primary: bool) -> MySQLDatabase:
        database = MySQLDatabase(url, "inorder doctor", is_primary=is_primary)
        database.execute("SELECT 1")
        return database

    with closing(_primary_or_any(open_one)) as database, database.transaction() as transaction:
        questions = MySQLQuestions(transaction, settings.relay)
        version, user, read_only = questions.ask("server")[0]
        yield _mysql_server(
            f"{version} at {shown} as {user}", version, read_only=str(read_only).upper() not in ("0", "OFF")
        )
        yield _product(transaction, "mysql", settings)
        yield from _mysql_outbox(questions, settings, _account(user))
        yield from doctor.pipeline_tables(settings, lambda table: bool(questions.ask("columns", table)))


def _mysql_server(detail: str, version: str, *, read_only: bool) -> Check:
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "mariadb" in version.lower() else ("MySQL", OLDEST_MYSQL)
    if numbers(version) < oldest:
        return fail("database", f"{name} {detail}", f"Use {name} {'.'.join(map(str, oldest))} or newer.")
    if read_only:
        return fail(
            "database", f"{name} {detail}, read-only", "Point database.url at the primary, or name all hosts in it."
        )
    return ok("database", f"{name} {detail}")


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version.

    >>> numbers("11.4.5-MariaDB-log")
    (11, 4)
    """
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"


def _mysql_outbox(questions: MySQLQuestions, settings: Settings, user: str) -> Iterator[Check]:
    relay = settings.relay
    engine = questions.ask("engine")
    if not engine:
        yield doctor.missing_table(relay)
        return
    found = dict(questions.ask("columns"))
    columns = doctor.columns(relay, "mysql", found)
    yield columns
    if columns.status == "fail":
        return
    id = layout(relay.layout, "mysql").id
    yield _engine(relay.table, str(engine[0][0]))
    yield doctor.index(relay, "mysql", is_there=bool(questions.ask("index", column=id)[0][0]))
    yield _mysql_ids(relay.table, id, is_numbered=bool(found[id]))
    needed = doctor.needed_rights(relay, "mysql")
    yield doctor.rights(relay, user, needed, list(filter(questions.lacks, needed)))
    yield _locks(settings)
    is_there = bool(questions.ask("engine", table=doctor.REGISTRY))
    yield doctor.registration(relay, questions.transaction, "mysql", is_there=is_there)


def _engine(table: str, engine: str) -> Check:
    if engine == "InnoDB":
        return ok("outbox engine", "InnoDB")
    hint = f"Run ALTER TABLE {table} ENGINE = InnoDB; without transactions there is no outbox."
    return fail("outbox engine", f"{table} has the engine {engine}", hint)


def _mysql_ids(table: str, id: str, *, is_numbered: bool) -> Check:
    if is_numbered:
        return ok("outbox ids", "AUTO_INCREMENT")
    hint = f"Run ALTER TABLE {table} MODIFY {id} BIGINT NOT NULL AUTO_INCREMENT; ids must follow the order of writing."
    return fail("outbox ids", f"{table}.{id} is not AUTO_INCREMENT", hint)


def _locks(settings: Settings) -> Check:
    """Read as the relay reads it."""
    relay = settings.relay
    with closing(MySQLOutboxStore(settings.database.require_url(), relay.table, layout=relay.layout)) as store:
        if store.holders() is not None:
            return ok("database locks", "performance_schema.metadata_locks lists who writes")
    if relay.strategy == "polling":
        follows = "a row whose transaction stays open is abandoned after relay.polling.missing_max_retries attempts"
    else:
        follows = "the relay walks from the head of the table, which is right, only slower"
    return warn(
        "database locks",
        f"performance_schema.metadata_locks does not show who writes, so {follows}",
        "Switch performance_schema and its instrument wait/lock/metadata/sql/mdl on in the file of "
        "settings of the server, and grant SELECT on performance_schema.*; prepared XA transactions hinder it too.",
    )


# An SQLite file: there, writable, the outbox table and its ids; opened for reading only.

BUSY_SECONDS = 5.0

_SQLITE_STATEMENTS = sql.load("inorder.operate", "sql/sqlite/doctor.sql")


class SQLiteQuestions:
    """The queries of `sqlite/doctor.sql`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.transaction = CursorTransaction(connection.cursor(), sql.named)

    def ask(self, name: str, **bound: object) -> list[tuple[Any, ...]]:
        return self.transaction.execute(_SQLITE_STATEMENTS[name], bound).rows


def examine_sqlite(shown: str, settings: Settings) -> Iterator[Check]:
    path = path_of(settings.database.require_url())
    place = Path(path.removeprefix("file:"))
    if not place.is_file():
        hint = "Correct database.url, or run `inorder schema install`, which creates the file."
        yield unreachable("database", f"{shown}: there is no such file", hint)
        return
    with sqlite_errors(), closing(_opened(place)) as connection:
        questions = SQLiteQuestions(connection)
        yield _file(f"SQLite {questions.ask('version')[0][0]} at {shown}", place)
        yield from _sqlite_outbox(questions, settings.relay)
        yield from doctor.pipeline_tables(settings, lambda table: bool(questions.ask("table", table=table)))


def _opened(place: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)


def _file(detail: str, place: Path) -> Check:
    """Writers make files beside it, so the folder counts too."""
    for each in (place, place.absolute().parent):
        if not os.access(each, os.W_OK):
            return fail("database", f"{detail}: {each} is not writable", "Let this user write the file and its folder.")
    return ok("database", detail)


def _sqlite_outbox(questions: SQLiteQuestions, relay: RelaySettings) -> Iterator[Check]:
    name = relay.table.rpartition(".")[2]
    made = questions.ask("table", table=name)
    if not made:
        yield doctor.missing_table(relay)
        return
    found = dict(questions.ask("columns", table=name))
    columns = doctor.columns(relay, "sqlite", found)
    yield columns
    if columns.status == "fail":
        return
    id = layout(relay.layout, "sqlite").id
    yield doctor.index(relay, "sqlite", is_there=found[id] == 1)
    yield _sqlite_ids(relay, id, is_numbered="AUTOINCREMENT" in made[0][0].upper())
    is_there = bool(questions.ask("table", table=doctor.REGISTRY))
    yield doctor.registration(relay, questions.transaction, "sqlite", is_there=is_there)


def _sqlite_ids(relay: RelaySettings, id: str, *, is_numbered: bool) -> Check:
    if is_numbered:
        return ok("outbox ids", "AUTOINCREMENT")
    hint = f"Create the table again: rename it and run `inorder schema install --layout {relay.layout}`."
    return fail("outbox ids", f"{relay.table}.{id} is not AUTOINCREMENT, so ids of deleted rows are used again", hint)
