"""Measures that a worker collects and the driver serves: integers by name, so that merging two sets is adding them.

A worker sends them to the driver with the outcome of each slice (`SliceOutcome.measures`). Nothing in them is per
record: a histogram is a count for each bucket and a sum in microseconds, and names come from short lists. So they are
small however much was done, and outcomes may be summed in any grouping on the way.

    records                       a count
    latency/append#7              how many were in bucket 7
    latency/append#sum            their sum, in microseconds
    version/1.2.0                 a count by a label from outside; at most `MOST_LABELS` different ones

`Meter` is the other way round, for parts that run in the process that serves the metrics. Labels are names of topics
and words from short lists, never keys or ids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from inorder.engines.slice_work import Measures

BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
)  # fmt: skip
"""The upper bounds of the buckets of times, in seconds; one more bucket holds what is above."""
COUNT_BOUNDS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""The same for counts of records."""
OTHER: Final = "other"
MOST_LABELS: Final = 20
_LONGEST_LABEL: Final = 40
_MICROS: Final = tuple(round(bound * 1_000_000) for bound in BOUNDS)


@dataclass(slots=True)
class MeasureTally:
    """Collects measures until they are taken; used by one thread."""

    _figures: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, number: int = 1) -> None:
        if number:
            self._figures[name] += number

    def took(self, name: str, micros: int, times: int = 1) -> None:
        """Adds a duration to a histogram, `times` times; a negative one, by clock skew, counts as 0."""
        self._observe(name, max(0, micros), bisect_left(_MICROS, micros), times)

    def took_all(self, name: str, micros: Mapping[int, int]) -> None:
        """Adds durations to a histogram: the number of times for each duration in microseconds."""
        buckets, total = [0] * (len(_MICROS) + 1), 0
        for each, times in micros.items():
            buckets[bisect_left(_MICROS, each)] += times
            total += each * times if each > 0 else 0
        for bucket, times in enumerate(buckets):
            if times:
                self._figures[f"{name}#{bucket}"] += times
        self._figures[f"{name}#sum"] += total

    def had(self, name: str, number: int) -> None:
        """Adds a size to a histogram of counts."""
        self._observe(name, number, bisect_left(COUNT_BOUNDS, number), 1)

    def add_labels(self, name: str, labels: Mapping[str | None, int] | Mapping[str, int]) -> None:
        """Adds counts by labels from outside: the most frequent ones singly, the rest as `other`."""
        ranked = labels.items() if len(labels) <= MOST_LABELS else Counter(labels).most_common()
        for rank, (label, number) in enumerate(ranked):
            self.add(f"{name}/{bound_label(label) if rank < MOST_LABELS else OTHER}", number)

    def take(self) -> Measures:
        """Returns what was collected since the last call."""
        figures, self._figures = self._figures, Counter()
        return dict(figures)

    def _observe(self, name: str, size: int, bucket: int, times: int) -> None:
        self._figures[f"{name}#{bucket}"] += times
        self._figures[f"{name}#sum"] += size * times


@dataclass(frozen=True, slots=True)
class Histogram:
    """The count of each bucket, and the sum in microseconds or parts."""

    counts: tuple[int, ...]
    total: int


def bound_label(label: str | None) -> str:
    """A text from outside as a label: short, printable, and without the separators of measure names.

    >>> bound_label("1.2.0"), bound_label(None), bound_label("a/b#c" + 50 * "d")[:8]
    ('1.2.0', 'none', 'a_b_cddd')
    """
    if not label:
        return "none"
    return "".join(each if each.isalnum() or each in ".-+_" else "_" for each in label[:_LONGEST_LABEL])


def absorb(known: dict[str, int], more: Measures) -> None:
    """Adds measures to sums; once there are `MOST_LABELS` labels under a name, new ones count as `other`."""
    for name, number in more.items():
        place = name if name in known or "#" in name else _place_for(known, name)
        known[place] = known.get(place, 0) + number


def _place_for(known: Mapping[str, int], name: str) -> str:
    head, has_label, _ = name.partition("/")
    is_full = has_label and sum(1 for _ in under(known, head)) >= MOST_LABELS
    return f"{head}/{OTHER}" if is_full else name


def under(figures: Mapping[str, int], name: str) -> Iterator[tuple[str, int]]:
    """The counts by label of a name."""
    for each, number in figures.items():
        head, _, label = each.partition("/")
        if head == name and "#" not in label:
            yield label, number


def read_histograms(figures: Mapping[str, int], name: str, bounds: Iterable[float] = BOUNDS) -> dict[str, Histogram]:
    """The histograms of a name, by label; one without a label is under the empty string."""
    counts: dict[str, list[int]] = {}
    totals: Counter[str] = Counter()
    buckets = len(tuple(bounds)) + 1
    for each, number in figures.items():
        place, has_bucket, bucket = each.partition("#")
        head, _, label = place.partition("/")
        if not has_bucket or head != name:
            continue
        if bucket == "sum":
            totals[label] += number
        else:
            counts.setdefault(label, [0] * buckets)[int(bucket)] += number
    return {label: Histogram(tuple(found), totals[label]) for label, found in counts.items()}


class Meter(Protocol):
    """Receives measures; called often, from any thread, so it must be quick and never block.

    The measured parts know nothing about Prometheus. The implementation raises for a name that it does not know.
    """

    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Adds a duration to a histogram."""

    def add(self, name: str, number: float, *labels: str) -> None:
        """Adds to a counter."""


class _Silent:
    def took(self, name: str, seconds: float, *labels: str) -> None: ...

    def add(self, name: str, number: float, *labels: str) -> None: ...


SILENT: Final[Meter] = _Silent()
"""Discards everything."""
