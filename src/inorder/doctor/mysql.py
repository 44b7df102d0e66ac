"""MySQL and MariaDB: reachable, the outbox table, its engine and ids, rights, the list of locks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from inorder import sql
from inorder.doctor import outbox
from inorder.doctor.check import Check, fail, ok, warn
from inorder.outbox.layouts import layout, quoted_table
from inorder.settings import Settings
from inorder.settings.relay import RelaySettings
from inorder.stores.database import Transaction
from inorder.stores.mysql.database import MySQLDatabase
from inorder.stores.mysql.driver import pymysql
from inorder.stores.mysql.outbox import MySQLOutboxStore

OLDEST_MYSQL: Final = (8, 0)
OLDEST_MARIADB: Final = (10, 6)

_DENIED: Final = (1142, 1143)
"""No right to the table, or to a column of it."""

_STATEMENTS = sql.load("inorder.doctor", "mysql.sql")


class MySQL:
    """Asks the named questions of `mysql.sql` about one table."""

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
    """What outbox, relay and pipeline need."""
    url = settings.database.require_url()
    with closing(MySQLDatabase(url, "inorder doctor")) as database, database.transaction() as transaction:
        questions = MySQL(transaction, settings.relay)
        version, user, read_only = questions.ask("server")[0]
        yield _server(f"{version} at {shown} as {user}", version, read_only=bool(read_only))
        yield from _outbox(questions, settings, _account(user))
        yield from outbox.pipeline_tables(settings, lambda table: bool(questions.ask("columns", table)))


def _server(detail: str, version: str, *, read_only: bool) -> Check:
    name, oldest = ("MariaDB", OLDEST_MARIADB) if "mariadb" in version.lower() else ("MySQL", OLDEST_MYSQL)
    if numbers(version) < oldest:
        return fail("database", f"{name} {detail}", f"Use {name} {'.'.join(map(str, oldest))} or newer.")
    if read_only:
        return fail("database", f"{name} {detail}, read-only", "Point database.url at the primary.")
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


def _outbox(questions: MySQL, settings: Settings, user: str) -> Iterator[Check]:
    relay = settings.relay
    engine = questions.ask("engine")
    if not engine:
        yield outbox.missing_table(relay)
        return
    found = dict(questions.ask("columns"))
    columns = outbox.columns(relay, "mysql", found)
    yield columns
    if columns.status == "fail":
        return
    id = layout(relay.layout, "mysql").id
    yield _engine(relay.table, str(engine[0][0]))
    yield outbox.index(relay, "mysql", is_there=bool(questions.ask("index", column=id)[0][0]))
    yield _ids(relay.table, id, is_numbered=bool(found[id]))
    yield outbox.rights(relay, user, [right for right in outbox.needed_rights(relay) if questions.lacks(right)])
    yield _locks(settings)
    is_there = bool(questions.ask("engine", table=outbox.REGISTRY))
    yield outbox.registration(relay, questions.transaction, "mysql", is_there=is_there)


def _engine(table: str, engine: str) -> Check:
    if engine == "InnoDB":
        return ok("outbox engine", "InnoDB")
    hint = f"Run ALTER TABLE {table} ENGINE = InnoDB; without transactions there is no outbox."
    return fail("outbox engine", f"{table} is kept by {engine}", hint)


def _ids(table: str, id: str, *, is_numbered: bool) -> Check:
    if is_numbered:
        return ok("outbox ids", "AUTO_INCREMENT")
    hint = f"Run ALTER TABLE {table} MODIFY {id} BIGINT NOT NULL AUTO_INCREMENT; ids must follow the order of writing."
    return fail("outbox ids", f"{table}.{id} is not AUTO_INCREMENT", hint)


def _locks(settings: Settings) -> Check:
    """Asked as the relay asks it."""
    relay = settings.relay
    with closing(MySQLOutboxStore(settings.database.require_url(), relay.table, layout=relay.layout)) as store:
        if store.holders() is not None:
            return ok("database locks", "performance_schema.metadata_locks lists who writes")
    if relay.strategy == "polling":
        follows = "a row whose transaction stays open is given up after relay.polling.missing_max_retries attempts"
    else:
        follows = "the relay walks from the head of the table, which is right, only slower"
    return warn(
        "database locks",
        f"performance_schema.metadata_locks does not tell who writes, so {follows}",
        "Switch performance_schema and its instrument wait/lock/metadata/sql/mdl on in the file of "
        "settings of the server, and grant SELECT on performance_schema.*; prepared XA transactions hinder it too.",
    )
