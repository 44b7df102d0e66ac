"""What a replicator measures: every record once, with its type and times, whatever became of the slice on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from inorder.engines.measures import MeasureTally, read_histograms, under
from inorder.engines.slice_work import Measures, SliceOutcome
from inorder.journal.replication.job import ReplicateWork, ReplicateWorker, ReplicationTally, expiry_label
from inorder.journal.replication.store_port import JournalChange, ReplicaSlice
from inorder.journal.stores.ports import Expiry, JournalHead
from inorder.model.errors import FencedError, GuaranteeError, RejectedError, TransientError, UnknownOutcomeError
from inorder.model.journal import PartitionOffset
from tests.fakes.replica import MemoryReplica
from tests.unit.journal.acting import TIME
from tests.unit.journal.replicated_topic import TOPIC, Topic

READ_AFTER = 2.0
COMMITTED_AFTER = 3.0


class World:
    """A topic, a store, and a worker whose slices are read two seconds after their records were written."""

    def __init__(self, store: MemoryReplica | None = None) -> None:
        self.topic = Topic()
        self.store = store or MemoryReplica()
        self._moments: Iterator[float] = iter(())
        measuring = ReplicationTally(MeasureTally(), now=lambda: TIME.timestamp() + next(self._moments))
        self.worker = ReplicateWorker(self.store, 3, measuring)
        self._done = 0

    def flush(self) -> SliceOutcome:
        """Replicates what was written since the last time."""
        first, self._done = self._done, len(self.topic.records)
        return self.apply(first, self._done)

    def apply(self, first: int, end: int) -> SliceOutcome:
        self._moments = iter((READ_AFTER, COMMITTED_AFTER))
        return self.worker.apply(self.topic.slice(first, end), expected=0)


@pytest.fixture
def world() -> World:
    return World()


def counted(measures: Measures, *names: str) -> list[int]:
    return [measures.get(name, 0) for name in names]


def test_every_kind_of_record_is_counted_with_its_times(world: World) -> None:
    world.topic.append("a", 1, 2)
    world.topic.append("b", 1)
    world.topic.append("c", 1)
    world.topic.delete("a", 1)
    world.topic.purge("b")
    world.topic.mark("a")
    world.topic.foreign()
    measures = world.flush().measures
    assert counted(measures, "records", "events", "forks", "parked", "quarantined") == [6, 3, 0, 0, 0]
    assert measures["bytes"] == sum(len(record.value or b"") for record in world.topic.records[:6])
    for name, seconds in (("replication", COMMITTED_AFTER), ("delivery", READ_AFTER)):
        found = read_histograms(measures, name)
        assert {kind: sum(spread.counts) for kind, spread in found.items()} == {
            "append": 3, "delete": 1, "purge": 1, "mark": 1,
        }  # fmt: skip
        assert found["append"].total == pytest.approx(3 * seconds * 1_000_000)
    assert read_histograms(measures, "round")[""].total == pytest.approx(1_000_000, abs=1)
    assert measures["round_records#sum"] == 7
    assert dict(under(measures, "version")) == {"none": 6}
    assert set(read_histograms(measures, "store")) == {
        "lock_offset", "parked", "heads", "carry_out", "move_offset", "commit",
    }  # fmt: skip


def test_forks_and_quarantine_are_counted(world: World) -> None:
    world.topic.append("a", 1)
    world.topic.append("a", 1)
    world.topic.damaged_header("b")
    world.topic.append("b", 1)
    outcome = world.flush()
    assert counted(outcome.measures, "records", "events", "forks", "parked", "quarantined") == [4, 1, 1, 1, 2]
    assert outcome.rejected == 2


def test_journals_are_counted_by_how_long_they_live(world: World) -> None:
    world.topic.append("a", 1, expire_after=timedelta(hours=1))
    world.topic.append("b", 1, expire_after=timedelta(days=400))
    world.topic.append("c", 1)
    world.topic.append("c", 2)
    assert dict(under(world.flush().measures, "expiry")) == {"day": 1, "longer": 1, "none": 1}


@pytest.mark.parametrize(
    ("days", "word"), [(1, "day"), (7, "week"), (8, "month"), (31, "month"), (366, "year"), (367, "longer")]
)
def test_how_long_a_journal_lives_is_one_of_a_few_words(days: int, word: str) -> None:
    expiry = Expiry(timedelta(days=days), TIME.date())
    assert expiry_label(JournalHead(PartitionOffset(0, 1), 3, 1, expiry=expiry)) == word


def test_a_replayed_slice_counts_nothing_twice(world: World) -> None:
    world.topic.append("a", 1)
    world.topic.append("a", 2)
    first = world.apply(0, 1).measures
    second = world.apply(0, 2).measures
    third = world.apply(0, 2).measures
    assert [counted(each, "records", "events") for each in (first, second, third)] == [[1, 1], [1, 1], [0, 0]]
    assert not read_histograms(third, "replication")


class Fickle(MemoryReplica):
    """Raises an error after the first slice is written: the answer was lost, or another replicator was faster."""

    error: TransientError | None = None

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        with super().slice(topic, partition) as writing:
            yield writing
        error, self.error = self.error, None
        if error is not None:
            raise error


def test_a_commit_whose_answer_was_lost_is_counted_once() -> None:
    store = Fickle()
    world = World(store)
    store.error = UnknownOutcomeError("lost")
    world.topic.append("a", 1, 2)
    outcome = world.flush()
    assert (outcome.applied, counted(outcome.measures, "records", "events")) == (1, [1, 2])


def test_a_slice_that_another_has_applied_counts_nothing() -> None:
    store = Fickle()
    world = World(store)
    store.error = FencedError("somebody was faster")
    world.topic.append("a", 1)
    outcome = world.flush()
    assert (outcome.replayed, counted(outcome.measures, "records", "events")) == (1, [0, 0])


class Refusing(MemoryReplica):
    """Refuses everything of one journal."""

    @contextmanager
    def slice(self, topic: str, partition: int) -> Iterator[ReplicaSlice]:
        with super().slice(topic, partition) as writing:
            plain = writing.carry_out

            def carry_out(changes: Sequence[JournalChange]) -> None:
                if any(change.key.id == "bad" for change in changes):
                    raise RejectedError("refused")
                plain(changes)

            writing.carry_out = carry_out  # type: ignore[method-assign]  # a refusal of the store
            yield writing


def test_what_is_isolated_is_counted_like_anything_else() -> None:
    world = World(Refusing())
    world.topic.append("a", 1, expire_after=timedelta(days=1))
    world.topic.append("a", 2, expire_after=timedelta(days=1))
    world.topic.append("bad", 1)
    outcome = world.flush()
    assert (outcome.applied, outcome.rejected) == (2, 1)
    assert counted(outcome.measures, "records", "events", "quarantined", "parked") == [3, 2, 1, 1]
    assert dict(under(outcome.measures, "expiry")) == {"day": 1}


def test_errors_pass_through_and_their_time_is_told_with_the_next_slice(world: World) -> None:
    world.topic.append("a", 1)
    world._moments = iter((READ_AFTER,))
    with pytest.raises(GuaranteeError, match="pointer2"):
        world.worker.apply(world.topic.slice(0, 1), expected=9)
    assert sum(read_histograms(world.flush().measures, "store")["lock_offset"].counts) == 2


def test_the_question_for_the_offsets_is_timed_and_answered(world: World) -> None:
    world.topic.append("a", 1)
    world.flush()
    assert {number: pointer.next_offset for number, pointer in world.worker.pointers(TOPIC).items()} == {0: 1}
    assert sum(read_histograms(world.flush().measures, "store")["offsets"].counts) == 1


def test_a_work_measures_only_where_it_is_told_to() -> None:
    topic = Topic()
    topic.append("a", 1)
    store = MemoryReplica()
    plain, measured = (ReplicateWork((TOPIC,), lambda: store, is_measured=each).open() for each in (False, True))
    assert plain.apply(topic.slice(0, 1), 0).measures == {}
    topic.append("a", 2)
    assert measured.apply(topic.slice(1, 2), 0).measures["events"] == 1
    measured.close()
