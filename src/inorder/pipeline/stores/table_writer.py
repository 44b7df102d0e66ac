"""How the rows of a slice are written, whatever the dialect; the statements are the subclasses'.

A key has a row, or a tombstone, or neither, and never both: a delete takes the row away and leaves the tombstone, an
update that is newer makes the row and takes the tombstone away. Tombstones are in a table of their own, so readers of
the target never see a deleted row. Whether a pipeline has any is read with its pointer; if not, they cost nothing.

Rows are written in groups that one statement can write: those that wavered, and those that empty the same columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from inorder.database.database import Dialect, statements_of
from inorder.database.sql import quoted_table
from inorder.model.errors import RejectedError
from inorder.model.names import RESERVED_COLUMNS
from inorder.pipeline.mapping import TableMapping, encoded_key
from inorder.pipeline.stores.ports import NULL, DeadLetter, FoldedRow, LetterPlace, RowKey, Written

Version: TypeAlias = tuple[int, int]

LETTER_BYTES = 8_000_000
"""What one statement carries of dead letters, before escapes."""


class Shape(NamedTuple):
    """What rows must have in common to be written by one statement."""

    wavered: bool
    emptied: tuple[bool, ...]
    """For each field, whether null is written to it; empty for none."""


class TableWriter(ABC):
    """The rows of one mapping in one transaction."""

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self.has_tombstones = False
        """Whether the pipeline has any; to be set when the pointer is locked."""
        self._must_haves: int | None = None

    def write(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        """Writes rows of distinct keys; see `SliceTransaction.upsert`."""
        written = Written()
        if self.has_tombstones:
            rows, written = self._past_tombstones(rows, generation)
        for shape, group in shapes([row for row in rows if row.values is not None], self.mapping.nulls):
            written += self._put_and_count(shape, group, generation)
        if deleted := [row for row in rows if row.values is None]:
            written += self._delete(deleted, generation)
        return written

    def write_each(
        self,
        rows: Sequence[FoldedRow],  # noqa: ARG002 - for those who have a quick way
        generation: int,  # noqa: ARG002
    ) -> Sequence[Written | RejectedError] | None:
        """See `SliceTransaction.upsert_each`; the savepoint of `isolated` is there, and must be when it returns."""
        return None

    def version(self, key: RowKey) -> Version | None:
        """The version of a row or of its tombstone."""
        found = self.versions([key])
        return found[key] if found else self.tombstones([encoded_key(key)]).get(encoded_key(key))

    @property
    def letter_bytes(self) -> int:
        """What a statement may carry of dead letters, before escapes."""
        return LETTER_BYTES

    @abstractmethod
    def put(self, mode: str, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        """Writes as a mode does what is newer and different; returns the keys written, None for all."""

    @abstractmethod
    def must_have(self) -> int:
        """How many columns a new row must have a value for that a message may lack."""

    @abstractmethod
    def remove(self, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey]:
        """Takes rows away that are older; returns their keys."""

    @abstractmethod
    def versions(self, keys: Sequence[RowKey]) -> Mapping[RowKey, Version]:
        """Of the rows that are there."""

    @abstractmethod
    def tombstones(self, keys: Sequence[bytes]) -> Mapping[bytes, Version]:
        """Of the keys that have one."""

    @abstractmethod
    def entomb(self, versions: Mapping[bytes, Version]) -> None:
        """Makes tombstones, or moves them to these versions."""

    @abstractmethod
    def revive(self, keys: Sequence[bytes]) -> None:
        """Takes tombstones away."""

    @abstractmethod
    def bury(self, place: LetterPlace, generation: int, letters: Sequence[DeadLetter]) -> None:
        """Stores dead letters, one statement; one that is there stays as it is."""

    def _past_tombstones(self, rows: Sequence[FoldedRow], generation: int) -> tuple[list[FoldedRow], Written]:
        """The rows that are newer than their tombstones, and the figures of the others."""
        keys = [encoded_key(row.key) for row in rows]
        found = self.tombstones(keys)
        older = {key for key, row in zip(keys, rows, strict=True) if found.get(key, _NEVER) >= (generation, row.offset)}
        newer = [row for key, row in zip(keys, rows, strict=True) if key not in older]
        return newer, Written(stale=_records(row for key, row in zip(keys, rows, strict=True) if key in older))

    def _put_and_count(self, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> Written:
        keys = self._put(shape, rows, generation)
        done = rows if keys is None else [row for row in rows if row.key in keys]
        if self.has_tombstones and done:
            self.revive([encoded_key(row.key) for row in done])
        written = Written(applied=_records(done))
        return written if keys is None else written + self._left([r for r in rows if r.key not in keys], generation)

    def _put(self, shape: Shape, rows: Sequence[FoldedRow], generation: int) -> frozenset[RowKey] | None:
        """Writes by the mapping's mode.

        Databases check a new row before they find that it is there already. So where a message may lack what a new
        row must have, rows that are there are updated, and only the others are inserted.
        """
        if self.mapping.mode != "upsert" or not self._has_must_haves():
            return self.put(self.mapping.mode, shape, rows, generation)
        there = self.versions([row.key for row in rows])
        written: set[RowKey] = set()
        for mode, is_there in (("update", True), ("upsert", False)):
            if some := [row for row in rows if (row.key in there) is is_there]:
                keys = self.put(mode, shape, some, generation)
                written.update((row.key for row in some) if keys is None else keys)
        return frozenset(written)

    def _has_must_haves(self) -> bool:
        if self._must_haves is None:
            self._must_haves = self.must_have()
        return self._must_haves > 0

    def _left(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        """The figures of rows that were not written."""
        versions = self.versions([row.key for row in rows])
        if self.mapping.mode != "update" and (missing := [row for row in rows if row.key not in versions]):
            raise RejectedError(
                f"The row {missing[0].key!r} is not in table {self.mapping.table!r} after it was written:"
                " another unique key of the table, or a trigger, does not let it in."
            )
        stale = [row for row in rows if versions.get(row.key, _NEVER) >= (generation, row.offset)]
        older = [row for row in rows if row.key in versions and versions[row.key] < (generation, row.offset)]
        return Written(stale=_records(stale), identical=0 if self.mapping.mode == "insert" else _records(older))

    def _delete(self, rows: Sequence[FoldedRow], generation: int) -> Written:
        removed = self.remove(rows, generation)
        left = self.versions([row.key for row in rows if row.key not in removed]) if len(removed) < len(rows) else {}
        gone = [row for row in rows if row.key not in left]
        self.entomb({encoded_key(row.key): (generation, row.offset) for row in gone})
        self.has_tombstones = True
        changed = [row for row in gone if row.key in removed or row.wavered]
        return Written(
            applied=_records(changed),
            identical=_records(gone) - _records(changed),
            stale=_records(row for row in rows if row.key in left),
        )


_NEVER: Version = (-1, -1)


def columns_of(rows: Sequence[FoldedRow]) -> list[Sequence[Any]]:
    """The values of the rows, field by field."""
    return list(zip(*[row.values or () for row in rows], strict=True))


def key_columns_of(keys: Sequence[RowKey]) -> list[Sequence[Any]]:
    """The keys, column by column."""
    several = [key for key in keys if isinstance(key, tuple)]
    return list(zip(*several, strict=True)) if several else [keys]


def key_of(parts: Sequence[Any]) -> RowKey:
    """A key from its columns."""
    key: RowKey = parts[0] if len(parts) == 1 else tuple(parts)
    return key


def letters_in_portions(letters: Sequence[DeadLetter], limit: int) -> Iterator[Sequence[DeadLetter]]:
    """The letters in portions that a statement can carry; a larger one goes alone."""
    start = size = 0
    for index, letter in enumerate(letters):
        size += len(letter.value or b"") + len(letter.key or b"") + len(letter.detail)
        if size > limit and index > start:
            yield letters[start:index]
            start, size = index, len(letter.value or b"")
    yield letters[start:]


def _records(rows: Iterable[FoldedRow]) -> int:
    return sum([row.records for row in rows])


def shapes(rows: Iterable[FoldedRow], nulls: str) -> Iterable[tuple[Shape, list[FoldedRow]]]:
    """The rows by what one statement can write."""
    groups: dict[Shape, list[FoldedRow]] = {}
    steady, wavered = Shape(wavered=False, emptied=()), Shape(wavered=True, emptied=())
    empties = nulls == "write"
    for row in rows:
        shape = wavered if row.wavered else steady
        # Without nulls in messages, only a row that was deleted and made again in one slice empties columns.
        if empties or row.wavered:
            emptied = tuple([value is NULL for value in row.values or ()])
            shape = Shape(row.wavered, emptied) if True in emptied else shape
        groups.setdefault(shape, []).append(row)
    return groups.items()


# The statements of `table.sql` for one mapping; each is made once.

_INSTALLED = ("create_pointer", "create_dead_letter", "create_tombstone", "create_table")


class TableSql(ABC):
    """Statements by name, and those that write rows by their shape."""

    dialect: ClassVar[Dialect]
    column_types: ClassVar[Mapping[str, str]]

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self._statements = statements_of("inorder.pipeline", self.dialect, "table.sql")
        words = ("partition", "offset", "key", "value")
        self._identifiers = {**{word: self.quoted(word) for word in words}, **self.identifiers()}
        self._made: dict[str | tuple[str, Shape], str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._made:
            self._made[name] = self._statements.render(name, **self._identifiers)
        return self._made[name]

    def __contains__(self, name: str) -> bool:
        return name in self._statements

    def put(self, mode: str, shape: Shape) -> str:
        """The statement that writes rows of a shape as a mode does."""
        if (mode, shape) not in self._made:
            merged = self._identifiers | self.merging(shape)
            self._made[mode, shape] = self._statements.render(f"put_{mode}", **merged)
        return self._made[mode, shape]

    def table_bound(self) -> dict[str, str | None]:
        """The table as statements about tables want it: as it is written, or its schema and its name."""
        schema, _, name = self.mapping.table.rpartition(".")
        return {"table": self.quoted(self.mapping.table), "schema": schema or None, "name": name}

    def install(self) -> list[str]:
        """What makes a pipeline's tables, for running or for printing."""
        return [self[name] for name in _INSTALLED]

    def quoted(self, name: str) -> str:
        """A name in the dialect's quotes."""
        return quoted_table(self.dialect, name)

    @abstractmethod
    def identifiers(self) -> dict[str, str]:
        """What the statements put in, by name."""

    @abstractmethod
    def merging(self, shape: Shape) -> dict[str, str]:
        """What becomes of a row that is there: a null keeps a column that the shape does not empty."""

    def definitions(self) -> dict[str, str]:
        """What the statements of all dialects put in: names of the table and the columns, and their types."""
        keys = [(self.quoted(name), self.column_types[kind]) for name, kind in self.mapping.key_columns]
        fields = [(self.quoted(name), self.column_types[kind]) for name, kind in self.mapping.fields]
        return {
            "table": self.quoted(self.mapping.table),
            # A name of ours has no quote in it (mapping.py).
            "own_names": ", ".join(f"'{name}'" for name in (*self.mapping.key_names, *RESERVED_COLUMNS)),
            "field_names": ", ".join(f"'{name}'" for name in self.mapping.columns),
            "keys": ", ".join(name for name, _ in keys),
            "columns": ", ".join(name for name, _ in fields),
            "key_definitions": ",\n    ".join(f"{name} {kind} NOT NULL" for name, kind in keys),
            "definitions": ",\n    ".join(f"{name} {kind}" for name, kind in fields),
        }

    def emptied(self, shape: Shape) -> list[tuple[str, bool]]:
        """The value columns, quoted, each with whether the shape empties it."""
        flags = shape.emptied or (False,) * len(self.mapping.fields)
        return list(zip(map(self.quoted, self.mapping.columns), flags, strict=True))
