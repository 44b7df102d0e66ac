"""The statement that adds records to an outbox table, in each dialect and in each driver's spelling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from inorder.model.headers import to_text
from inorder.model.message import Record
from inorder.outbox.layouts import family, quoted_table, statements
from inorder.sql import named

# Escaped text may be twice its size, and MySQL takes 16 MiB a statement by default; 4 MiB leaves room. It
# also keeps a long list from becoming one enormous parameter.
_MAX_BYTES = 4 * 1024 * 1024
_MAX_RECORDS = 10_000

Row = dict[str, str | bytes | int | None]


@dataclass(frozen=True, slots=True)
class Append:
    """One statement in the two spellings of a bound value that drivers know.

    `pyformat` (`%(topic)s`) is what the `.sql` files hold and what psycopg, PyMySQL and Django take; `named`
    (`:topic`) is derived from it for SQLAlchemy's `text()` and sqlite3. With `in_arrays` a statement takes
    one list a column and is executed once for many records; without, it takes one row and is executed with a
    list of rows.
    """

    pyformat: str
    named: str
    in_arrays: bool

    def parameters(self, records: Sequence[Record]) -> Any:
        """The bound values of these records, in the shape that the statement takes."""
        rows = [_row(record) for record in records]
        if self.in_arrays:
            return {column: [row[column] for row in rows] for column in rows[0]}
        return rows


@cache
def append_to(table: str, dialect: str) -> Append:
    """The append statement of a table; `dialect` is a name that SQLAlchemy or Django gives a database."""
    pyformat = statements("native", dialect).render("append", table=quoted_table(dialect, table))
    return Append(pyformat, named(pyformat), in_arrays=family(dialect) == "postgres")


def batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cuts a long list into statements that every server takes; almost every list is one."""
    start = size = 0
    for position, record in enumerate(records):
        weight = _weight(record)
        if position > start and (size + weight > _MAX_BYTES or position - start == _MAX_RECORDS):
            yield records[start:position]
            start, size = position, 0
        size += weight
    if start < len(records):
        yield records[start:]


def _weight(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def _row(record: Record) -> Row:
    return {
        "topic": record.topic,
        "key": record.key,
        "value": record.value,
        "headers": to_text(record.headers),
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
    }
