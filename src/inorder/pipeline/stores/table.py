"""The SQL store of a target table with its pointers and dead letters: what all dialects have in common.

`SqlTableStore` is the `TableStore` of every dialect. It is built from three parts that a dialect implements: a
`TableSession` (one connection), a `TableSql` (the statements of `table.sql` for one mapping) and a `TableWriter` (how
rows are written with them).

A key has a row, or a tombstone, or neither, and never both: a delete removes the row and leaves a tombstone; a newer
update creates the row and removes the tombstone. Tombstones are in a table of their own, so readers of the target never
see a deleted row. Whether a pipeline has any is read with its pointer; if not, they cost nothing.

Rows are written in groups that one statement can write (`Shape`): those that wavered, and those that set the same
columns to null.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

import orjson

from inorder.database.database import NOTHING_BOUND, Dialect, Result, dialect_of, statements_of
from inorder.database.sql import quoted_table
from inorder.engines.slice_work import Pointer
from inorder.model.errors import ConfigurationError, InorderError, RejectedError
from inorder.model.names import RESERVED_COLUMNS
from inorder.pipeline.mapping import TableMapping, encode_key
from inorder.pipeline.stores.dead_letters import settle
from inorder.pipeline.stores.ports import (
    NULL,
    DeadLetter,
    FoldedRow,
    LetterPlace,
    RowKey,
    SliceCounters,
    SliceTransaction,
    TableStore,
    WriteCounts,
    add_unknown,
)

Version: TypeAlias = tuple[int, int]

LETTER_BYTES = 8_000_000
"""How much of dead letters one statement carries, before escaping."""

_NEVER: Version = (-1, -1)
_TARGET = "create_table"
_INSTALLED = ("create_pointer", "add_pointer", "create_dead_letter", "create_tombstone", _TARGET)
"""Statements, or prefixes of several, in their order."""


class SqlTableStore:
    """A `TableStore` on one session."""

    def __init__(self, session: TableSession, statements: TableSql, writer: TableWriter) -> None:
        self._session = session
        self._statements = statements
        self._writer = writer
        self._mapping = statements.mapping

    def install(self) -> None:
        self._session.install(self._statements.install())
        if not self._mapping.target:
            self.check()

    def check(self) -> None:
        table = self._statements.table_bound()
        with self._transaction("check"):
            columns = self._session.execute(self._statements["existing_columns"], table).rows
            keys = self._session.execute(self._statements["existing_keys"], table).rows
        check_columns(self._mapping, {name: bool(not_null) for name, not_null in columns})
        check_keys(self._mapping, [orjson.loads(names) for (names,) in keys])

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        with self._transaction("pointers"):
            return self._read_pointers(topic)

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        found = self.pointers(topic)
        missing = [number for number in firsts if number not in found]
        if not missing and (topic_id is None or all(one.topic_id is not None for one in found.values())):
            return found
        bound = {"pipeline": self._mapping.pipeline, "topic": topic, "topic_id": topic_id}
        generation = max([one.generation for one in found.values()] or [self._newest_generation()])
        with self._transaction(f"pointers of {topic}"):
            for number in missing:
                row = {"partition": number, "generation": generation, "next_offset": firsts[number]}
                self._session.execute(self._statements["begin_pointer"], bound | row)
            self._session.execute(self._statements["adopt_topic"], bound)
            return self._read_pointers(topic)

    def _newest_generation(self) -> int:
        """The highest generation in the table, which is 0 before the first record.

        Pointers that were lost begin in it. In a lower one, every record of a topic that was reset would be stale.
        """
        if self._mapping.target:
            return 0
        with self._transaction("generation"):
            rows = self._session.execute(self._statements["newest_version"], {"pipeline": self._mapping.pipeline}).rows
        return rows[0][0] or 0

    def _read_pointers(self, topic: str) -> dict[int, Pointer]:
        bound = {"pipeline": self._mapping.pipeline, "topic": topic}
        return {
            number: Pointer(*rest) for number, *rest in self._session.execute(self._statements["pointers"], bound).rows
        }

    @contextmanager
    def slice_transaction(self, topic: str, partition: int) -> Iterator[SliceTransaction]:
        place = LetterPlace(self._mapping.pipeline, topic, partition)
        with self._transaction(f"{topic}[{partition}]"):
            yield _Transaction(self._session, self._statements, self._writer, place)

    def note_waiting(self, topic: str, partition: int, reason: str) -> None:
        bound = {"pipeline": self._mapping.pipeline, "topic": topic, "partition": partition, "reason": reason}
        with self._transaction(f"{topic}[{partition}]"):
            self._session.execute(self._statements["note_waiting"], bound)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _transaction(self, where: str) -> Iterator[None]:
        self._session.begin()
        try:
            yield
        except BaseException:
            self._session.rollback()
            # The table may have changed: a column became NOT NULL, a trigger was added, the table was replaced.
            self._writer.forget_shape()
            raise
        # What is deferred to the commit are triggers and constraints of the target; inorder's own tables have none.
        with _target_errors():
            self._session.commit(where)


class _Transaction:
    """The `SliceTransaction` of every dialect."""

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
            self._execute("begin_pointer", generation=0, next_offset=0, topic_id=None)
            rows = self._execute("lock_pointer").rows
        [(next_offset, self._generation, topic_id, end, has_tombstones)] = rows
        self._writer.has_tombstones = bool(has_tombstones)
        return Pointer(next_offset, self._generation, topic_id, end)

    def partitions(self) -> int:
        return int(self._execute("count_pointers").rows[0][0])

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._save()
        try:
            yield
        except InorderError:
            # If the connection is lost, so is the transaction, and the first error says more.
            with suppress(InorderError):
                self._execute("undo")
            raise
        self._execute("release")
        self._has_savepoint = False

    def upsert(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        return self._writer.write(rows, generation)

    def upsert_each(self, rows: Sequence[FoldedRow], generation: int) -> Sequence[WriteCounts | RejectedError] | None:
        self._save()
        with _target_errors():
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

    def note_unknown(self, fields: Mapping[str, int]) -> None:
        [(text,)] = self._execute("read_unknown").rows
        found = add_unknown(orjson.loads(text) if text else {}, fields)
        self._execute("note_unknown", unknown_fields=orjson.dumps(found).decode())

    def move_pointer(self, next_offset: int, counters: SliceCounters, leader_epoch: int | None = None) -> None:
        self._execute(
            "move_pointer",
            next_offset=next_offset,
            leader_epoch=leader_epoch,
            applied=counters.written.applied,
            identical=counters.written.identical,
            stale=counters.written.stale,
            ignored=counters.ignored,
            rejected=counters.rejected,
        )

    def _save(self) -> None:
        """Sets a savepoint; from then on, constraints are checked immediately."""
        if self._checks_late:
            self._execute("check_now")
            self._checks_late = False
        # ROLLBACK TO keeps the savepoint, so it serves again.
        if not self._has_savepoint:
            self._execute("isolate")
            self._has_savepoint = True

    def _execute(self, name: str, **bound: Any) -> Result:
        return self._session.execute(self._statements[name], {**self._place._asdict(), **bound})


@contextmanager
def _target_errors() -> Iterator[None]:
    """Says of an error of a statement that its target is at fault, and none of inorder's own tables."""
    try:
        yield
    except ConfigurationError as error:
        error.is_of_target = True
        raise


