"""The statements of `table.sql` for one mapping; each is made once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from inorder.outbox.layouts import quoted_table
from inorder.pipeline.mapping import RESERVED_COLUMNS, TableMapping
from inorder.stores.database import Dialect, statements_of
from inorder.stores.table_writer import Shape

_INSTALLED = ("create_pointer", "create_dead_letter", "create_tombstone", "create_table")


class TableSql(ABC):
    """Statements by name, and those that write rows by their shape."""

    dialect: ClassVar[Dialect]
    column_types: ClassVar[Mapping[str, str]]

    def __init__(self, mapping: TableMapping) -> None:
        self.mapping = mapping
        self._statements = statements_of(self.dialect, "table.sql")
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
