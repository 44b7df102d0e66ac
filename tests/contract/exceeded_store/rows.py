"""Outbox tables of every layout on every database, with rows in them."""

from __future__ import annotations

from typing import Any

from inorder.database.database import Database
from inorder.outbox.layouts import install_statements, layout
from inorder.relay.stores.ports import Exceeding


def exceeding(id: int, *, parks: bool = True) -> Exceeding:
    return Exceeding(id, 5, "RECORD-001", "too large", parks)


def make_table(database: Database, layout_name: str = "native", table: str = "outbox") -> None:
    database.install(install_statements(layout_name, database.dialect, table))


def insert(database: Database, *, table: str = "outbox", **columns: Any) -> None:
    """Adds one row as its writer would."""
    quote = "`" if database.dialect == "mysql" else '"'
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    values = ", ".join(f"%({name})s" for name in columns)
    with database.transaction() as transaction:
        transaction.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", columns)


def exactly(database: Database, layout_name: str = "native", table: str = "outbox") -> list[tuple[Any, ...]]:
    """Every row with every column, in id order, as the driver gives it."""
    order = layout(layout_name, database.dialect).id
    with database.transaction() as transaction:
        return transaction.execute(f"SELECT * FROM {table} ORDER BY {order}").rows
