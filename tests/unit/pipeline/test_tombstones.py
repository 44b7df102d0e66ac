"""Which partitions hold tombstones back: those with a record from before the mark."""

from __future__ import annotations

import pytest

from inorder.model.partitioning import Extent
from inorder.pipeline.reset import HeldTopic
from inorder.pipeline.tombstones import Ends, ends_of, still_held

MARKED: Ends = {"t": ("id", {0: 10, 1: 0})}


@pytest.mark.parametrize(
    ("held", "holding"),
    [
        ({"t": HeldTopic("id", {0: Extent(9, 20), 1: Extent(0, 5)})}, [("t", 0)]),
        ({"t": HeldTopic("id", {0: Extent(10, 20), 1: Extent(0, 5)})}, []),
        ({"t": HeldTopic("id", {0: Extent(10, 10), 1: Extent(0, 0), 2: Extent(0, 9)})}, []),
        ({"t": HeldTopic("another", {0: Extent(0, 20)})}, []),
        ({"t": HeldTopic(None, {0: Extent(0, 20)})}, [("t", 0)]),
        ({"t": None}, []),
        ({}, []),
    ],
    ids=["record left", "all gone", "empty, and a new partition", "created again", "id unknown", "deleted", "not read"],
)
def test_a_partition_holds_tombstones_back_while_it_has_a_record_from_before_the_mark(
    held: dict[str, HeldTopic | None], holding: list[tuple[str, int]]
) -> None:
    assert still_held(MARKED, held) == holding


def test_a_mark_is_where_all_partitions_end() -> None:
    held = {"t": HeldTopic("id", {0: Extent(3, 10), 1: Extent(0, 0)}), "gone": None}
    assert ends_of(held) == MARKED
