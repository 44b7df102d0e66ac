"""Conditions hold, and what is sent again does no harm: neither to the same life of a journal nor to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import cast

import pytest

from inorder.journal.action import NOT_BEGUN, Append, Condition, Purge
from inorder.journal.asynchronous import AsyncJournalClient, Subscribe
from inorder.journal.codec import APPEND_HEADER, RecordSender, action_of, append_record
from inorder.journal.jobs import Expired
from inorder.journal.life import life_id
from inorder.journal.stores.ports import FORMER, JournalHead
from inorder.model.errors import (
    DamagedRecordError,
    RecordsLostError,
    SeqNrConflictError,
    TransientError,
    UnknownOutcomeError,
    ValidationError,
)
from inorder.model.journal import Event, Key, PartitionOffset, RecordMetadata
from inorder.model.message import Limits, Record
from inorder.testing.memory_journal import MemoryJournalLog
from tests.unit.journal.test_expiring import DAY, TODAY, expired
from tests.unit.journal.world import KEY, NOON, World, event

both = pytest.mark.parametrize("cached", [False, True], ids=["replayed", "cached"])
replicated = pytest.mark.parametrize("behind", [0, 1, 2, 3, 9])


class LosingLog(MemoryJournalLog):
    """Loses the answer to the next record that is not a mark; `keeps` also keeps the record back."""

    loses = False
    keeps = False
    lost: Record | None = None
    error: Exception = TimeoutError()  # at once: no one waits for it
    loses_marks = False

    def send(self, record: Record) -> Future[PartitionOffset]:
        is_mark = any((value or b"").startswith(b'{"mark"') for _, value in record.headers)
        if is_mark != self.loses_marks or not self.loses:
            return super().send(record)
        self.loses, self.lost = False, record
        if not self.keeps:
            super().send(record)
        unanswered: Future[PartitionOffset] = Future()
        unanswered.set_exception(self.error)
        return unanswered

    def deliver(self) -> None:
        """Writes the record late, or once more."""
        assert self.lost is not None
        super().send(self.lost)


@pytest.fixture
def log() -> LosingLog:
    return LosingLog()


@pytest.fixture
def world(log: LosingLog) -> World:
    return World(log=log)


def places(world: World) -> list[tuple[int, int]]:
    return [(each.seq_nr, each.offset) for each in world.journal.read()]


@both
@replicated
def test_half_an_append_never_counts(cached: bool, behind: int) -> None:
    world = World(cached=cached)
    world.append(*range(1, 6))
    world.append(6)
    world.append(6, 7)
    world.append(7)
    world.replicate(behind=behind)
    assert places(world)[-2:] == [(6, 1), (7, 3)]


@both
@replicated
def test_a_late_append_of_an_old_owner_is_void(cached: bool, behind: int) -> None:
    """It was sent before the new owner read the journal, and arrives after the new owner's first append."""
    log = LosingLog()
    world = World(cached=cached, log=log)
    world.append(1)
    log.loses = log.keeps = True
    with pytest.raises(UnknownOutcomeError):
        world.journal.append([event(2), event(3)], expected_seq_nr=1)
    world.journal.append([event(2)], expected_seq_nr=1)
    log.deliver()
    world.journal.append([event(3)], expected_seq_nr=2)
    world.replicate(behind=behind)
    assert [number for number, _ in places(world)] == [1, 2, 3]
    action = action_of(log.records_between(KEY.topic, 0, places(world)[1][1], 99)[0], KEY.topic, 0)
    assert isinstance(action, Append)
    assert action.condition == Condition(life_id(KEY, 0, 0), 1)


def test_the_same_append_again_is_recognised(world: World, log: LosingLog) -> None:
    world.append(1)
    log.loses = True
    with pytest.raises(UnknownOutcomeError) as lost:
        world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 7")
    assert "append_id='deposit 7'" in lost.value.hint
    place = world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 7")
    assert places(world) == [(1, 0), (2, place.offset)]
    world.append(3)
    world.replicate()
    assert world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 7") == place
    with pytest.raises(SeqNrConflictError, match="nothing was written"):
        world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 8")


UNANSWERED = UnknownOutcomeError("Sending to 'journal': timed out.", hint="Of the producer.")


