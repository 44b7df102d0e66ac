"""Segments are those of the original: what one writes the other finds."""

from __future__ import annotations

import pytest

from inorder.journal.segments import (
    journal_segment,
    jvm_hash,
    metajournal_segment,
    metajournal_segments,
    segment_size,
    segments_of_partition,
)
from inorder.model.journal import MAX_SEQ_NR


@pytest.mark.parametrize("id", ["id", "ID", "Id"])
@pytest.mark.parametrize(("segments", "segment"), [(1, 0), (100, 55), (10_000, 3355), (2**31 - 1, 3355)])
def test_journals_are_spread_by_the_hash_of_the_lower_cased_id(id: str, segments: int, segment: int) -> None:
    assert metajournal_segment(id, segments) == segment


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("journal ID", 969045668),
        ("polygenelubricants", -(2**31)),
        ("Ünïcødé", 1055433303),
        ("\N{PILE OF POO}", 1772556),
    ],
)
def test_the_hash_is_that_of_the_jvm(text: str, hashed: int) -> None:
    assert jvm_hash(text if text != "journal ID" else text.lower()) == hashed


def test_the_smallest_hash_has_a_segment_too() -> None:
    assert metajournal_segment("polygenelubricants", 10_000) == 3648


@pytest.mark.parametrize(
    ("first", "second", "found"), [(1, 100, (0, 55)), (100, 2**31 - 1, (55, 3355)), (10_000, 20_000, (3355,))]
)
def test_a_journal_is_looked_up_in_both_segments(first: int, second: int, found: tuple[int, ...]) -> None:
    assert metajournal_segments("id", first, second) == found


@pytest.mark.parametrize(
    ("seq_nr", "size", "segment"),
    [(45629, 10_000, 4), (1, 3, 0), (3, 3, 0), (4, 3, 1), (6, 3, 1), (MAX_SEQ_NR, 2, 2**62 - 1)],
)
def test_events_are_cut_by_number(seq_nr: int, size: int, segment: int) -> None:
    assert journal_segment(seq_nr, size) == segment


@pytest.mark.parametrize(
    ("stored", "size"), [(2, 2), (2**31 - 1, 2**31 - 1), (1, 10_000), (0, 10_000), (None, 10_000), (2**31, 10_000)]
)
def test_a_size_that_cannot_be_right_reads_as_the_default(stored: int | None, size: int) -> None:
    assert segment_size(stored) == size


@pytest.mark.parametrize(
    ("partitions", "partition", "segments"),
    [(20, 0, [0, 20, 40, 60, 80]), (30, 0, [0, 30, 60, 90]), (100, 2, [2]), (1, 0, list(range(100))), (250, 130, [30])],
)
def test_partitions_share_out_the_segments(partitions: int, partition: int, segments: list[int]) -> None:
    assert list(segments_of_partition(partition, partitions, 100)) == segments
