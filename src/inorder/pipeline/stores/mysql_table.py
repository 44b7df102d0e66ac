"""The target table of a pipeline in MySQL or MariaDB, with its pointers and dead letters.

Properties of these servers and how the store handles them. Tests verify them on MariaDB 11.4; statements about MySQL 8
are from its documentation.

- **No RETURNING for updates**, on MySQL none at all. So the versions of rows are read before the write, which shows
  what is stale, and after it, which shows what was written.
- **ON DUPLICATE KEY UPDATE has no WHERE**, so the guard is in every assignment. And it fires for any unique index: the
  guard does not touch a row of another key, and the row that is then missing is refused, as in other dialects.
- **Rows that must exist** are updated one by one, a round trip each: one statement for many would have to compare texts
  of two collations.
- **Strict mode**, whatever the server's default: without it, a text that is too long would be truncated silently.
- **An idle session ends after a minute** (`wait_timeout`), so a paused holder of a pointer lock blocks its partition no
  longer than that. A session that ended between two slices is opened again without an error.
- **A statement larger than `max_allowed_packet`** breaks the connection, so it is never sent: a record that needs one
  is refused, and a dead letter that needs one is stored without its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from inorder.database.database import NOTHING_BOUND, CursorTransaction, Result
from inorder.database.mysql import Connection, MySQLDatabase, connect, mysql_errors, pymysql
from inorder.model.errors import InorderError, RejectedError, UnknownOutcomeError, UnreachableError
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.ports import NULL, DeadLetter, FoldedRow, LetterPlace, RowKey
from inorder.pipeline.stores.table import (
    LETTER_BYTES,
    Shape,
    SqlTableStore,
    TableSession,
    TableSql,
    TableWriter,
    Version,
    key_columns_of,
    key_of,
)

ROWS = "{rows}"
"""The placeholder in a statement for tuples."""

_INDEX_BYTES = 3072
"""InnoDB's limit for all columns of a key together."""
_CHARACTER_BYTES = 4
_ROWS_PER_STATEMENT = 500
_SESSION = "SET SESSION sql_mode = 'TRADITIONAL', wait_timeout = 60"
_PACKET = "SELECT @@max_allowed_packet"
_OVERHEAD = 10_000
"""Characters of a statement besides its rows."""


class MySQLTableStore(SqlTableStore):
    """A `TableStore` on one connection."""

    def __init__(self, url: str, mapping: TableMapping) -> None:
        session, statements = _Session(url), MySQLTableSql(mapping)
        super().__init__(session, statements, _Writer(session, statements))


