"""What a read requests, what it skips, and its error when something is missing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from inorder.journal.action import Purge
from inorder.journal.codec import ACTION_HEADER
from inorder.journal.stores.ports import JournalHead, Window
from inorder.model.deadline import Deadline
from inorder.model.errors import DamagedRecordError, DeadlineError, JournalChangedError, RecordsLostError
from inorder.model.journal import MAX_SEQ_NR, Key, PartitionOffset
from inorder.model.message import Record
from inorder.testing.memory_journal import MemoryJournalLog, MemoryJournalStore
from tests.unit.journal.world import KEY, World, event


class CountingStore(MemoryJournalStore):
    """A store that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.before_offset: Callable[[], None] = lambda: None

    def pointer(self, key: Key) -> JournalHead | None:
        self.asked.append("pointer")
        return super().pointer(key)

    def offset(self, topic: str, partition: int) -> int | None:
        self.asked.append("offset")
        self.before_offset()
        return super().offset(topic, partition)


def spans(world: World) -> list[tuple[int, int]]:
    return [(window.first, window.last) for window in world.log.windows]


class TestTheWindow:
    """The log is read from where the store ends to the mark."""

    @pytest.mark.parametrize(
        ("replicated", "window", "shown"), [(0, (0, 2), [1, 2, 3]), (1, (1, 2), [1, 2, 3]), (3, None, [1, 2, 3])]
    )
    def test_it_begins_after_what_is_replicated(
        self, replicated: int, window: tuple[int, int] | None, shown: list[int]
    ) -> None:
        world = World()
        for seq_nr in (1, 2, 3):
            world.append(seq_nr)
        world.replicator.replicate(KEY.topic, 0, replicated)
        assert world.read() == shown
        assert spans(world) == ([] if window is None else [window])

    def test_it_begins_after_the_journals_own_head_where_that_is_further(self) -> None:
        world = World()
        for seq_nr in (1, 2, 3):
            world.append(seq_nr)
        world.replicator.replicate(KEY.topic, 0, 2, moves_offset=False)
        assert world.read() == [1, 2, 3]
        assert spans(world) == [(2, 2)]

    def test_it_ends_before_the_mark(self) -> None:
        world = World()
        world.append(1)
        records = world.journal.read()
        world.append(2)
        assert [record.seq_nr for record in records] == [1]


class TestWhatIsSpared:
    """The optimisations of the seed document."""

    def test_no_log_when_the_store_has_passed_the_mark(self) -> None:
        world = World()
        world.log.on_sent = lambda *_: world.replicate()
        world.append(1)
        assert world.read() == [1]
        assert spans(world) == []

    def test_the_stores_offset_is_asked_for_while_the_mark_is_on_its_way(self) -> None:
        order: list[str] = []

        class SlowLog(MemoryJournalLog):
            def send(self, record: Record) -> Future[PartitionOffset]:
                place = super().send(record).result()
                slow: Future[PartitionOffset] = Future()
                order.append("sent")
                waiting.append((slow, place))
                return slow

        class WatchingStore(CountingStore):
            def offset(self, topic: str, partition: int) -> int | None:
                order.append("offset")
                for slow, place in waiting:
                    slow.set_result(place)
                waiting.clear()
                return super().offset(topic, partition)

        waiting: list[tuple[Future[PartitionOffset], PartitionOffset]] = []
        world = World(log=SlowLog(), store=WatchingStore())
        assert world.journal.pointer() is None
        assert order == ["sent", "offset"]

    def test_the_head_is_read_once_and_its_records_are_kept(self) -> None:
        world = World()
        world.append(1)
        world.append(2)
        assert world.read() == [1, 2]
        assert spans(world) == [(0, 1)]

    def test_a_head_too_large_to_keep_is_read_twice(self) -> None:
        world = World(buffer_bytes=10)
        world.append(1)
        world.append(2)
        assert world.read() == [1, 2]
        assert spans(world) == [(0, 1), (0, 1)]

    def test_many_small_records_are_too_large_to_keep_though_they_have_few_bytes(self) -> None:
        world = World(buffer_bytes=10_000)
        for seq_nr in range(1, 10):
            world.append(seq_nr)
        assert (world.read(), len(spans(world))) == (list(range(1, 10)), 1)
        world.append(10)
        assert (world.read(), len(spans(world))) == (list(range(1, 11)), 3)

    def test_no_second_look_if_the_store_has_caught_up_meanwhile(self) -> None:
        world = World(buffer_bytes=10)
        world.append(1)
        world.replicate()
        world.append(2)
        world.append(3)
        records = world.journal.read()
        assert next(records).seq_nr == 1
        world.replicate()
        assert [record.seq_nr for record in records] == [2, 3]
        assert len(spans(world)) == 1

    @pytest.mark.parametrize("cached", [False, True])
    def test_what_the_store_got_after_the_mark_is_not_joined_with_what_was_there_before(self, cached: bool) -> None:
        """The first events come from an old head, the rest from one that has a delete and an append more."""
        store = CountingStore()
        world = World(store=store, buffer_bytes=0, cached=cached)
        world.append(1)
        world.append(2)
        world.replicate()
        world.append(3)
        records = world.journal.read()
        assert [next(records).seq_nr, next(records).seq_nr] == [1, 2]

        def catch_up_after_the_check() -> None:
            if store.asked[-2:] == ["pointer", "offset"]:
                store.before_offset = lambda: None
                world.journal.delete(1)
                world.append(4)
                world.replicate()

        store.before_offset = catch_up_after_the_check
        assert [record.seq_nr for record in records] == [3]

    def test_payloads_that_are_not_shown_are_not_decoded(self) -> None:
        world = World()
        world.append(1)
        world.append(2)
        damage(world, 0, value=b"{")
        assert world.read(2) == [2]
        assert world.journal.pointer() == 2
        with pytest.raises(DamagedRecordError):
            world.read(1)

    def test_records_of_others_are_not_decoded(self) -> None:
        world = World()
        world.other("another").append([event(1)])
        world.append(1)
        damage(world, 0, header=b"{")
        assert world.read() == [1]

    def test_a_replicated_read_asks_the_store_three_times(self) -> None:
        store = CountingStore()
        world = World(store=store)
        world.append(1)
        world.log.on_sent = lambda *_: world.replicate()
        world.journal.mark()
        store.asked.clear()
        world.log.on_sent = lambda *_: world.store.move_offset(KEY.topic, 0, world.log.end(KEY.topic, 0) - 1)
        assert world.read() == [1]
        assert store.asked == ["offset", "pointer", "pointer"]


