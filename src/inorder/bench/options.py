"""How large a benchmark is, and how long each of its phases may take."""

from __future__ import annotations

from dataclasses import dataclass, field

from inorder.bench.schedule import Schedule

FILL_CAP_SECONDS = 120.0
DRAIN_CAP_SECONDS = 180.0
LIVE_SLACK_SECONDS = 30.0
"""What the live phase may last on top of its schedule; what has not arrived by then counts as lost."""


@dataclass(frozen=True, slots=True)
class Options:
    """The size of the backlog and the schedule of the live records."""

    rows: int = 200_000
    schedule: Schedule = field(default_factory=lambda: Schedule(rate=500, seconds=10.0))
    delivery: str = "exactly-once"
    """What the relay under test is set to."""

    @property
    def live_cap(self) -> float:
        """How long the live phase may last, in seconds."""
        return self.schedule.lasts + LIVE_SLACK_SECONDS

    @property
    def live_task(self) -> dict[str, float]:
        """The schedule in the words of a worker's task."""
        schedule = self.schedule
        return {"rate": schedule.rate, "seconds": schedule.seconds, "warm_seconds": schedule.warm_seconds}