class _Session(TableSession):
    dialect = "mysql"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self.packet_bytes = 0

    def begin(self) -> None:
        try:
            with mysql_errors():
                self._connect().begin()
        except UnreachableError:
            # The server may have ended an idle session. Nothing was begun, so a new one serves as well.
            self.close()
            with mysql_errors():
                self._connect().begin()

    def commit(self, where: str) -> None:
        try:
            with mysql_errors():
                self._connect().commit()
        except UnreachableError as error:
            self.close()
            raise UnknownOutcomeError(f"The connection was lost while {where} was committed.") from error
        except InorderError:
            self.rollback()
            raise

    def rollback(self) -> None:
        try:
            with mysql_errors():
                self._connect().rollback()
        except InorderError:
            self.close()

    def execute(self, statement: str, bound: Mapping[str, Any] = NOTHING_BOUND) -> Result:
        with mysql_errors(), self._connect().cursor() as cursor:
            return CursorTransaction(cursor).execute(statement, bound)

    def execute_rows(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> Result:
        """Runs a statement with the rows inserted as tuples."""
        return self.run(statement.replace(ROWS, ", ".join(map(self.escape, rows))))

    def run(self, text: str) -> Result:
        """Runs a statement without parameters."""
        connection = self._connect()
        if len(text.encode()) > self.packet_bytes - _OVERHEAD:
            raise RejectedError(f"The statement is larger than max_allowed_packet = {self.packet_bytes}.")
        with mysql_errors(), connection.cursor() as cursor:
            count = cursor.execute(text)
            return Result([tuple(row) for row in cursor.fetchall()] if cursor.description else [], count)

    def escape(self, value: object) -> str:
        """A value, or a tuple of values, as a literal."""
        text: str = self._connect().escape(value)
        return text

    def install(self, statements: Iterable[str]) -> None:
        database = MySQLDatabase(self._url, "inorder pipeline")
        try:
            database.install(statements)
        finally:
            database.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            try:
                connection.close()
            except pymysql.MySQLError:
                return  # it was lost already

    def _connect(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = connect(self._url, "inorder pipeline")
            with mysql_errors(), self._connection.cursor() as cursor:
                cursor.execute(_SESSION)
                cursor.execute(_PACKET)
                [self.packet_bytes] = cursor.fetchone() or (0,)
        return self._connection


class _Writer(TableWriter):
    """Writes rows in portions that a packet can carry."""

    def __init__(self, session: _Session, statements: MySQLTableSql) -> None:
        super().__init__(statements.mapping)
        self._session = session
        self._statements = statements
        self._times = [index for index, (_, kind) in enumerate(self.mapping.fields) if kind == "timestamp"]

    @property
    def letter_bytes(self) -> int:
        return min(LETTER_BYTES, self._session.packet_bytes // 4)

    def count_required_columns(self) -> int:
        [(count,)] = self._session.execute(self._statements["required_columns"], self._statements.table_bound()).rows
        return int(count)

    def put(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        if mode == "update":
            return frozenset(self._update(shape, rows, generation))
        written: set[RowKey] = set()
        for some in _portions(rows, self._session.packet_bytes):
            written.update(self._put_portion(mode, shape, some, generation))
        return None if len(written) == len(rows) else frozenset(written)

    def remove(self, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        statement = self._statements["remove"]
        results = [self._session.execute(statement, _bound(row, generation)) for row in rows]
        return frozenset(row.key for row, result in zip(rows, results, strict=True) if result.count)

    def versions(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Version]:
        found: dict[RowKey, Version] = {}
        for start in range(0, len(keys), _ROWS_PER_STATEMENT):
            wanted = self._one_of(keys[start : start + _ROWS_PER_STATEMENT])
            rows = self._session.run(self._statements["versions"].replace(ROWS, wanted)).rows
            found.update({key_of(row[:-2]): (row[-2], row[-1]) for row in rows})
        return found

    def tombstones(self, keys: Sequence[bytes]) -> Mapping[bytes, Version]:
        found: dict[bytes, Version] = {}
        for start in range(0, len(keys), _ROWS_PER_STATEMENT):
            bound = {"pipeline": self.mapping.pipeline, "keys": tuple(keys[start : start + _ROWS_PER_STATEMENT])}
            rows = self._session.execute(self._statements["tombstones"], bound).rows
            found.update({key: (generation, offset) for key, generation, offset in rows})
        return found

    def entomb(self, versions: Mapping[bytes, Version]) -> None:
        rows = [(self.mapping.pipeline, key, *version) for key, version in versions.items()]
        for start in range(0, len(rows), _ROWS_PER_STATEMENT):
            self._session.execute_rows(self._statements["entomb"], rows[start : start + _ROWS_PER_STATEMENT])

    def revive(self, keys: Sequence[bytes]) -> None:
        for start in range(0, len(keys), _ROWS_PER_STATEMENT):
            bound = {"pipeline": self.mapping.pipeline, "keys": tuple(keys[start : start + _ROWS_PER_STATEMENT])}
            self._session.execute(self._statements["revive"], bound)

    def bury(self, place: LetterPlace, generation: int, letters: Sequence[DeadLetter]) -> None:
        for start in range(0, len(letters), _ROWS_PER_STATEMENT):
            some = map(self._fit, letters[start : start + _ROWS_PER_STATEMENT])
            self._session.execute_rows(
                self._statements["bury"], [_letter_tuple(place, generation, one) for one in some]
            )

    def _put_portion(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> Iterator[RowKey]:
        before = self.versions([row.key for row in rows])
        newer = [row for row in rows if row.key not in before or before[row.key] < (generation, row.offset)]
        if mode == "insert":
            newer = [row for row in newer if row.key not in before]
        if newer:
            self._session.execute_rows(
                self._statements.put(mode, shape), [self._row_tuple(row, generation) for row in newer]
            )
            after = self.versions([row.key for row in newer])
            yield from (row.key for row in newer if after.get(row.key) == (generation, row.offset))

    def _update(self, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> Iterator[RowKey]:
        statement = self._statements.put("update", shape)
        for row in rows:
            values = {f"value_{index}": value for index, value in enumerate(self._values(row))}
            if self._session.execute(statement, {**_bound(row, generation), **values}).count:
                yield row.key

    def _values(self, row: FoldedRow) -> list[Any]:
        values: list[Any] = [None if value is NULL else value for value in row.values or ()]
        for index in self._times:
            if values[index] is not None:
                # The column has no time zone, and all times are UTC.
                values[index] = values[index].removesuffix("+00:00")
        return values

    def _row_tuple(self, row: FoldedRow, generation: int) -> tuple[Any, ...]:
        key = row.key if isinstance(row.key, tuple) else (row.key,)
        return (*key, *self._values(row), generation, row.offset)

    def _one_of(self, keys: Sequence[RowKey]) -> str:
        names, escaped = [self._statements.quote(name) for name in self.mapping.key_names], self._session.escape
        if len(names) == 1:
            return f"{names[0]} IN ({', '.join(map(escaped, keys))})"
        tuples = zip(*key_columns_of(keys), strict=True)
        pairs = [[f"{name} = {escaped(part)}" for name, part in zip(names, key, strict=True)] for key in tuples]
        return " OR ".join(f"({' AND '.join(pair)})" for pair in pairs)

    def _fit(self, letter: DeadLetter) -> DeadLetter:
        if 2 * len(letter.value or b"") + 2 * len(letter.key or b"") < self._session.packet_bytes - 2 * _OVERHEAD:
            return letter
        note = f"{letter.detail} Its {len(letter.value or b'')} bytes are not stored: max_allowed_packet is too small."
        return letter._replace(value=None, detail=note)


def _bound(row: FoldedRow, generation: int) -> dict[str, Any]:
    keys = {f"key_{index}": column[0] for index, column in enumerate(key_columns_of([row.key]))}
    return {**keys, "generation": generation, "offset": row.offset}


def _letter_tuple(place: LetterPlace, generation: int, letter: DeadLetter) -> tuple[Any, ...]:
    time = None if letter.timestamp is None else letter.timestamp.replace(tzinfo=None)
    return (*place, generation, letter.offset, letter.code, letter.detail, letter.key, letter.value, time)


def _portions(rows: Sequence[FoldedRow], packet_bytes: int) -> Iterator[Sequence[FoldedRow]]:
    """Splits rows so that one statement can carry each part, even if every character is escaped."""
    start = size = 0
    for index, row in enumerate(rows):
        length = 100 + sum(8 * len(value) for value in row.values or () if isinstance(value, str))
        size += length
        if index > start and (size > packet_bytes or index - start == _ROWS_PER_STATEMENT):
            yield rows[start:index]
            start, size = index, length
    yield rows[start:]


class MySQLTableSql(TableSql):
    """One statement writes many rows where a row may be new; else one statement writes one row."""

    dialect = "mysql"
    column_types = {  # noqa: RUF012 - a constant
        "boolean": "BOOLEAN",
        "integer": "INT",
        "bigint": "BIGINT",
        "double": "DOUBLE",
        "numeric": "DECIMAL(65, 30)",
        "text": "LONGTEXT",
        "timestamp": "DATETIME(6)",
        "date": "DATE",
        "uuid": "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin",
        "json": "JSON",
    }

    def identifiers(self) -> dict[str, str]:
        keys = [(self.quote(name), kind) for name, kind in self.mapping.key_columns]
        same = " AND ".join(f"{_bytewise(name, kind)} = {_bytewise(f'VALUES({name})', kind)}" for name, kind in keys)
        return {
            **self.definitions(),
            "now": "UTC_TIMESTAMP(6)",
            "rows": ROWS,
            "key_definitions": ",\n    ".join(f"{name} {self._key_type(kind)} NOT NULL" for name, kind in keys),
            "same_key": same,
            "newer": f"{same} AND {_older('VALUES(version_generation)', 'VALUES(version_offset)')}",
            "bound_key": " AND ".join(f"{name} = %(key_{index})s" for index, (name, _) in enumerate(keys)),
            "bound_newer": _older("%(generation)s", "%(offset)s"),
        }

    def merging(self, shape: Shape) -> dict[str, str]:
        kinds = [kind for _, kind in self.mapping.fields]
        columns = [
            (column, empties, kind) for (column, empties), kind in zip(self.null_flags(shape), kinds, strict=True)
        ]
        taken = "version_generation = VALUES(version_generation) AND version_offset = VALUES(version_offset)"
        listed = [(column, _merge(f"VALUES({column})", column, empties), kind) for column, empties, kind in columns]
        bound = [
            (column, _merge(f"%(value_{index})s", column, empties), kind)
            for index, (column, empties, kind) in enumerate(columns)
        ]
        same_key = self.identifiers()["same_key"]
        return {
            "assignments": ",\n    ".join(
                f"{column} = IF({same_key} AND {taken}, {new}, {column})" for column, new, _ in listed
            ),
            "condition": "TRUE" if shape.wavered else _differs(listed),
            "bound_assignments": ",\n    ".join(f"{column} = {new}" for column, new, _ in bound),
            "bound_condition": "TRUE" if shape.wavered else _differs(bound),
        }

    def _key_type(self, kind: str) -> str:
        """Text columns share the size limit of an index."""
        if kind != "text":
            return self.column_types[kind]
        others = [other for _, other in self.mapping.key_columns if other != "text"]
        available = _INDEX_BYTES - sum(36 if other == "uuid" else 8 for other in others)
        return f"VARCHAR({available // _CHARACTER_BYTES // (len(self.mapping.key_columns) - len(others))})"


def _merge(new: str, column: str, empties: bool) -> str:
    return new if empties else f"COALESCE({new}, {column})"


def _older(generation: str, offset: str) -> str:
    equal = f"version_generation = {generation} AND version_offset < {offset}"
    return f"(version_generation < {generation} OR ({equal}))"


def _differs(columns: list[tuple[str, str, str]]) -> str:
    same = " AND ".join(f"{_bytewise(column, kind)} <=> {_bytewise(new, kind)}" for column, new, kind in columns)
    return f"NOT ({same})"


def _bytewise(expression: str, kind: str) -> str:
    """For comparisons: whatever the collation of a column, texts are compared byte by byte."""
    return f"CAST({expression} AS BINARY)" if kind == "text" else expression