def damage(world: World, offset: int, *, header: bytes | None = None, value: bytes | None = None) -> None:
    """Spoils a record that lies in the log."""
    lying = world.log._records[KEY.topic, 0]
    record = lying[offset]
    if header is not None:
        lying[offset] = record._replace(headers=((ACTION_HEADER, header),))
    if value is not None:
        lying[offset] = record._replace(value=value)


class TestDamage:
    """A record of the journal that cannot be read is an error of this journal alone."""

    def test_it_is_refused_with_its_coordinates(self) -> None:
        world = World()
        world.append(1)
        world.append(2)
        damage(world, 1, header=b"{")
        for ask in (world.read, world.journal.pointer):
            with pytest.raises(DamagedRecordError, match=r"journal\[0\] offset 1"):
                ask()
        world.other("another").append([event(1)])
        assert [record.seq_nr for record in world.other("another").read()] == [1]

    @pytest.mark.parametrize("cached", [False, True])
    def test_a_purge_makes_it_harmless(self, cached: bool) -> None:
        world = World(cached=cached)
        world.append(1)
        damage(world, 0, header=b"{")
        with pytest.raises(DamagedRecordError):
            world.read()
        world.journal.purge()
        world.append(1)
        assert world.read() == [1]


class TestRetention:
    """Records that were removed before they were replicated are an error, not silence."""

    def test_lost_records_are_an_error(self) -> None:
        world = World()
        world.append(1)
        world.append(2)
        world.log.forget(KEY.topic, 0, 1)
        with pytest.raises(RecordsLostError) as caught:
            world.read()
        assert (caught.value.wanted, caught.value.first) == (0, 1)

    def test_they_are_not_lost_if_the_store_has_them(self) -> None:
        world = World()
        world.append(1)
        world.append(2)
        world.replicate(behind=1)
        world.log.forget(KEY.topic, 0, 1)
        assert world.read() == [1, 2]

    def test_nor_if_the_store_has_taken_them_over_while_we_looked(self) -> None:
        class LateLog(MemoryJournalLog):
            def records(self, window, key, deadline):  # type: ignore[no-untyped-def] # as the class above has it
                if not self.windows:
                    world.replicate()
                    self.forget(KEY.topic, 0, 2)
                return super().records(window, key, deadline)

        world = World(log=LateLog())
        world.append(1)
        world.append(2)
        assert world.read() == [1, 2]

    def test_a_loss_between_the_two_looks_asks_for_another_read(self) -> None:
        world = World(buffer_bytes=10)
        world.append(1)
        world.replicate()
        for seq_nr in (2, 3, 4):
            world.append(seq_nr)
        records = world.journal.read()
        next(records)
        world.replicate(behind=2)
        world.log.forget(KEY.topic, 0, 3)
        with pytest.raises(JournalChangedError, match="lost to retention"):
            list(records)
        assert world.read() == [1, 2, 3, 4]


