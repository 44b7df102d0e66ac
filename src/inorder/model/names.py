"""Names that both the settings and the products use: backends, reserved columns, side tables; and near misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from difflib import get_close_matches
from typing import Final, Literal

BackendName = Literal["db", "kafka", "kafka_async", "memory"]
"""Where `Publisher` sends a message."""

RESERVED_COLUMNS: Final = ("version_generation", "version_offset", "updated_at")
"""The columns that the pipeline adds to a target table."""

DELETED_COLUMN: Final = "version_deleted"
"""One more in Delta tables, where tombstones are rows."""


@dataclass(frozen=True, slots=True)
class SideTables:
    """The tables beside the events of the trendyol layout, with the original's names as defaults.

    A name without a schema is in the schema of the events.
    """

    missing: str = "missing_outbox_events"
    exceeded: str = "exceeded_outbox_events"
    offset: str = "outbox_offsets"

    def beside(self, events: str) -> SideTables:
        """The same tables with their schemas."""
        schema, dot, _ = events.rpartition(".")
        return SideTables(*(name if "." in name else f"{schema}{dot}{name}" for name in astuple(self)))


USUAL_TABLES = SideTables()


def suggest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about a name that is not known.

    >>> suggest("tabel", ["table", "config"]), suggest("x", ["table"])
    ("; did you mean 'table'?", '.')
    """
    found = get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else "."
