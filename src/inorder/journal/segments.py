"""Which segment of a table a journal and its events belong to, so that no partition of the store grows without bound.

`metajournal` spreads journals by the JVM's hash of the lower-cased id. `journal` cuts each journal after `segment_size`
numbers. Both must give what the original gives, or one would not find what the other wrote.

A number may jump, and then whole segments have no event. The original's tables do not say which, and a store without
ranges over partitions (Cassandra) would query or delete them one by one: a jump to 2⁴⁰ costs a hundred million
statements. So the head of a journal lists its **gaps**, the spans of segments without an event between those with one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from inorder.model.journal import MIN_SEQ_NR, SeqNr

DEFAULT_SEGMENT_SIZE: Final = 10_000
DEFAULT_SEGMENTS: Final = 10_000
OLD_SEGMENTS: Final = 100
"""How many segments `metajournal` had in old versions; a look-up tries both."""

_SIZES: Final = range(2, 2**31)


class SegmentSpan(NamedTuple):
    """Segments from `first` to `last`, both included."""

    first: int
    last: int


def present_segments(span: SegmentSpan, gaps: Iterable[SegmentSpan]) -> Iterator[range]:
    """The segments of a span that are in no gap, in runs; gaps ascend.

    >>> list(present_segments(SegmentSpan(0, 10**15), [SegmentSpan(1, 2), SegmentSpan(4, 10**15 - 1)]))
    [range(0, 1), range(3, 4), range(1000000000000000, 1000000000000001)]
    """
    first = span.first
    for gap in gaps:
        if first < min(gap.first, span.last + 1):
            yield range(first, min(gap.first, span.last + 1))
        first = max(first, gap.last + 1)
    if first <= span.last:
        yield range(first, span.last + 1)


def add_gaps(gaps: Iterable[SegmentSpan], last: int, used: Iterable[int], first: int) -> tuple[SegmentSpan, ...]:
    """The gaps of a journal that has events up to the segment `last` and now in those of `used`, too, which ascend.

    Those that end before the segment `first` are left out: everything there is deleted.

    >>> add_gaps([SegmentSpan(1, 2), SegmentSpan(4, 5)], 6, [6, 7, 9, 100], 3)
    (SegmentSpan(first=4, last=5), SegmentSpan(first=8, last=8), SegmentSpan(first=10, last=99))
    """
    found = list(gaps)
    for segment in used:
        if segment > last + 1:
            found.append(SegmentSpan(last + 1, segment - 1))
        last = max(last, segment)
    return tuple(gap for gap in found if gap.last >= first)


def segment_size(stored: int | None) -> int:
    """The segment size of a stored journal; one that cannot be right reads as the default.

    >>> segment_size(500), segment_size(1), segment_size(None)
    (500, 10000, 10000)
    """
    return stored if stored is not None and stored in _SIZES else DEFAULT_SEGMENT_SIZE


def journal_segment(seq_nr: SeqNr, size: int) -> int:
    """The segment of an event in `journal`.

    >>> journal_segment(45629, 10_000), [journal_segment(n, 3) for n in range(1, 7)]
    (4, [0, 0, 0, 1, 1, 1])
    """
    return (seq_nr - MIN_SEQ_NR) // size


def metajournal_segment(id: str, segments: int = DEFAULT_SEGMENTS) -> int:
    """The segment of a journal in `metajournal`.

    >>> metajournal_segment("ID", 100), metajournal_segment("journal ID")
    (55, 5668)
    """
    return abs(jvm_hash(id.lower())) % segments


def metajournal_segments(id: str, segments: int = DEFAULT_SEGMENTS, old: int = OLD_SEGMENTS) -> tuple[int, ...]:
    """The segments in which a journal may be found; the first is the one for new rows.

    >>> metajournal_segments("id"), metajournal_segments("a")
    ((3355, 55), (97,))
    """
    return tuple(dict.fromkeys((metajournal_segment(id, segments), metajournal_segment(id, old))))


def segments_of_partition(partition: int, partitions: int, segments: int) -> range:
    """The segments of one of several workers when the partitions of a topic share out the work.

    >>> list(segments_of_partition(0, 20, 100)), list(segments_of_partition(101, 102, 100))
    ([0, 20, 40, 60, 80], [1])
    """
    if partitions >= segments:
        return range(partition % segments, partition % segments + 1)
    return range(partition, segments, partitions)


def jvm_hash(text: str) -> int:
    """The JVM's 32-bit hash of a string, computed over UTF-16.

    >>> jvm_hash("id"), jvm_hash("journal ID".lower())
    (3355, 969045668)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed
