"""The target table of a pipeline in PostgreSQL, with its pointers and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection, IsolationLevel

from inorder import sql
from inorder.model.errors import ConfigurationError, UnknownOutcomeError
from inorder.pipeline.mapping import RESERVED_COLUMNS, TableMapping
from inorder.ports.table_store import DeadLetter, FoldedRow, Pointer, SliceTransaction, Tally, Written
from inorder.stores.postgres.connect import connect
from inorder.stores.postgres.install import install
from inorder.stores.postgres.sqlstate import classified, our_errors

_COLUMN_TYPES = {
    "boolean": "boolean",
    "integer": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "text": "text",
}

# A paused holder of a pointer lock must not stop its partition for ever, and a waiter must not wait for ever.
_SESSION = """
    SELECT set_config('idle_in_transaction_session_timeout', '30s', false),
           set_config('lock_timeout', %s, false)
"""


@dataclass(frozen=True, slots=True)
class PostgresTableStores:
    """Opens a `PostgresTableStore` in whichever process calls it."""

    url: str = field(repr=False)
    """A SQLAlchemy URL; not shown, as it may hold a password."""
    mapping: TableMapping

    def __call__(self) -> PostgresTableStore:
        return PostgresTableStore(self.url, self.mapping)


class PostgresTableStore:
    """A `TableStore` on one connection, opened when first needed and again when it was lost."""

    def __init__(self, url: str, mapping: TableMapping, *, lock_timeout_seconds: float = 60.0) -> None:
        self._lock_timeout = f"{int(lock_timeout_seconds * 1000)}ms"
        self._url = url
        self._mapping = mapping
        self._statements = rendered(mapping)
        self._connection: Connection | None = None

    def install(self) -> None:
        """Makes the tables that do not exist and checks those that do; safe to run at every start."""
        connection = self._connected()
        with our_errors(), connection.transaction():
            install(connection, install_statements(self._mapping))
            self._check_table(connection)

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        connection = self._connected()
        with our_errors(), connection.transaction():
            rows = connection.execute(
                self._statements["pointers"], {"pipeline": self._mapping.pipeline, "topic": topic}
            ).fetchall()
        return {partition: Pointer(next_offset, generation) for partition, next_offset, generation in rows}

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        connection = self._connected()
        try:
            yield _Transaction(connection, self._mapping, self._statements, topic, partition)
        except BaseException:
            self._abandon(connection)
            raise
        self._commit(connection, f"{topic}[{partition}]")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            with our_errors():
                self._connection = connect(self._url, "inorder pipeline", autocommit=True)
                self._connection.execute(_SESSION, (self._lock_timeout,))
                self._connection.autocommit = False
                # The lock must show what its last holder committed: no snapshot older than the lock.
                self._connection.isolation_level = IsolationLevel.READ_COMMITTED
        return self._connection

    def _commit(self, connection: Connection, where: str) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            lost = connection.broken or connection.closed
            self._abandon(connection)
            if lost:
                raise UnknownOutcomeError(f"The connection was lost while {where} was committed.") from error
            raise classified(error) from error

    def _abandon(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except psycopg.Error:
            # Nothing to save: the server rolls back what a lost session left open.
            connection.close()

    def _check_table(self, connection: Connection) -> None:
        table = self._mapping.table
        found = connection.execute(self._statements["existing_columns"], {"table": sql.quoted(table)}).fetchall()
        columns = {name: (not_null, unique) for name, not_null, unique in found}
        wanted = (self._mapping.key, *self._mapping.columns, *RESERVED_COLUMNS)
        if missing := [name for name in wanted if name not in columns]:
            raise ConfigurationError(
                f"Table {table!r} exists but lacks: {', '.join(missing)}.",
                hint="Add them as `inorder schema sql --layout table` shows, or name another table.",
            )
        if nullable := [name for name in RESERVED_COLUMNS[:2] if not columns[name][0]]:
            raise ConfigurationError(
                f"Table {table!r} allows nulls in: {', '.join(nullable)}.",
                hint="Fill them and add NOT NULL: a row without a version could not be ordered.",
            )
        if not columns[self._mapping.key][1]:
            raise ConfigurationError(
                f"Column {self._mapping.key!r} of table {table!r} is not unique.",
                hint="Make it the primary key, or name another key column.",
            )


class _Transaction:
    """The verbs of one slice on an open connection."""

    def __init__(
        self,
        connection: Connection,
        mapping: TableMapping,
        statements: Mapping[str, str],
        topic: str,
        partition: int,
    ) -> None:
        self._connection = connection
        self._mapping = mapping
        self._statements = statements
        self._place = {"pipeline": mapping.pipeline, "topic": topic, "partition": partition}
        self._generation = 0

    def lock_pointer(self) -> Pointer:
        with our_errors():
            row = self._connection.execute(self._statements["lock_pointer"], self._place).fetchone()
            if row is None:
                self._connection.execute(self._statements["insert_pointer"], self._place)
                row = self._connection.execute(self._statements["lock_pointer"], self._place).fetchone()
        pointer = Pointer(*row) if row else Pointer()
        self._generation = pointer.generation
        return pointer

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        with our_errors():
            written: set[int | str] = set()
            # ON CONFLICT sees only the table's columns, so what wavered needs a statement of its own.
            for name, wavered in (("upsert_steady", False), ("upsert_wavered", True)):
                if some := [row for row in rows if row.wavered is wavered]:
                    parameters = self._arrays(some) | {"generation": generation}
                    cursor = self._connection.execute(self._statements[name], parameters, binary=True)
                    written.update(key for (key,) in cursor)
            if len(written) == len(rows):
                return Written(applied=sum(row.records for row in rows))
            return self._counted(rows, written, generation)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        columns = {
            "offsets": [letter.offset for letter in letters],
            "codes": [letter.code for letter in letters],
            "details": [letter.detail for letter in letters],
            "keys": [letter.key for letter in letters],
            "values": [letter.value for letter in letters],
            "timestamps": [letter.timestamp for letter in letters],
        }
        with our_errors():
            self._connection.execute(
                self._statements["bury"], {**self._place, **columns, "generation": self._generation}
            )

    def move_pointer(self, next_offset: int, tally: Tally) -> None:
        figures = {
            "next_offset": next_offset,
            "applied": tally.written.applied,
            "identical": tally.written.identical,
            "stale": tally.written.stale,
            "ignored": tally.ignored,
            "rejected": tally.rejected,
        }
        with our_errors():
            self._connection.execute(self._statements["move_pointer"], self._place | figures)

    def _arrays(self, rows: Sequence[FoldedRow]) -> dict[str, object]:
        arrays: dict[str, object] = {
            "keys": [row.key for row in rows],
            "offsets": [row.offset for row in rows],
        }
        for index, (_, kind) in enumerate(self._mapping.fields):
            column = [row.values[index] for row in rows]
            if kind == "double":  # psycopg refuses a list that mixes 1 and 1.5
                column = [None if value is None else float(value) for value in column]
            arrays[f"values_{index}"] = column
        return arrays

    def _counted(self, rows: Sequence[FoldedRow], written: set[int | str], generation: int) -> Written:
        rest = [row for row in rows if row.key not in written]
        parameters = {
            "keys": [row.key for row in rest],
            "offsets": [row.offset for row in rest],
            "generation": generation,
        }
        stale = {key for (key,) in self._connection.execute(self._statements["stale"], parameters).fetchall()}
        return Written(
            applied=sum(row.records for row in rows if row.key in written),
            identical=sum(row.records for row in rest if row.key not in stale),
            stale=sum(row.records for row in rest if row.key in stale),
        )


def install_statements(mapping: TableMapping) -> list[str]:
    """The statements that make a pipeline's tables, for running or for printing."""
    statements = rendered(mapping)
    return [statements[name] for name in ("create_pointer", "create_dead_letter", "create_table")]


