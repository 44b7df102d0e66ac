"""Columns for fields that a mapping does not name: what there is to add, and adding what an operator chose.

A producer that begins to send a new field changes nothing here: the pipeline counts the field by name and leaves it
out (`stores/table.py`). `inorder pipeline plan` shows these counts, with a type for each field that fits all values of
the last records. `inorder pipeline apply --field NAME=TYPE` adds nullable columns for the fields that it is given.

Nothing is added without being asked for. A type that fits today's values is a guess about tomorrow's, and a column
cannot be taken back from readers that have begun to use it. The settings stay as they are too: an operator adds the
field to `fields` and starts the job again. Records that were applied before keep their rows as they are; to fill the
column from them, `inorder pipeline reset TOPIC --from-first` applies the topic again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from inorder.database.database import Database
from inorder.engines.slice_work import TopicSource
from inorder.model.errors import ConfigurationError
from inorder.pipeline.mapping import FIELD_TYPES, Refused, TableMapping
from inorder.pipeline.status import unknown_fields
from inorder.pipeline.stores.ports import OTHER_FIELDS
from inorder.pipeline.stores.table import TableSql, table_sql
from inorder.topics.stores.generations import SqlPointers

LAST_RECORDS: Final = 200
"""How many records of each partition are looked at for types."""
READ_SECONDS: Final = 5.0
_NARROWEST: Final = ("boolean", "bigint", "double", "date", "timestamp", "uuid", "text", "json")
"""Types in the order in which they are tried. `numeric` and `integer` hold no value that none of these holds."""


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that could be added, or was."""

    table: str
    field: str
    records: int
    """How many records had the field so far."""
    type: str | None
    """None where the last records do not have the field, or where it cannot be the name of a column."""
    statement: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_columns(mapping: TableMapping, database: Database, source: TopicSource) -> list[NewColumn]:
    """The fields that the mapping does not name, most frequent first, each with what would add its column."""
    adding = _adding(mapping, database)
    counts = unknown_fields(database, [mapping.pipeline])
    values = _last_values(source, _topic_in_use(mapping, database), counts) if counts else {}
    found = []
    for name, records in counts.items():
        kind = narrowest_type(values.get(name, ()))
        is_possible = kind is not None and name != OTHER_FIELDS and _is_column(mapping, name)
        statement = adding(name, kind) if is_possible and kind is not None else None
        found.append(NewColumn(mapping.table, name, records, kind if is_possible else None, statement))
    return found


def _adding(mapping: TableMapping, database: Database) -> Callable[[str, str], str]:
    """Renders the statement that adds a column."""
    if not mapping.target:
        return table_sql(database.dialect, mapping).add_column
    from inorder.pipeline.delta import DeltaSql

    return DeltaSql(mapping).add_column


def apply_columns(
    mapping: TableMapping, database: Database, chosen: Mapping[str, str], *, dry_run: bool = False
) -> list[NewColumn]:
    """Adds a nullable column for each chosen field, with its type; columns that exist are left as they are.

    Raises `ConfigurationError`, and adds nothing, for a name or a type that a mapping could not have.
    """
    widen(mapping, chosen)
    if mapping.target:
        raise ConfigurationError(
            f"The rows of {mapping.table!r} are in a Delta table, which only Spark changes.",
            hint="`inorder pipeline plan` prints the statements. Run them in Spark, then add the fields to `fields`.",
        )
    sql = table_sql(database.dialect, mapping)
    existing = {str(row[0]) for row in database.execute(sql["existing_columns"], sql.table_bound()).rows}
    if not existing:
        raise ConfigurationError(
            f"Table {mapping.table!r} does not exist.", hint="Run `inorder schema install --layout table`."
        )
    counts = unknown_fields(database, [mapping.pipeline])
    added = [_column(sql, name, kind, counts) for name, kind in chosen.items() if name not in existing]
    for column in added:
        if not dry_run and column.statement is not None:
            database.execute(column.statement)
    return added


def _column(sql: TableSql, name: str, kind: str, counts: Mapping[str, int]) -> NewColumn:
    return NewColumn(sql.mapping.table, name, counts.get(name, 0), kind, sql.add_column(name, kind))


def widen(mapping: TableMapping, chosen: Mapping[str, str]) -> TableMapping:
    """The mapping with more fields; raises `ConfigurationError` where they cannot be fields."""
    return replace(mapping, fields=(*mapping.fields, *chosen.items()))


def _is_column(mapping: TableMapping, name: str) -> bool:
    try:
        widen(mapping, {name: "text"})
    except ConfigurationError:
        return False
    return True


def narrowest_type(values: Iterable[Any]) -> str | None:
    """The first type that accepts all values; nulls and empty texts fit every one. None without a value."""
    present = [value for value in values if value is not None and value != ""]
    if not present:
        return None
    return next((kind for kind in _NARROWEST if _accepts(kind, present)), None)


def _accepts(kind: str, values: Sequence[Any]) -> bool:
    try:
        for value in values:
            FIELD_TYPES[kind].convert(value)
    except Refused:
        return False
    return True


def _topic_in_use(mapping: TableMapping, database: Database) -> str:
    """The Kafka topic of the newest pointers: after a switch it is not the one that the settings name."""
    rows = SqlPointers(database).of_pipeline(mapping.pipeline)
    return max(rows, key=lambda each: each.pointer.generation).topic if rows else mapping.topic


def _last_values(source: TopicSource, topic: str, names: Iterable[str]) -> dict[str, list[Any]]:
    """The values of some fields in the last records of each partition of a Kafka topic."""
    wanted, found = set(names), defaultdict[str, list[Any]](list)
    extents = source.extents(topic) or {}
    starts: dict[tuple[str, int], int | None] = {
        (topic, number): max(extent.first, extent.end - LAST_RECORDS)
        for number, extent in extents.items()
        if extent.end > extent.first
    }
    if not starts:
        return found
    unread, deadline = set(starts), time.monotonic() + READ_SECONDS
    with closing(source.open(starts, reports_ends=True)) as reader:
        while unread and time.monotonic() < deadline:
            slices, ended = reader.read(LAST_RECORDS, 0.1)
            for value in (value for batch in slices for value in batch.values):
                for name, item in _fields_in(value).items():
                    if name in wanted:
                        found[name].append(item)
            unread -= ended
    return found


def _fields_in(value: bytes | None) -> dict[str, Any]:
    try:
        document = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return {}
    return document if type(document) is dict else {}
