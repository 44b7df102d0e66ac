"""Which fields of a JSON record go to which columns of the target table, and of what type they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from inorder.model.errors import ConfigurationError

FIELD_TYPES: Final = ("boolean", "integer", "bigint", "double", "text")
KEY_TYPES: Final = ("integer", "bigint", "text")
MODES: Final = ("upsert",)
RESERVED_COLUMNS: Final = ("version_generation", "version_offset", "updated_at")

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class TableMapping:
    """One pipeline: a topic, its target table, and the fields it carries.

    >>> TableMapping("demo", "upsert", "messages").fields
    (('enabled', 'boolean'), ('data', 'text'))
    """

    pipeline: str
    """Names the pointers and dead letters; two pipelines on one topic do not disturb each other."""
    topic: str
    table: str
    key: str = "id"
    key_type: str = "bigint"
    fields: tuple[tuple[str, str], ...] = (("enabled", "boolean"), ("data", "text"))
    mode: str = "upsert"
    max_value_bytes: int = 1_000_000
    """A larger record is not parsed; it becomes a dead letter."""

    def __post_init__(self) -> None:
        _check_known("mode", self.mode, MODES)
        _check_known(f"type of key {self.key!r}", self.key_type, KEY_TYPES)
        for name, kind in self.fields:
            _check_known(f"type of field {name!r}", kind, FIELD_TYPES)
        self._check_columns()
        if self.max_value_bytes < 1:
            raise ConfigurationError(
                f"max_value_bytes is {self.max_value_bytes} in pipeline {self.pipeline!r}.",
                hint="Give at least 1; the default is 1000000.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The value columns, in the order of `FoldedRow.values`."""
        return tuple(name for name, _ in self.fields)

    def _check_columns(self) -> None:
        if not self.fields:
            raise ConfigurationError(
                f"Pipeline {self.pipeline!r} has no fields, so no record could change table {self.table!r}.",
                hint='Name some, for example fields = { enabled = "boolean", data = "text" }.',
            )
        seen: set[str] = set()
        for name in (self.key, *self.columns):
            if not _COLUMN.match(name):
                raise ConfigurationError(
                    f"{name!r} is not a column name (table {self.table!r}).",
                    hint="Use letters, digits and _.",
                )
            if name in RESERVED_COLUMNS:
                raise ConfigurationError(
                    f"{name!r} is a column that inorder keeps itself (table {self.table!r}).",
                    hint="Rename the field.",
                )
            if name in seen:
                raise ConfigurationError(
                    f"{name!r} is named twice (table {self.table!r}).", hint="Name each column once."
                )
            seen.add(name)


def _check_known(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{value!r} is not a known {what}.", hint=f"Use one of: {', '.join(known)}.")
