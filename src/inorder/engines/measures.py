"""Figures that a worker gathers and the driver serves: whole numbers by name, so that a sum is all a merge takes.

A worker far from the driver sends them with the outcome of each slice (`SliceOutcome.measures`). Nothing in them is per
record: a spread of times is a count for each bucket and a sum in microseconds, and names come from short lists. So they
are small however much was done, and it does not matter how outcomes are put together on the way.

    records                       a count
    latency/append#7              how many were in bucket 7
    latency/append#sum            their sum, in microseconds
    version/1.2.0                 a count by a word that others choose; at most so many different ones
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from inorder.engines.slice_work import Measures

BOUNDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
)  # fmt: skip
"""The upper bounds of the buckets of times, in seconds; one more bucket has what is above."""
COUNT_BOUNDS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""The same where records are counted."""
OTHER: Final = "other"
MOST_WORDS: Final = 20
_LONGEST_WORD: Final = 40
_MICROS: Final = tuple(round(bound * 1_000_000) for bound in BOUNDS)


@dataclass(slots=True)
class Tally:
    """Gathers figures until they are taken; used by one thread."""

    _figures: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, number: int = 1) -> None:
        """There were so many more."""
        if number:
            self._figures[name] += number

    def took(self, name: str, micros: int, times: int = 1) -> None:
        """Something took so long, so many times; what seems to have taken less than nothing took nothing."""
        self._spread(name, max(0, micros), bisect_left(_MICROS, micros), times)

    def took_all(self, name: str, micros: Mapping[int, int]) -> None:
        """Some things took so long; how many, by microseconds."""
        buckets, total = [0] * (len(_MICROS) + 1), 0
        for each, times in micros.items():
            buckets[bisect_left(_MICROS, each)] += times
            total += each * times if each > 0 else 0
        for bucket, times in enumerate(buckets):
            if times:
                self._figures[f"{name}#{bucket}"] += times
        self._figures[f"{name}#sum"] += total

    def had(self, name: str, number: int) -> None:
        """Something had so many parts."""
        self._spread(name, number, bisect_left(COUNT_BOUNDS, number), 1)

    def add_words(self, name: str, words: Mapping[str | None, int]) -> None:
        """Counts by words that others choose: the most frequent by themselves, the rest together."""
        ranked = words.items() if len(words) <= MOST_WORDS else Counter(words).most_common()
        for rank, (word, number) in enumerate(ranked):
            self.add(f"{name}/{bounded(word) if rank < MOST_WORDS else OTHER}", number)

    def taken(self) -> Measures:
        """What was gathered since the last time."""
        figures, self._figures = self._figures, Counter()
        return dict(figures)

    def _spread(self, name: str, size: int, bucket: int, times: int) -> None:
        self._figures[f"{name}#{bucket}"] += times
        self._figures[f"{name}#sum"] += size * times


@dataclass(frozen=True, slots=True)
class Spread:
    """How many there were in each bucket, and their sum, in microseconds or parts."""

    counts: tuple[int, ...]
    total: int


def bounded(word: str | None) -> str:
    """A word that can be a label: short, printable, and none of ours by accident.

    >>> bounded("1.2.0"), bounded(None), bounded("a/b#c" + 50 * "d")[:8]
    ('1.2.0', 'none', 'a_b_cddd')
    """
    if not word:
        return "none"
    return "".join(each if each.isalnum() or each in ".-+_" else "_" for each in word[:_LONGEST_WORD])


def absorb(known: dict[str, int], more: Measures) -> None:
    """Adds figures to sums; once there are many words under a name, new ones count as `other`."""
    for name, number in more.items():
        place = name if name in known or "#" in name else _placed(known, name)
        known[place] = known.get(place, 0) + number


def _placed(known: Mapping[str, int], name: str) -> str:
    head, has_word, _ = name.partition("/")
    is_full = has_word and sum(1 for _ in under(known, head)) >= MOST_WORDS
    return f"{head}/{OTHER}" if is_full else name


def under(figures: Mapping[str, int], name: str) -> Iterator[tuple[str, int]]:
    """The counts by word that stand under a name."""
    for each, number in figures.items():
        head, _, word = each.partition("/")
        if head == name and "#" not in word:
            yield word, number


def spreads(figures: Mapping[str, int], name: str, bounds: Iterable[float] = BOUNDS) -> dict[str, Spread]:
    """The spreads under a name, by the word after it; a spread without one is under the empty word."""
    counts: dict[str, list[int]] = {}
    totals: Counter[str] = Counter()
    buckets = len(tuple(bounds)) + 1
    for each, number in figures.items():
        place, has_bucket, bucket = each.partition("#")
        head, _, word = place.partition("/")
        if not has_bucket or head != name:
            continue
        if bucket == "sum":
            totals[word] += number
        else:
            counts.setdefault(word, [0] * buckets)[int(bucket)] += number
    return {word: Spread(tuple(found), totals[word]) for word, found in counts.items()}


# What measured parts tell: how long something took, and how many there were.
#
# The parts know nothing about Prometheus. `observe/journal_metrics.py` gives each name its meaning; a name that it does
# not know is an error of ours and is raised. Labels are names of topics and words of ours, never keys or ids.


class Meter(Protocol):
    """Hears figures; called from any thread, often, so it must be quick and never wait."""

    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Something has taken so long."""

    def add(self, name: str, number: float, *labels: str) -> None:
        """There were so many more."""


class _Silent:
    def took(self, name: str, seconds: float, *labels: str) -> None:
        """Nothing."""

    def add(self, name: str, number: float, *labels: str) -> None:
        """Nothing."""


SILENT: Final[Meter] = _Silent()
"""Where nobody wants to know."""
