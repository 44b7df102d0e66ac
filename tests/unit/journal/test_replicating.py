"""The job `replicate`, slice by slice, on a store in memory: the behaviour of the seed, case by case."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from inorder.engines.slice_work import Slice, SliceOutcome
from inorder.journal.action import RemoveExpiry
from inorder.journal.replication.actions import SliceSource, group_by_journal, replicate_journal
from inorder.journal.replication.job import ReplicateWork, ReplicateWorker
from inorder.journal.replication.store_port import JournalChange, Quarantined, ReplicaSlice
from inorder.journal.replication.transition import UpdateHead
from inorder.journal.stores.ports import Expiry, JournalHead, LogRecord
from inorder.journal.stores.rows import header_column, quarantined_of, time_column
from inorder.model.errors import FencedError, GuaranteeError, UnknownOutcomeError
from tests.fakes.replica import MemoryReplica
from tests.unit.journal.acting import TIME
from tests.unit.journal.replicated_topic import TOPIC, Topic, key, shows


class World:
    """A topic, a store, and a worker between them."""

    def __init__(self, segment_size: int = 3, store: MemoryReplica | None = None) -> None:
        self.topic = Topic()
        self.store = store or MemoryReplica()
        self.worker = ReplicateWorker(self.store, segment_size)
        self._done = 0

    def flush(self) -> SliceOutcome:
        """Replicates what was written since the last time, as one slice."""
        first, self._done = self._done, len(self.topic.records)
        return self.worker.apply(self.topic.slice(first, self._done), expected=first)

    def head(self, id: str = "a") -> JournalHead | None:
        return self.store.pointer(key(id))

    def numbers(self, id: str = "a") -> list[int]:
        head = self.head(id)
        return [] if head is None else [event.seq_nr for event in self.store.read(key(id), head, 1)]

    def stored(self, id: str = "a") -> tuple[int, int | None, list[int]] | None:
        """seq_nr and delete_to of the head, and the numbers of the events."""
        head = self.head(id)
        return None if head is None else (head.seq_nr, head.delete_to, self.numbers(id))


@pytest.fixture
def world() -> World:
    return World()


class TestExpectedActionBehaviour:
    """The table at the end of the seed."""

    def test_a_mark_changes_nothing(self, world: World) -> None:
        world.topic.mark("a")
        assert (world.flush().ignored, world.stored(), world.store.offset(TOPIC, 0)) == (1, None, 0)
        world.topic.append("a", 1)
        world.flush()
        before = world.head()
        world.topic.mark("a")
        world.flush()
        assert (world.head(), world.store.offset(TOPIC, 0)) == (before, 2)

    def test_an_append_without_an_entry_makes_one_with_the_last_number(self, world: World) -> None:
        world.topic.append("a", 1, 2, 3)
        assert world.flush().applied == 1
        assert world.stored() == (3, None, [1, 2, 3])

    def test_an_append_to_an_entry_moves_its_number(self, world: World) -> None:
        world.topic.append("a", 1)
        world.flush()
        world.topic.append("a", 2, 3)
        world.flush()
        assert world.stored() == (3, None, [1, 2, 3])

    def test_a_delete_without_an_entry_makes_one_with_both_numbers(self, world: World) -> None:
        world.topic.delete("a", 5)
        world.flush()
        assert world.stored() == (5, 5, [])

    def test_a_delete_from_an_entry_moves_delete_to_and_removes_events(self, world: World) -> None:
        world.topic.append("a", 1, 2, 3, 4, 5)
        world.flush()
        world.topic.delete("a", 2)
        world.flush()
        assert world.stored() == (5, 2, [3, 4, 5])
        world.topic.delete("a", 5)
        world.flush()
        assert world.stored() == (5, 5, [])

    def test_a_purge_without_an_entry_does_nothing(self, world: World) -> None:
        world.topic.purge("a")
        assert (world.flush().applied, world.stored(), list(world.store.ids(TOPIC))) == (1, None, [])

    def test_a_purge_of_an_entry_removes_it_with_its_events(self, world: World) -> None:
        world.topic.append("a", 1, 2, 3, 4)
        world.topic.append("b", 1)
        world.flush()
        world.topic.purge("a")
        world.flush()
        assert (world.stored("a"), world.stored("b")) == (None, (1, None, [1]))

    def test_appends_and_deletes_keep_their_place_in_the_log(self, world: World) -> None:
        steps: list[Callable[[], None]] = [lambda: world.topic.append("a", 1), lambda: world.topic.delete("a", 1)]
        for step in steps:
            step()
            world.flush()
            head = world.head()
            assert head is not None
            assert (head.partition_offset.partition, head.partition_offset.offset) == (0, len(world.topic.records) - 1)


class TestTheCatalogueOfTheReplicator:
    def test_two_journals_in_one_slice_or_record_by_record(self, world: World) -> None:
        for other in (world, World()):
            for id, seq_nrs in (("a", [1]), ("b", [1, 2]), ("a", [2]), ("b", [3])):
                other.topic.append(id, *seq_nrs)
                if other is not world:
                    assert other.flush().next_offset == len(other.topic.records)
            if other is world:
                assert other.flush() == SliceOutcome(TOPIC, 0, next_offset=4, read=4, applied=4)
            assert (other.stored("a"), other.stored("b")) == ((2, None, [1, 2]), (3, None, [1, 2, 3]))

    def test_foreign_records_and_marks_move_the_offset(self, world: World) -> None:
        world.topic.foreign()
        world.topic.mark("a")
        assert world.flush() == SliceOutcome(TOPIC, 0, next_offset=2, read=2, ignored=2)
        assert world.store.offset(TOPIC, 0) == 1

    def test_the_last_expiry_of_a_slice_stays(self, world: World) -> None:
        world.topic.append("a", 1, expire_after=timedelta(minutes=1))
        world.topic.append("a", 2, expire_after=timedelta(minutes=2))
        world.flush()
        head = world.head()
        assert head is not None
        assert head.expiry == Expiry(timedelta(minutes=2), TIME.date())

    def test_append_and_purge_in_one_slice_leave_nothing(self, world: World) -> None:
        world.topic.append("a", 1)
        world.topic.purge("a")
        world.flush()
        assert world.stored() is None

    @pytest.mark.parametrize("applied", [0, 1, 2, 3, 4])
    def test_only_what_is_above_the_offset_is_applied(self, world: World, applied: int) -> None:
        for number in range(1, 5):
            world.topic.append("a", number)
        if applied:
            world.worker.apply(world.topic.slice(0, applied), expected=0)
        outcome = world.worker.apply(world.topic.slice(0, 4), expected=0)
        assert (outcome.applied, outcome.replayed, outcome.next_offset) == (4 - applied, applied, 4)
        assert world.numbers() == [1, 2, 3, 4]

    def test_everything_old_writes_nothing(self, world: World) -> None:
        world.topic.append("a", 1)
        world.flush()
        writes = world.store.writes
        assert world.worker.apply(world.topic.slice(0, 1), expected=1).replayed == 1
        assert world.store.writes == writes


def test_an_offset_below_one_that_was_seen_stops_the_job(world: World) -> None:
    world.topic.append("a", 1)
    world.flush()
    with pytest.raises(GuaranteeError, match="all below 7 was replicated before"):
        world.worker.apply(world.topic.slice(0, 1), expected=7)


def test_a_slice_out_of_order_is_refused(world: World) -> None:
    with pytest.raises(GuaranteeError, match="Out of order"):
        world.worker.apply(Slice(TOPIC, 0, [1, 0], [b"a"] * 2, [None] * 2, [0, 0], [(), ()]), expected=0)
    assert world.store.writes == 0


class Uncertain(MemoryReplica):
    """A store whose answer to a commit is lost, so many times, after or before the commit."""

    def __init__(self, times: int, *, is_committed: bool) -> None:
        super().__init__()
        self._times = times
        self._is_committed = is_committed

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        with super().slice(topic, partition) as writing:
            yield writing
        if self._times:
            self._times -= 1
            if not self._is_committed:
                self._journals, self._offsets = {}, {}
            raise UnknownOutcomeError("The answer is lost.")


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_unknown_commit_is_settled_by_the_offset(is_committed: bool) -> None:
    world = World(store=Uncertain(1, is_committed=is_committed))
    world.topic.append("a", 1)
    outcome = world.flush()
    assert (outcome.applied, outcome.replayed, world.numbers()) == (1, 0, [1])


def test_a_commit_that_stays_unknown_is_told() -> None:
    world = World(store=Uncertain(9, is_committed=False))
    world.topic.append("a", 1)
    with pytest.raises(UnknownOutcomeError, match="unknown after 3 attempts"):
        world.flush()


def test_one_who_is_fenced_reads_the_offset_again_and_drops_what_is_applied(world: World) -> None:
    world.topic.append("a", 1)
    batch = world.topic.slice(0, 1)
    world.store.compares = True
    world.store.before_writing = lambda: _applied(world, batch)
    outcome = world.worker.apply(batch, expected=0)
    assert (outcome.replayed, world.numbers()) == (1, [1])


def test_where_the_largest_offset_wins_both_have_applied_it(world: World) -> None:
    world.topic.append("a", 1)
    world.topic.append("a", 2)
    world.store.before_writing = lambda: _applied(world, world.topic.slice(0, 2))
    outcome = world.worker.apply(world.topic.slice(0, 1), expected=0)
    assert (outcome.applied, outcome.next_offset, world.numbers(), world.store.offset(TOPIC, 0)) == (1, 1, [1, 2], 1)


def _applied(world: World, batch: Slice) -> None:
    ReplicateWorker(world.store, 3).apply(batch, expected=0)


def test_one_who_is_fenced_for_ever_gives_up_for_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def move(*_: object) -> None:
        raise FencedError("Another one.")

    monkeypatch.setattr("tests.fakes.replica._Slice.move_offset", move)
    world.topic.append("a", 1)
    with pytest.raises(UnknownOutcomeError, match="Another one"):
        world.flush()


def test_forks_are_reported_and_do_not_count(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.topic.append("a", 1, 2)
    world.topic.append("a", 2)
    world.flush()
    assert world.numbers() == [1, 2]
    assert [record.message for record in caplog.records] == ["journal.fork"]


@pytest.mark.parametrize("together", [True, False])
def test_an_append_that_a_fork_follows_is_not_dropped_for_a_later_delete(together: bool) -> None:
    world = World()
    steps: list[Callable[[], None]] = [
        lambda: world.topic.append("a", 5),
        lambda: world.topic.append("a", 3),
        lambda: world.topic.delete("a", 5),
        lambda: world.topic.append("a", 4),
    ]
    for step in steps:
        step()
        if not together:
            world.flush()
    if together:
        world.flush()
    assert shows(world.store, "a") == world.topic.says("a") == (5, ())


def test_the_work_travels_and_is_a_key() -> None:
    work = ReplicateWork(("journal",), MemoryReplica, 7)
    again = pickle.loads(pickle.dumps(work))  # noqa: S301 - ours
    assert (again, hash(again), again.needs_headers, again.name) == (work, hash(work), True, "replicate")
    worker = again.open()
    assert worker.pointers("journal") == {}
    worker.close()


def test_pointers_are_what_comes_next(world: World) -> None:
    world.topic.append("a", 1)
    world.flush()
    assert {number: pointer.next_offset for number, pointer in world.worker.pointers(TOPIC).items()} == {0: 1}


def change_of(topic: Topic, first: int, end: int, head: JournalHead | None) -> JournalChange:
    records = group_by_journal(topic.slice(first, end), -1).journals[key("a")]
    return replicate_journal(SliceSource(TOPIC, 0, 3), key("a"), head, records).change


def test_a_life_has_one_name_however_the_log_is_cut() -> None:
    topic = Topic()
    topic.append("a", 1)
    topic.append("a", 2)
    topic.delete("a", 1)
    alone, together = change_of(topic, 0, 1, None).head, change_of(topic, 0, 3, None).head
    assert alone is not None
    assert together is not None
    assert alone.record_id == together.record_id


def test_an_expiry_that_came_and_went_in_one_slice_is_written_so_that_nobody_late_brings_it_back() -> None:
    topic = Topic()
    topic.append("a", 1)
    topic.append("a", 2, expire_after=timedelta(days=1))
    topic.append("a", 3)
    update = change_of(topic, 1, 3, change_of(topic, 0, 1, None).head).statements[-1].statement
    assert isinstance(update, UpdateHead)
    assert update.expiry == RemoveExpiry()


def test_records_come_back_from_quarantine_byte_by_byte() -> None:
    headers = (("journal.action", b"\xff\x00"), ("same", None), ("same", b"twice"), ("n\0", b""))
    record = LogRecord(7, 1_767_268_800_123, b"\xff", b"\x00", headers)
    back = quarantined_of("journal", "a", 3, "why", 7, time_column(record), b"\xff", b"\x00", header_column(record))
    assert back == Quarantined(key("a"), 3, "why", record)
    timeless = record._replace(timestamp_ms=None)
    assert time_column(timeless) is None
    assert quarantined_of("journal", "a", 3, "", 7, None, None, None, "[]").record.timestamp_ms is None
