"""A meter for tests: it records its calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.unit.journal.world import KEY


@dataclass
class Heard:
    """A meter that keeps everything."""

    times: Counter[tuple[str, ...]] = field(default_factory=Counter)
    numbers: Counter[tuple[str, ...]] = field(default_factory=Counter)
    seconds: float = 0.0

    def took(self, name: str, seconds: float, *labels: str) -> None:
        assert seconds >= 0
        self.times[name, *labels] += 1
        self.seconds += seconds

    def add(self, name: str, number: float, *labels: str) -> None:
        self.numbers[name, *labels] += int(number)

    def results(self, verb: str) -> tuple[int, int, int]:
        """How often it was timed, succeeded and failed."""
        counts = [self.numbers["journal_results", KEY.topic, verb, result] for result in ("success", "failure")]
        return self.times["journal_latency", KEY.topic, verb], counts[0], counts[1]

    def events(self, verb: str) -> int:
        return self.numbers["journal_events", KEY.topic, verb]
