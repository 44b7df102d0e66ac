"""A reader that waits for the store reads what it would have read from the log, and the log only if it must."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.model.errors import DeadlineError, RecordsLostError
from inorder.model.partitioning import Place
from inorder.testing.memory_journal import MemoryHeads, MemoryJournalLog, MemoryJournalStore
from tests.selection import examples
from tests.unit.journal.world import KEY, WAIT_SECONDS, World, event

CACHES = pytest.mark.parametrize("cached", [True, False], ids=["head cache", "no head cache"])


@dataclass
class Meanwhile:
    """Notices that run `act` while a reader waits; its result says whether a notice is sent."""

    act: Callable[[], bool] = lambda: False
    now: float = 0.0
    asked: list[tuple[Place, int]] = field(default_factory=list)
    vain: list[tuple[Place, int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    @contextmanager
    def listen(self, place: Place, offset: int) -> Iterator[threading.Event]:
        self.asked.append((place, offset))
        yield _Acting(self)

    def timed_out(self, place: Place, offset: int) -> None:
        self.vain.append((place, offset))


class _Acting(threading.Event):
    def __init__(self, meanwhile: Meanwhile) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def wait(self, timeout: float | None = None) -> bool:
        is_told = self._meanwhile.act()
        self._meanwhile.now += 0.01 if is_told else timeout or 0.0
        return is_told


def waiting(meanwhile: Meanwhile, *, cached: bool, **world: float) -> World:
    return World(cached=cached, notices=meanwhile, clock=meanwhile.clock, **world)  # type: ignore[arg-type]  # only numbers


def announced(world: World, *, behind: int = 0) -> Callable[[], bool]:
    """The store catches up with all but `behind` records, and announces it."""

    def act() -> bool:
        world.replicate(behind=behind)
        return True

    return act


class TestWaiting:
    """While a replicator runs."""

    @CACHES
    def test_the_store_alone_is_read_once_it_has_passed_the_mark(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        meanwhile.act = announced(world)
        world.append(1, 2)
        world.append(3)
        assert world.read() == [1, 2, 3]
        assert world.log.windows == []
        assert (meanwhile.asked, meanwhile.vain) == ([((KEY.topic, 0), 1)], [])

    @CACHES
    def test_the_record_before_the_mark_is_enough(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        meanwhile.act = announced(world, behind=1)
        world.append(1)
        assert world.read() == [1]
        assert world.log.windows == []

    @CACHES
    def test_a_purge_and_a_new_life_meanwhile_are_seen(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        world.append(1, 2, 3)
        world.replicate()
        world.journal.purge()
        world.append(1)
        meanwhile.act = announced(world)
        assert world.read() == [1]
        assert world.log.windows == []

    @CACHES
    def test_what_is_lost_in_the_log_is_read_from_a_store_that_catches_up(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        world.append(1)
        world.log.forget(KEY.topic, 0, 1)
        meanwhile.act = announced(world)
        assert world.read() == [1]

    def test_an_append_that_expects_an_end_waits_like_a_read(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=False)
        world.append(1)
        meanwhile.act = announced(world)
        world.journal.append([event(2)], expected_seq_nr=1)
        assert (world.log.windows, len(meanwhile.asked)) == ([], 1)


class TestInVain:
    """After the timeout the log is read, as without waiting."""

    @CACHES
    def test_a_replicator_that_is_down_costs_the_time_and_nothing_else(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        world.append(1, 2)
        assert world.read() == [1, 2]
        assert (meanwhile.now, len(world.log.windows)) == (WAIT_SECONDS, 1)
        assert meanwhile.vain == [((KEY.topic, 0), 0)]

    @CACHES
    def test_a_notice_that_lies_changes_nothing(self, cached: bool) -> None:
        meanwhile = Meanwhile(lambda: True)
        world = waiting(meanwhile, cached=cached)
        world.append(1, 2)
        assert world.read() == [1, 2]
        assert meanwhile.vain == [((KEY.topic, 0), 0)]

    def test_the_log_is_read_from_where_the_store_is_after_the_wait(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=False)
        for seq_nr in (1, 2, 3):
            world.append(seq_nr)

        def act() -> bool:
            world.replicator.replicate(KEY.topic, 0, 2)
            return False

        meanwhile.act = act
        assert world.read() == [1, 2, 3]
        assert [(window.first, window.last) for window in world.log.windows] == [(2, 2)]

    def test_the_time_of_the_read_is_not_used_up(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=False, timeout_seconds=0.3)
        world.append(1)
        assert world.read() == [1]
        assert meanwhile.now == pytest.approx(0.15)

    def test_a_deadline_that_is_over_is_told(self) -> None:
        def act() -> bool:
            meanwhile.now += 60
            return True

        meanwhile = Meanwhile(act)
        world = waiting(meanwhile, cached=False)
        world.append(1)
        with pytest.raises(DeadlineError):
            world.read()

    @CACHES
    def test_records_that_are_lost_stay_an_error(self, cached: bool) -> None:
        world = waiting(Meanwhile(), cached=cached)
        world.append(1)
        world.log.forget(KEY.topic, 0, 1)
        with pytest.raises(RecordsLostError):
            world.read()


class TestNobodyWaits:
    """Where the answer is known without the log."""

    @CACHES
    def test_if_the_store_is_in_step(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=cached)
        world.append(1)
        world.replicate()
        assert (world.read(), meanwhile.now, world.log.windows) == ([1], 0.0, [])

    @CACHES
    def test_if_the_mark_is_the_first_record(self, cached: bool) -> None:
        meanwhile = Meanwhile()
        assert (waiting(meanwhile, cached=cached).read(), meanwhile.asked) == ([], [])

    def test_if_the_cache_tells_where_the_journal_ends(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=True)
        world.append(1, 2)
        assert (world.journal.pointer(), meanwhile.asked) == (2, [])

    def test_if_the_cache_knows_that_the_log_has_nothing_to_show(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=True)
        world.append(1, 2)
        world.replicate()
        world.other("another").append([event(1)])
        world.delete(1)
        assert (world.read(), meanwhile.asked, world.log.windows) == ([2], [], [])

    def test_if_all_that_the_log_has_is_below_what_is_asked_for(self) -> None:
        meanwhile = Meanwhile()
        world = waiting(meanwhile, cached=True)
        world.append(1, 2)
        assert (world.read(3), meanwhile.asked) == ([], [])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["purge", "mark", "other"]), st.just(0)),
        st.tuples(st.just("replicate"), st.integers(0, 3)),
    ),
    max_size=12,
)
happenings = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=3)


def write(world: World, chosen: list[tuple[str, int]]) -> None:
    end = 0
    for what, number in chosen:
        match what:
            case "append":
                world.append(*range(end + 1, end + 1 + number))
                end += number
            case "delete":
                world.delete(number)
            case "purge":
                world.journal.purge()
                end = 0
            case "mark":
                world.journal.mark()
            case "other":
                world.other("other").mark()
            case _:
                world.replicate(behind=number)


@examples(400)
@given(steps, happenings, st.booleans(), st.sampled_from([1, 4, 1_000_000]))
def test_whatever_happens_while_it_waits_a_reader_shows_the_journal_at_its_mark(
    chosen: list[tuple[str, int]], happening: list[tuple[int, bool]], cached: bool, buffer_bytes: int
) -> None:
    meanwhile, log = Meanwhile(), MemoryJournalLog()
    world = World(
        log=log,
        cached=cached,
        notices=meanwhile,
        clock=meanwhile.clock,
        buffer_bytes=buffer_bytes,
    )
    write(world, chosen)
    coming = iter(happening)

    def act() -> bool:
        behind, is_told = next(coming, (0, False))
        world.replicate(behind=behind)
        return is_told

    meanwhile.act = act
    found = world.read()
    plain = World(log=log, store=MemoryJournalStore())
    assert found == plain.read()
    assert world.read() == found
    assert isinstance(world.heads, MemoryHeads) is cached
