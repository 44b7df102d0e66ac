"""Layouts of the outbox table: one folder per layout, one `.sql` file per dialect.

A file has the statements that create the table (`install…`) and fragments for the statements of the stores:

| fragment     | meaning                                                                                         |
|---|---|
| `id`         | the column whose order is the order of publishing                                               |
| `columns`    | what a store selects and the layout's `decode` reads, the id first                              |
| `size`       | the bytes of all columns that may be large, from their stored lengths where the database can    |
| `topic`      | the topic as text, never null: part of what determines the shard of a row                       |
| `key`        | the key as bytes, null if the row has none: the other part                                      |
| `leader_id`  | the column that `mark-purge` marks; layouts without this fragment cannot be marked              |
| `written_at` | when the row was written; null where the layout has no such column                              |
| `added…`     | a column that a table created by an older version or another tool lacks; SQLite cannot add it   |
| `append`     | how inorder writes a record; layouts without this statement are written by other tools only     |

Other programs write rows, which may be wrong in any way that the table allows. `decode` never raises: what is wrong
with a row is in its `flaw`, and the relay sets that row aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from inorder.database.sql import Family, Statements, family, load, quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.model.names import USUAL_TABLES, SideTables
from inorder.outbox.layouts.rows import debezium_row as decode_debezium
from inorder.outbox.layouts.rows import deimos_row as decode_deimos
from inorder.outbox.layouts.rows import goharvest_row as decode_goharvest
from inorder.outbox.layouts.rows import native_row as decode_native
from inorder.outbox.layouts.rows import trendyol_row as decode_trendyol

_DECODERS: dict[str, Callable[[Sequence[Any]], OutboxRow]] = {
    "native": decode_native,
    "goharvest": decode_goharvest,
    "debezium": decode_debezium,
    "deimos": decode_deimos,
    "trendyol": decode_trendyol,
}

_VALUES: dict[str, str] = {
    "native": "value",
    "goharvest": "kafka_value",
    "debezium": "payload",
    "deimos": "message",
    "trendyol": "value",
}

LAYOUTS = tuple(_DECODERS)

LOCK_TABLE = "kafka_topic_info"
"""The table of lock rows of the deimos layout, in the schema of its messages."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one layout is read in one dialect; the module describes the fragments."""

    name: str
    dialect: Family
    id: str
    columns: str
    size: str
    topic: str
    key: str
    value: str
    """The column that is sent as the value, in every dialect."""
    leader_id: str | None
    written_at: str
    decode: Callable[[Sequence[Any]], OutboxRow]

    @property
    def wakes_us(self) -> bool:
        """Whether writers of this layout notify a sleeping relay; only inorder's do, and only on PostgreSQL."""
        return self.name in ("native", "deimos") and self.dialect == "postgres"


@cache
def layout(name: str, dialect: str) -> Layout:
    """A layout in the dialect of a database."""
    named = statements(name, dialect)
    return Layout(
        name=name,
        dialect=family(dialect),
        id=named["id"],
        columns=named["columns"],
        size=named["size"],
        topic=named["topic"],
        key=named["key"],
        value=_VALUES[name],
        leader_id=named.get("leader_id"),
        written_at=named["written_at"],
        decode=_DECODERS[name],
    )


def install_statements(layout: str, dialect: str, table: str, sides: SideTables = USUAL_TABLES) -> tuple[str, ...]:
    """Idempotent DDL that creates the tables of a layout, or adds the columns that they lack."""
    named, names = statements(layout, dialect), _names(dialect, table, sides.beside(table))
    made = [named.render(name, **names) for name in named if name.startswith("install")]
    return (*made, *(statement for name in named for statement in _added(name, named[name], dialect, names)))


def _names(dialect: str, table: str, sides: SideTables) -> dict[str, str]:
    """The identifiers of the DDL: the table, its side tables, and its index, with the name that Rails would give it."""
    schema, dot, name = table.rpartition(".")
    index = f"index_{name}_on_topic_and_id"[:63]
    return {
        "table": quoted_table(dialect, table),
        "locks": quoted_table(dialect, lock_table(table)),
        "index": quoted_table(dialect, index),
        "bare": quoted_table(dialect, name),
        "schema": f"{quoted_table(dialect, schema)}." if dot else "",
        **{side: quoted_table(dialect, beside) for side, beside in asdict(sides).items()},
    }


def lock_table(table: str) -> str:
    """The table of lock rows of a table of the deimos layout, in the same schema."""
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}{LOCK_TABLE}"


def _added(name: str, definition: str, dialect: str, names: dict[str, str]) -> list[str]:
    """The DDL for the column of `added` in the table, or of `added_missing` in the side table of that name."""
    if not name.startswith("added"):
        return []
    table = names[name.removeprefix("added").removeprefix("_") or "table"]
    adding = load(__name__, f"adding/{family(dialect)}.sql")
    column, _, _ = definition.partition(" ")
    return [adding.render(step, table=table, column=column, definition=definition) for step in adding]


def statements(layout: str, dialect: str) -> Statements:
    """The named statements and fragments of a layout in the dialect of a database."""
    if layout not in LAYOUTS:
        raise ConfigurationError(f"{layout!r} is not a layout.", hint=f"Known layouts: {', '.join(LAYOUTS)}.")
    return load(__name__, f"{layout}/{family(dialect)}.sql")