def rendered(mapping: TableMapping) -> dict[str, str]:
    """The statements of `table.sql` for one mapping."""
    columns = [sql.quoted(name) for name in mapping.columns]
    types = [_COLUMN_TYPES[kind] for _, kind in mapping.fields]
    merged = [f"coalesce(excluded.{column}, t.{column})" for column in columns]
    identifiers = {
        "table": sql.quoted(mapping.table),
        "key": sql.quoted(mapping.key),
        "key_type": _COLUMN_TYPES[mapping.key_type],
        "definitions": ", ".join(f"{column} {kind}" for column, kind in zip(columns, types, strict=True)),
        "columns": ", ".join(columns),
        "incoming": ", ".join(f"x.{column}" for column in columns),
        "arrays": ", ".join(f"%(values_{index})s::{kind}[]" for index, kind in enumerate(types)),
        "assignments": ", ".join(f"{column} = {value}" for column, value in zip(columns, merged, strict=True)),
        "condition": "true",
    }
    stored = ", ".join(f"t.{column}" for column in columns)
    changes = {"condition": f"ROW({stored}) IS DISTINCT FROM ROW({', '.join(merged)})"}
    statements = sql.load(__package__, "table.sql")
    return {
        **{name: statements.render(name, **identifiers) for name in statements if name != "upsert"},
        "upsert_steady": statements.render("upsert", **identifiers | changes),
        "upsert_wavered": statements.render("upsert", **identifiers),
    }
