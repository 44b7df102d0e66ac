"""The statement that adds records to an outbox table, in each dialect and in each driver's spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from inorder.model.errors import ConfigurationError, ValidationError
from inorder.model.headers import to_text
from inorder.model.message import Record
from inorder.outbox.layouts import LAYOUTS, family, quoted_table, statements
from inorder.outbox.layouts.trendyol import encode as trendyol
from inorder.sql import load, named, quoted

# Escaped text may be twice its size, and MySQL takes 16 MiB a statement by default; 4 MiB leaves room. It
# also keeps a long list from becoming one enormous parameter.
_MAX_BYTES = 4 * 1024 * 1024
_MAX_RECORDS = 10_000

WRITTEN = tuple(name for name in LAYOUTS if "append" in statements(name, "sqlite"))
"""The layouts that our publisher writes; the others have writers of their own."""


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

    @property
    def columns(self) -> list[str]:
        """What the statement binds; a layout may keep less than a record holds."""
        return [column for column in _COLUMNS if f"%({column})s" in self.pyformat]

    def parameters(self, records: Sequence[Record]) -> Any:
        """The bound values of these records, in the shape that the statement takes."""
        columns = self.columns
        if self.in_arrays:
            return {column: [_COLUMNS[column](record) for record in records] for column in columns}
        return [{column: _COLUMNS[column](record) for column in columns} for record in records]


@dataclass(frozen=True, slots=True)
class Target:
    """A table that our publisher writes, and its layout."""

    table: str
    layout: str = "native"

    def __post_init__(self) -> None:
        quoted(self.table)
        if self.layout not in WRITTEN:
            raise ConfigurationError(
                f"Messages cannot be published into a table of the layout {self.layout!r}.",
                hint=f"Its own writers fill it. inorder writes: {', '.join(WRITTEN)}.",
            )

    def refuse(self, records: Sequence[Record], *, in_list: bool) -> None:
        """Raises `ValidationError` for a record with something that the columns of the layout cannot hold."""
        flaws = _FLAWS.get(self.layout)
        if flaws is None:
            return
        for position, record in enumerate(records):
            for field, reason in flaws(record):
                place = f"messages[{position}]." if in_list else ""
                raise ValidationError(
                    f"{place}{field.removesuffix('_ms')}",
                    f"the layout {self.layout!r} of table {self.table!r} cannot keep it: {reason}",
                    hint='Change it or leave it out, or use layout="native".',
                )


Flaws = Iterator[tuple[str, str]]


def _without(record: Record, *fields: str) -> Flaws:
    """Fields of the record that there is no column for."""
    for field in fields:
        if getattr(record, field) not in (None, ()):
            yield field, "it has no column for it."


def _deimos_flaws(record: Record) -> Flaws:
    yield from _without(record, "headers", "partition", "timestamp_ms")


def _trendyol_flaws(record: Record) -> Flaws:
    yield from _without(record, "partition", "timestamp_ms")
    yield from trendyol.flaws(record)


_FLAWS: dict[str, Callable[[Record], Flaws]] = {"deimos": _deimos_flaws, "trendyol": _trendyol_flaws}


@cache
def append_to(table: str, dialect: str, layout: str = "native") -> Append:
    """The append statement of a table; `dialect` is a name that SQLAlchemy or Django gives a database."""
    names = {"table": quoted_table(dialect, table)}
    in_arrays = family(dialect) == "postgres"
    if in_arrays:
        names["woken"] = load("inorder.outbox.layouts.waking", "postgres.sql").render("woken", **names)
    pyformat = statements(layout, dialect).render("append", **names)
    return Append(pyformat, named(pyformat), in_arrays)


def batches(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Cuts a long list into statements that every server takes; almost every list is one."""
    start = size = 0
    for position, record in enumerate(records):
        weight = weight_of(record)
        if position > start and (size + weight > _MAX_BYTES or position - start == _MAX_RECORDS):
            yield records[start:position]
            start, size = position, 0
        size += weight
    if start < len(records):
        yield records[start:]


def weight_of(record: Record) -> int:
    """How many bytes a record brings along."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


_COLUMNS: dict[str, Callable[[Record], str | bytes | int | None]] = {
    "topic": attrgetter("topic"),
    "key": attrgetter("key"),
    "value": attrgetter("value"),
    "headers": lambda record: to_text(record.headers),
    "partition": attrgetter("partition"),
    "timestamp": attrgetter("timestamp_ms"),
    "text_key": lambda record: trendyol.text(record.key),
    "text_value": lambda record: trendyol.text(record.value),
    "header": trendyol.header,
}
