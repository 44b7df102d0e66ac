"""How large a benchmark is, and how long each of its phases may take."""

from __future__ import annotations

from dataclasses import dataclass, field

from inorder.bench.load import Load, Schedule
from inorder.model.errors import ConfigurationError

FILL_CAP_SECONDS = 120.0
START_CAP_SECONDS = 120.0
DRAIN_CAP_SECONDS = 180.0
LIVE_SLACK_SECONDS = 30.0
"""What the live phase may last on top of its schedule; what has not arrived by then counts as lost."""
KEYS = (1_000, 10, 1)
HEADERS = (0, 1)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The size of the backlog and the schedule of the live records."""

    rows: int = 200_000
    schedule: Schedule = field(default_factory=lambda: Schedule(rate=500, seconds=10.0))

    @property
    def live_cap(self) -> float:
        """How long the live phase may last, in seconds."""
        return self.schedule.lasts + LIVE_SLACK_SECONDS

    @property
    def live_task(self) -> dict[str, float]:
        """The schedule as arguments of a worker's task."""
        schedule = self.schedule
        return {"rate": schedule.rate, "seconds": schedule.seconds, "warm_seconds": schedule.warm_seconds}


@dataclass(frozen=True, slots=True)
class PipelineOptions(BenchOptions):
    """Which engine runs the job, and how many keys the messages have."""

    rows: int = 400_000
    engine: str = "micro-batch"
    keys: int = 10_000


WITHOUT_HEADERS = ("debezium", "deimos")


@dataclass(frozen=True, slots=True)
class RelaySetting:
    """What the relay under test is set to."""

    delivery: str = "exactly-once"
    strategy: str = "drain"
    layout: str = "native"

    @staticmethod
    def of(strategy: str, delivery: str, layout: str) -> RelaySetting:
        """The strategies `topic-lock` and `polling` have one layout only, and the first has one delivery."""
        if strategy == "topic-lock":
            return RelaySetting("at-least-once", strategy, "deimos")
        if strategy == "polling":
            return RelaySetting(delivery, strategy, "trendyol")
        return RelaySetting(delivery, strategy, layout)

    def as_dict(self) -> dict[str, str]:
        """The settings by name, as the section [relay] has them."""
        return {"delivery": self.delivery, "strategy": self.strategy, "layout": self.layout}


@dataclass(frozen=True, slots=True)
class RelayOptions(BenchOptions):
    """Which backlogs are drained, how often, and by what kind of relay."""

    keys: tuple[int, ...] = KEYS
    headers: tuple[int, ...] = HEADERS
    repeats: int = 3
    live: bool = True
    setting: RelaySetting = field(default_factory=RelaySetting)

    def __post_init__(self) -> None:
        if self.setting.layout in WITHOUT_HEADERS and any(self.headers):
            raise ConfigurationError(
                f"The layout {self.setting.layout!r} has no column for headers.", hint="Give --headers 0."
            )

    @property
    def loads(self) -> list[Load]:
        """Every backlog of the contest."""
        return [Load(self.rows, keys, headers) for headers in self.headers for keys in self.keys]