class Shape(NamedTuple):
    """What rows must have in common to be written by one statement."""

    wavered: bool
    emptied: tuple[bool, ...]
    """For each field, whether it is set to null; empty for none."""


class TableWriter(ABC):
    """Writes rows of one mapping; a dialect implements the statements."""

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self.has_tombstones = False
        """Whether the pipeline has any; set when the pointer is locked."""
        self._required_columns: int | None = None

    def write(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        """Writes rows of distinct keys; see `SliceTransaction.upsert`."""
        written = WriteCounts()
        if self.has_tombstones:
            rows, written = self._past_tombstones(rows, generation)
        for shape, group in shapes([row for row in rows if row.values is not None], self.mapping.nulls):
            written += self._put_and_count(shape, group, generation)
        if deleted := [row for row in rows if row.values is None]:
            written += self._delete(deleted, generation)
        return written

    def write_each(
        self,
        rows: Sequence[FoldedRow],  # noqa: ARG002 - used by dialects with a quick way
        generation: int,  # noqa: ARG002
    ) -> Sequence[WriteCounts | RejectedError] | None:
        """See `SliceTransaction.upsert_each`; the savepoint of `savepoint` exists before and after."""
        return None

    def forget_shape(self) -> None:
        """Forgets which columns a row requires and what else was read of the table; it is read again when needed."""
        self._required_columns = None

    def version(self, key: RowKey) -> Version | None:
        found = self.versions([key])
        return found[key] if found else self.tombstones([encode_key(key)]).get(encode_key(key))

    @property
    def letter_bytes(self) -> int:
        """How much of dead letters one statement may carry, before escaping."""
        return LETTER_BYTES

    @abstractmethod
    def put(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        """Writes the rows that are newer and different, as `mode` does; returns the keys written, None for all."""

    @abstractmethod
    def count_required_columns(self) -> int:
        """The number of columns that a new row requires and a message may lack."""

    @abstractmethod
    def remove(self, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        """Deletes the rows that are older; returns their keys."""

    @abstractmethod
    def versions(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Version]:
        """The versions of the rows that exist."""

    @abstractmethod
    def tombstones(self, keys: Sequence[bytes]) -> Mapping[bytes, Version]:
        """The versions of the tombstones that exist."""

    @abstractmethod
    def entomb(self, versions: Mapping[bytes, Version]) -> None:
        """Writes tombstones, or moves them to these versions."""

    @abstractmethod
    def revive(self, keys: Sequence[bytes]) -> None:
        """Deletes tombstones."""

    @abstractmethod
    def bury(self, place: LetterPlace, generation: int, letters: Sequence[DeadLetter]) -> None:
        """Stores dead letters in one statement; an existing one stays as it is."""

    def _past_tombstones(self, rows: Sequence[FoldedRow], generation: int) -> tuple[list[FoldedRow], WriteCounts]:
        """The rows that are newer than their tombstones, and the counts of the others."""
        keys = [encode_key(row.key) for row in rows]
        found = self.tombstones(keys)
        older = {key for key, row in zip(keys, rows, strict=True) if found.get(key, _NEVER) >= (generation, row.offset)}
        newer = [row for key, row in zip(keys, rows, strict=True) if key not in older]
        return newer, _stale([row for key, row in zip(keys, rows, strict=True) if key in older])

    def _put_and_count(self, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        with _target_errors():
            keys = self._put(shape, rows, generation)
        done = rows if keys is None else [row for row in rows if row.key in keys]
        if self.has_tombstones and done:
            self.revive([encode_key(row.key) for row in done])
        written = WriteCounts(applied=_records(done))
        if keys is not None:
            written += self._count_unwritten([row for row in rows if row.key not in keys], generation)
        return written

    def _put(self, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        """Writes by the mapping's mode.

        Databases check the constraints of a new row before they find that it exists already. So where a message may
        lack a required column, existing rows are updated, and only the others are inserted.
        """
        if self.mapping.mode != "upsert" or not self._has_required_columns():
            return self.put(self.mapping.mode, shape, rows, generation)
        existing = self.versions([row.key for row in rows])
        written: set[RowKey] = set()
        for mode, exists in (("update", True), ("upsert", False)):
            if some := [row for row in rows if (row.key in existing) is exists]:
                keys = self.put(mode, shape, some, generation)
                written.update((row.key for row in some) if keys is None else keys)
        return frozenset(written)

    def _has_required_columns(self) -> bool:
        if self._required_columns is None:
            self._required_columns = self.count_required_columns()
        return self._required_columns > 0

    def _count_unwritten(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        """The counts of rows that were not written."""
        with _target_errors():
            versions = self.versions([row.key for row in rows])
        if self.mapping.mode != "update" and (missing := [row for row in rows if row.key not in versions]):
            error = RejectedError(
                f"The row {missing[0].key!r} is not in table {self.mapping.table!r} after it was written:"
                " another unique key of the table, or a trigger, rejects it."
            )
            error.state = "not-written"
            raise error
        stale = [row for row in rows if versions.get(row.key, _NEVER) >= (generation, row.offset)]
        older = [row for row in rows if row.key in versions and versions[row.key] < (generation, row.offset)]
        return _stale(stale) + WriteCounts(identical=0 if self.mapping.mode == "insert" else _records(older))

    def _delete(self, rows: Sequence[FoldedRow], generation: int) -> WriteCounts:
        with _target_errors():
            removed = self.remove(rows, generation)
            unremoved = [row.key for row in rows if row.key not in removed]
            left = self.versions(unremoved) if len(removed) < len(rows) else {}
        gone = [row for row in rows if row.key not in left]
        self.entomb({encode_key(row.key): (generation, row.offset) for row in gone})
        self.has_tombstones = True
        changed = [row for row in gone if row.key in removed or row.wavered]
        return WriteCounts(
            applied=_records(changed),
            identical=_records(gone) - _records(changed),
        ) + _stale([row for row in rows if row.key in left])


def columns_of(rows: Sequence[FoldedRow]) -> list[Sequence[Any]]:
    """The values of the rows, field by field."""
    return list(zip(*[row.values or () for row in rows], strict=True))


def key_columns_of(keys: Sequence[RowKey]) -> list[Sequence[Any]]:
    """The keys, column by column."""
    several = [key for key in keys if isinstance(key, tuple)]
    return list(zip(*several, strict=True)) if several else [keys]


def key_of(parts: Sequence[Any]) -> RowKey:
    key: RowKey = parts[0] if len(parts) == 1 else tuple(parts)
    return key


def letters_in_portions(letters: Sequence[DeadLetter], limit: int) -> Iterator[Sequence[DeadLetter]]:
    """Splits letters into portions that one statement can carry; a larger letter is a portion of its own."""
    start = size = 0
    for index, letter in enumerate(letters):
        size += len(letter.value or b"") + len(letter.key or b"") + len(letter.detail)
        if size > limit and index > start:
            yield letters[start:index]
            start, size = index, len(letter.value or b"")
    yield letters[start:]


def _records(rows: Iterable[FoldedRow]) -> int:
    return sum([row.records for row in rows])


def _stale(rows: Sequence[FoldedRow]) -> WriteCounts:
    return WriteCounts(stale=_records(rows), stale_keys=tuple(row.key for row in rows))


def shapes(rows: Iterable[FoldedRow], nulls: str) -> Iterable[tuple[Shape, list[FoldedRow]]]:
    """Groups rows that one statement can write."""
    groups: dict[Shape, list[FoldedRow]] = {}
    steady, wavered = Shape(wavered=False, emptied=()), Shape(wavered=True, emptied=())
    empties = nulls == "write"
    for row in rows:
        shape = wavered if row.wavered else steady
        # Without nulls in messages, only a row that was deleted and created again in one slice has null columns.
        if empties or row.wavered:
            emptied = tuple([value is NULL for value in row.values or ()])
            shape = Shape(row.wavered, emptied) if True in emptied else shape
        groups.setdefault(shape, []).append(row)
    return groups.items()


# What each dialect implements.


class TableSession(ABC):
    """One connection, opened when first needed and again when it was lost; converts the errors of its driver."""

    dialect: Dialect

    @abstractmethod
    def begin(self) -> None:
        """Begins a transaction that waits for locks and sees what their last holders committed."""

    @abstractmethod
    def commit(self, where: str) -> None:
        """Commits; raises `UnknownOutcomeError` if the answer is lost, any other error if the commit failed."""

    @abstractmethod
    def rollback(self) -> None:
        """Rolls back and never raises: the server rolls back what a lost session left open."""

    @abstractmethod
    def execute(self, statement: str, bound: Mapping[str, Any] = NOTHING_BOUND) -> Result: ...

    @abstractmethod
    def install(self, statements: Iterable[str]) -> None:
        """Runs DDL that may be run again, one installer at a time."""

    @abstractmethod
    def close(self) -> None: ...


class TableSql(ABC):
    """The statements of `table.sql` for one mapping, by name, and by shape if they write rows."""

    dialect: ClassVar[Dialect]
    column_types: ClassVar[Mapping[str, str]]

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self._statements = statements_of("inorder.pipeline", self.dialect, "table.sql")
        reserved = ("partition", "offset", "key", "value")
        self._identifiers = {**{word: self.quote(word) for word in reserved}, **self.identifiers()}
        self._rendered: dict[str | tuple[str, Shape], str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._rendered:
            self._rendered[name] = self._statements.render(name, **self._identifiers)
        return self._rendered[name]

    def __contains__(self, name: str) -> bool:
        return name in self._statements

    def put(self, mode: str, shape: Shape) -> str:
        """The statement that writes rows of a shape as a mode does."""
        if (mode, shape) not in self._rendered:
            merged = self._identifiers | self.merging(shape)
            self._rendered[mode, shape] = self._statements.render(f"put_{mode}", **merged)
        return self._rendered[mode, shape]

    def add_column(self, name: str, kind: str) -> str:
        """The DDL of one more column, nullable, of a field type."""
        table, column = self._identifiers["table"], self.quote(name)
        return self._statements.render("add_column", table=table, column=column, kind=self.column_types[kind])

    def table_bound(self) -> dict[str, str | None]:
        """The parameters of statements about the table: its quoted name, and schema and name apart."""
        schema, _, name = self.mapping.table.rpartition(".")
        return {"table": self.quote(self.mapping.table), "schema": schema or None, "name": name}

    def install(self) -> list[str]:
        """The DDL of a pipeline's tables, to run or to print; without the target if that is not in the database."""
        installed = [each for each in _INSTALLED if each != _TARGET or not self.mapping.target]
        return [self[name] for each in installed for name in self._statements if name.startswith(each)]

    def quote(self, name: str) -> str:
        return quoted_table(self.dialect, name)

    @abstractmethod
    def identifiers(self) -> dict[str, str]:
        """The placeholders of the statements, by name."""

    @abstractmethod
    def merging(self, shape: Shape) -> dict[str, str]:
        """The placeholders that update an existing row: a null keeps a column unless the shape sets it to null."""

    def definitions(self) -> dict[str, str]:
        """The placeholders of all dialects: names of the table and the columns, and their types."""
        keys = [(self.quote(name), self.column_types[kind]) for name, kind in self.mapping.key_columns]
        fields = [(self.quote(name), self.column_types[kind]) for name, kind in self.mapping.fields]
        return {
            "table": self.quote(self.mapping.table),
            # Column names contain no quotes (mapping.py).
            "own_names": ", ".join(f"'{name}'" for name in (*self.mapping.key_names, *RESERVED_COLUMNS)),
            "field_names": ", ".join(f"'{name}'" for name in self.mapping.columns),
            "keys": ", ".join(name for name, _ in keys),
            "columns": ", ".join(name for name, _ in fields),
            "key_definitions": ",\n    ".join(f"{name} {kind} NOT NULL" for name, kind in keys),
            "definitions": ",\n    ".join(f"{name} {kind}" for name, kind in fields),
        }

    def null_flags(self, shape: Shape) -> list[tuple[str, bool]]:
        """The value columns, quoted, each with whether the shape sets it to null."""
        flags = shape.emptied or (False,) * len(self.mapping.fields)
        return list(zip(map(self.quote, self.mapping.columns), flags, strict=True))


# Whether an existing table can hold the rows of a mapping.


def check_columns(mapping: TableMapping, columns: Mapping[str, bool]) -> None:
    """Refuses a table that lacks a column or has a nullable version; `columns` maps each to whether it is NOT NULL."""
    table = mapping.table
    wanted = (*mapping.key_names, *mapping.columns, *RESERVED_COLUMNS)
    if missing := [name for name in wanted if name not in columns]:
        raise ConfigurationError(
            f"Table {table!r} exists but lacks: {', '.join(missing)}.",
            hint="`inorder doctor` prints the statements that add them; or name another table.",
        )
    if nullable := [name for name in RESERVED_COLUMNS[:2] if not columns[name]]:
        raise ConfigurationError(
            f"Table {table!r} allows nulls in: {', '.join(nullable)}.",
            hint="Fill them and add NOT NULL: a row without a version cannot be ordered.",
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


# From a dialect to its implementation; drivers that are not used are not imported.


@dataclass(frozen=True, slots=True)
class SqlTableStores:
    """The `TableStores` of a mapping in the database of a SQLAlchemy URL."""

    url: str = field(repr=False)
    """Not in the repr, as it may contain a password."""
    mapping: TableMapping

    def __post_init__(self) -> None:
        dialect_of(self.url)  # refuses a URL of another database at once, not in a Spark task

    def __call__(self) -> TableStore:
        match dialect_of(self.url):
            case "postgres":
                from inorder.pipeline.stores.postgres_table import PostgresTableStore

                return PostgresTableStore(self.url, self.mapping)
            case "mysql":
                from inorder.pipeline.stores.mysql_table import MySQLTableStore

                return MySQLTableStore(self.url, self.mapping)
            case "sqlite":
                from inorder.pipeline.stores.sqlite_table import SQLiteTableStore

                return SQLiteTableStore(self.url, self.mapping)


def table_sql(dialect: Dialect, mapping: TableMapping) -> TableSql:
    """The statements of a mapping; needs no driver."""
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
