"""SQLite's statements for one mapping."""

from __future__ import annotations

from inorder.stores.table_sql import TableSql
from inorder.stores.table_writer import Shape


class SQLiteTableSql(TableSql):
    """A row is a statement, so its values are bound by name."""

    dialect = "sqlite"
    # The names tell people what is meant. Those that SQLite would take for numbers, and round, are spelt as text.
    column_types = {  # noqa: RUF012 - never changed, and typed so in the base
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
        keys = [self.quoted(name) for name in self.mapping.key_names]
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
            for index, (column, empties) in enumerate(self.emptied(shape))
        ]
        changes = " OR ".join(f"t.{column} IS NOT {new}" for column, new in merged)
        return {
            "assignments": ",\n    ".join(f"{column} = {new}" for column, new in merged),
            "condition": "TRUE" if shape.wavered else f"({changes})",
        }
