"""A work that stops at the ends of a closed generation, whatever stands behind them.

Behind the ends may be copies that `inorder topics migrate` made for other readers, or records of a writer that nobody
could stop. Copies come again in their own generation; applied here first, a table would go back when they do. So what
stands behind an end is handed to nobody, and the pointer stays where it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from inorder.ports.slice_work import Slice, SliceOutcome, SliceWork, SliceWorker
from inorder.ports.table_store import Pointer

Ends = tuple[tuple[str, tuple[int, ...]], ...]
"""By Kafka topic, the offset behind the last record of each partition."""


@dataclass(frozen=True, slots=True)
class EndedWork:
    """Another work, with some of its topics cut."""

    work: SliceWork
    ends: Ends

    @property
    def name(self) -> str:
        """The work's."""
        return self.work.name

    @property
    def topics(self) -> tuple[str, ...]:
        """The work's."""
        return self.work.topics

    @property
    def needs_headers(self) -> bool:
        """The work's."""
        return self.work.needs_headers

    def open(self) -> SliceWorker:
        """A worker of the work that is shown no record behind an end."""
        return _EndedWorker(self.work.open(), dict(self.ends))


class _EndedWorker:
    def __init__(self, worker: SliceWorker, ends: Mapping[str, tuple[int, ...]]) -> None:
        self._worker = worker
        self._ends = ends

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        return self._worker.pointers(topic)

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        ends = self._ends.get(batch.topic, ())
        # A partition that was added afterwards holds nothing of this generation.
        end = 0 if ends and batch.partition >= len(ends) else ends[batch.partition] if ends else None
        return self._worker.apply(batch if end is None else cut(batch, end), expected)

    def close(self) -> None:
        self._worker.close()


def cut(batch: Slice, end: int) -> Slice:
    """The records of a slice that stand before an end; perhaps none."""
    count = bisect_left(batch.offsets, end)
    if count == len(batch):
        return batch
    return replace(
        batch,
        offsets=batch.offsets[:count],
        keys=batch.keys[:count],
        values=batch.values[:count],
        timestamps=batch.timestamps[:count],
        headers=batch.headers[:count],
    )
