"""Stores under test, each with a look at its contents past the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from inorder.database.database import moment, open_database
from inorder.database.sql import quoted_table
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.status import unknown_fields
from inorder.pipeline.stores.ports import TableStore
from inorder.pipeline.stores.table import SqlTableStores
from tests.fakes.table_store import MemoryTableStore, StoredRow

MAPPING = TableMapping("demo", "upsert", "messages", keyless="apply")
"""Slices of these tests have no record keys."""
Rows = dict[object, tuple[object, ...]]
Letter = tuple[int, str, bytes | None, bytes | None, datetime | None]


class Place(Protocol):
    """A database, or a fake of one."""

    def open(self, mapping: TableMapping = MAPPING) -> TableStore:
        """A store for one thread, its tables made."""

    def rows(self, mapping: TableMapping = MAPPING) -> Rows:
        """By key the values and, last, the offset of the version."""

    def tombstones(self) -> dict[bytes, int]:
        """The offsets of deletes by key."""

    def letters(self) -> list[Letter]:
        """Dead letters by offset."""

    def counted(self) -> int:
        """Records counted by the pointer rows."""

    def unknown(self) -> dict[str, int]:
        """Fields that the mapping does not name, of the one pointer."""

    def lose_pointers(self) -> None:
        """Deletes the pointers: it is unknown what was applied."""

    def insert_empty(self, keys: Sequence[int]) -> None:
        """Inserts rows as another program would: a key and nothing else."""

    def close(self) -> None:
        """Closes all stores."""


class Memory:
    """The store in memory; one mapping a test."""

    def __init__(self) -> None:
        self._store: MemoryTableStore | None = None
        self._mapping: TableMapping | None = None

    def open(self, mapping: TableMapping = MAPPING) -> TableStore:
        self._mapping = mapping
        self._store = self._store or MemoryTableStore(mapping.mode)
        return self._store

    @property
    def store(self) -> MemoryTableStore:
        return self._store or MemoryTableStore()

    def rows(self, mapping: TableMapping = MAPPING) -> Rows:
        assert mapping.columns == (self._mapping or mapping).columns
        return {key: (*row.values, row.version[1]) for key, row in self.store.contents.rows.items()}

    def tombstones(self) -> dict[bytes, int]:
        return {str(key).encode(): version[1] for key, version in self.store.contents.tombstones.items()}

    def letters(self) -> list[Letter]:
        stored = sorted(self.store.contents.letters.items())
        return [(at[2], one.code, one.key, one.value, one.timestamp) for at, one in stored]

    def counted(self) -> int:
        tallies = [tally for place in self.store.contents.tallies.values() for tally in place]
        written = sum(one.written.applied + one.written.identical + one.written.stale for one in tallies)
        return written + sum(one.ignored + one.rejected for one in tallies)

    def unknown(self) -> dict[str, int]:
        [found] = self.store.contents.unknown.values()
        return found

    def lose_pointers(self) -> None:
        self.store.contents.pointers.clear()

    def insert_empty(self, keys: Sequence[int]) -> None:
        self.store.contents.rows.update({key: StoredRow((None, None), (0, -1)) for key in keys})

    def close(self) -> None:
        """Memory needs no connection."""


class Sql:
    """A database by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.looking = open_database(url, "test")
        self._opened: list[TableStore] = []
        self._is_installed = False

    @property
    def dialect(self) -> str:
        """Which SQL it speaks."""
        return self.looking.dialect

    def open(self, mapping: TableMapping = MAPPING) -> TableStore:
        store = SqlTableStores(self.url, mapping)()
        self._opened.append(store)
        if not self._is_installed:
            store.install()
            self._is_installed = True
        return store

    def look(self, statement: str, **bound: Any) -> list[tuple[Any, ...]]:
        """Runs a statement beside the stores; names in {braces} are quoted as the dialect wants it."""
        names = ("partition", "offset", "key", "value")
        quoted = {name: quoted_table(self.looking.dialect, name) for name in names}
        return self.looking.execute(statement.format(**quoted), bound).rows

    def rows(self, mapping: TableMapping = MAPPING) -> Rows:
        columns = (*mapping.key_names, *mapping.columns, "version_offset")
        listed = ", ".join(quoted_table(self.looking.dialect, column) for column in columns)
        kinds = [kind for _, kind in mapping.fields]
        width = len(mapping.key_names)
        found: Rows = {}
        for row in self.look(f"SELECT {listed} FROM {mapping.table}"):
            values = [_plain(value, kind) for value, kind in zip(row[width:-1], kinds, strict=True)]
            found[row[0] if width == 1 else row[:width]] = (*values, row[-1])
        return found

    def tombstones(self) -> dict[bytes, int]:
        return {bytes(key): offset for key, offset in self.look("SELECT {key}, version_offset FROM inorder_tombstone")}

    def letters(self) -> list[Letter]:
        found = self.look("SELECT {offset}, code, {key}, {value}, record_timestamp FROM inorder_dead_letter ORDER BY 1")
        return [(*row[:4], None if row[4] is None else moment(row[4])) for row in found]

    def counted(self) -> int:
        names = ("applied", "identical", "stale", "ignored", "rejected")
        [(count,)] = self.look(f"SELECT SUM({' + '.join(f'records_{name}' for name in names)}) FROM inorder_pointer")
        return int(count or 0)

    def unknown(self) -> dict[str, int]:
        return unknown_fields(self.looking, [MAPPING.pipeline])

    def lose_pointers(self) -> None:
        self.look("DELETE FROM inorder_pointer")

    def insert_empty(self, keys: Sequence[int]) -> None:
        for key in keys:
            self.look("INSERT INTO messages (id) VALUES (%(key)s)", key=key)

    def truncate(self) -> None:
        """An empty table, as after an installation; stores of earlier examples are closed."""
        self._close_stores()
        if self._is_installed:
            for table in ("messages", "inorder_pointer", "inorder_tombstone", "inorder_dead_letter"):
                self.look(f"DELETE FROM {table}")

    def close(self) -> None:
        self._close_stores()
        self.looking.close()

    def _close_stores(self) -> None:
        for store in self._opened:
            store.close()
        self._opened.clear()


def _plain(value: Any, kind: str) -> object:
    """As the message had it: not every database has booleans."""
    return bool(value) if kind == "boolean" and value is not None else value
