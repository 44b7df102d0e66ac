"""The target table of a pipeline in PostgreSQL, with its pointers and dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg
from psycopg import IsolationLevel

from inorder.database import postgres
from inorder.database.database import NOTHING_BOUND, CursorTransaction, Result
from inorder.database.postgres import (
    Answer,
    Bound,
    PostgresConnection,
    Savepoint,
    abandon,
    commit,
    connect,
    execute_each,
    install,
    is_usable,
    postgres_errors,
)
from inorder.model.errors import RejectedError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import NULL, DeadLetter, FoldedRow, LetterPlace, RowKey, WriteCounts
from inorder.pipeline.stores.table import (
    Shape,
    SqlTableStore,
    TableSession,
    TableSql,
    TableWriter,
    Version,
    columns_of,
    key_columns_of,
    key_of,
    shapes,
)

_NUMBERS = ("boolean", "integer", "bigint", "double")
_STATEMENT_CHARACTERS = 50_000_000
"""Far below the gigabyte that the server accepts."""

# A paused holder of a pointer lock must not block its partition for ever, and a waiter must not wait for ever.
_SESSION = """
    SELECT set_config('idle_in_transaction_session_timeout', '30s', %(is_local)s),
           set_config('lock_timeout', %(lock_timeout)s, %(is_local)s)
