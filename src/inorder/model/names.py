"""Split from inorder.outbox.direct."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final, Literal

BackendName = Literal["db", "kafka", "kafka_async", "memory"]


# Split from inorder.pipeline.mapping.

RESERVED_COLUMNS: Final = ("version_generation", "version_offset", "updated_at")


# The tables beside the events of the trendyol layout, under the names that the original gives them.


@dataclass(frozen=True, slots=True)
class SideTables:
    """A name without a schema is in the schema of the events."""

    missing: str = "missing_outbox_events"
    exceeded: str = "exceeded_outbox_events"
    offset: str = "outbox_offsets"

    def beside(self, events: str) -> SideTables:
        """The same tables with their schemas."""
        schema, dot, _ = events.rpartition(".")
        return SideTables(*(name if "." in name else f"{schema}{dot}{name}" for name in astuple(self)))


USUAL_TABLES = SideTables()
