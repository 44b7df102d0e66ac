"""The tables beside the events of the trendyol layout, under the names that the original gives them."""

from __future__ import annotations

from dataclasses import astuple, dataclass


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
