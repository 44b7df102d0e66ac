"""A partition that waits for its table: what is tried, when, and what is never passed over."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.holds import HEAD_RECORDS, LONGEST_PATIENCE_SECONDS, LONGEST_PAUSE_SECONDS, Holds
from inorder.engines.in_process import apply_all
from inorder.engines.job_status import JobFigures
from inorder.engines.progress import NULL_LISTENER, CompositeListener, LoggingListener, RunTotals
from inorder.engines.slice_work import PATIENCE_SECONDS, PORTION_BYTES, Pointer, Reading, Slice, SliceOutcome
from inorder.model.errors import ConfigurationError, GuaranteeError, InorderError, MassRefusalError
from inorder.model.partitioning import Place
from inorder.pipeline.job import TableTarget, UpsertWork
from inorder.pipeline.mapping import TableMapping
from tests.fakes.table_store import MemoryTableStore, StoredRow, message, slice_of
from tests.selection import examples

PLACE = ("upsert", 0)


@dataclass
class Heard:
    waiting: list[Place] = field(default_factory=list)

    def applied(self, outcome: SliceOutcome) -> None: ...

    def spent(self, phases: Mapping[str, float]) -> None: ...

    def stopped(self, place: Place, error: GuaranteeError) -> None: ...

    def restarted(self, places: Collection[Place], error: InorderError) -> None:
        """Not kept."""

    def waits(self, place: Place, error: MassRefusalError) -> None:
        assert error.message
        self.waiting.append(place)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def records(first: int, after: int, partition: int = 0, size: int = 1) -> Slice:
    return slice_of(*((offset, b"x" * size) for offset in range(first, after)), partition=partition)


def test_it_is_tried_after_a_second_and_then_less_and_less_often_and_reported_once_it_is_certain() -> None:
    clock, heard = Clock(), Heard()
    holds = Holds(heard, clock=clock, jitter=float)
    holds.hold(PLACE, MassRefusalError("no"), records(0, 1))
    assert (list(holds.due()), heard.waiting) == ([], [])
    pauses = []
    for _ in range(6):
        before = clock.now
        while not list(holds.due()):
            clock.now += 0.25
        pauses.append(clock.now - before)
        holds.hold(PLACE, certain())
    assert pauses == [PATIENCE_SECONDS, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE_SECONDS]
    assert heard.waiting == [PLACE] * 6
    assert holds.waited(PLACE) == math.inf


def certain() -> MassRefusalError:
    error = MassRefusalError("no")
    error.is_certain = True
    return error


def test_a_few_records_are_waited_with_while_more_arrive_but_not_for_ever() -> None:
    clock, heard = Clock(), Heard()
    holds = Holds(heard, clock=clock)
    holds.hold(PLACE, MassRefusalError("no"), records(0, 1))
    for number in range(1, 10):
        clock.now = float(number)
        holds.keep(records(number, number + 1))
        [head] = holds.due_heads()
        assert (len(head), head.waited_seconds) == (number + 1, 0.0)
        holds.hold(PLACE, MassRefusalError("no"))
    clock.now = 9.75
    assert holds.waited(PLACE) == 0.75
    clock.now = LONGEST_PATIENCE_SECONDS
    assert holds.waited(PLACE) == math.inf
    assert heard.waiting == []


def test_records_that_are_read_for_each_attempt_count_as_arrived_too() -> None:
    clock = Clock()
    holds = Holds(NULL_LISTENER, clock=clock)
    holds.hold(PLACE, MassRefusalError("no"))
    clock.now = 1.0
    holds.saw(PLACE, 5)
    assert holds.waited(PLACE) == 0.0
    clock.now = 2.0
    holds.saw(PLACE, 5)
    assert holds.waited(PLACE) == 1.0


def test_later_records_are_tried_together_with_the_first_and_few_of_them_are_kept() -> None:
    clock = Clock()
    holds = Holds(NULL_LISTENER, clock=clock)
    holds.hold(PLACE, MassRefusalError("no"), records(5, 6))
    holds.keep(records(6, 9))
    clock.now = 1.0
    [head] = holds.due_heads()
    assert (list(head.offsets), head.waited_seconds) == ([5, 6, 7, 8], 1.0)  # they came at the same moment
    assert not holds.release(PLACE)


def test_what_is_tried_again_begins_where_the_table_refuses() -> None:
    clock = Clock()
    holds, error = Holds(NULL_LISTENER, clock=clock), certain()
    error.offset = 400
    holds.hold(PLACE, error, records(0, 1_000))
    clock.now = 1.0
    [head] = holds.due_heads()
    assert list(head.offsets) == list(range(400, 400 + HEAD_RECORDS))


@pytest.mark.parametrize("later", [records(6, 7 + HEAD_RECORDS), records(6, 7, size=PORTION_BYTES)])
def test_what_is_not_kept_is_read_again(later: Slice) -> None:
    holds = Holds(NULL_LISTENER)
    holds.hold(PLACE, MassRefusalError("no"), records(5, 6))
    holds.keep(later)
    holds.keep(records(1_000, 1_001))
    assert holds.release(PLACE)


def test_a_run_that_does_not_wait_gives_the_partition_up() -> None:
    heard = Heard()
    holds = Holds(heard, once=True)
    assert holds.waited(PLACE) == math.inf
    holds.hold(PLACE, MassRefusalError("no"), records(0, 1))
    assert (list(holds.due()), heard.waiting, len(holds.errors)) == ([], [PLACE], 1)


def test_a_partition_that_waits_is_in_health_and_metrics_until_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    figures, totals = JobFigures("upsert", clock), RunTotals()
    listener = LoggingListener(CompositeListener(figures, totals))
    listener.waits(PLACE, MassRefusalError("upsert[0] waits at offset 5"))
    clock.now = 7_200.0
    listener.waits(PLACE, MassRefusalError("upsert[0] waits at offset 5"))
    assert figures.trouble == "upsert[0] waits at offset 5"
    assert totals.as_dict()["waiting"] == ["upsert[0]"]
    assert figures.reading(is_running=True, lag=None).waiting == {PLACE: 7_200.0}
    with caplog.at_level("INFO", "inorder.pipeline"):
        listener.applied(SliceOutcome(*PLACE, next_offset=6, read=1, applied=1))
    assert "pipeline.partition_goes_on" in caplog.messages
    assert figures.trouble == ""
    assert totals.as_dict()["waiting"] == []
    assert figures.reading(is_running=True, lag=None).waiting == {}


@dataclass
class Table:
    """Refuses the records of partition 0 until a moment; keeps the order of everything."""

    clock: Clock
    broken_until: float
    applied: list[tuple[int, int]] = field(default_factory=list)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        assert expected <= batch.offsets[0] or batch.partition == 1
        if batch.partition == 0 and self.clock.now < self.broken_until:
            raise MassRefusalError("the trigger raised")
        self.applied += [(batch.partition, offset) for offset in batch.offsets]
        return SliceOutcome(batch.topic, batch.partition, batch.next_offset, read=len(batch), applied=len(batch))

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        raise AssertionError(topic)

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        raise AssertionError(topic, topic_id, firsts)

    def close(self) -> None: ...


@dataclass
class Log:
    """Two partitions, read in steps of given sizes; each step takes a while."""

    clock: Clock
    steps: list[int]
    at: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    end: int = 0

    def read(self, most: int, seconds: float) -> Reading:
        assert (most, seconds) > (0, 0)
        self.clock.now += 0.3
        self.end += self.steps.pop(0) if self.steps else 0
        slices = [records(first, self.end, partition) for partition, first in self.at.items() if first < self.end]
        self.at = {partition: max(first, self.end) for partition, first in self.at.items()}
        return Reading(slices, frozenset())

    def close(self) -> None: ...


@examples(100)
@given(st.lists(st.integers(0, 60), max_size=30), st.floats(0, 12))
def test_no_record_is_passed_over_and_none_is_applied_out_of_turn(steps: list[int], broken: float) -> None:
    clock = Clock()
    table, total = Table(clock, broken), sum(steps)
    holds = Holds(NULL_LISTENER, clock=clock, jitter=float)
    expected: dict[Place, int] = {}
    log = Log(clock, list(steps))
    while apply_all(
        log, table, NULL_LISTENER, ids={}, expected=expected, goes_on=lambda: clock.now < 60.0, holds=holds
    ):
        # As a reader that is opened at the pointers.
        log = Log(clock, log.steps, {number: expected.get(("upsert", number), 0) for number in (0, 1)}, log.end)
        holds.read_again()
    for number in (0, 1):
        assert [offset for partition, offset in table.applied if partition == number] == list(range(total))


def test_the_others_go_on_while_one_waits() -> None:
    clock = Clock()
    table = Table(clock, math.inf)
    apply_all(
        Log(clock, [10, 10, 500, 1]),
        table,
        NULL_LISTENER,
        ids={},
        expected={},
        goes_on=lambda: clock.now < 30.0,
        holds=Holds(NULL_LISTENER, clock=clock),
    )
    assert table.applied == [(1, offset) for offset in range(521)]


def test_other_tables_go_on_while_one_cannot_be_written_and_it_goes_on_when_it_can() -> None:
    clock = Clock()

    def fail(_row: StoredRow) -> bool:
        if clock.now < 20.0:
            error = ConfigurationError("relation messages does not exist.")
            error.is_of_target = True
            raise error
        return False

    gone, good = MemoryTableStore(refuses=fail), MemoryTableStore()
    tables = TableMapping("gone", "gone", "gone"), TableMapping("good", "good", "good")
    work = UpsertWork(tuple(map(TableTarget, tables, (lambda: gone, lambda: good))))
    written: list[int] = []

    class TwoTopics(Log):
        def read(self, most: int, seconds: float) -> Reading:
            found = super().read(most, seconds)
            written.append(len(good.contents.rows))
            topics = {0: "gone", 1: "good"}
            keyed = [
                slice_of(*((at, message(at, data="x")) for at in each.offsets), topic=topics[each.partition])
                for each in found.slices
            ]
            return Reading(keyed, frozenset())

    heard = Heard()
    apply_all(
        TwoTopics(clock, [5, 10]),
        work.open(),
        NULL_LISTENER,
        ids={},
        expected={},
        goes_on=lambda: clock.now < 40.0,
        holds=Holds(heard, clock=clock, jitter=float),
    )
    assert (len(good.contents.rows), len(gone.contents.rows)) == (15, 15)
    assert written[:3] == [0, 5, 15], "the others are not delayed"
    assert set(heard.waiting) == {("gone", 0)}
    assert gone.contents.letters == {}


def test_once_reads_the_others_to_their_end() -> None:
    clock = Clock()
    table, holds = Table(clock, math.inf), Holds(NULL_LISTENER, once=True, clock=clock)
    end = {("upsert", 0), ("upsert", 1)}
    log = Log(clock, [10, 10])

    class Ending(Log):
        def read(self, most: int, seconds: float) -> Reading:
            found = log.read(most, seconds)
            return found if found.slices else found._replace(ended=frozenset(end))

    apply_all(
        Ending(clock, []), table, NULL_LISTENER, ids={}, expected={}, goes_on=lambda: True, holds=holds, unread=set(end)
    )
    assert len(table.applied) == 20
    assert [str(error) for error in holds.errors] == ["the trigger raised"]
