"""Whether a table that exists can take the rows of a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from inorder.model.errors import ConfigurationError
from inorder.pipeline.mapping import RESERVED_COLUMNS, TableMapping


def check_columns(mapping: TableMapping, columns: Mapping[str, bool]) -> None:
    """Refuses a table that lacks a column, or a version that may be null; `columns` says of each whether it may not."""
    table = mapping.table
    wanted = (*mapping.key_names, *mapping.columns, *RESERVED_COLUMNS)
    if missing := [name for name in wanted if name not in columns]:
        raise ConfigurationError(
            f"Table {table!r} exists but lacks: {', '.join(missing)}.",
            hint="Add them as `inorder schema sql --layout table` shows, or name another table.",
        )
    if nullable := [name for name in RESERVED_COLUMNS[:2] if not columns[name]]:
        raise ConfigurationError(
            f"Table {table!r} allows nulls in: {', '.join(nullable)}.",
            hint="Fill them and add NOT NULL: a row without a version could not be ordered.",
        )


def check_keys(mapping: TableMapping, unique_keys: Iterable[Iterable[str]]) -> None:
    """Refuses a table in which two rows may have the same key."""
    if set(mapping.key_names) not in [set(columns) for columns in unique_keys]:
        named = ", ".join(repr(name) for name in mapping.key_names)
        subject, verb = ("Columns", "are") if "," in named else ("Column", "is")
        raise ConfigurationError(
            f"{subject} {named} of table {mapping.table!r} {verb} not unique.",
            hint="Make it the primary key, or name another key column.",
        )
