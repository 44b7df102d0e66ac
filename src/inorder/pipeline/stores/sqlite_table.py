"""The target table of a pipeline in an SQLite file, with its pointers and dead letters; for development.

A transaction locks the file for writing from its beginning, so it locks every pointer at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from inorder.database.database import NOTHING_BOUND, CursorTransaction, Result
from inorder.database.sql import named
from inorder.database.sqlite import SQLiteReconnecting, execute_ddl, sqlite_errors
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import NULL, DeadLetter, FoldedRow, LetterPlace, RowKey
from inorder.pipeline.stores.table import (
    Shape,
    SqlTableStore,
    TableSession,
    TableSql,
    TableWriter,
    Version,
    key_columns_of,
)


class SQLiteTableStore(SqlTableStore):
    """A `TableStore` on one connection."""

    def __init__(self, url: str, mapping: TableMapping) -> None:
        session, statements = _Session(url), SQLiteTableSql(mapping)
        super().__init__(session, statements, _Writer(session, statements))


class _Session(TableSession):
    dialect = "sqlite"

    def __init__(self, url: str) -> None:
        self._connecting = SQLiteReconnecting(url, "inorder pipeline")

    def begin(self) -> None:
        with sqlite_errors():
            self._connection.execute("BEGIN IMMEDIATE")

    def commit(self, where: str) -> None:  # noqa: ARG002 - no answer can be lost
        try:
            with sqlite_errors():
                self._connection.commit()
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.rollback()

    def execute(self, statement: str, bound: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        with sqlite_errors(), closing(self._connection.cursor()) as cursor:
            return CursorTransaction(cursor, named).execute(statement, bound)

    def each(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> list[Result]:
        """Runs one statement for each of the rows."""
        translated = named(statement)
        with sqlite_errors(), closing(self._connection.cursor()) as cursor:
            transaction = CursorTransaction(cursor)
            return [transaction.execute(translated, row) for row in rows]

    def install(self, statements: Iterable[str]) -> None:
        self.begin()
        try:
            with sqlite_errors():
                for statement in statements:
                    execute_ddl(self._connection, statement)
        except BaseException:
            self.rollback()
            raise
        self.commit("install")

    def close(self) -> None:
        self._connecting.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._connecting.get()


class _Writer(TableWriter):
    """Writes each row with one statement."""

    def __init__(self, session: _Session, statements: SQLiteTableSql) -> None:
        super().__init__(statements.mapping)
        self._session = session
        self._statements = statements

    def count_required_columns(self) -> int:
        [(count,)] = self._session.execute(self._statements["required_columns"], self._statements.table_bound()).rows
        return int(count)

    def put(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        bound = [{**_bound(row, generation), **_values(row)} for row in rows]
        return _keys_written(rows, self._session.each(self._statements.put(mode, shape), bound))

    def remove(self, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        return _keys_written(rows, self._each("remove", [_bound(row, generation) for row in rows]))

    def versions(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Version]:
        found = self._each("version", map(_key, keys))
        return {key: result.rows[0] for key, result in zip(keys, found, strict=True) if result.rows}

    def tombstones(self, keys: Sequence[bytes]) -> Mapping[bytes, Version]:
        found = self._each("tombstone", map(self._tombstone_key, keys))
        return {key: result.rows[0] for key, result in zip(keys, found, strict=True) if result.rows}

    def entomb(self, versions: Mapping[bytes, Version]) -> None:
        made = [{**self._tombstone_key(key), "generation": at[0], "offset": at[1]} for key, at in versions.items()]
        self._each("entomb", made)

    def revive(self, keys: Sequence[bytes]) -> None:
        self._each("revive", map(self._tombstone_key, keys))

    def bury(self, place: LetterPlace, generation: int, letters: Sequence[DeadLetter]) -> None:
        at = {**place._asdict(), "generation": generation}
        times = [None if letter.timestamp is None else letter.timestamp.isoformat() for letter in letters]
        pairs = zip(letters, times, strict=True)
        self._each("bury", [{**letter._asdict(), **at, "timestamp": time} for letter, time in pairs])

    def _each(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[Result]:
        return self._session.each(self._statements[name], rows)

    def _tombstone_key(self, key: bytes) -> dict[str, Any]:
        return {"pipeline": self.mapping.pipeline, "key": key}


def _keys_written(rows: Sequence[FoldedRow], results: Sequence[Result]) -> frozenset[RowKey]:
    return frozenset(row.key for row, result in zip(rows, results, strict=True) if result.count)


def _key(key: RowKey) -> dict[str, Any]:
    return {f"key_{index}": column[0] for index, column in enumerate(key_columns_of([key]))}


def _bound(row: FoldedRow, generation: int) -> dict[str, Any]:
    return {**_key(row.key), "generation": generation, "offset": row.offset}


def _values(row: FoldedRow) -> dict[str, Any]:
    return {f"value_{index}": None if value is NULL else value for index, value in enumerate(row.values or ())}


class SQLiteTableSql(TableSql):
    """Values are bound by name."""

    dialect = "sqlite"
    # The names document the type. Types that SQLite would treat as numbers, and round, are TEXT.
    column_types = {  # noqa: RUF012 - a constant
        "boolean": "BOOLEAN",
        "integer": "INTEGER",
        "bigint": "INTEGER",
        "double": "DOUBLE",
        "numeric": "TEXT",
        "text": "TEXT",
        "timestamp": "TEXT",
        "date": "TEXT",
        "uuid": "TEXT",
        "json": "TEXT",
    }

    def identifiers(self) -> dict[str, str]:
        keys = [self.quote(name) for name in self.mapping.key_names]
        return {
            **self.definitions(),
            "now": "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')",
            "incoming_keys": ", ".join(f"%(key_{index})s" for index in range(len(keys))),
            "incoming": ", ".join(f"%(value_{index})s" for index in range(len(self.mapping.fields))),
            "same_key": " AND ".join(f"t.{name} = %(key_{index})s" for index, name in enumerate(keys)),
        }

    def merging(self, shape: Shape) -> dict[str, str]:
        merged = [
            (column, f"%(value_{index})s" if empties else f"coalesce(%(value_{index})s, t.{column})")
            for index, (column, empties) in enumerate(self.null_flags(shape))
        ]
        changes = " OR ".join(f"t.{column} IS NOT {new}" for column, new in merged)
        return {
            "assignments": ",\n    ".join(f"{column} = {new}" for column, new in merged),
            "condition": "TRUE" if shape.wavered else f"({changes})",
        }