@pytest.mark.parametrize("verb", ["append", "conditional", "later", "async", "delete", "purge"])
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "unnamed"])
def test_a_delivery_that_is_not_answered_says_how_to_repeat_the_call(
    world: World, log: LosingLog, verb: str, is_named: bool
) -> None:
    world.append(1)
    journal, id = world.journal, "deposit 7" if is_named else None

    async def append() -> object:
        async with AsyncJournalClient(world.journals, cast("Subscribe", None)) as journals:
            return await journals.journal(KEY).append([event(2)], append_id=id)

    calls: dict[str, Callable[[], object]] = {
        "append": lambda: journal.append([event(2)], append_id=id),
        "conditional": lambda: journal.append([event(2)], append_id=id, expected_seq_nr=1),
        "later": lambda: journal.append_later([event(2)], append_id=id).result(),
        "async": lambda: asyncio.run(append()),
        "delete": lambda: journal.delete(1),
        "purge": journal.purge,
    }
    log.loses, log.error = True, UNANSWERED
    with pytest.raises(UnknownOutcomeError, match="timed out") as lost:
        calls[verb]()
    assert log.lost is not None
    sent = (dict(log.lost.headers).get(APPEND_HEADER) or b"").decode()
    repeat = f"life={life_id(KEY, 0, 0)!r}" if verb in ("delete", "purge") else f"append_id={sent!r}"
    assert f"It may have been written. Repeat it with {repeat}" in lost.value.hint


def test_a_mark_that_is_not_answered_leaves_nothing_unknown(world: World, log: LosingLog) -> None:
    """A read, or the look at a journal before a conditional append, writes nothing that counts."""
    world.append(1)
    for call in (world.journal.pointer, lambda: world.journal.append([event(2)], expected_seq_nr=1)):
        log.loses, log.loses_marks, log.error = True, True, UNANSWERED
        with pytest.raises(TransientError, match="timed out") as lost:
            call()
        assert not isinstance(lost.value, UnknownOutcomeError)
    assert world.read() == [1]


def test_the_first_attempt_may_arrive_during_the_second(world: World, log: LosingLog) -> None:
    world.append(1)
    log.loses = log.keeps = True
    with pytest.raises(UnknownOutcomeError):
        world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 7")

    def arrive(*_: object) -> None:
        log.on_sent = lambda *_: None
        log.deliver()

    log.on_sent = arrive  # after the mark of the second attempt
    place = world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 7")
    assert places(world) == [(1, 0), (2, place.offset)]


def test_an_append_that_a_former_topic_had_is_not_looked_for_in_the_present_one(world: World, log: LosingLog) -> None:
    """After a reset the journal is in the store alone, with places that no topic has."""
    sent = append_record(KEY, [event(1)], NOON, RecordSender(), RecordMetadata(), {}, Limits(), append_id="deposit 7")
    log.write(sent, FORMER)
    world.replicator.replicate(KEY.topic, FORMER, 1, moves_offset=False)
    assert places(world) == [(1, 0)]
    for id in ("deposit 7", "deposit 8"):
        with pytest.raises(SeqNrConflictError, match="nothing was written"):
            world.journal.append([event(1)], expected_seq_nr=0, append_id=id)
    assert {window.partition for window in log.windows} <= {0}
    world.journal.append([event(2)], expected_seq_nr=1, append_id="deposit 8")
    assert world.read() == [1, 2]


def test_an_append_on_another_life_is_void(world: World, log: LosingLog) -> None:
    """The same number is not the same journal."""
    world.append(1)
    log.loses = log.keeps = True
    with pytest.raises(UnknownOutcomeError):
        world.journal.append([event(2)], expected_seq_nr=1)
    world.journal.purge()
    place = world.append(1)
    log.deliver()
    assert places(world) == [(1, place.offset)]


def test_an_id_is_short_and_headers_of_the_journal_are_refused(world: World) -> None:
    with pytest.raises(ValidationError, match="append_id"):
        world.journal.append([event(1)], append_id="")
    for name in ("inorder.append", "inorder.if", "journal.action"):
        with pytest.raises(ValidationError, match="is taken by the journal"):
            world.journal.append([event(1)], headers={name: "x"})
    world.journal.append([event(1)], headers={"mine": "x"})
    assert [dict(each.headers) for each in world.journal.read()] == [{"mine": "x"}]


