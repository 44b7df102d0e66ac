"""What of some DDL would change a database: tables to create, columns and indexes to add.

The DDL may be run again at any time, so it says by itself under which condition it changes something: `CREATE … IF NOT
EXISTS`, or an ALTER behind a look for one column. This reads the condition from each statement and asks the catalogue.
So a plan is made from the very statements that an installation runs, and names those that would do something. Rows that
an installation adds (`INSERT`) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from inorder.database.database import Database, statements_of
from inorder.model.errors import ConfigurationError

_CREATE_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS (?P<table>\S+)", re.IGNORECASE)
_CREATE_INDEX: Final = re.compile(
    r"CREATE (?:UNIQUE )?INDEX IF NOT EXISTS (?P<name>\S+) ON (?P<table>[^\s(]+)", re.IGNORECASE
)
# Within a DO block, or alone; in MySQL a text in quotes.
_ALTER: Final = re.compile(r"(?P<ddl>ALTER TABLE (?P<table>\S+)\s[^;]*)")
_QUOTED_ALTER: Final = re.compile(r"'(?P<ddl>ALTER TABLE (?P<table>\S+)\s(?:[^']|'')*)'")
_LOOKED_FOR: Final = re.compile(r"(?:attname|column_name) = '(?P<name>\w+)'")
_ADDED: Final = re.compile(r"ADD (?:COLUMN )?(?:IF NOT EXISTS )?\(?(?P<name>[\"`]?\w+)", re.IGNORECASE)
_QUOTES: Final = '"`'


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change that an installation would make."""

    kind: str
    """`table`, `index` or `columns`; in Cassandra `keyspace` and `drop` too."""
    table: str
    name: str
    """The table or index, or one of the columns."""
    statement: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        """What was done once it is installed, in a few words; `schema sql` prints all of it."""
        table = _bare(self.table)
        match self.kind:
            case "index":
                return f"created index {self.name} on {table}"
            case "columns":
                return f"added columns to {table}: {', '.join(map(_bare, _ADDED.findall(self.statement))) or self.name}"
            case "drop":
                return f"dropped {table}"
            case kind:
                return f"created {kind} {table}"


class Catalogue(NamedTuple):
    """What a database has; both are asked with a table as the DDL names it."""

    columns: Callable[[str], Collection[str]]
    """Empty where there is no such table."""
    indexes: Callable[[str], Collection[str]]


def read_change(statement: str) -> SchemaChange | None:
    """The change that a statement of an installation may make; None for one that changes no table."""
    if found := _CREATE_TABLE.match(statement):
        return SchemaChange("table", found["table"], _bare(found["table"]), statement)
    # A DO block creates several of one table, all of them where the last one is missing.
    if indexes := list(_CREATE_INDEX.finditer(statement)):
        return SchemaChange("index", indexes[-1]["table"], _bare(indexes[-1]["name"]), statement)
    quoted = _QUOTED_ALTER.search(statement)
    if found := quoted or _ALTER.search(statement):
        ddl = " ".join((found["ddl"].replace("''", "'") if quoted else found["ddl"]).split())
        column = _LOOKED_FOR.search(statement) or _ADDED.search(ddl)
        if column is None:
            raise ConfigurationError(f"It is not known which column this adds: {ddl}")
        return SchemaChange("columns", found["table"], _bare(column["name"]), ddl)
    return None


def plan_changes(statements: Iterable[str], catalogue: Catalogue) -> list[SchemaChange]:
    """The changes that the statements would make, in their order."""
    planned: list[SchemaChange] = []
    created: set[str] = set()
    for change in filter(None, map(read_change, statements)):
        columns = catalogue.columns(change.table)
        if change.kind == "table":
            is_due = not columns and change.table not in created
            created |= {change.table} if is_due else set()
        elif change.kind == "index":
            is_due = change.name not in catalogue.indexes(change.table)
        else:
            is_due = change.table not in created and change.name not in columns
        if is_due:
            planned.append(change)
    return planned


def catalogue_of(database: Database) -> Catalogue:
    """The catalogue of a database, read when it is asked."""
    statements = statements_of("inorder.database", database.dialect, "catalogue.sql")

    def names(statement: str, table: str) -> set[str]:
        schema, _, name = table.rpartition(".")
        bound = {"table": table, "schema": _bare(schema) or None, "name": _bare(name)}
        used = {key: value for key, value in bound.items() if f"%({key})s" in statements[statement]}
        return {str(row[0]) for row in database.execute(statements[statement], used).rows}

    return Catalogue(lambda table: names("columns", table), lambda table: names("indexes", table))


def table_names(database: Database) -> list[str]:
    """The tables and views of a database, as a setting would name them."""
    statement = statements_of("inorder.database", database.dialect, "catalogue.sql")["tables"]
    return sorted(str(row[0]) for row in database.execute(statement).rows)


def install_missing(database: Database, statements: Sequence[str], command: str) -> list[SchemaChange]:
    """Runs DDL where something is missing, and nothing where all is there; returns what was missing.

    So a user without the right to create needs none once `command` was run by one that has it.
    """
    missing = plan_changes(statements, catalogue_of(database))
    if missing:
        try:
            database.install(statements)
        except ConfigurationError as error:
            names = ", ".join(dict.fromkeys(f"{each.kind} {each.name}" for each in missing))
            raise ConfigurationError(
                f"The database lacks {names}, and this user may not add it: {error.message}",
                hint=f"Run `{command}` as a user that may create tables; `inorder schema plan` prints what it does.",
            ) from error
    return missing


def _bare(name: str) -> str:
    """A name without quotes and schema.

    >>> _bare('"shop"."outbox"'), _bare("`key`"), _bare("inorder_pointer")
    ('outbox', 'key', 'inorder_pointer')
    """
    return name.rpartition(".")[2].strip(_QUOTES)
