"""Whether a DataFrame has the columns that a sink needs, asked on the driver before a task starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inorder.model.errors import ConfigurationError
from inorder.spark.formats.options import nearest

BYTES: Final = ("binary", "string")
WHOLE_NUMBER: Final = ("bigint", "int", "smallint", "tinyint")
MOMENT: Final = ("timestamp", "timestamp_ntz")
HEADERS: Final = ("array<struct<key:string,value:binary>>",)
"""As Spark's own Kafka source and sink have them."""
ANYTHING: Final = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a format knows."""

    name: str
    types: tuple[str, ...]
    """Spark's names of the types it may have; none for any."""
    is_needed: bool = True


def check_columns(sink: str, found: Mapping[str, str], known: Sequence[Column]) -> None:
    """Raises `ConfigurationError` for a column that is missing, unknown or of another type; `found` are the types."""
    names = [column.name for column in known]
    for column in known:
        if column.is_needed and column.name not in found:
            meant = nearest(column.name, [name for name in found if name not in names])
            raise _refusal(sink, f"needs a column {column.name!r}, which the data lacks{meant}", names)
    for name in found:
        if name not in names:
            missing = [each for each in names if each not in found]
            raise _refusal(sink, f"knows no column {name!r}{nearest(name, missing)}", names)
    for column in known:
        _check_type(sink, column, found.get(column.name))


def _check_type(sink: str, column: Column, kind: str | None) -> None:
    if kind is not None and column.types and kind not in column.types:
        raise ConfigurationError(
            f"The column {column.name!r} is {kind}, but the format {sink!r} takes {' or '.join(column.types)}.",
            hint=f"Cast it to {column.types[0]}.",
        )


def _refusal(sink: str, text: str, names: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(f"The format {sink!r} {text}", hint=f"Select some of: {', '.join(names)}.")