@both
@replicated
def test_a_purge_that_is_sent_again_spares_the_next_life(cached: bool, behind: int) -> None:
    log = LosingLog()
    world = World(cached=cached, log=log)
    world.append(1, 2)
    log.loses = True
    with pytest.raises(UnknownOutcomeError) as lost:
        world.journal.purge()
    life = life_id(KEY, 0, 0)
    assert f"life={life!r}" in lost.value.hint
    world.append(1)
    world.journal.purge(life=life)
    log.deliver()
    world.replicate(behind=behind)
    assert world.read() == [1]
    assert world.journal.life() not in (life, NOT_BEGUN)


@both
@replicated
def test_a_delete_that_comes_late_spares_the_next_life(cached: bool, behind: int) -> None:
    log = LosingLog()
    world = World(cached=cached, log=log)
    world.append(*range(1, 91))
    log.loses = log.keeps = True
    with pytest.raises(UnknownOutcomeError):
        world.journal.delete(90)
    world.journal.purge()
    world.append(1, 2)
    log.deliver()
    world.journal.delete(2, life=life_id(KEY, 0, 0))
    world.replicate(behind=behind)
    assert world.read() == [1, 2]


@pytest.mark.parametrize("fault", ["damaged", "lost"])
def test_a_journal_that_cannot_be_read_can_be_purged(world: World, log: LosingLog, fault: str) -> None:
    world.append(1)
    if fault == "lost":
        log.forget(KEY.topic, 0, 1)
    else:
        log.write(Record(KEY.topic, KEY.id.encode(), b"", (("journal.action", b"{"),), None, 0), 0)
    with pytest.raises(DamagedRecordError if fault == "damaged" else RecordsLostError):
        world.journal.pointer()
    place = world.journal.purge()
    assert action_of(log.records_between(KEY.topic, 0, place.offset, place.offset + 1)[0], KEY.topic, 0) == Purge()
    if fault == "damaged":
        world.append(1)
        assert world.read() == [1]


def test_what_kafka_journal_writes_has_no_condition_and_counts(world: World) -> None:
    world.append(1, 2, 3)
    world.delete(2)
    assert world.read() == [3]
    world.journals.send(KEY, Purge()).result()
    assert world.read() == []


def test_a_journal_that_gets_an_append_between_mark_and_purge_does_not_expire() -> None:
    world = World()
    world.journal.append([Event(1)], expire_after=DAY)
    world.replicate()

    def append_first(*_: object) -> None:
        world.log.on_sent = lambda *_: None
        world.append(2)

    world.log.on_sent = append_first  # after the mark of the job
    assert expired(world, TODAY + 9 * DAY) == [Expired(KEY, is_purged=False)]
    assert world.journal.pointer() == 2
    world.replicate()
    assert world.journal.pointer() == 2


def test_a_purge_under_way_shows_no_half_of_a_journal() -> None:
    """The store has removed the journal, its offset is before that, and the log still has the last events."""
    world = World()
    world.append(*range(1, 118))
    world.replicate()
    world.append(118, 119)
    reader_moment = world.journals.reader.moment
    looks: list[int] = []

    def purge_meanwhile(*arguments: object, **named: object) -> object:
        looks.append(1)
        if len(looks) == 1:
            world.journals.send(KEY, Purge()).result()
            end = world.log.end(KEY.topic, 0)
            world.replicator.replicate(KEY.topic, 0, end, moves_offset=False)
        return reader_moment(*arguments, **named)  # type: ignore[arg-type] # as it was called

    world.journals.reader.moment = purge_meanwhile  # type: ignore[method-assign,assignment] # after the mark
    assert world.read() == []
    assert len(looks) == 2


def test_a_purge_under_way_that_hides_a_journal_first_shows_no_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store without transactions the head then seems deleted to its end, and its offset is the old one."""
    world = World()
    world.append(*range(1, 118))
    world.replicate()
    world.append(118, 119)
    reader_moment, pointer = world.journals.reader.moment, world.store.pointer
    looks: list[int] = []

    def hide_meanwhile(*arguments: object, **named: object) -> object:
        looks.append(1)
        if len(looks) == 1:
            world.journals.send(KEY, Purge()).result()
        return reader_moment(*arguments, **named)  # type: ignore[arg-type] # as it was called

    def hidden(key: Key) -> JournalHead | None:
        head = pointer(key)
        return head and replace(head, delete_to=head.seq_nr)

    monkeypatch.setattr(world.journals.reader, "moment", hide_meanwhile)
    monkeypatch.setattr(world.store, "pointer", hidden)
    assert world.read() == []
    assert len(looks) == 2
