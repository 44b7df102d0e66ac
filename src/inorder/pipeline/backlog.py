"""How far a pipeline is behind its topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from inorder.ports.partition_reader import Place, TopicSource

LOOK_SECONDS = 5.0
FEW = 1_000
"""So few offsets may be nothing but the marks of transactions, so they are looked at."""


def behind(source: TopicSource, topics: Iterable[str], pointers: Mapping[Place, int]) -> dict[Place, int]:
    """Offsets between each partition's pointer and its end; 0 where no record is left in between.

    A transactional topic ends with the mark of a transaction, which is an offset and no record. Topics that do not
    exist are left out. Raises `UnreachableError`.
    """
    found = {
        (topic, number): max(0, extent.end - max(extent.first, pointers.get((topic, number), 0)))
        for topic in topics
        for number, extent in (source.extents(topic) or {}).items()
    }
    few = {place: pointers.get(place) for place, offsets in found.items() if 0 < offsets <= FEW}
    return found | dict.fromkeys(_without_records(source, few), 0)


def _without_records(source: TopicSource, starts: Mapping[Place, int | None]) -> set[Place]:
    """The partitions that are at their end already, though their offsets say otherwise."""
    undecided, at_end = set(starts), set[Place]()
    if not starts:
        return at_end
    deadline = time.monotonic() + LOOK_SECONDS
    with closing(source.open(starts, tells_ends=True)) as reader:
        while undecided and time.monotonic() < deadline:
            slices, ended = reader.read(FEW, 0.1)
            undecided -= {(batch.topic, batch.partition) for batch in slices}
            at_end |= ended & undecided
            undecided -= ended
    return at_end
