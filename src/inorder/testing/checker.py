"""The checker: what was committed against what arrived, without a line of the code that carried it.

It does not know relays, offsets or pipelines. It takes what writers recorded when their COMMIT returned and what
readers found afterwards, and counts every way in which the two can disagree. An event is identified by its key and its
place in the key's history, which the writer counts inside its own transaction: 1, 2, 3 and so on, without holes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Event = tuple[Hashable, int]
"""A key, and the place of the event in that key's history."""

Row = Mapping[str, object]

Key = TypeVar("Key", bound=Hashable)

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """How often each guarantee was broken, with some examples."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    phantom: int = 0
    examples: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether nothing was broken."""
        return not (self.lost or self.duplicated or self.out_of_order or self.phantom)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.out_of_order + other.out_of_order,
            self.phantom + other.phantom,
            (*self.examples, *other.examples),
        )


def check_delivery(committed: Iterable[Event], delivered: Iterable[Event]) -> Verdict:
    """Compares events committed (in any order) with events delivered, in the order in which a reader saw each key."""
    wanted = Counter(committed)
    seen: Counter[Event] = Counter()
    newest: dict[Hashable, int] = defaultdict(int)
    late: list[Event] = []
    for event in delivered:
        key, place = event
        # A second copy is counted as a duplicate; it is out of order only if the first one was.
        if not seen[event] and place < newest[key]:
            late.append(event)
        seen[event] += 1
        newest[key] = max(newest[key], place)
    lost = sorted((event for event in wanted if event not in seen), key=str)
    phantom = sorted((event for event in seen if event not in wanted), key=str)
    doubled = sorted((event for event in seen if seen[event] > 1), key=str)
    return Verdict(
        lost=len(lost),
        duplicated=sum(seen[event] - 1 for event in doubled),
        out_of_order=len(late),
        phantom=len(phantom),
        examples=(
            *_examples("lost", lost),
            *_examples("duplicated", doubled),
            *_examples("out of order", late),
            *_examples("delivered but never committed", phantom),
        ),
    )


def check_placement(places: Iterable[tuple[Key, int]]) -> Verdict:
    """Finds keys that were seen in more than one partition: no consumer can keep such a key's events in order."""
    homes: dict[Key, set[int]] = defaultdict(set)
    for key, partition in places:
        homes[key].add(partition)
    torn = [key for key, partitions in homes.items() if len(partitions) > 1]
    examples = tuple(f"out of order: key {key!r} is in partitions {sorted(homes[key])}" for key in torn[:EXAMPLES])
    return Verdict(out_of_order=len(torn), examples=examples)


def check_rows(expected: Mapping[Key, Row], found: Mapping[Key, Row]) -> Verdict:
    """Compares the rows that should be in a table with those that are: a wrong or missing row lost an update."""
    wrong = [key for key, row in expected.items() if found.get(key) != row]
    phantom = [key for key in found if key not in expected]
    examples = [f"row {key!r} is {found.get(key)!r}, not {expected[key]!r}" for key in wrong[:EXAMPLES]]
    examples += [f"row {key!r} comes from nowhere" for key in phantom[:EXAMPLES]]
    return Verdict(lost=len(wrong), phantom=len(phantom), examples=tuple(examples))


def fold_updates(history: Iterable[tuple[int, Row]]) -> dict[str, object]:
    """The state that partial updates lead to, applied one after the other in the order of their places."""
    state: dict[str, object] = {}
    for _, update in sorted(history, key=lambda entry: entry[0]):
        state.update(update)
    return state


def _examples(what: str, events: list[Event]) -> tuple[str, ...]:
    return tuple(f"{what}: key {key!r}, event {place}" for key, place in events[:EXAMPLES])
