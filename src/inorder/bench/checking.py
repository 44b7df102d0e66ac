"""What was carried against what should have been, by the checker that knows nothing of us."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from inorder.bench.load import Load, event_of
from inorder.bench.report import Check
from inorder.testing.checker import Row, Verdict, check_delivery, check_rows


def check_values(load: Load, values: Iterable[bytes | None]) -> Check:
    """Compares a load with the values of a topic, in the order of each partition."""
    found = [event_of(value or b"{}") for value in values]
    return Check(len(found), len(set(found)), check_delivery(load.events(), found))


def check_table(load: Load, rows: Mapping[int, Row], counted: int) -> Check:
    """Compares the rows that a load leads to with a table, and its size with what the pipeline counted."""
    verdict = check_rows(load.final_rows(), rows)
    sums = Verdict(lost=max(0, load.rows - counted), duplicated=max(0, counted - load.rows))
    return Check(counted, len(rows), verdict + sums)


def check_live(total: int, numbers: Sequence[int]) -> Check:
    """Compares how many live records there were with those that were seen."""
    distinct = len(set(numbers))
    return Check(len(numbers), distinct, Verdict(lost=total - distinct, duplicated=len(numbers) - distinct))
