"""Keyspace, tables and numbered migrations, made by one installer at a time.

The number of the last migration stands in `setting['schema-version']`. A fresh keyspace begins with the last one; an
older one gets what it lacks, each step followed by its number; a newer one is left as it is, but for the tables that
only we have. The lock is a row with a time to live, taken by a compare-and-set, as other versions take it. It is asked
for only when there is work.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from inorder import sql
from inorder.model.errors import RejectedError, TransientError
from inorder.stores.cassandra.session import CassandraSession

LOCK_ID = "kafka-journal"
LOCK_SECONDS = 60
PATIENCE_SECONDS = 60.0
VERSION_KEY = "schema-version"
IDENTITY_KEY = "store-id"
OURS = frozenset({"quarantine", "snapshot"})
"""Tables that other versions do not know, so that their numbers say nothing about them."""
OUR_COLUMNS = {"add_snapshot_place": ("snapshot", "offset")}
"""Statements for columns that our first version did not have, each with one of them: these have no numbers either."""

_STATEMENTS: Mapping[str, str] = sql.load("inorder.stores.cassandra", "journal.cql")
TABLES = tuple(name for name in _STATEMENTS if name.startswith("create_") and name != "create_keyspace")
MIGRATIONS = tuple(name for name in _STATEMENTS if name.startswith("migrate_"))
LAST = len(MIGRATIONS) - 1
# What an existing column or table is answered with: another installer was here.
_DONE = "already exists"


def install(session: CassandraSession) -> list[str]:
    """Makes what does not exist and carries out the migrations that are due; returns the statements that were run.

    Safe to run at every start, and by several at once.
    """
    found = _tables(session)
    run = [] if "setting" in found else _run(session, ("create_keyspace", "create_locks", "create_setting"))
    if _version(session) >= LAST and found.keys() >= OURS and not _lacking(found):
        return run
    with _lock(session):
        version, found = _version(session), _tables(session)
        run += [_migrate(session, name) for name in _lacking(found)]
        if version >= LAST:
            return run + _run(session, [f"create_{table}" for table in sorted(OURS - found.keys())])
        if "journal" not in found:
            run += _run(session, TABLES)
            _write_version(session, LAST)
            return run
        for number in range(version + 1, LAST + 1):
            run.append(_migrate(session, MIGRATIONS[number]))
            _write_version(session, number)
        return run + _run(session, TABLES)


def identify(session: CassandraSession) -> None:
    """Gives the store a random name, unless it has one; of several who try, the first decides."""
    if identity(session) is None:
        session.execute("add_setting", IDENTITY_KEY, str(uuid4()), datetime.now(UTC), socket.gethostname())


def identity(session: CassandraSession) -> str | None:
    """The random name of the store, which tells notices about it from those about others."""
    row = session.execute("setting", IDENTITY_KEY, serial=True).one()
    return str(row[0]) if row else None


def statements(session: CassandraSession) -> list[str]:
    """The DDL of a fresh keyspace, for printing."""
    return [session.rendered(name) for name in ("create_keyspace", *TABLES)]


def _run(session: CassandraSession, names: Iterable[str]) -> list[str]:
    made = [session.rendered(name) for name in names]
    for statement in made:
        session.execute_ddl(statement)
    return made


def _tables(session: CassandraSession) -> Mapping[str, Collection[str]]:
    """The columns of each table, as they are now."""
    session.session.cluster.refresh_schema_metadata()
    keyspace = session.session.cluster.metadata.keyspaces.get(session.keyspace.strip('"'))
    return {} if keyspace is None else {name: set(table.columns) for name, table in keyspace.tables.items()}


def _lacking(found: Mapping[str, Collection[str]]) -> list[str]:
    """The statements for columns that our own tables should have and do not."""
    return [name for name, (table, column) in OUR_COLUMNS.items() if column not in found.get(table, (column,))]


def _version(session: CassandraSession) -> int:
    row = session.execute("setting", VERSION_KEY).one()
    return int(row[0]) if row else -1


def _write_version(session: CassandraSession, version: int) -> None:
    session.execute("set_setting", VERSION_KEY, str(version), datetime.now(UTC), socket.gethostname())


def _migrate(session: CassandraSession, name: str) -> str:
    statement = session.rendered(name)
    try:
        session.execute_ddl(statement)
    except RejectedError as error:
        # A step that was carried out before its number was written.
        if _DONE not in error.message and "conflicts with an existing column" not in error.message:
            raise
    return statement


@contextmanager
def _lock(session: CassandraSession) -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _locked(session):
        if time.monotonic() > deadline:
            raise TransientError(
                f"Somebody has held the lock {LOCK_ID!r} of {session.keyspace} for {PATIENCE_SECONDS:g} s.",
                hint=f"It ends by itself within {LOCK_SECONDS} s of its holder's death; try again.",
            )
        threading.Event().wait(0.1)
    try:
        yield
    finally:
        session.execute("unlock", LOCK_ID)


def _locked(session: CassandraSession) -> bool:
    expiry = LOCK_SECONDS * 1000
    return bool(session.execute("lock", LOCK_ID, expiry, datetime.now(UTC), LOCK_SECONDS).one()[0])
