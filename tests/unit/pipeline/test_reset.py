"""What a reset writes, case by case."""

from __future__ import annotations

import pytest

from inorder.engines.slice_work import Pointer
from inorder.model.partitioning import Extent
from inorder.pipeline.reset import HeldTopic, plan_reset

HELD = HeldTopic("one", {0: Extent(5, 9), 1: Extent(0, 4)})
FITS = {0: Pointer(6, 2, "one"), 1: Pointer(4, 2, "one")}


@pytest.mark.parametrize(
    ("pointers", "newest", "planned"),
    [
        (FITS, 2, {}),
        ({}, None, {}),
        # Retention: the same generation, at the first record.
        (FITS | {0: Pointer(3, 2, "one")}, 2, {0: Pointer(5, 2, "one")}),
        # Truncated: offsets were given twice, so all that the partition holds is newer.
        (FITS | {1: Pointer(7, 2, "one")}, 2, {1: Pointer(0, 3, "one")}),
        # Re-created, though every pointer is within the topic; and one that an older version wrote.
        ({0: Pointer(6, 2, "two"), 1: Pointer(4, 2)}, 2, {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one")}),
        # With fewer partitions.
        (FITS | {7: Pointer(4, 2, "one")}, 2, {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one"), 7: None}),
        # Another name: the pipeline has pointers of other topics only.
        ({}, 4, {0: Pointer(5, 5, "one"), 1: Pointer(0, 5, "one")}),
    ],
)
def test_a_reset_writes_what_the_topic_calls_for(
    pointers: dict[int, Pointer], newest: int | None, planned: dict[int, Pointer | None]
) -> None:
    assert plan_reset(pointers, HELD, newest) == planned


def test_all_of_a_topic_is_applied_again_where_that_is_asked_for() -> None:
    assert plan_reset(FITS, HELD, 2, from_first=True) == {0: Pointer(5, 3, "one"), 1: Pointer(0, 3, "one")}


@pytest.mark.parametrize("held", [None, HeldTopic("two", {0: Extent(0, 1)})])
def test_a_closed_generation_that_is_gone_counts_as_read(held: HeldTopic | None) -> None:
    assert plan_reset(FITS, held, 2, ends=(9, 4)) == {0: Pointer(9, 2, "one", 9), 1: Pointer(4, 2, "one", 4)}
    assert plan_reset(FITS, HELD, 2, ends=(9, 4)) == {}
