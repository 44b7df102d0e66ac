"""The checker of journals: what readers saw against what the writer did, without a line of the code in between.

A journal with one writer is a list of moments: what it holds after none of the writer's actions, after the first, and
so on. The writer records when each action was sent and when it was acknowledged; readers record when each read began
and ended and what it showed. A read is correct if it shows one of the moments that it may show:

- none before the last action that was acknowledged when it began,
- none after the last action that was sent when it ended,
- none before the moment of any read, by any reader, that had ended when it began.

So an event that was seen stays until a delete or a purge of it was sent, and one that is gone never comes back. Times
are of one monotonic clock; which one does not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

EXAMPLES = 5

Shown: TypeAlias = tuple[tuple[int, Hashable], ...]
"""Events as a reader saw them: number and content."""


@dataclass(frozen=True, slots=True)
class Written:
    """An action of the writer: a purge, or a delete, or events; and when."""

    sent: float
    acknowledged: float = float("inf")
    """Infinite if it was never acknowledged."""
    events: Shown = ()
    delete_to: int = 0
    is_purge: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A read that came to its end, and when."""

    began: float
    ended: float
    events: Shown


@dataclass(frozen=True, slots=True)
class ReadVerdict:
    """How many reads were wrong, each counted once, with some examples."""

    reads: int = 0
    out_of_order: int = 0
    """Numbers did not ascend."""
    lost: int = 0
    """An event was missing that was there at every moment that the read could show."""
    came_back: int = 0
    """An event was shown that was there at none of them: never written, or gone by then."""
    torn: int = 0
    """Each event was right, but the journal never held exactly these."""
    examples: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether nothing was broken."""
        return not (self.out_of_order or self.lost or self.came_back or self.torn)

    def __add__(self, other: ReadVerdict) -> ReadVerdict:
        return ReadVerdict(
            self.reads + other.reads,
            self.out_of_order + other.out_of_order,
            self.lost + other.lost,
            self.came_back + other.came_back,
            self.torn + other.torn,
            (*self.examples, *other.examples)[:EXAMPLES],
        )


def moments(written: Iterable[Written]) -> list[Shown]:
    """What a journal holds before the first action and after each."""
    held: dict[int, Hashable] = {}
    end = 0
    found: list[Shown] = [()]
    for each in written:
        if each.is_purge:
            held, end = {}, 0
        held = {number: what for number, what in held.items() if number > each.delete_to}
        if each.events and each.events[0][0] > end:  # else the whole append is void
            held |= dict(each.events)
            end = each.events[-1][0]
        found.append(tuple(sorted(held.items(), key=lambda event: event[0])))
    return found


def check_journal(written: Sequence[Written], reads: Iterable[Read]) -> ReadVerdict:
    """Checks all reads of one journal; `written` is in the order of its one writer."""
    all_moments = moments(written)
    verdict = ReadVerdict()
    going_on: list[tuple[float, int]] = []
    seen = 0
    for read in sorted(reads, key=lambda read: read.began):
        while going_on and going_on[0][0] < read.began:
            seen = max(seen, heappop(going_on)[1])
        first = max(seen, sum(each.acknowledged < read.began for each in written))
        last = sum(each.sent < read.ended for each in written)
        # The earliest that fits leaves most to the reads after it.
        shown = next((at for at in range(first, last + 1) if all_moments[at] == read.events), None)
        if shown is not None:
            heappush(going_on, (read.ended, shown))
            verdict += ReadVerdict(1)
        else:
            verdict += _fault(read, all_moments[first : last + 1])
    return verdict


def check_journals(written: Mapping[str, Sequence[Written]], reads: Mapping[str, Iterable[Read]]) -> ReadVerdict:
    """Checks all reads of several journals; one that was never written holds nothing."""
    verdict = ReadVerdict()
    for id, seen in reads.items():
        found = check_journal(written.get(id, ()), seen)
        verdict += ReadVerdict(
            found.reads,
            found.out_of_order,
            found.lost,
            found.came_back,
            found.torn,
            tuple(f"journal {id}: {example}" for example in found.examples),
        )
    return verdict


def _fault(read: Read, could_be: Sequence[Shown]) -> ReadVerdict:
    numbers = [number for number, _ in read.events]
    if any(before >= after for before, after in pairwise(numbers)):
        return ReadVerdict(1, out_of_order=1, examples=(f"out of order: {numbers}",))
    shown = set(read.events)
    sure = set(could_be[0]).intersection(*could_be[1:])
    if missing := sure - shown:
        return ReadVerdict(1, lost=1, examples=(f"lost: {_name_events(missing)} of {_numbers(could_be[0])}",))
    if strange := shown - set().union(*could_be):
        return ReadVerdict(1, came_back=1, examples=(f"came back: {_name_events(strange)} to {_numbers(could_be[0])}",))
    return ReadVerdict(1, torn=1, examples=(f"torn: {numbers} is none of {[*map(_numbers, could_be)]}",))


def _name_events(events: Iterable[tuple[int, Hashable]]) -> str:
    return ", ".join(f"{number} ({what})" for number, what in sorted(events, key=lambda event: event[0])[:EXAMPLES])


def _numbers(shown: Shown) -> list[int]:
    return [number for number, _ in shown]
