"""One key in the outbox and in a target table, for people who look for it."""

from __future__ import annotations

from inorder import sql
from inorder.following.hops import TableHop, WaitingRow
from inorder.outbox import layouts
from inorder.pipeline.keys import encoded_key
from inorder.pipeline.mapping import TableMapping
from inorder.ports.table_store import RowKey
from inorder.stores.database import Database
from inorder.stores.moment import moment, written_at

_STATEMENTS = sql.load("inorder.stores", "key_hops.sql")

MOST = 20
"""Rows of the outbox that are shown; the others are counted."""


def waiting_rows(
    database: Database, table: str, layout: str, key: bytes, above: int = -1
) -> tuple[int, tuple[WaitingRow, ...]]:
    """How many rows above an id have the key, and the first of them."""
    found = layouts.layout(layout, database.dialect)
    names = {
        "table": layouts.quoted_table(database.dialect, table),
        "id": found.id,
        "topic": found.topic,
        "key": found.key,
        "written_at": found.written_at,
    }
    bound = {"key": key, "above": above}
    with_most = _STATEMENTS.render("rows_of_key", **names, most=str(MOST))
    first = [WaitingRow(id, topic, written_at(at)) for id, topic, at in database.execute(with_most, bound).rows]
    counting = _STATEMENTS.render("count_of_key", **{name: names[name] for name in ("table", "id", "key")})
    return int(database.execute(counting, bound).rows[0][0]), tuple(first)


def table_row(database: Database, mapping: TableMapping, key: RowKey) -> TableHop:
    """The row of a key with its version, or the tombstone that it left."""
    quoted = {name: layouts.quoted_table(database.dialect, name) for name in (*mapping.key_names, *mapping.columns)}
    parts = key if isinstance(key, tuple) else (key,)
    bound = {f"key_{number}": part for number, part in enumerate(parts)}
    same_key = " AND ".join(f"{quoted[name]} = %(key_{number})s" for number, name in enumerate(mapping.key_names))
    table = layouts.quoted_table(database.dialect, mapping.table)
    statement = _STATEMENTS.render("row_of_key", table=table, columns=", ".join(quoted.values()), same_key=same_key)
    rows = database.execute(statement, bound).rows
    if not rows:
        return _deleted(database, mapping, encoded_key(key))
    *values, generation, offset, updated_at = rows[0]
    row = {**dict(zip(quoted, values, strict=True)), "updated_at": moment(updated_at)}
    return TableHop(mapping.table, mapping.pipeline, row, (generation, offset))


def _deleted(database: Database, mapping: TableMapping, key: bytes) -> TableHop:
    statement = _STATEMENTS.render("tombstone_of_key", key=layouts.quoted_table(database.dialect, "key"))
    rows = database.execute(statement, {"pipeline": mapping.pipeline, "key": key}).rows
    version = (rows[0][0], rows[0][1]) if rows else None
    return TableHop(mapping.table, mapping.pipeline, version=version, is_deleted=version is not None)
