"""One row of any table as text, and back again, exactly.

Every column is kept under its name: what the database prints of it, `{"hex": …}` where it is binary, null where it is
null. Text is what every type can be printed as and read from without loss. SQLite has values instead of types, so there
numbers stay numbers, and text that is not UTF-8 is `{"text": …}` in hex.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from inorder.outbox.layouts import quoted_table
from inorder.stores.database import Dialect, Transaction, UndecodableText, statements_of


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type: str
    is_binary: bool


class Originals:
    """Reads and writes whole rows of one table, which people may have given columns of their own."""

    def __init__(self, dialect: Dialect, table: str, id_column: str) -> None:
        self._quote = "`" if dialect == "mysql" else '"'
        self._statements = statements_of(dialect, "original.sql")
        self._table = table
        self._identifiers = {"table": quoted_table(dialect, table), "id": id_column}

    def read(self, transaction: Transaction, id: int) -> str:
        """The row of this id, which must be there, and is locked from now on."""
        columns = self._columns(transaction)
        selected = ", ".join(self._read(column) for column in columns)
        statement = self._statements.render("read", columns=selected, **self._identifiers)
        (row,) = transaction.execute(statement, {"id": id}).rows
        names = [column.name for column in columns]
        return json.dumps(dict(zip(names, map(_stored, row), strict=True)), ensure_ascii=False)

    def put_back(self, transaction: Transaction, original: str, *, without: Collection[str] = ()) -> None:
        """Inserts the row as it was, but for some columns; columns that were dropped since are left out."""
        stored = json.loads(original)
        names = stored.keys() - set(without)
        columns = [column for column in self._columns(transaction) if column.name in names]
        parameters = {f"value{place}": _restored(stored[column.name]) for place, column in enumerate(columns)}
        bound = [self._bound(column, name, parameters[name]) for column, name in zip(columns, parameters, strict=True)]
        statement = self._statements.render(
            "put_back",
            columns=", ".join(self._identifier(column.name) for column in columns),
            values=", ".join(bound),
            **self._identifiers,
        )
        transaction.execute(statement, parameters)

    def _columns(self, transaction: Transaction) -> list[_Column]:
        schema, _, name = self._table.rpartition(".")
        parameters = {"table": self._identifiers["table"], "schema": schema or None, "name": name}
        return [_Column(*row) for row in transaction.execute(self._statements["columns"], parameters).rows]

    def _read(self, column: _Column) -> str:
        name = "read_binary" if column.is_binary else "read_other"
        return self._statements.render(name, column=self._identifier(column.name))

    def _bound(self, column: _Column, parameter: str, value: object) -> str:
        name = "bind_undecodable" if isinstance(value, UndecodableText) else "bind"
        return self._statements.render(name, value=f"%({parameter})s", type=column.type)

    def _identifier(self, name: str) -> str:
        """A column's name, whatever it is made of; a `%` would be taken for a value."""
        escaped = name.replace(self._quote, self._quote * 2).replace("%", "%%")
        return f"{self._quote}{escaped}{self._quote}"


def _stored(value: Any) -> Any:
    match value:
        case UndecodableText():
            return {"text": value.hex()}
        case bytes():
            return {"hex": value.hex()}
        case _:
            return value


def _restored(value: Any) -> Any:
    match value:
        case {"text": text}:
            return UndecodableText(bytes.fromhex(text))
        case {"hex": binary}:
            return bytes.fromhex(binary)
        case _:
            return value
