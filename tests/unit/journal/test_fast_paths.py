"""Where the replicator has a short cut for what is usual, it comes to the same as the long way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal import life
from inorder.journal.codec import _plain_events, _read_event, _Source, to_value
from inorder.journal.life import separate_forks
from inorder.journal.replication import transition
from inorder.journal.replication.transition import InsertEvents
from inorder.journal.segments import journal_segment
from inorder.model.journal import MAX_SEQ_NR, Event, EventRecord, PartitionOffset, PayloadMetadata
from tests.unit.journal.acting import LIFE, TIME, head, record

TAGS = st.frozensets(st.text(st.characters(codec="utf-8"), max_size=3), max_size=2)
PAYLOADS = st.one_of(st.binary(max_size=40), st.none(), st.text(st.characters(codec="utf-8"), max_size=5))
EVENTS = st.builds(Event, st.integers(1, MAX_SEQ_NR), PAYLOADS, st.one_of(st.just(frozenset()), TAGS))


def outcome(read: Callable[[], object]) -> object:
    """The result: a value, or the text of the error."""
    try:
        return read()
    except ValueError as error:
        return str(error)


def both_ways(data: bytes, count: int) -> tuple[object, object]:
    short, long = _Source(data, 0), _Source(data, 0)
    by_steps = outcome(lambda: (_plain_events(short, count), short.rest()))
    one_by_one = outcome(
        lambda: ([_read_event(_Source(long.sized(), 0)) for _ in range(count)], long.rest()),
    )
    return by_steps, one_by_one


@given(st.lists(EVENTS, min_size=1, max_size=5), st.binary(max_size=30))
def test_events_are_read_the_same_by_steps_and_part_by_part(events: list[Event], tail: bytes) -> None:
    _, value = to_value([*events, Event(1, b"")], PayloadMetadata())
    data = value[5:] + tail
    by_steps, one_by_one = both_ways(data, len(events) + 1)
    assert by_steps == one_by_one
    assert by_steps == ([*events, Event(1, b"")], b"{}" + tail)


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_damaged_payload_is_refused_in_the_same_words(events: list[Event], data: st.DataObject) -> None:
    _, value = to_value([Event(7, b"plain"), *events], PayloadMetadata())
    damaged = bytearray(value[5:])
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[place] = data.draw(st.sampled_from((0, 1, 17, 127, 128, 255)))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    by_steps, one_by_one = both_ways(cut, len(events) + 1)
    assert by_steps == one_by_one


@given(st.integers(0, 9), st.lists(st.integers(1, 12), max_size=6))
def test_rising_numbers_count_as_the_rule_for_all_numbers_says(end: int, seq_nrs: list[int]) -> None:
    records = [record(seq_nr, offset) for offset, seq_nr in enumerate(seq_nrs)]
    assert separate_forks(end, records) == life._separate(end, records)


def at_place(seq_nr: int, partition: int, offset: int) -> EventRecord:
    return EventRecord(Event(seq_nr), TIME, PartitionOffset(partition, offset), "host")


@given(st.integers(0, 1), st.integers(0, 6), st.lists(st.integers(0, 9), min_size=1, max_size=6).map(sorted))
def test_what_a_head_includes_is_left_out_event_by_event(partition: int, reached: int, offsets: list[int]) -> None:
    found = head(reached, 50)
    events = [at_place(number, partition, offset) for number, offset in enumerate(offsets, 1)]
    expected = [event for event in events if partition != 0 or event.offset > reached]
    assert list(transition._unseen(found, events)) == expected


@given(st.integers(2, 5), st.sets(st.integers(1, 20), min_size=1).map(sorted))
def test_events_of_one_segment_are_inserted_as_those_of_several_are(size: int, seq_nrs: list[int]) -> None:
    events = [record(seq_nr, 1) for seq_nr in seq_nrs]
    by_segment = groupby(events, lambda event: journal_segment(event.seq_nr, size))
    expected = [InsertEvents(segment, tuple(rows), LIFE) for segment, rows in by_segment]
    assert list(transition._inserts(head(1, 50, size=size), events)) == expected
