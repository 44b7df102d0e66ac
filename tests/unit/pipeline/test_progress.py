"""What a run tells: sums by record, seconds by phase, the age of the last slice; and how far it is behind."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from inorder.engines.progress import NULL_LISTENER, CompositeListener, LoggingListener, RunTotals, add_outcomes
from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Reading, SliceOutcome
from inorder.engines.survey import backlog, behind
from inorder.model.partitioning import Extent, Place
from tests.fakes.table_store import slice_of

FIRST = SliceOutcome("a", 0, next_offset=4, read=4, applied=2, identical=1, ignored=1)
SECOND = SliceOutcome("a", 0, next_offset=9, read=5, applied=1, stale=1, rejected=1, replayed=2)


def test_two_outcomes_of_a_partition_are_told_as_one() -> None:
    assert add_outcomes(FIRST, SECOND) == SliceOutcome(
        "a", 0, next_offset=9, read=9, applied=3, identical=1, stale=1, ignored=1, rejected=1, replayed=2
    )


def test_progress_keeps_the_sums_the_phases_and_the_age_of_the_last_slice() -> None:
    now = 100.0
    progress = RunTotals(clock=lambda: now)
    assert progress.as_dict()["last_slice_age"] is None
    for outcome in (FIRST, SECOND):
        progress.applied(outcome)
    progress.spent({"read": 0.5, "apply": 1.0})
    progress.spent({"apply": 0.25})
    now = 102.5
    figures = progress.as_dict()
    assert progress.totals() == {
        "read": 9, "applied": 3, "identical": 1, "stale": 1, "ignored": 1, "rejected": 1, "replayed": 2,
    }  # fmt: skip
    assert figures["phase_seconds"] == {"apply": 1.25, "read": 0.5}
    assert figures["last_slice_age"] == 2.5


def test_records_that_were_not_applied_are_logged_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        LoggingListener(NULL_LISTENER).applied(FIRST)
        assert caplog.text == ""
        LoggingListener(NULL_LISTENER).applied(SECOND)
    [record] = caplog.records
    assert record.getMessage() == "pipeline.records_not_applied"
    fields = {"topic": "a", "partition": 0, "next_offset": 9, "rejected": 1, "stale": 1}
    assert fields.items() <= vars(record).items()


def test_a_logged_outcome_is_forwarded() -> None:
    totals = RunTotals()
    LoggingListener(totals).applied(FIRST)
    assert totals.totals()["read"] == 4


def test_several_listeners_hear_the_same() -> None:
    first, second = RunTotals(), RunTotals()
    both = CompositeListener(first, second)
    both.applied(FIRST)
    both.spent({"read": 1.0})
    assert first.totals() == second.totals()
    assert second.as_dict()["phase_seconds"] == {"read": 1.0}


@dataclass
class EndingSource:
    """Partitions with these extents; `left` of them hold a record above their pointer."""

    held: dict[str, dict[int, Extent]]
    left: set[Place] = field(default_factory=set)
    starts: dict[Place, int | None] = field(default_factory=dict)
    hidden: dict[Place, int] = field(default_factory=dict)
    """Offsets of open transactions."""
    asked: list[tuple[dict[Place, int], bool]] = field(default_factory=list)

    def extents(self, topic: str) -> Mapping[int, Extent] | None:
        return self.held.get(topic)

    def partitions(self, topic: str) -> int | None:
        raise AssertionError(topic)

    def topic_id(self, topic: str) -> str | None:
        raise AssertionError(topic)

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,  # noqa: ARG002 - the port's signature
    ) -> PartitionReader:
        assert (headers, reports_ends) == (False, True)
        self.starts = dict(starts)
        return self

    def read(self, most: int, seconds: float) -> Reading:
        assert most
        assert seconds
        slices = [slice_of((7, b"{}"), topic=topic, partition=number) for topic, number in sorted(self.left)]
        return Reading(slices, frozenset(self.starts))

    def written_ends(self, topic: str) -> Mapping[int, int]:
        return {number: extent.end + self.hidden.get((topic, number), 0) for number, extent in self.held[topic].items()}

    def first_times(self, starts: Mapping[Place, int], *, committed: bool = True) -> Mapping[Place, int]:
        self.asked.append((dict(starts), committed))
        return {place: 1_000 * start for place, start in starts.items()}

    def close(self) -> None:
        """Nothing is open."""


def test_offsets_behind_are_those_up_to_the_end() -> None:
    source = EndingSource({"a": {0: Extent(0, 5_000), 1: Extent(2_000, 9_000)}, "b": {0: Extent(0, 4)}})
    assert behind(source, ("a", "b", "none"), {("a", 0): 1_000, ("b", 0): 4}) == {
        ("a", 0): 4_000,
        ("a", 1): 7_000,
        ("b", 0): 0,
    }
    assert source.starts == {}


def test_marks_of_transactions_are_no_records_that_wait() -> None:
    source = EndingSource({"a": {0: Extent(0, 10), 1: Extent(0, 10)}}, left={("a", 1)})
    assert behind(source, ("a",), {("a", 0): 9, ("a", 1): 7}) == {("a", 0): 0, ("a", 1): 3}
    assert source.starts == {("a", 0): 9, ("a", 1): 7}


def test_a_backlog_shows_the_oldest_record_and_what_hides_behind_an_open_transaction() -> None:
    held = {0: Extent(0, 5_000), 1: Extent(2_000, 9_000), 2: Extent(0, 70), 3: Extent(0, 30)}
    source = EndingSource({"a": held}, hidden={("a", 1): 3, ("a", 2): 5})
    found = backlog(source, ("a",), {("a", 0): 1_000, ("a", 2): 70, ("a", 3): 30}, clock=lambda: 2_500.0)
    assert found.records == {("a", 0): 4_000, ("a", 1): 7_000, ("a", 2): 0, ("a", 3): 0}
    assert found.undecided == {("a", 0): 0, ("a", 1): 3, ("a", 2): 5, ("a", 3): 0}
    # Committed records are looked for from the pointer on, or from the first that is left; others from the stable end.
    assert source.asked == [({("a", 0): 1_000, ("a", 1): 2_000}, True), ({("a", 2): 70}, False)]
    assert found.oldest_seconds == {("a", 0): 1_500.0, ("a", 1): 500.0, ("a", 2): 2_430.0}