class TestTruncationMeanwhile:
    """A read never shows a journal with a hole."""

    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.append(1, 2, 3, 4, 5, 6)
        world.replicate()
        return world

    def test_events_that_are_deleted_while_they_are_shown(self, world: World) -> None:
        records = world.journal.read()
        next(records)
        world.delete(4)
        world.replicate()
        with pytest.raises(JournalChangedError, match="truncated while its events from 1 on"):
            list(records)

    def test_a_journal_that_is_purged_while_it_is_shown(self, world: World) -> None:
        records = world.journal.read(1, 2)
        next(records)
        world.journal.purge()
        world.append(1)
        world.replicate()
        with pytest.raises(JournalChangedError, match="purged"):
            list(records)

    def test_a_delete_below_what_is_asked_for_does_not_matter(self, world: World) -> None:
        records = world.journal.read(4)
        next(records)
        world.delete(3)
        world.replicate()
        assert [record.seq_nr for record in records] == [5, 6]


class TestDeadlines:
    """Every wait has a timeout."""

    def test_a_mark_that_is_never_acknowledged(self) -> None:
        class SilentLog(MemoryJournalLog):
            def send(self, record: Record) -> Future[PartitionOffset]:
                super().send(record)
                return Future()

        world = World(log=SilentLog(), timeout_seconds=0.01)
        with pytest.raises(DeadlineError, match=r"Looking for the head of journal:account-1: timed out after 0\.01 s"):
            world.read()

    def test_a_log_that_does_not_answer(self) -> None:
        now = [0.0]
        world = World(clock=lambda: now[0])
        world.append(1)
        world.append(2)
        slow = world.log.records

        def slower(window: Window, key: bytes, deadline: Deadline) -> object:
            for record in slow(window, key, deadline):
                now[0] += 31
                yield record

        world.log.records = slower  # type: ignore[method-assign, assignment] # a log that is slow
        with pytest.raises(DeadlineError):
            world.read()

    def test_a_caller_may_take_its_time(self) -> None:
        now = [0.0]
        world = World(clock=lambda: now[0], buffer_bytes=0)
        for seq_nr in (1, 2, 3):
            world.append(seq_nr)
        shown = []
        for record in world.journal.read():
            now[0] += 3600
            shown.append(record.seq_nr)
        assert shown == [1, 2, 3]


def test_a_journal_is_streamed() -> None:
    """Neither the store's events nor a head that is too large are ever held together."""
    alive = [0, 0]

    class CountedLog(MemoryJournalLog):
        def records(self, window, key, deadline):  # type: ignore[no-untyped-def] # as the class above has it
            for record in super().records(window, key, deadline):
                alive[0] += 1
                alive[1] = max(alive)
                yield record
                alive[0] -= 1

    world = World(log=CountedLog(), buffer_bytes=1_000)
    for seq_nr in range(1, 201):
        world.append(seq_nr)
    assert world.read() == list(range(1, 201))
    assert alive == [0, 1]


def test_a_read_from_the_last_number_there_can_be_is_empty() -> None:
    world = World()
    world.append(1)
    assert world.read(MAX_SEQ_NR) == []
    world.append(MAX_SEQ_NR)
    assert world.read(2) == [MAX_SEQ_NR]
    world.delete(MAX_SEQ_NR)
    assert world.read() == []


class PausingStore(MemoryJournalStore):
    """A store that does something between a reader's looks at its offset and at a head, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before_head: Callable[[], object] = lambda: None

    def pointer(self, key: Key) -> JournalHead | None:
        act, self.before_head = self.before_head, lambda: None
        act()
        return super().pointer(key)


@pytest.mark.parametrize("cached", [False, True])
def test_an_append_that_never_counted_is_not_shown_while_the_purge_after_it_is_replicated(cached: bool) -> None:
    """Over nothing it would seem to begin a journal, which the purge does not mean; `models/Journal.tla` shows it."""
    store = PausingStore()
    world = World(store=store, cached=cached)
    world.append(1)
    purge = Purge(condition=world.journal._name_life(world.journals.moment(KEY), None))
    world.append(1)
    purged_at = world.journals.send(KEY, purge).result().offset
    world.other("another").append([event(1)])
    world.replicator.replicate(KEY.topic, 0, 2)
    store.before_head = lambda: world.replicator.replicate(KEY.topic, 0, purged_at + 1)
    assert world.read() == []
