"""A target table with its pointers and dead letters, in any dialect: what its session and its writer have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from inorder.database.database import NOTHING_BOUND, Dialect, Result, dialect_of
from inorder.engines.slice_work import Pointer
from inorder.model.errors import ConfigurationError, InorderError, RejectedError
from inorder.model.names import RESERVED_COLUMNS
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.dead_letters import settle
from inorder.pipeline.stores.ports import (
    DeadLetter,
    FoldedRow,
    LetterPlace,
    RowKey,
    SliceTransaction,
    TableStores,
    Tally,
    Written,
)
from inorder.pipeline.stores.table_writer import TableSql, TableWriter, letters_in_portions


class TableSession(ABC):
    """One connection, opened when first needed and again when it was lost. Errors of the driver are raised as ours."""

    dialect: Dialect

    @abstractmethod
    def begin(self) -> None:
        """Begins a transaction that waits for locks and sees what their last holders committed."""

    @abstractmethod
    def commit(self, where: str) -> None:
        """Commits; raises `UnknownOutcomeError` where the answer is lost, any other error where it failed."""

    @abstractmethod
    def rollback(self) -> None:
        """Rolls back and never raises: what a lost session left open, the server rolls back."""

    @abstractmethod
    def execute(self, statement: str, bound: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        """Runs one statement."""

    @abstractmethod
    def install(self, statements: Iterable[str]) -> None:
        """Runs DDL that may be run again, one installer at a time."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection."""


class SqlTableStore:
    """A `TableStore` on one session."""

    def __init__(self, session: TableSession, statements: TableSql, writer: TableWriter) -> None:
        self._session = session
        self._statements = statements
        self._writer = writer
        self._mapping = statements.mapping

    def install(self) -> None:
        """Makes the tables that do not exist and checks those that do; safe to run at every start."""
        self._session.install(self._statements.install())
        table = self._statements.table_bound()
        with self._transaction("install"):
            columns = self._session.execute(self._statements["existing_columns"], table).rows
            keys = self._session.execute(self._statements["existing_keys"], table).rows
        check_columns(self._mapping, {name: bool(not_null) for name, not_null in columns})
        check_keys(self._mapping, [orjson.loads(names) for (names,) in keys])

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        bound = {"pipeline": self._mapping.pipeline, "topic": topic}
        with self._transaction("pointers"):
            rows = self._session.execute(self._statements["pointers"], bound).rows
        return {partition: Pointer(next_offset, generation) for partition, next_offset, generation in rows}

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        place = LetterPlace(self._mapping.pipeline, topic, partition)
        with self._transaction(f"{topic}[{partition}]"):
            yield _Transaction(self._session, self._statements, self._writer, place)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _transaction(self, where: str) -> Iterator[None]:
        self._session.begin()
        try:
            yield
        except BaseException:
            self._session.rollback()
            raise
        self._session.commit(where)


