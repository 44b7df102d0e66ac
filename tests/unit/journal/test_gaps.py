"""The gaps in a head are exactly the segments without an event, however the topic is cut and wherever it is killed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.segments import SegmentSpan, add_gaps, journal_segment, present_segments
from tests.fakes.replica import KilledError, MemoryReplica
from tests.selection import examples
from tests.unit.journal.replicated_topic import key
from tests.unit.journal.test_replicating_kills import IDS, assert_equal, sizes, topic_of

numbers = st.lists(st.integers(1, 60), min_size=1, max_size=3, unique=True).map(sorted)
steps = st.lists(
    st.tuples(st.sampled_from(["append"] * 6 + ["delete", "delete", "purge"]), st.sampled_from(IDS), numbers),
    max_size=12,
)
SEGMENT_SIZES = st.sampled_from([2, 3, 7])


def replicated(chosen: list[tuple[str, str, list[int]]], size: int, cuts: list[int], dies_at: int) -> MemoryReplica:
    """The store after a topic in slices of these sizes, the replicator killed once on the way."""
    topic, store = topic_of(chosen), MemoryReplica()
    store.dies_at = dies_at
    while (offset := store.offset("journal", 0)) is None or offset + 1 < len(topic.records):
        due = 0 if offset is None else offset + 1
        for batch in topic.chunks(due, cuts):
            try:
                ReplicateWorker(store, size).apply(batch, expected=0)
            except KilledError:
                break
        if not topic.records:
            break
    assert_equal(topic, store)
    return store


@examples(300)
@given(steps, SEGMENT_SIZES, sizes, st.integers(0, 30))
def test_they_do_not_depend_on_slices_and_hold_no_row(
    chosen: list[tuple[str, str, list[int]]], size: int, cuts: list[int], dies_at: int
) -> None:
    store, alone = replicated(chosen, size, cuts, dies_at), replicated(chosen, size, [], 10_000)
    for id in IDS:
        head, other = store.head(key(id)), alone.head(key(id))
        assert (head and head.gaps) == (other and other.gaps)
        if head is None:
            continue
        assert all(first.last < then.first for first, then in pairwise(head.gaps))
        for (segment, seq_nr), (_, _, record_id) in store._rows(key(id)).events.items():
            is_here = record_id.value == head.record_id and (head.delete_to or 0) < seq_nr <= head.seq_nr
            assert not (is_here and any(gap.first <= segment <= gap.last for gap in head.gaps))


@examples(300)
@given(st.lists(st.integers(1, 200), min_size=1, unique=True).map(sorted), SEGMENT_SIZES)
def test_what_is_left_of_a_span_without_its_gaps_are_the_segments_that_were_used(seq_nrs: list[int], size: int) -> None:
    used = sorted({journal_segment(number, size) for number in seq_nrs})
    gaps = add_gaps((), used[0], used, used[0])
    span = SegmentSpan(used[0], used[-1])
    assert [segment for run in present_segments(span, gaps) for segment in run] == used
    first = add_gaps((), used[0], used[: len(used) // 2], used[0])
    last = used[len(used) // 2 - 1] if len(used) > 1 else used[0]
    assert add_gaps(first, last, used[len(used) // 2 :], used[0]) == gaps
