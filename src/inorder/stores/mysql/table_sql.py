"""The statements of MySQL and MariaDB for one mapping."""

from __future__ import annotations

from inorder.stores.table_sql import TableSql
from inorder.stores.table_writer import Shape

ROWS = "{rows}"
"""Stands in a statement where tuples are put in."""

_INDEX_BYTES = 3072
"""What InnoDB takes for all columns of a key together."""
_CHARACTER_BYTES = 4


class MySQLTableSql(TableSql):
    """Many rows are one statement where a row may be new, and one each where it may not."""

    dialect = "mysql"
    column_types = {  # noqa: RUF012 - never changed, and typed so in the base
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
        keys = [(self.quoted(name), kind) for name, kind in self.mapping.key_columns]
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
        columns = [(column, empties, kind) for (column, empties), kind in zip(self.emptied(shape), kinds, strict=True)]
        taken = "version_generation = VALUES(version_generation) AND version_offset = VALUES(version_offset)"
        listed = [(column, _merged(f"VALUES({column})", column, empties), kind) for column, empties, kind in columns]
        bound = [
            (column, _merged(f"%(value_{index})s", column, empties), kind)
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
        """Texts share the room that an index has; the names of the collations are the servers' own."""
        if kind != "text":
            return self.column_types[kind]
        others = [other for _, other in self.mapping.key_columns if other != "text"]
        room = _INDEX_BYTES - sum(36 if other == "uuid" else 8 for other in others)
        return f"VARCHAR({room // _CHARACTER_BYTES // (len(self.mapping.key_columns) - len(others))})"


def _merged(new: str, column: str, empties: bool) -> str:
    return new if empties else f"COALESCE({new}, {column})"


def _older(generation: str, offset: str) -> str:
    equal = f"version_generation = {generation} AND version_offset < {offset}"
    return f"(version_generation < {generation} OR ({equal}))"


def _differs(columns: list[tuple[str, str, str]]) -> str:
    same = " AND ".join(f"{_bytewise(column, kind)} <=> {_bytewise(new, kind)}" for column, new, kind in columns)
    return f"NOT ({same})"


def _bytewise(expression: str, kind: str) -> str:
    """As it is compared: whatever the collation of a column, two texts are the same only byte by byte."""
    return f"CAST({expression} AS BINARY)" if kind == "text" else expression