class _Transaction:
    """The verbs of one slice."""

    def __init__(self, session: TableSession, statements: TableSql, writer: TableWriter, place: LetterPlace) -> None:
        self._session = session
        self._statements = statements
        self._writer = writer
        self._place = place
        self._generation = 0
        self._checks_late = "check_now" in statements
        self._has_savepoint = False

    def lock_pointer(self) -> Pointer:
        rows = self._execute("lock_pointer").rows
        if not rows:
            self._execute("insert_pointer")
            rows = self._execute("lock_pointer").rows
        [(next_offset, self._generation, has_tombstones)] = rows
        self._writer.has_tombstones = bool(has_tombstones)
        return Pointer(next_offset, self._generation)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        self._save()
        try:
            yield
        except InorderError:
            # Where the connection is gone, so is the transaction, and the first error says more.
            with suppress(InorderError):
                self._execute("undo")
            raise
        self._execute("release")
        self._has_savepoint = False

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        return self._writer.write(rows, generation)

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[Written | RejectedError] | None:
        self._save()
        return self._writer.write_each(rows, generation)

    def version(self, key: RowKey) -> tuple[int, int] | None:
        return self._writer.version(key)

    def settle(self, offset: int, action: str, reason: str) -> bool:
        def execute(statement: str, bound: Mapping[str, Any]) -> int:
            return self._session.execute(statement, bound).count

        return settle(execute, self._session.dialect, self._place, offset, action, reason)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        for some in letters_in_portions(letters, self._writer.letter_bytes):
            self._writer.bury(self._place, self._generation, some)

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        self._execute(
            "move_pointer",
            next_offset=next_offset,
            applied=tally.written.applied,
            identical=tally.written.identical,
            stale=tally.written.stale,
            ignored=tally.ignored,
            rejected=tally.rejected,
        )

    def _save(self) -> None:
        """Makes a savepoint, from which on everything is checked at once."""
        if self._checks_late:
            self._execute("check_now")
            self._checks_late = False
        # One that was undone to is still there, and serves again.
        if not self._has_savepoint:
            self._execute("isolate")
            self._has_savepoint = True

    def _execute(self, name: str, **bound: Any) -> Result:
        return self._session.execute(self._statements[name], {**self._place._asdict(), **bound})


# Whether a table that exists can take the rows of a mapping.


def check_columns(mapping: TableMapping, columns: Mapping[str, bool]) -> None:
    """Refuses a table that lacks a column, or a version that may be null; `columns` says of each whether it may not."""
    table = mapping.table
    wanted = (*mapping.key_names, *mapping.columns, *RESERVED_COLUMNS)
    if missing := [name for name in wanted if name not in columns]:
        raise ConfigurationError(
            f"Table {table!r} exists but lacks: {', '.join(missing)}.",
            hint="Add them as `inorder schema sql --layout table` shows, or name another table.",
        )
    if nullable := [name for name in RESERVED_COLUMNS[:2] if not columns[name]]:
        raise ConfigurationError(
            f"Table {table!r} allows nulls in: {', '.join(nullable)}.",
            hint="Fill them and add NOT NULL: a row without a version could not be ordered.",
        )


def check_keys(mapping: TableMapping, unique_keys: Iterable[Iterable[str]]) -> None:
    """Refuses a table in which two rows may have the same key."""
    if set(mapping.key_names) not in [set(columns) for columns in unique_keys]:
        named = ", ".join(repr(name) for name in mapping.key_names)
        subject, verb = ("Columns", "are") if "," in named else ("Column", "is")
        raise ConfigurationError(
            f"{subject} {named} of table {mapping.table!r} {verb} not unique.",
            hint="Make it the primary key, or name another key column.",
        )


# From a URL to the stores of a target table.


def table_stores(url: str, mapping: TableMapping) -> TableStores:
    """Opens stores of a mapping in the database of a SQLAlchemy URL; drivers that are not used are not imported."""
    match dialect_of(url):
        case "postgres":
            from inorder.pipeline.stores.postgres_table import PostgresTableStores

            return PostgresTableStores(url, mapping)
        case "mysql":
            from inorder.pipeline.stores.mysql_table import MySQLTableStores

            return MySQLTableStores(url, mapping)
        case "sqlite":
            from inorder.pipeline.stores.sqlite_table import SQLiteTableStores

            return SQLiteTableStores(url, mapping)


def table_sql(dialect: Dialect, mapping: TableMapping) -> TableSql:
    """The statements of a mapping, for which no driver is needed."""
    match dialect:
        case "postgres":
            from inorder.pipeline.stores.postgres_table import PostgresTableSql

            return PostgresTableSql(mapping)
        case "mysql":
            from inorder.pipeline.stores.mysql_table import MySQLTableSql

            return MySQLTableSql(mapping)
        case "sqlite":
            from inorder.pipeline.stores.sqlite_table import SQLiteTableSql

            return SQLiteTableSql(mapping)
