"""Which fields of a JSON record go to which columns of the target table, and of what type they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from inorder.model.errors import ConfigurationError
from inorder.pipeline.field_types import FIELD_TYPES, KEY_TYPES

MODES: Final = ("upsert", "insert", "update")
DELETES: Final = ("tombstone", "reject")
NULLS: Final = ("ignore", "write")
RESERVED_COLUMNS: Final = ("version_generation", "version_offset", "updated_at")

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class TableMapping:
    """One pipeline: a topic, its target table, and the fields it carries.

    >>> TableMapping("demo", "upsert", "messages").fields
    (('enabled', 'boolean'), ('data', 'text'))
    >>> TableMapping("demo", "seats", "seats", key=("flight", "seat"), key_type=("bigint", "text")).key_columns
    (('flight', 'bigint'), ('seat', 'text'))
    """

    pipeline: str
    """Names the pointers and dead letters; two pipelines on one topic do not disturb each other."""
    topic: str
    table: str
    key: str | tuple[str, ...] = "id"
    key_type: str | tuple[str, ...] = "bigint"
    """One for each column of the key, or one for all of them."""
    fields: tuple[tuple[str, str], ...] = (("enabled", "boolean"), ("data", "text"))
    mode: str = "upsert"
    """`insert` never changes a row, `update` never makes one."""
    max_value_bytes: int = 1_000_000
    """A larger record is not parsed; it becomes a dead letter."""
    schema: str = ""
    """The text of the JSON Schema that records must keep, so that it travels with the mapping; empty for none."""
    deletes: str = "tombstone"
    """What a record without a value does: it deletes its row, or it is rejected."""
    nulls: str = "ignore"
    """What a field that is null does: nothing, or it empties the column."""
    max_attempts: int = 3
    """How often a row that the database refuses is tried before its records become dead letters."""

    def __post_init__(self) -> None:
        _check_known("mode", self.mode, MODES)
        _check_known("value of deletes", self.deletes, DELETES)
        _check_known("value of nulls", self.nulls, NULLS)
        self._check_columns()
        for name, kind in self.key_columns:
            _check_known(f"type of key {name!r}", kind, KEY_TYPES)
        for name, kind in self.fields:
            _check_known(f"type of field {name!r}", kind, tuple(FIELD_TYPES))
        self._check_at_least_one("max_value_bytes", self.max_value_bytes, 1_000_000)
        self._check_at_least_one("max_attempts", self.max_attempts, 3)

    @property
    def key_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of the key with their types."""
        names = (self.key,) if isinstance(self.key, str) else self.key
        kinds = (self.key_type,) * len(names) if isinstance(self.key_type, str) else self.key_type
        return tuple(zip(names, kinds, strict=True))

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(name for name, _ in self.key_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns, in the order of `FoldedRow.values`."""
        return tuple(name for name, _ in self.fields)

    @property
    def can_delete(self) -> bool:
        """Whether a record without a value deletes its row; in mode `insert` it never does."""
        return self.deletes == "tombstone" and self.mode != "insert"

    def _check_at_least_one(self, name: str, value: int, default: int) -> None:
        if value < 1:
            raise ConfigurationError(
                f"{name} is {value} in pipeline {self.pipeline!r}.",
                hint=f"Give at least 1; the default is {default}.",
            )

    def _check_columns(self) -> None:
        if not self.fields:
            raise ConfigurationError(
                f"Pipeline {self.pipeline!r} has no fields, so no record could change table {self.table!r}.",
                hint='Name some, for example fields = { enabled = "boolean", data = "text" }.',
            )
        names = (self.key,) if isinstance(self.key, str) else self.key
        if not names or not (isinstance(self.key_type, str) or len(self.key_type) == len(names)):
            raise ConfigurationError(
                f"key = {self.key!r} and key_type = {self.key_type!r} do not fit together (table {self.table!r}).",
                hint="Name one type for each column of the key, or one for all.",
            )
        seen: set[str] = set()
        for name in (*self.key_names, *self.columns):
            self._check_column(name, seen)
            seen.add(name)

    def _check_column(self, name: str, seen: set[str]) -> None:
        if not _COLUMN.match(name):
            raise ConfigurationError(
                f"{name!r} is not a column name (table {self.table!r}).", hint="Use letters, digits and _."
            )
        if name in RESERVED_COLUMNS:
            raise ConfigurationError(
                f"{name!r} is a column that inorder keeps itself (table {self.table!r}).", hint="Rename the field."
            )
        if name in seen:
            raise ConfigurationError(f"{name!r} is named twice (table {self.table!r}).", hint="Name each column once.")


def _check_known(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{value!r} is not a known {what}.", hint=f"Use one of: {', '.join(known)}.")
