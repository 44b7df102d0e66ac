"""PostgreSQL's statements for one mapping, and the arrays that are bound to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inorder.ports.table_store import NULL, FoldedRow, RowKey
from inorder.stores.postgres import arrays
from inorder.stores.table_sql import TableSql
from inorder.stores.table_writer import Shape, columns_of, key_columns_of

_NUMBERS = ("boolean", "integer", "bigint", "double")


class PostgresTableSql(TableSql):
    """A list of rows is an array a column."""

    dialect = "postgres"
    column_types = {  # noqa: RUF012 - never changed, and typed so in the base
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
        keys = [(self.quoted(name), self.column_types[kind]) for name, kind in self.mapping.key_columns]
        kinds = [self.column_types[kind] for _, kind in self.mapping.fields]
        columns = [self.quoted(name) for name in self.mapping.columns]
        key_arrays = ", ".join(f"%(key_{index})s::{kind}[]" for index, (_, kind) in enumerate(keys))
        value_arrays = ", ".join(f"%(values_{index})s::{kind}[]" for index, kind in enumerate(kinds))
        named, offsets = self.definitions(), "%(offsets)s::bigint[]"
        key_list, all_columns = named["keys"], f"{named['keys']}, {named['columns']}, version_offset"
        # The driver would make an object of a uuid.
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
            for column, empties in self.emptied(shape)
        }
        stored = ", ".join(f"t.{column}" for column in merged)
        changes = f"ROW({stored}) IS DISTINCT FROM ROW({', '.join(merged.values())})"
        return {
            "assignments": ",\n        ".join(f"{column} = {new}" for column, new in merged.items()),
            "condition": "true" if shape.wavered else changes,
        }

    def keys_bound(self, keys: Sequence[RowKey]) -> dict[str, str]:
        """The arrays of the key's columns."""
        columns = key_columns_of(keys)
        kinds = [kind for _, kind in self.mapping.key_columns]
        return {f"key_{index}": _array(kind, columns[index]) for index, kind in enumerate(kinds)}

    def versions_bound(self, rows: Sequence[FoldedRow]) -> dict[str, str]:
        """The arrays of the key's columns and of the offsets."""
        return {**self.keys_bound([row.key for row in rows]), "offsets": arrays.numbers([row.offset for row in rows])}

    def rows_bound(self, shape: Shape, rows: Sequence[FoldedRow]) -> dict[str, str]:
        """The arrays of all columns."""
        bound = self.versions_bound(rows)
        columns: list[Sequence[Any]] = columns_of(rows)
        for index, (_, kind) in enumerate(self.mapping.fields):
            column = columns[index]
            if shape.emptied and shape.emptied[index]:
                column = [None if value is NULL else value for value in column]
            bound[f"values_{index}"] = _array(kind, column)
        return bound


def _array(kind: str, column: Sequence[Any]) -> str:
    return arrays.numbers(column) if kind in _NUMBERS else arrays.texts(column)
