"""What was carried against what should have been, by the checker that knows nothing of us."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from inorder.bench.load import Load, event_of
from inorder.bench.report import Check
from inorder.testing.checker import Event, Row, Verdict, check_delivery, check_rows

Value = bytes | None


def check_values(load: Load, values: Iterable[Value]) -> Check:
    """Compares a load with the values of a topic, in the order of each partition."""
    return _compared(load.events(), events_in(values))


def check_counts(counts: Mapping[int, int], values: Iterable[Value]) -> Check:
    """Compares how many events each key had with the values of a topic."""
    return _compared(_first_places(counts), events_in(values))


def check_begun(values: Iterable[Value]) -> Check:
    """Looks for holes, doubles and disorder in what was carried of a load that was not carried to its end."""
    found = events_in(values)
    reached: dict[int, int] = {}
    for key, place in found:
        reached[key] = max(place, reached.get(key, 0))
    return _compared(_first_places(reached), found)


def events_in(values: Iterable[Value]) -> list[tuple[int, int]]:
    """The events that values tell of."""
    return [event_of(value or b"{}") for value in values]


def _compared(expected: Iterable[Event], found: list[tuple[int, int]]) -> Check:
    return Check(len(found), len(set(found)), check_delivery(expected, found))


def _first_places(counts: Mapping[int, int]) -> Iterator[Event]:
    return ((key, place) for key, last in counts.items() for place in range(1, last + 1))


def check_table(load: Load, rows: Mapping[int, Row], counted: int) -> Check:
    """Compares the rows that a load leads to with a table, and its size with what the pipeline counted."""
    verdict = check_rows(load.final_rows(), rows)
    sums = Verdict(lost=max(0, load.rows - counted), duplicated=max(0, counted - load.rows))
    return Check(counted, len(rows), verdict + sums)


def check_live(total: int, numbers: Sequence[int]) -> Check:
    """Compares how many live records there were with those that were seen."""
    distinct = len(set(numbers))
    return Check(len(numbers), distinct, Verdict(lost=total - distinct, duplicated=len(numbers) - distinct))
