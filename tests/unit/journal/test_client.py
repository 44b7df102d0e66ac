"""What applications call: what it writes, what it returns, and what it refuses."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta

import pytest

from inorder.journal.action import NOT_BEGUN, Append, Condition, Delete, Mark, Purge
from inorder.journal.codec import action_of
from inorder.journal.life import life_id
from inorder.model.errors import SeqNrConflictError, UnknownOutcomeError, ValidationError
from inorder.model.journal import MAX_SEQ_NR, Event, Json, PartitionOffset, PayloadMetadata, RecordMetadata
from inorder.model.message import Record
from inorder.testing.memory_journal import REGIMES, MemoryJournalLog, Regime
from tests.unit.journal.world import KEY, NOON, World, event


def written(world: World) -> list[str]:
    records = world.log.records_between(KEY.topic, 0, 0, world.log.end(KEY.topic, 0))
    return [type(action_of(record, KEY.topic, 0)).__name__ for record in records]


def test_events_of_one_append_are_one_record() -> None:
    world = World()
    assert world.append(1, 2, 3) == PartitionOffset(0, 0)
    assert written(world) == ["Append"]


def test_everything_about_an_event_comes_back() -> None:
    events = [
        Event(1, b"bytes", frozenset({"a", "b"})),
        Event(2, "text"),
        Event(3, {"json": [1, None]}),
        Event(4, Json("text")),
        Event(5),
    ]
    for regime in (REGIMES[0], REGIMES[2]):
        world = World().follow(regime)
        world.journal.append(
            events, expire_after=timedelta(days=1), metadata={"a": 1}, data={"b": 2}, headers={"trace": "x"}
        )
        records = list(world.journal.read())
        assert [record.event for record in records] == events
        assert {record.partition_offset for record in records} == {PartitionOffset(0, 0)}
        assert records[0].metadata == RecordMetadata({"a": 1}, PayloadMetadata(timedelta(days=1), {"b": 2}))
        assert (records[0].headers, records[0].timestamp) == ({"trace": "x"}, NOON)


def test_appends_may_be_on_their_way_together() -> None:
    world = World()
    places = [world.journal.append_later([event(seq_nr)]) for seq_nr in (1, 2, 3)]
    assert [place.result().offset for place in places] == [0, 1, 2]
    assert world.read() == [1, 2, 3]


def test_a_mark_is_one_record_with_its_id() -> None:
    world = World()
    assert world.journal.mark("x") == PartitionOffset(0, 0)
    assert action_of(world.log.records_between(KEY.topic, 0, 0, 1)[0], KEY.topic, 0) == Mark("x")


def test_a_delete_asks_where_the_journal_ends() -> None:
    world = World()
    assert world.journal.delete(5) is None
    assert written(world) == ["Mark"]
    world.append(1, 2)
    assert world.journal.delete() == PartitionOffset(0, 3)
    life = life_id(KEY, 0, 1)
    delete = Delete(2, condition=Condition(life, seen=PartitionOffset(0, 2)))
    assert action_of(world.log.records_between(KEY.topic, 0, 3, 4)[0], KEY.topic, 0) == delete
    assert world.journal.life() == life


def test_a_purge_is_always_written() -> None:
    world = World()
    assert world.journal.purge() == PartitionOffset(0, 1)
    purge = Purge(condition=Condition(NOT_BEGUN, seen=PartitionOffset(0, 0)))
    assert action_of(world.log.records_between(KEY.topic, 0, 1, 2)[0], KEY.topic, 0) == purge


def test_ids_are_those_that_are_replicated() -> None:
    world = World()
    world.append(1)
    assert list(world.journals.ids(KEY.topic)) == []
    world.replicate()
    assert list(world.journals.ids(KEY.topic)) == [KEY.id]
    assert list(world.journals.ids("unknown")) == []


class TestExpectedSeqNr:
    """Optimistic concurrency: an append that rests on what is no longer true is refused."""

    @pytest.mark.parametrize("regime", [REGIMES[0], REGIMES[2], REGIMES[7]])
    def test_it_is_written_where_the_journal_ends_there(self, regime: Regime) -> None:
        world = World().follow(regime)
        world.journal.append([event(1)], expected_seq_nr=0)
        world.journal.append([event(2), event(3)], expected_seq_nr=1)
        world.journal.delete()
        world.journal.append([event(4)], expected_seq_nr=3)
        assert world.read() == [4]

    @pytest.mark.parametrize(("expected", "found"), [(0, 2), (1, 2), (3, 2)])
    def test_it_is_refused_without_writing_where_not(self, expected: int, found: int) -> None:
        world = World()
        world.append(1, 2)
        with pytest.raises(SeqNrConflictError) as caught:
            world.journal.append([event(3)], expected_seq_nr=expected)
        assert (caught.value.expected, caught.value.found) == (expected, found)
        assert "nothing was written" in caught.value.message
        assert written(world) == ["Append", "Mark"]

    def test_a_writer_that_comes_in_between_is_noticed(self) -> None:
        world = World()
        world.append(1)
        rival = World(log=world.log, store=world.store)

        def race(*_: object) -> None:
            world.log.on_sent = lambda *_: None
            rival.append(2)

        world.log.on_sent = race
        with pytest.raises(SeqNrConflictError, match="the append at 0:3 does not count"):
            world.journal.append([event(2)], expected_seq_nr=1)
        # The first one counts. The second is no fork: its writer knows.
        records = list(world.journal.read())
        assert [(record.seq_nr, record.offset) for record in records] == [(1, 0), (2, 2)]
        assert world.forks == []

    def test_records_of_others_in_between_do_not_matter(self) -> None:
        world = World()
        noisy = World(log=world.log, store=world.store)

        def noise(*_: object) -> None:
            world.log.on_sent = lambda *_: None
            noisy.other("another").append([event(1)])

        world.log.on_sent = noise
        assert world.journal.append([event(1)], expected_seq_nr=0) == PartitionOffset(0, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda journal: journal.append([]),
        lambda journal: journal.append([Event(0)]),
        lambda journal: journal.append([Event(2), Event(1)]),
        lambda journal: journal.append([Event(1)], expected_seq_nr=-1),
        lambda journal: journal.append([Event(1)], expire_after=timedelta(0)),
        lambda journal: journal.append([Event(1)], headers={"journal.action": "x"}),
        lambda journal: journal.append([Event(1)], headers={"a": "\ud800"}),
        lambda journal: journal.append([Event(1, b"x" * 2_000_000)]),
        lambda journal: journal.append([Event(1, {"a": float("inf")})]),
        lambda journal: journal.read(0),
        lambda journal: journal.read(2, 1),
        lambda journal: journal.delete(0),
        lambda journal: journal.delete(MAX_SEQ_NR + 1),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(call) -> None:  # type: ignore[no-untyped-def] # a lambda
    world = World()
    with pytest.raises(ValidationError):
        call(world.journal)
    assert written(world) == []


def test_an_append_without_an_answer_may_be_sent_again() -> None:
    class LosingLog(MemoryJournalLog):
        """Writes the record and loses the answer."""

        loses = True

        def send(self, record: Record) -> Future[PartitionOffset]:
            place = super().send(record)
            if not self.loses:
                return place
            unanswered: Future[PartitionOffset] = Future()
            unanswered.set_exception(TimeoutError())  # at once: no one waits for it
            return unanswered

    log = LosingLog()
    world = World(log=log)
    with pytest.raises(UnknownOutcomeError, match="Appending to journal:account-1"):
        world.append(1, 2)
    log.loses = False
    world.append(1, 2)
    world.append(3)
    assert world.read() == [1, 2, 3]
    assert isinstance(action_of(log.records_between(KEY.topic, 0, 1, 2)[0], KEY.topic, 0), Append)


def test_closing_closes_log_and_store() -> None:
    closed: list[str] = []
    world = World()
    world.log.close = lambda: closed.append("log")  # type: ignore[method-assign] # to see it
    world.store.close = lambda: closed.append("store")  # type: ignore[method-assign] # to see it
    with world.journals:
        pass
    assert closed == ["log", "store"]


class TestGaps:
    """Numbers are contiguous unless the caller says otherwise: a gap is nearly always a mistake."""

    def test_an_append_with_a_gap_is_refused_before_anything_is_sent(self) -> None:
        world = World()
        for append in (world.journal.append, world.journal.append_later):
            with pytest.raises(ValidationError, match="seq_nr 4 follows 2"):
                append([Event(2), Event(4)])
        assert world.log.records_between(KEY.topic, 0, 0, 1) == []

    def test_an_append_that_does_not_follow_the_expected_end_is_refused(self) -> None:
        world = World()
        world.append(1, 2, 3)
        with pytest.raises(ValidationError, match="seq_nr 5 follows 3"):
            world.journal.append([Event(5)], expected_seq_nr=3)
        with pytest.raises(SeqNrConflictError):
            world.journal.append([Event(5)], expected_seq_nr=0)
        assert world.read() == [1, 2, 3]

    def test_gaps_are_written_for_who_asks_for_them(self) -> None:
        world = World()
        world.journal.append([event(2), event(4)], allow_gaps=True)
        world.journal.append([event(10)], expected_seq_nr=4, allow_gaps=True)
        world.journal.append_later([event(20), event(30)], allow_gaps=True).result()
        assert world.read() == [2, 4, 10, 20, 30]

    def test_the_last_number_of_all_is_a_number_like_others(self) -> None:
        for cached in (False, True):
            world = World(cached=cached)
            world.append(1)
            world.append(MAX_SEQ_NR)
            world.append(2)
            assert (world.read(), world.journal.pointer()) == ([1, MAX_SEQ_NR], MAX_SEQ_NR)
            world.replicate()
            assert (world.read(), world.journal.pointer()) == ([1, MAX_SEQ_NR], MAX_SEQ_NR)
            world.journal.delete()
            assert (world.read(), world.journal.pointer()) == ([], MAX_SEQ_NR)
            world.replicate()
            assert (world.read(), world.journal.pointer()) == ([], MAX_SEQ_NR)