"""


class PostgresTableStore(SqlTableStore):
    """A `TableStore` on one connection."""

    def __init__(self, url: str, mapping: TableMapping, *, lock_timeout_seconds: float = 60.0) -> None:
        session, statements = _Session(url, lock_timeout_seconds), PostgresTableSql(mapping)
        super().__init__(session, statements, _Writer(session, statements))


class _Session(TableSession):
    dialect = "postgres"

    def __init__(self, url: str, lock_timeout_seconds: float) -> None:
        self._lock_timeout = f"{int(lock_timeout_seconds * 1000)}ms"
        self._url = url
        self._connection: PostgresConnection | None = None

    def begin(self) -> None:
        # The first statement begins the transaction.
        connection = self._connect()
        if connection.is_pooled:
            with postgres_errors():
                self._limit(connection, is_local=True)

    def commit(self, where: str) -> None:
        commit(self._connect(), where)

    def rollback(self) -> None:
        if self._connection is not None:
            abandon(self._connection)

    def execute(self, statement: str, bound: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        with postgres_errors(), closing(self._connect().cursor()) as cursor:
            return CursorTransaction(cursor).execute(statement, bound)

    def execute_each(self, statement: str, bounds: Sequence[Bound], savepoint: Savepoint) -> list[Answer]:
        """Runs a statement with each of `bounds`; one that is refused is rolled back alone."""
        with postgres_errors():
            return execute_each(self._connect(), statement, bounds, savepoint)

    def install(self, statements: Iterable[str]) -> None:
        connection = self._connect()
        with postgres_errors(), connection.transaction():
            install(connection, statements)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> PostgresConnection:
        if not is_usable(self._connection):
            with postgres_errors():
                self._connection = connect(self._url, "inorder pipeline", autocommit=True)
                if not self._connection.is_pooled:
                    self._limit(self._connection, is_local=False)
                self._connection.autocommit = False
                # The lock must show what its last holder committed, so no snapshot may be older than the lock.
                self._connection.isolation_level = IsolationLevel.READ_COMMITTED
        return self._connection

    def _limit(self, connection: PostgresConnection, *, is_local: bool) -> None:
        """Sets how long it may wait and idle, for the session or, through a pooler, for the transaction."""
        connection.execute(_SESSION, {"lock_timeout": self._lock_timeout, "is_local": is_local})


class _Writer(TableWriter):
    """Writes a group of rows with one statement."""

    def __init__(self, session: _Session, statements: PostgresTableSql) -> None:
        super().__init__(statements.mapping)
        self._session = session
        self._statements = statements
        self._has_triggers: bool | None = None
        self._savepoint = Savepoint(*(statements[name] for name in Savepoint._fields))
        self._is_number = [kind in ("bigint", "integer") for _, kind in self.mapping.key_columns]

    def forget_shape(self) -> None:
        super().forget_shape()
        self._has_triggers = None

    def count_required_columns(self) -> int:
        [(count,)] = self._query("required_columns", self._statements.table_bound())
        return int(count)

    def put(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        bound = self._statements.rows_bound(shape, rows)
        if sum(map(len, bound.values())) > _STATEMENT_CHARACTERS and len(rows) > 1:
            return self._put_halves(mode, shape, rows, generation)
        bound_with = {**bound, "generation": generation, "rows": len(rows)}
        [(count, keys)] = self._session.execute(self._statements.put(mode, shape), bound_with).rows
        return None if count == len(rows) else frozenset(map(self._key_of_texts, keys or []))

    def write_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError] | None:
        if self.has_tombstones or not self._needs_one_statement() or not all(map(_is_plain, rows)):
            return None
        results: dict[RowKey, WriteCounts | RejectedError] = {}
        for shape, group in shapes(rows, self.mapping.nulls):
            bounds: list[Bound] = [
                {**self._statements.rows_bound(shape, [row]), "generation": generation, "rows": 1} for row in group
            ]
            answers = self._session.execute_each(
                self._statements.put(self.mapping.mode, shape), bounds, self._savepoint
            )
            for row, answer in zip(group, answers, strict=True):
                results[row.key] = self._result_of(row, answer, generation)
        return [results[row.key] for row in rows]

    def _needs_one_statement(self) -> bool:
        """Whether one statement writes a row, and leaves nothing behind if it writes nothing."""
        if self._has_triggers is None:
            [(self._has_triggers,)] = self._query("has_triggers", self._statements.table_bound())
        return not self._has_triggers and not (self.mapping.mode == "upsert" and self._has_required_columns())

    def _result_of(self, row: FoldedRow, answer: Answer, generation: int) -> WriteCounts | RejectedError:
        """The counts of a write or its refusal; raises any other error."""
        try:
            with postgres_errors():
                if isinstance(answer, psycopg.Error):
                    raise answer
                [(count, _)] = answer
                return WriteCounts(applied=row.records) if count == b"1" else self._count_unwritten([row], generation)
        except RejectedError as error:
            return error

    def remove(self, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        bound = {**self._statements.versions_bound(rows), "generation": generation}
        return frozenset(map(key_of, self._query("remove", bound)))

    def versions(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Version]:
        found = self._query("versions", self._statements.keys_bound(keys))
        return {key_of(row[:-2]): (row[-2], row[-1]) for row in found}

    def tombstones(self, keys: Sequence[bytes]) -> Mapping[bytes, Version]:
        found = self._query("tombstones", self._tombstone_keys(keys))
        return {bytes(key): (generation, offset) for key, generation, offset in found}

    def entomb(self, versions: Mapping[bytes, Version]) -> None:
        bound = {
            "generations": postgres.numbers([generation for generation, _ in versions.values()]),
            "offsets": postgres.numbers([offset for _, offset in versions.values()]),
        }
        self._query("entomb", {**self._tombstone_keys(list(versions)), **bound})

    def revive(self, keys: Sequence[bytes]) -> None:
        self._query("revive", self._tombstone_keys(keys))

    def bury(self, place: LetterPlace, generation: int, letters: Sequence[DeadLetter]) -> None:
        offsets, codes, details, keys, values, times = zip(*letters, strict=True)
        bound = {
            "offsets": postgres.numbers(offsets),
            "codes": postgres.texts(codes),
            "details": postgres.texts(details),
            "keys": postgres.binaries(keys),
            "values": postgres.binaries(values),
            "timestamps": postgres.texts([time and time.isoformat() for time in times]),
        }
        at = place._asdict()
        [(again,)] = self._query("has_letters", {**at, "offset": letters[0].offset})
        self._query("bury_again" if again else "bury", {**at, **bound, "generation": generation})

    def _put_halves(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        middle = len(rows) // 2
        written: frozenset[RowKey] = frozenset()
        for half in (rows[:middle], rows[middle:]):
            keys = self.put(mode, shape, half, generation)
            written |= frozenset(row.key for row in half) if keys is None else keys
        return written

    def _tombstone_keys(self, keys: Sequence[bytes]) -> dict[str, str]:
        return {"pipeline": self.mapping.pipeline, "keys": postgres.binaries(keys)}

    def _query(self, name: str, bound: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._session.execute(self._statements[name], bound).rows

    def _key_of_texts(self, texts: list[str]) -> RowKey:
        pairs = zip(texts, self._is_number, strict=True)
        return key_of([int(text) if is_number else text for text, is_number in pairs])


def _is_plain(row: FoldedRow) -> bool:
    """Whether it is an update without NUL characters, which the driver refuses as they would end a text."""
    parts = (*(row.values or ()), *(row.key if isinstance(row.key, tuple) else (row.key,)))
    return row.values is not None and not any("\0" in part for part in parts if isinstance(part, str))


class PostgresTableSql(TableSql):
    """Rows are bound as one array per column."""

    dialect = "postgres"
    column_types = {  # noqa: RUF012 - a constant
        "boolean": "boolean",
        "integer": "integer",
        "bigint": "bigint",
        "double": "double precision",
        "numeric": "numeric",
        "text": "text",
        "timestamp": "timestamptz",
        "date": "date",
        "uuid": "uuid",
        "json": "jsonb",
    }

    def identifiers(self) -> dict[str, str]:
        keys = [(self.quote(name), self.column_types[kind]) for name, kind in self.mapping.key_columns]
        kinds = [self.column_types[kind] for _, kind in self.mapping.fields]
        columns = [self.quote(name) for name in self.mapping.columns]
        key_arrays = ", ".join(f"%(key_{index})s::{kind}[]" for index, (_, kind) in enumerate(keys))
        value_arrays = ", ".join(f"%(values_{index})s::{kind}[]" for index, kind in enumerate(kinds))
        named, offsets = self.definitions(), "%(offsets)s::bigint[]"
        key_list, all_columns = named["keys"], f"{named['keys']}, {named['columns']}, version_offset"
        # As text, because the driver would return a UUID object.
        found = [f"t.{name}::text AS {name}" if kind == "uuid" else f"t.{name}" for name, kind in keys]
        return {
            **named,
            "now": "now()",
            "incoming_keys": ", ".join(f"x.{name}" for name, _ in keys),
            "incoming": ", ".join(f"x.{name}" for name in columns),
            "rows": f"unnest({key_arrays}, {value_arrays}, {offsets}) AS x ({all_columns})",
            "bare_rows": f"unnest({key_arrays}, {offsets}) AS x ({key_list}, version_offset)",
            "bare_keys": f"unnest({key_arrays}) AS x ({key_list})",
            "same_key": " AND ".join(f"t.{name} = excluded.{name}" for name, _ in keys),
            "found_keys": ", ".join(found),
            "key_texts": ", ".join(f"{name}::text" for name, _ in keys),
        }

    def merging(self, shape: Shape) -> dict[str, str]:
        merged = {
            column: f"excluded.{column}" if empties else f"coalesce(excluded.{column}, t.{column})"
            for column, empties in self.null_flags(shape)
        }
        stored = ", ".join(f"t.{column}" for column in merged)
        changes = f"ROW({stored}) IS DISTINCT FROM ROW({', '.join(merged.values())})"
        return {
            "assignments": ",\n        ".join(f"{column} = {new}" for column, new in merged.items()),
            "condition": "true" if shape.wavered else changes,
        }

    def keys_bound(self, keys: Sequence[RowKey]) -> dict[str, str]:
        """The arrays of the key columns."""
        columns = key_columns_of(keys)
        kinds = [kind for _, kind in self.mapping.key_columns]
        return {f"key_{index}": _array(kind, columns[index]) for index, kind in enumerate(kinds)}

    def versions_bound(self, rows: Sequence[FoldedRow]) -> dict[str, str]:
        """The arrays of the key columns and of the offsets."""
        return {**self.keys_bound([row.key for row in rows]), "offsets": postgres.numbers([row.offset for row in rows])}

    def rows_bound(self, shape: Shape, rows: Sequence[FoldedRow]) -> dict[str, str]:
        bound = self.versions_bound(rows)
        columns: list[Sequence[Any]] = columns_of(rows)
        for index, (_, kind) in enumerate(self.mapping.fields):
            column = columns[index]
            if shape.emptied and shape.emptied[index]:
                column = [None if value is NULL else value for value in column]
            bound[f"values_{index}"] = _array(kind, column)
        return bound


def _array(kind: str, column: Sequence[Any]) -> str:
    return postgres.numbers(column) if kind in _NUMBERS else postgres.texts(column)
