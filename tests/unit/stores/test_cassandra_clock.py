"""Times made from offsets: of the present, in order, above what others wrote before and below what they write later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.stores.cassandra_clock import Clock, WrittenOffset, new_clock
from tests.selection import examples

START = 1_800_000_000_000_000
phases = st.lists(
    st.tuples(
        st.booleans(),  # of ours?
        st.integers(1, 1000),  # records
        st.integers(1, 50),  # microseconds for each, at least
        st.integers(-20_000, 20_000),  # how far our clock is off
    ),
    min_size=1,
    max_size=8,
)


@examples(300)
@given(phases, st.integers(0, 10**12))
def test_whoever_writes_later_writes_newer_cells(phases: list[tuple[bool, int, int, int]], first: int) -> None:
    clock: Clock | None = None
    pointer: WrittenOffset | None = None
    now, offset, newest = START, first, 0
    for is_ours, count, pace, skew in phases:
        now += 50_000  # another replicator is started later than clocks differ
        for _ in range(count):
            now += pace
            offset += 1
            if is_ours and (clock is None or not clock.wrote(pointer)):
                clock = new_clock(now + skew, pointer, clock, first=offset)
            written = clock.micros(offset) if is_ours and clock is not None else now
            assert newest < written <= now + 20_001
            newest, pointer = written, WrittenOffset(offset, written)
        assert not is_ours or (clock is not None and clock.wrote(pointer))


@examples(200)
@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(0, 10**6))
def test_one_that_is_paused_while_the_clock_changes_writes_older_cells(first: int, done: int, more: int) -> None:
    before = new_clock(START, WrittenOffset(first, START - 1))
    seen = WrittenOffset(first + done, START + 2_000_000_000)
    after = new_clock(START + 1_000_000_000, seen, before)
    assert before.micros(first + done + more) < after.micros(first + done + 1)
    assert after.wrote(seen)
    assert not after.wrote(WrittenOffset(first + done, before.micros(first + done)))
